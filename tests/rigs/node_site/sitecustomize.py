"""Python imports it as it starts where this folder is on PYTHONPATH: what a test says of one node's process alone.

What is said stands beside its data directory. `{data dir}.clock` has the nanoseconds that its wall clock is off by, and
may change at any time; `{data dir}.release` names a folder with another copy of the package; while `{data dir}.syncs`,
which is there from the start, has any text, no `fdatasync` returns.
"""

import mmap
import os
import struct
import sys
import time
from pathlib import Path

_clock, _release, _syncs = (
    Path(os.environ.get("SILT_DATA_DIR", "") + suffix) for suffix in (".clock", ".release", ".syncs")
)
if _release.is_file():
    sys.path.insert(0, _release.read_text("utf-8"))
if _clock.is_file():
    with _clock.open("rb") as _file:
        _off_by = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
    _true_ns = time.time_ns

    def _time_ns() -> int:
        return _true_ns() + int(struct.unpack_from("<q", _off_by)[0])

    def _time() -> float:
        return _time_ns() / 1e9

    time.time_ns, time.time = _time_ns, _time
if _syncs.is_file():
    _true_fdatasync = os.fdatasync

    def _fdatasync(fd: int) -> None:
        while _syncs.stat().st_size:
            time.sleep(0.005)
        _true_fdatasync(fd)

    os.fdatasync = _fdatasync
