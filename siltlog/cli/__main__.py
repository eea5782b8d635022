"""The process of `silt`: how it begins and how it ends.

Ctrl-C ends it without a traceback, also while it is still being imported: only what is imported here comes before that,
and what a command line needs takes longer. Its end is its own, too: the interpreter is not taken apart, because threads
of Arrow and Delta that come back to it meanwhile abort the process ("terminate called without an active exception").
"""

import atexit
import gc
import os
import signal
import sys

_EXIT_INTERRUPTED = 130
_GC_THRESHOLD = 100_000
"""What is imported stays. By default the collector goes through it again and again, a tenth of a server's start."""


def start() -> None:
    """Runs the command line of this process, and ends the process with its exit code."""
    gc.set_threshold(_GC_THRESHOLD)
    _open_closed()
    codes: list[int] = []
    atexit.register(_end, codes)  # the first to be registered is the last to be called
    try:
        waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # what a shell runs with & ignores it
        if waits:
            signal.signal(signal.SIGINT, _leave)
        from siltlog.cli.main import main

        if waits:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    except KeyboardInterrupt:
        codes.append(_EXIT_INTERRUPTED)
        sys.exit(_EXIT_INTERRUPTED)
    except SystemExit as stop:
        codes += [stop.code] if isinstance(stop.code, int) else []
        raise


def _open_closed() -> None:
    """Gives streams that were closed by who began this process an end of their own: nothing else is opened in their
    place, to be written into by whoever prints."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def _leave(*_: object) -> None:
    """Nothing was begun. An exception in the midst of an import may be swallowed, or become another."""
    os._exit(_EXIT_INTERRUPTED)


def _end(codes: list[int]) -> None:
    """Threads of Python have ended by now, and everybody else who waits for the end was called."""
    if not codes:
        return  # what nobody foresaw: Python's own end
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # its reader has gone, or there never was one
    os._exit(codes[-1])


if __name__ == "__main__":
    start()
