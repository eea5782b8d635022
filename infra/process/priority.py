"""The priority of threads: what nobody waits for stands back for what somebody does."""

import os
import sys
import threading

NICE = 10
"""The niceness of threads that stand back: a tenth of the weight of others is little enough, and enough to give the
interpreter back soon to who waits for it."""


def run_behind_others() -> None:
    """Lowers the calling thread's priority from now on, where the system has priorities of threads (Linux)."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
