"""`python -m siltlog.job_process JOB ...`: a command of `silt` as the child of a schedule.

It gives way to everybody else on the machine, is the first to go when memory runs out, ends with whoever began it, and
takes SIGTERM as a person's Ctrl-C, so that Spark is stopped and nothing is left behind.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
NICENESS = 19
OOM_SCORE = 1000


def run() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parent = os.getppid()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    if os.getppid() != parent:
        sys.exit(1)  # it ended before it was watched
    with suppress(OSError):
        os.nice(NICENESS)
    from siltlog.cli.main import main

    main()


if __name__ == "__main__":
    run()
