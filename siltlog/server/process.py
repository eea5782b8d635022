"""The process of a server: pandas hidden, freed memory kept, its limit of open files, its threads, garbage, signals."""

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_NAME = "pandas"
MIB = 1024 * 1024
PURGE_DELAY_MS = 1000
TRIM_BYTES = 128 * MIB
MMAP_BYTES = 32 * MIB
"""The largest value that glibc takes."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
SWITCH_INTERVAL_SECONDS = 0.0005
"""The WAL's thread needs the interpreter back soon after a sync; the default of 5 ms would be most of an ack."""
GC_THRESHOLDS = (50_000, 50, 1_000)
"""Requests leave no cycles behind; with the defaults the collector would walk the whole heap many times a second."""
RESERVE = 256
"""Descriptors kept for data files, the object store, Redis and libraries."""


class _Hidden(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == _NAME:
            raise ModuleNotFoundError(f"{_NAME} is hidden from this process", name=_NAME)
        return None


def hide_pandas() -> None:
    """Makes every later import of pandas fail as where it is not installed, unless it was imported before.

    pyarrow imports pandas at the first conversion between Arrow and Python to look for its objects.
    That is in the middle of the first publish: nobody gets an answer for a second, and 40 MB stay taken for good.
    """
    sys.meta_path.insert(0, _Hidden())


def keep_freed_memory() -> None:
    """Must be called before pyarrow is imported, whose allocator reads its settings once. Never fails."""
    os.putenv("MIMALLOC_PURGE_DELAY", str(PURGE_DELAY_MS))
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
        mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)


def raise_file_limit() -> int:
    """Raises the process's soft limit of open files to the hard one; how many may be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            # macOS has a lower bound of its own below an unlimited hard limit.
            return soft
    return hard if hard != resource.RLIM_INFINITY else 1 << 30


def connections_within(files_max: int, connections_max: int, *, segments: int) -> int:
    """How many connections may be open so that everything else still gets its descriptors; at least one."""
    return max(min(connections_max, files_max - RESERVE - segments), 1)


def no_core_dumps() -> None:
    """Keeps the memory of this process and its children, secrets and records among it, out of files of crashes.

    A program that is given the dumps by the kernel is not held by the limit; it finds no memory in them on Linux.
    Debuggers and profilers may attach as before.
    """
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError):
        Path("/proc/self/coredump_filter").write_text("0")


def switch_soon() -> None:
    """Has the interpreter go from thread to thread more often."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)


def settle() -> None:
    """Leaves all that is there for good to itself: the collector looks only at what comes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


class Signals:
    """The first signal begins the drain; Ctrl-C during it cuts it short, once more kills.

    SIGTERM again changes nothing: supervisors repeat it. Used on one event loop.
    """

    def __init__(self) -> None:
        self.hurry = asyncio.Event()
        """Set when the drain is to be cut short."""
        self._stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)

    def on_hangup(self, call: Callable[[], None]) -> None:
        """SIGHUP calls it, and does not end the process."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, call)

    async def stopped(self, serving: "asyncio.Task[None]") -> None:
        """Waits for the first signal, or for the end of what is served."""
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)

    def _signalled(self, number: int) -> None:
        if not self._stop.is_set():
            self._stop.set()
        elif number == signal.SIGINT:
            self.hurry.set()
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
