"""Whether a server is going away: begun once, by its drain, and read by everything that takes requests."""

from siltlog.infra import names


class Draining:
    """Used on one event loop."""

    def __init__(self) -> None:
        self.begun = False
        self._taking_runs = False

    def begin(self, *, taking_runs: bool) -> None:
        """Nothing of users is taken from here on; with `taking_runs` what is told of jobs still is."""
        self.begun = True
        self._taking_runs = taking_runs

    def runs_are_told(self) -> None:
        """The jobs that the drain interrupted have ended, and said so: nothing at all is taken any more."""
        self._taking_runs = False

    def refuses(self, topic: str) -> bool:
        """Whether records of a topic are refused, though the server still answers."""
        if topic == names.AUDIT_TOPIC:
            # What was begun before the drain ends in it.
            return False
        return self.begun and not (self._taking_runs and topic == names.JOBS_TOPIC)
