"""`python -m siltlog.cli.job_process NICENESS JOB ...`: a command of `silt` as the child of a schedule.

It gives way to everybody else on the machine as far as its niceness says, is the first to go when memory runs out, ends
with whoever began it, and takes SIGTERM as a person's Ctrl-C, so that Spark is stopped and nothing is left behind.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from siltlog.pipelines.schedule.runs import LANES

PR_SET_PDEATHSIG = 1
SESSION_PART = 1 / 2
"""The part of its niceness that a long job's session gets: 5 leaves it a third of a server's share, as 10 would."""
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
    _give_way(int(sys.argv.pop(1)), sys.argv[1])
    from siltlog.cli.__main__ import start

    start()


def _give_way(niceness: int, job: str) -> None:
    """To whatever else the machine does. Linux may share its time among sessions first, and within them by niceness:
    a job is a session of its own, whose niceness counts then (sched(7), autogroup). What is quick is soon over."""
    with suppress(OSError):
        os.nice(niceness)
    with suppress(OSError):
        if job in LANES:
            Path("/proc/self/autogroup").write_text(str(round(niceness * SESSION_PART)))


if __name__ == "__main__":
    run()
