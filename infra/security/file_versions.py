"""Versions of files that others replace one by one, such as a certificate and its key."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from siltlog.infra.clock import MICROS_PER_SECOND, Clock

SETTLING_SECONDS = 5.0
"""For so long after one changed, files that do not fit each other are being replaced, and no error."""
NANOS_PER_MICRO = 1_000
Version = tuple[int, int, int]


def versions_of(paths: Iterable[Path]) -> tuple[Version | None, ...]:
    """Tells versions of the files apart: inode, size and time of each, None for one that is not there."""
    return tuple(stat and (stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in _stats(paths))


def are_settling(paths: Iterable[Path], clock: Clock) -> bool:
    """Whether one of the files came so lately that others which belong to it may be still to come."""
    # Whoever moves or copies a file may leave it the time that it was written at; not this one.
    changed_us = max((stat.st_ctime_ns // NANOS_PER_MICRO for stat in _stats(paths) if stat), default=0)
    return 0 <= clock.now_us() - changed_us < SETTLING_SECONDS * MICROS_PER_SECOND


def _stats(paths: Iterable[Path]) -> Iterator[os.stat_result | None]:
    for path in paths:
        try:
            yield path.stat()
        except OSError:
            yield None
