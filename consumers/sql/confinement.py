"""Takes from the process of a query what it does not need: it ends with its server, gives way, and opens no file."""

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

MIB = 1024 * 1024
NICENESS = 10
OOM_SCORE = 1000
DATA_BYTES_MAX = 2_560 * MIB
"""All of its memory: what DuckDB counts is not all that it takes, and Arrow has some of its own."""
OPEN_FILES_MAX = 64

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of system calls, the same on every architecture of Linux (landlock(7))."""
_VERSION = 1
_FILES = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
"""What may be forbidden of files, by the version of Landlock that knows it first; of ports and of other processes
below."""
_PORTS, _PORTS_SINCE = 0b11, 4
_OTHERS, _OTHERS_SINCE = 0b11, 6
_BELOW_PATH, _READ_FILE = 1, 1 << 2
_MACHINE = ("/proc/self/cgroup", "/proc/stat", "/proc/meminfo", "/sys/devices/system/cpu/online", "/sys/fs/cgroup")
"""What DuckDB reads of the machine; it cannot begin without."""


class _Rules(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("ports", ctypes.c_uint64), ("others", ctypes.c_uint64))


class _Path(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def give_way(parent: int) -> None:
    """Ends with `parent`, whose child this is, is the first to go when memory runs out, and takes what is left of the
    processors."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
        # A session of its own has the share of a session; its niceness counts among those then (sched(7), autogroup).
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(NICENESS))
    if os.getppid() != parent:
        os._exit(1)  # it ended before it was watched
    with suppress(OSError):
        # The thread that began it may give way already.
        os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), NICENESS))
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def close_off() -> None:
    """Closes the process off: no file can be opened, nothing written or connected to, and memory has an end.

    There must be no other thread yet: Landlock holds for this one, and for those that it begins."""
    for limit, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES_MAX),
        (resource.RLIMIT_DATA, DATA_BYTES_MAX),
    ):
        with suppress(OSError, ValueError):
            resource.setrlimit(limit, (most, most))
    if sys.platform == "linux":
        _landlock()


def _landlock() -> None:
    """Does nothing where the kernel has none."""
    system = ctypes.CDLL(None, use_errno=True)
    version = system.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        return
    rules = _Rules(
        files=sum(bits for since, bits in _FILES.items() if version >= since),
        ports=_PORTS if version >= _PORTS_SINCE else 0,
        others=_OTHERS if version >= _OTHERS_SINCE else 0,
    )
    known = 8 * (1 + (version >= _PORTS_SINCE) + (version >= _OTHERS_SINCE))
    ruleset = system.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(known), 0)
    if ruleset < 0:
        return
    for path in _MACHINE:
        with suppress(OSError):
            file = os.open(path, os.O_PATH | os.O_CLOEXEC)
            system.syscall(_ADD_RULE, ruleset, _BELOW_PATH, ctypes.byref(_Path(_READ_FILE, file)), 0)
            os.close(file)
    system.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    system.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
