"""The disk's own limit: the same bytes written and synced, one after the other, with nothing around it."""

import os
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

WRITTEN_BYTES = 256 * 1024 * 1024
_PIECE_BYTES = 4 * 1024 * 1024


class Syncs(NamedTuple):
    per_second: float
    p50_ms: float
    p99_ms: float


class WrittenFile:
    """A file to write over, in a folder of the disk to measure."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "written"
        self._fd = written_file(self._path, WRITTEN_BYTES)

    def syncs(self, data: bytes, seconds: float) -> Syncs:
        """Writes `data` and waits until it is on the disk, again and again for about `seconds`."""
        took: list[float] = []
        at = 0
        started = before = time.perf_counter()
        while before - started < seconds:
            if at + len(data) > WRITTEN_BYTES:
                at = 0
            os.pwrite(self._fd, data, at)
            os.fdatasync(self._fd)
            at += len(data)
            now = time.perf_counter()
            took.append(now - before)
            before = now
        p50, p99 = np.percentile(took, (50, 99)) * 1000
        return Syncs(len(took) / (before - started), float(p50), float(p99))

    def close(self) -> None:
        os.close(self._fd)
        self._path.unlink()


def written_file(path: Path, size_bytes: int) -> int:
    """Opens a file all of whose blocks are written and synced: such blocks sync faster than fresh ones."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    piece = os.urandom(_PIECE_BYTES)
    for at in range(0, size_bytes, _PIECE_BYTES):
        os.pwrite(fd, piece, at)
    os.fsync(fd)
    return fd
