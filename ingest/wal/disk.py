"""The file operations of the log, each with what it promises after a power cut.

The one seam to the operating system: tests put a disk here that loses what was not synced, or fails.
"""

import errno
import mmap
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from siltlog.infra.store import disk_space

MIB = 1024 * 1024
BLOCK_BYTES = 4096
_IOV_MAX = os.sysconf("SC_IOV_MAX")
# New segments are written and synced in steps of this size, so that the syncs of the log are not behind all of it.
_ZEROS_SYNC_BYTES = 2 * MIB
_STAGE_BYTES = 4 * MIB
# Not every system has it.
_O_DIRECT = getattr(os, "O_DIRECT", 0)


def out_of_space(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in disk_space.ERRNOS


class _DirectFile:
    """Writes whole blocks of one file past the page cache: a sync has nothing left to write then, and new blocks cost
    no memory. It keeps the block that the last write ended in, which the next one begins with."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.end = -1
        self.tail = b""


class Disk:
    """Files are opened twice where the file system can: for writing past the page cache, and for everything else."""

    def __init__(self) -> None:
        self._direct: dict[int, _DirectFile] = {}
        self._stage = mmap.mmap(-1, _STAGE_BYTES)
        """Where a direct write is gathered, because it must begin at a page of the memory too."""
        self._stage_lock = threading.Lock()

    def open(self, path: Path) -> int:
        fd = os.open(path, os.O_RDWR)
        try:
            self._open_direct(path, fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _open_direct(self, path: Path, fd: int) -> None:
        if not _O_DIRECT:
            return
        try:
            self._direct[fd] = _DirectFile(os.open(path, os.O_WRONLY | _O_DIRECT))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise

    def close(self, fd: int) -> None:
        self._close_direct(fd)
        os.close(fd)

    def _close_direct(self, fd: int) -> None:
        direct = self._direct.pop(fd, None)
        if direct is not None:
            os.close(direct.fd)

    def create(self, path: Path, size_bytes: int) -> int:
        """A new file full of zeros, synced; its name is not. Leaves nothing behind when it fails.

        Blocks that were written once sync faster than blocks that were only allocated.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
        try:
            os.posix_fallocate(fd, 0, size_bytes)
            self._open_direct(path, fd)
            with mmap.mmap(-1, _ZEROS_SYNC_BYTES) as zeros, memoryview(zeros) as block:
                for position in range(0, size_bytes, len(block)):
                    self._write_zeros(fd, block[: size_bytes - position], position)
                    os.fdatasync(fd)
            os.fsync(fd)
        except BaseException:
            self.close(fd)
            path.unlink()
            raise
        return fd

    def _write_zeros(self, fd: int, zeros: memoryview, position: int) -> None:
        direct = self._direct.get(fd)
        if direct is not None:
            try:
                os.pwrite(direct.fd, zeros, position)
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._close_direct(fd)
        os.pwrite(fd, zeros, position)

    def write(self, fd: int, buffers: Sequence[pa.Buffer | bytes], position: int) -> None:
        """Writes all of `buffers` one after the other at `position`; durable after `sync`.

        What follows them in their last block may become zeros: a log is only written at its end.
        """
        direct = self._direct.get(fd)
        if direct is not None:
            with self._stage_lock:
                if self._write_blocks(direct, fd, buffers, position):
                    return
            # This file system takes no such write after all.
            self._close_direct(fd)
        self._write_pages(fd, buffers, position)

    def _write_blocks(self, direct: _DirectFile, fd: int, buffers: Sequence[pa.Buffer | bytes], position: int) -> bool:
        """False when the file system refused the first write, and nothing was written."""
        filled = position % BLOCK_BYTES
        place = position - filled
        if filled:
            self._stage[:filled] = direct.tail if direct.end == position else self.read(fd, place, filled)
        for buffer in buffers:
            left = memoryview(buffer)
            while left:
                taken = left[: _STAGE_BYTES - filled]
                self._stage[filled : filled + len(taken)] = taken
                filled += len(taken)
                left = left[len(taken) :]
                if filled == _STAGE_BYTES:
                    if not self._write_stage(direct, filled, place):
                        return False
                    place += filled
                    filled = 0
        tail = filled % BLOCK_BYTES
        if tail:
            self._stage[filled : filled + BLOCK_BYTES - tail] = bytes(BLOCK_BYTES - tail)
        if filled and not self._write_stage(direct, filled - tail + (BLOCK_BYTES if tail else 0), place):
            return False
        direct.end = place + filled
        direct.tail = self._stage[filled - tail : filled]
        return True

    def _write_stage(self, direct: _DirectFile, nbytes: int, position: int) -> bool:
        with memoryview(self._stage) as stage:
            done = 0
            while done < nbytes:
                try:
                    done += os.pwrite(direct.fd, stage[done:nbytes], position + done)
                except OSError as error:
                    if error.errno == errno.EINVAL and direct.end < 0 and not done:
                        return False
                    raise
        return True

    def _write_pages(self, fd: int, buffers: Sequence[pa.Buffer | bytes], position: int) -> None:
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

    def free_bytes(self, folder: Path) -> int:
        return shutil.disk_usage(folder).free

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
