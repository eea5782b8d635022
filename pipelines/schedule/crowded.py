"""Decides which tables have so many live files that merging them cannot wait for its time, and how far a merge gives
way to other work: counts in, a word out."""

from collections.abc import Mapping

from siltlog.pipelines.compaction.plan import LIVE_FILES_MAX
from siltlog.pipelines.schedule.runs import NICENESS_MAX, Outcome

MOVED_FILES = 500
"""A run that left fewer files by so many got on, and so will the next one."""
GROWN_FILES = 1_000
"""How many more files are worth another try where a run could not get on."""
CALM_FILES = 500
"""The number of files, which come between two times of the schedule, up to which compaction gives way to all else."""
HURRIED_FILES = 1_500
"""The number of files from which it gives way to nobody: by then a topic's files come seldom, and its readers wait."""

LiveFiles = Mapping[str, int]
"""The number of files that each topic's table names."""


class CrowdedTables:
    """The outcome of the last compaction. Counts may be some seconds old: it goes by the fewest files seen since."""

    def __init__(self) -> None:
        self._before: dict[str, int] | None = None
        """When the last run began; None before the first one of this runner, and after one that was cut short."""
        self._fewest: dict[str, int] = {}
        """The fewest files of each table since it ended."""
        self._failed = False
        self._niceness = NICENESS_MAX
        """Niceness of the last run."""

    def began(self, files: LiveFiles) -> int:
        """The niceness that a run begins with."""
        self._see(files)
        self._niceness = min((niceness(self._to_merge(*each)) for each in files.items()), default=NICENESS_MAX)
        self._before = dict(files)
        self._fewest = {}
        self._failed = False
        return self._niceness

    def ended(self, outcome: Outcome) -> None:
        """Notes the end of a run: after one that failed the next waits for its time."""
        self._failed = outcome in ("failed", "found_wrong")
        if outcome == "interrupted":
            self._before = None

    def crowded(self, files: LiveFiles) -> bool:
        """Whether a run is due now. Not to be asked while one is under way."""
        if self._failed:
            return False
        self._see(files)
        return any(count > LIVE_FILES_MAX and self._worth_it(topic, count) for topic, count in files.items())

    def outgrown(self, files: LiveFiles) -> bool:
        """Whether the run under way gives way so much that a table has become crowded since it began."""
        before = self._before or {}
        return self._niceness > 0 and any(
            count >= HURRIED_FILES and count >= before.get(topic, 0) + MOVED_FILES for topic, count in files.items()
        )

    def _see(self, files: LiveFiles) -> None:
        for topic, count in files.items():
            self._fewest[topic] = min(count, self._fewest.get(topic, count))

    def _worth_it(self, topic: str, count: int) -> bool:
        fewest = self._fewest[topic]
        return self._got_on(topic) or fewest <= LIVE_FILES_MAX or count >= fewest + GROWN_FILES

    def _to_merge(self, topic: str, count: int) -> int:
        """Files that a run may find something to do with."""
        return count if self._got_on(topic) else count - self._fewest[topic]

    def _got_on(self, topic: str) -> bool:
        return self._before is None or self._fewest[topic] <= self._before.get(topic, 0) - MOVED_FILES


def niceness(files: int) -> int:
    """How far a compaction gives way that finds so many files to merge: not at all once they crowd a table."""
    room = (HURRIED_FILES - files) / (HURRIED_FILES - CALM_FILES)
    return round(NICENESS_MAX * min(max(room, 0.0), 1.0))
