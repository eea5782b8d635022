"""Threads whose work can wait: others of the process have the processors before them."""

import os
import sys
import threading

NICE = 10
"""A tenth of the weight of others: little enough, and enough to give the interpreter back soon to who waits for it."""


def run_behind_others() -> None:
    """Lowers the calling thread's priority from now on, where the system has priorities of threads (Linux)."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
