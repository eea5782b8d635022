"""The disk's own limit: the same bytes written and synced, one after the other, with nothing around it."""

import errno
import mmap
import os
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

WRITTEN_BYTES = 256 * 1024 * 1024
BLOCK_BYTES = 4096
_STAGE_BYTES = 4 * 1024 * 1024
_O_DIRECT = getattr(os, "O_DIRECT", 0)


class Syncs(NamedTuple):
    per_second: float
    p50_ms: float
    p99_ms: float


class WrittenFile:
    """A file to write over from its start to its end and again, past the page cache where the file system can.

    All its blocks are written and synced before: such blocks sync faster than fresh ones.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self._size_bytes = size_bytes
        self._stage = mmap.mmap(-1, _STAGE_BYTES)
        """A write past the page cache must begin at a page of the memory too."""
        self._at = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            self._fd = _direct(path, self._fd)
            self._stage[:] = os.urandom(_STAGE_BYTES)
            for at in range(0, size_bytes, _STAGE_BYTES):
                os.pwrite(self._fd, self._stage, at)
            os.fsync(self._fd)
        except BaseException:
            self.close()
            raise

    def keep(self, data: bytes) -> None:
        """Returns once `data` is on the disk."""
        if self._at + len(data) + BLOCK_BYTES > self._size_bytes:
            self._at = 0
        with memoryview(data) as left, memoryview(self._stage) as stage:
            for start in range(0, len(data), _STAGE_BYTES):
                piece = left[start : start + _STAGE_BYTES]
                stage[: len(piece)] = piece
                whole = len(piece) + -len(piece) % BLOCK_BYTES
                os.pwrite(self._fd, stage[:whole], self._at)
                self._at += whole
        os.fdatasync(self._fd)

    def syncs(self, data: bytes, seconds: float) -> Syncs:
        """Keeps `data` again and again for about `seconds`."""
        took: list[float] = []
        started = before = time.perf_counter()
        while before - started < seconds:
            self.keep(data)
            now = time.perf_counter()
            took.append(now - before)
            before = now
        p50, p99 = np.percentile(took, (50, 99)) * 1000
        return Syncs(len(took) / (before - started), float(p50), float(p99))

    def close(self) -> None:
        os.close(self._fd)
        self._path.unlink()


def _direct(path: Path, fd: int) -> int:
    """A descriptor that writes past the page cache in place of `fd`; `fd` where the file system refuses that."""
    try:
        direct = os.open(path, os.O_WRONLY | _O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return fd
    os.close(fd)
    return direct


def syncs(folder: Path, data: bytes, seconds: float) -> Syncs:
    """Measures what the disk of `folder` gives."""
    written = WrittenFile(folder / "written", WRITTEN_BYTES)
    try:
        return written.syncs(data, seconds)
    finally:
        written.close()
