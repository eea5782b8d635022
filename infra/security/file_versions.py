"""Versions of files that others replace one by one, such as a certificate and its key."""

from collections.abc import Iterable
from pathlib import Path

from siltlog.infra.clock import MICROS_PER_SECOND, Clock

SETTLING_SECONDS = 5.0
"""For so long after one changed, files that do not fit each other are being replaced, and no error."""
NANOS_PER_MICRO = 1_000
Version = tuple[int, int, int]


def versions_of(paths: Iterable[Path]) -> tuple[Version | None, ...]:
    """Tells versions of the files apart: inode, size and time of each, None for one that is not there."""
    found: list[Version | None] = []
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def are_settling(paths: Iterable[Path], clock: Clock) -> bool:
    """Whether one of the files came so lately that others which belong to it may be still to come."""
    changed_us = 0
    for path in paths:
        try:
            # Whoever moves or copies a file may leave it the time that it was written at; not this one.
            changed_us = max(changed_us, path.stat().st_ctime_ns // NANOS_PER_MICRO)
        except OSError:
            continue
    return 0 <= clock.now_us() - changed_us < SETTLING_SECONDS * MICROS_PER_SECOND
