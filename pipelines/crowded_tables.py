"""Which tables have so many live files that merging them cannot wait for its time: counts in, a word out."""

from collections.abc import Mapping

from siltlog.pipelines.compact import LIVE_FILES_MAX

MOVED_FILES = 500
"""A run that left fewer files by so many got on, and so will the next one."""
GROWN_FILES = 1_000
"""So many more are worth another try where a run could not get on."""

LiveFiles = Mapping[str, int]
"""By topic, how many files its table names."""


class CrowdedTables:
    """What the last compaction came to. Counts may be some seconds old: it goes by the fewest files seen since."""

    def __init__(self) -> None:
        self._before: dict[str, int] | None = None
        """When the last run began; None before the first one of this runner."""
        self._fewest: dict[str, int] = {}
        """Since it ended."""
        self._failed = False

    def began(self, files: LiveFiles) -> None:
        self._before = dict(files)
        self._fewest = {}
        self._failed = False

    def ended(self, *, failed: bool) -> None:
        """After one that failed the next waits for its time."""
        self._failed = failed

    def crowded(self, files: LiveFiles) -> bool:
        """Whether a run is due now. Not to be asked while one is under way."""
        if self._failed:
            return False
        for topic, count in files.items():
            self._fewest[topic] = min(count, self._fewest.get(topic, count))
        return any(count > LIVE_FILES_MAX and self._worth_it(topic, count) for topic, count in files.items())

    def _worth_it(self, topic: str, count: int) -> bool:
        if self._before is None:
            return True
        fewest = self._fewest[topic]
        got_on = fewest <= self._before.get(topic, 0) - MOVED_FILES
        return got_on or fewest <= LIVE_FILES_MAX or count >= fewest + GROWN_FILES
