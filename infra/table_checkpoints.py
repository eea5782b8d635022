"""Which checkpoints of a table are kept: each is as long as the list of live files, and a busy topic has many."""

from collections import deque

NEWEST = 30
"""A reader that has just looked up the newest one must still find it."""
SPARSE_VERSIONS = 1_000
"""Of older ones the first of so many versions stays: reading an old version never replays more entries."""


class Checkpoints:
    """Those of one writer; what it wrote before it was restarted goes with the log entries of its time."""

    def __init__(self) -> None:
        self._newest: deque[int] = deque()
        self._sparse = -1

    def written(self, version: int) -> list[int]:
        """Takes note of a checkpoint; the versions of those that need not be kept any more."""
        self._newest.append(version)
        gone = []
        while len(self._newest) > NEWEST:
            older = self._newest.popleft()
            if older // SPARSE_VERSIONS == self._sparse:
                gone.append(older)
            self._sparse = older // SPARSE_VERSIONS
        return gone
