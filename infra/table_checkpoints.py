"""When a table's next checkpoint is worth its cost, and which are kept.

Each is as long as the list of live files and of those that were removed of late, and a busy topic has many.
"""

from collections import deque

NEWEST = 30
"""A reader that has just looked up the newest one must still find it."""
SPARSE_VERSIONS = 1_000
"""Of older ones the first of so many versions stays: reading an old version never replays more entries."""
COMMITS_MIN = 20
"""A checkpoint costs more than so few commits are slowed down by each other, unless their entries are large."""
LARGE_BYTES = 4 * 1024 * 1024
COMMITS_MAX = SPARSE_VERSIONS
SECONDS_MAX = 6 * 3_600.0
"""The log is cleaned up to a checkpoint, so a topic that gets a little has one now and then, too."""


def checkpoint_is_due(commits: int, entry_bytes: int, seconds: float, checkpoint_bytes: int) -> bool:
    """`commits` with `entry_bytes` of log entries came in `seconds` after a checkpoint of `checkpoint_bytes`.

    Each commit reads all entries after the newest checkpoint once more, so half of `commits * entry_bytes` was read
    that a checkpoint would have spared. A byte of it costs about twice as much as one of a checkpoint that is written
    and read. Once one has cost as much as the other the next is due: checkpoints then cost no more than the commits
    themselves, however long they are, and both together no more than twice what they would with the best choice.
    """
    if commits <= 0:
        return False
    if commits >= COMMITS_MAX or seconds >= SECONDS_MAX:
        return True
    read_bytes = commits * entry_bytes
    return read_bytes >= checkpoint_bytes and (commits >= COMMITS_MIN or read_bytes >= LARGE_BYTES)


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
