"""The disk's own limit: the same bytes written and synced, one after the other, with nothing around it."""

import os
import time
from pathlib import Path

import numpy as np

WRITTEN_BYTES = 256 * 1024 * 1024
"""Of the file that is written over: blocks that were written before sync faster than fresh ones, as in the log."""
_PIECE_BYTES = 4 * 1024 * 1024


class WrittenFile:
    """A file whose blocks are all written and synced."""

    def __init__(self, folder: Path, size_bytes: int = WRITTEN_BYTES) -> None:
        self._path = folder / "written"
        self._size_bytes = size_bytes
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        piece = os.urandom(_PIECE_BYTES)
        for at in range(0, size_bytes, _PIECE_BYTES):
            os.pwrite(self._fd, piece, at)
        os.fsync(self._fd)

    def syncs(self, data: bytes, seconds: float) -> "Syncs":
        """Writes `data` and waits until it is on the disk, again and again for about `seconds`."""
        took: list[float] = []
        at = 0
        started = before = time.perf_counter()
        while before - started < seconds:
            if at + len(data) > self._size_bytes:
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


class Syncs:
    def __init__(self, per_second: float, p50_ms: float, p99_ms: float) -> None:
        self.per_second = per_second
        self.p50_ms = p50_ms
        self.p99_ms = p99_ms
