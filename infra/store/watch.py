"""Whether the object store answers: asked every few seconds, whatever else waits for it."""

import threading
from typing import NamedTuple

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError
from siltlog.infra.store.store import ObjectStore

PERIOD_SECONDS = 5.0
LATE_SECONDS = 5.0
"""How long an answer may take before somebody is told. So a store that stops is told of within ten seconds."""


class _Asked(NamedTuple):
    at_seconds: float
    """When it was asked, on the monotonic clock."""
    failure: str = ""
    """The error that it ended with, where that is known; another question may be under way."""
    ended: bool = False


class StoreWatch:
    """Has a thread of its own: those that flush are the ones that hang."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._stopped = threading.Event()
        self._asked = _Asked(clock.monotonic(), ended=True)
        # A daemon, as a request to a store that does not answer must not keep the process.
        threading.Thread(target=self._run, name="silt-store-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def warnings(self) -> list[str]:
        """One sentence while the store does not answer, or answers with an error."""
        asked = self._asked
        seconds = self._clock.monotonic() - asked.at_seconds
        if not asked.ended and seconds >= LATE_SECONDS:
            return [f"the object store at {self._store.root_uri} has not answered for {int(seconds)} s"]
        return [f"the object store at {self._store.root_uri} fails: {asked.failure}"] if asked.failure else []

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_SECONDS):
            self.ask()

    def ask(self) -> None:
        """One request, which says nothing but that there are answers."""
        at_seconds = self._clock.monotonic()
        self._asked = _Asked(at_seconds, self._asked.failure)
        failure = ""
        try:
            if self._store.size(names.CLUSTER_ID_OBJECT) is None:
                failure = f"{names.CLUSTER_ID_OBJECT} is gone"
        except SiltlogError as error:
            failure = error.detail
        self._asked = _Asked(at_seconds, failure, ended=True)
