"""The process of `silt`: Ctrl-C ends it without a traceback, also while it is still being imported.

Only `signal` is imported before that holds; what a command line needs takes longer, and people are impatient.
"""

import os
import signal
import sys

_EXIT_INTERRUPTED = 130


def start() -> None:
    """Runs the command line of this process, and ends the process with its exit code."""
    try:
        waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # what a shell runs with & ignores it
        if waits:
            signal.signal(signal.SIGINT, _leave)
        from siltlog.cli.main import main

        if waits:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        main()
    except KeyboardInterrupt:
        sys.exit(_EXIT_INTERRUPTED)


def _leave(*_: object) -> None:
    """Nothing was begun. An exception in the midst of an import may be swallowed, or become another."""
    os._exit(_EXIT_INTERRUPTED)


if __name__ == "__main__":
    start()
