"""How many small files a topic's flushes make: a bucket that fills file by file and runs out by `flush.files.per.hour`,
more slowly the fuller the table. Pure: `now` is an argument.

So what a table has when nobody merges its files is bounded by the time, not by what is published.
"""

from dataclasses import dataclass

from siltlog.infra import names
from siltlog.infra.settings.topic_config import FLUSH_WAIT_MS_MAX, UNLIMITED
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.ingest.flush.due import AWAITED_SECONDS, EARLY_BYTES, UNHURRIED, Pace

SECONDS_PER_HOUR = 3600
BURST_SECONDS = FLUSH_WAIT_MS_MAX / 1000
"""The bucket holds what the budget allows in this time: that many files a topic that rested may make at once, and no
partition waits for longer than it takes to run out."""
CROWDED_FILES = 1_000
CROWDED_FILES_PER_PARTITION = 10
"""A table with more unmerged files than both is crowded; compaction leaves some in each partition."""
HALVINGS_PER_MARK = 4
"""How often the budget is halved where a table has twice as many unmerged files as that."""
HALVINGS_MAX = 8
UNMERGED_BYTES_MAX = 8 * 1024 * 1024
"""A larger file is not one of too many."""


@dataclass(slots=True)
class FileBudget:
    """The budget of one topic."""

    patience: float = 1.0
    """How many times as long files wait because the table is crowded."""
    _filled: float = 0.0
    _at_seconds: float = 0.0

    def spend(self, files: int, per_hour: int, now_seconds: float) -> None:
        """Says that a flush makes so many small files."""
        self._filled = min(self._left_at(now_seconds, per_hour) + files, _burst(per_hour))
        self._at_seconds = now_seconds

    def pace(self, files: int, per_hour: int, flush_bytes: int, now_seconds: float) -> Pace:
        """The pace that the budget allows when `files` partitions have something for the table."""
        if per_hour == UNLIMITED:
            return UNHURRIED
        early_bytes = max(min(int(EARLY_BYTES * self.patience), flush_bytes), EARLY_BYTES)
        slow = Pace(float("inf"), early_bytes, AWAITED_SECONDS * self.patience)
        if per_hour == 0:
            return slow
        excess = self._left_at(now_seconds, per_hour) + min(files, _burst(per_hour)) - _burst(per_hour)
        return slow._replace(ready_seconds=now_seconds + excess / self._per_second(per_hour))

    def _left_at(self, now_seconds: float, per_hour: int) -> float:
        return max(0.0, self._filled - (now_seconds - self._at_seconds) * self._per_second(per_hour))

    def _per_second(self, per_hour: int) -> float:
        return per_hour / SECONDS_PER_HOUR / self.patience


def _burst(per_hour: int) -> float:
    return max(per_hour, 0) / SECONDS_PER_HOUR * BURST_SECONDS


def patience_of(snapshot: TableSnapshot) -> float:
    """How many times as long files wait for this table."""
    if len(snapshot.files) <= CROWDED_FILES:
        return 1.0
    unmerged = sum(
        file.size_bytes <= UNMERGED_BYTES_MAX and not path.startswith(names.REWRITE_PREFIX)
        for path, file in snapshot.files.items()
    )
    return patience(unmerged, snapshot.partitions)


def patience(unmerged_files: int, partitions: int) -> float:
    mark = max(CROWDED_FILES, CROWDED_FILES_PER_PARTITION * partitions)
    halvings = HALVINGS_PER_MARK * (unmerged_files / mark - 1)
    return float(2 ** min(max(halvings, 0.0), HALVINGS_MAX))
