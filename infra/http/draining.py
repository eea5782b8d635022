"""Whether a server is going away: begun once, by its drain, and read by everything that takes requests.

Before that an operator may have it refuse publishes alone, and take that back.
"""

from collections.abc import Callable

from siltlog.infra import names


class Draining:
    """Used on one event loop."""

    def __init__(self) -> None:
        self.begun = False
        self.paused = False
        """Publishes are refused, as an operator wants it; all else is as ever."""
        self.stops = False
        """Either of the two."""
        self._taking_runs = False
        self._counts: list[Callable[[], int]] = []

    def counted(self, requests: Callable[[], int]) -> None:
        """Has `requests()`, which are under way at one edge of the server, counted."""
        self._counts.append(requests)

    def requests(self) -> int:
        """How many requests are under way."""
        return sum(count() for count in self._counts)

    def pause(self) -> None:
        self.paused = self.stops = True

    def resume(self) -> None:
        self.paused = False
        self.stops = self.begun

    def begin(self, *, taking_runs: bool) -> None:
        """Nothing of users is taken from here on; with `taking_runs` what is told of jobs still is."""
        self.begun = self.stops = True
        self._taking_runs = taking_runs

    def runs_are_told(self) -> None:
        """The jobs that the drain interrupted have ended, and said so: nothing at all is taken any more."""
        self._taking_runs = False

    def refuses(self, topic: str) -> bool:
        """Whether records of a topic are refused, though the server still answers."""
        if topic == names.AUDIT_TOPIC:
            # What was begun before the drain ends in it.
            return False
        if not self.begun:
            return self.paused and not names.is_system_topic(topic)
        return not (self._taking_runs and topic == names.JOBS_TOPIC)
