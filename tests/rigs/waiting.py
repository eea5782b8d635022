"""Waits for what comes about by itself: how long depends on the machine."""

import time
from collections.abc import Callable

SECONDS_MAX = 60.0


def until(condition: Callable[[], object], seconds: float = SECONDS_MAX) -> None:
    """Returns once the condition holds; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)
