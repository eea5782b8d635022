"""The file operations of the log, each with what it promises after a power cut.

The one seam to the operating system: tests put a disk here that loses what was not synced, or fails.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

MIB = 1024 * 1024
_IOV_MAX = os.sysconf("SC_IOV_MAX")
# New segments are written and synced in steps of this size, so that the syncs of the log are not behind all of it.
_ZEROS_SYNC_BYTES = 2 * MIB
_OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT)


def out_of_space(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _OUT_OF_SPACE


class Disk:
    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR)

    def close(self, fd: int) -> None:
        os.close(fd)

    def create(self, path: Path, size_bytes: int) -> int:
        """A new file full of zeros, synced; its name is not. Leaves nothing behind when it fails.

        Blocks that were written once sync faster than blocks that were only allocated.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
        try:
            os.posix_fallocate(fd, 0, size_bytes)
            zeros = bytes(min(size_bytes, _ZEROS_SYNC_BYTES))
            for position in range(0, size_bytes, len(zeros)):
                os.pwrite(fd, zeros[: size_bytes - position], position)
                os.fdatasync(fd)
            os.fsync(fd)
        except BaseException:
            os.close(fd)
            path.unlink()
            raise
        return fd

    def write(self, fd: int, buffers: Sequence[pa.Buffer | bytes], position: int) -> None:
        """Writes all of `buffers` one after the other at `position`; durable after `sync`."""
        at = 0
        while at < len(buffers):
            chunk = buffers[at : at + _IOV_MAX]
            written = os.pwritev(fd, chunk, position)
            position += written
            for buffer in chunk:
                if written < len(buffer):
                    break
                written -= len(buffer)
                at += 1
            if written:
                rest = memoryview(buffers[at])[written:]
                while rest:
                    done = os.pwrite(fd, rest, position)
                    position += done
                    rest = rest[done:]
                at += 1

    def read(self, fd: int, position: int, length: int) -> bytes:
        """`length` bytes, fewer only at the end of the file."""
        data = os.pread(fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        missing = length - len(data)
        while missing and parts[-1]:
            parts.append(os.pread(fd, missing, position + length - missing))
            missing -= len(parts[-1])
        return b"".join(parts)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def move(self, source: Path, target: Path) -> None:
        """Renames within one folder, over what is there; durable on return."""
        source.rename(target)
        self.sync_folder(target.parent)

    def remove(self, path: Path) -> None:
        """Durable on return."""
        path.unlink()
        self.sync_folder(path.parent)

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
