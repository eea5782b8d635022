"""The right to run the schedule of a log: numbered objects beside its tables, each written only where none is.

The newest says who has the right, for how long, and what was run; so the next runner goes on from there. It saves work
and no more: two runners at once would do some of it twice, and jobs that overtake each other are fenced by the tables.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError
from siltlog.infra.settings.cron import Cron
from siltlog.infra.store.once import put_once
from siltlog.infra.store.store import ObjectInfo, ObjectStore
from siltlog.pipelines.schedule.runs import Trigger

LEASE_MS = 90_000
LEASES_SILENT_MAX = 2
"""After how many silent leases a holder is taken for gone; the clock of an object store may be another."""
KEPT_ENTRIES = 8
"""Older ones are deleted; a writer that comes so late finds that its entry is not the newest."""


class JobState(msgspec.Struct, frozen=True):
    """The state of one job of the schedule; times in microseconds."""

    cron: str
    handled_us: int
    """The times of its expression up to here were run, or came before there was a schedule."""
    running_since_us: int | None = None
    run_id: str | None = None
    """Id of the run that is under way; if its runner is killed, the next runner tells of it."""
    unavailable: str | None = None
    """Why it is not run here."""
    by_hand: bool = False
    """Somebody asked for the run that is under way."""


class OpenRun(NamedTuple):
    """A run that is under way, or was stopped and nobody was told of it yet."""

    since_us: int
    run_id: str
    trigger: Trigger


def states(
    crons: Mapping[str, Cron],
    handled: Mapping[str, int],
    unavailable: Mapping[str, str],
    open_runs: Mapping[str, OpenRun],
    now_us: int,
) -> dict[str, JobState]:
    """Makes what the lease says of each job: what was handled (from now on, where nothing was), and what is open."""
    found = {}
    for job, cron in crons.items():
        state = JobState(cron.expression, handled.get(job, now_us), unavailable=unavailable.get(job))
        if job in open_runs:
            since_us, run_id, trigger = open_runs[job]
            state = replace(state, running_since_us=since_us, run_id=run_id, by_hand=trigger == "hand")
        found[job] = state
    return found


class LeaseEntry(msgspec.Struct, frozen=True):
    """`holder` is one process; an empty one has given the right back. `runner` names it for people."""

    holder: str
    runner: str
    lease_ms: int
    jobs: dict[str, JobState] = {}

    def is_held(self, written_ms: int, now_us: int) -> bool:
        """Whether somebody has the right, and is there: it was written at `written_ms`."""
        return bool(self.holder) and now_us // 1000 - written_ms < LEASES_SILENT_MAX * self.lease_ms


_decoder = msgspec.json.Decoder(LeaseEntry)


def newest_entry(store: ObjectStore) -> tuple[int, LeaseEntry, int] | None:
    """Its number, what it says, and when it was written (milliseconds); None where there is none.

    One that cannot be read says that nobody has the right. Raises Unavailable.
    """
    while True:
        found = _entries(store)
        if not found:
            return None
        newest = found[-1]
        number = int(newest.path.rpartition("/")[2])
        try:
            content = store.get(newest.path)
        except FileNotFoundError:
            continue  # deleted since, because there are newer ones
        try:
            return number, _decoder.decode(content), newest.modified_ms
        except msgspec.DecodeError:
            return number, LeaseEntry("", "", 0), newest.modified_ms


def _entries(store: ObjectStore) -> list[ObjectInfo]:
    """The oldest first; what else somebody has put there is none."""
    return [info for info in store.list(names.SCHEDULE_FOLDER) if info.path.rpartition("/")[2].isdigit()]


class ScheduleLease:
    """Used on one thread. Its methods raise Unavailable while the store cannot be reached; what is held is held on."""

    def __init__(
        self,
        store: ObjectStore,
        holder: str,
        runner: str,
        clock: Clock,
        lease_ms: int = LEASE_MS,
        *,
        former: str = "",
    ) -> None:
        """`holder` is of this process alone, and of no other one ever; `former` of one that is known to be gone."""
        self.lease_ms = lease_ms
        self._store = store
        self._holder = holder
        self._former = former
        self._runner = runner
        self._clock = clock
        self.number = 0
        """Number of the entry that was written last; the next one has the next number unless somebody else wrote it."""
        self._held_until = 0.0
        """When the lease ends, on the monotonic clock; counted from before it was written."""
        self._seen = (0, 0.0)
        """An entry of somebody else's, and since when it is the newest."""
        self.jobs: dict[str, JobState] = {}
        """The jobs as the newest entry has them that was read or written."""

    @property
    def held(self) -> bool:
        return self._clock.monotonic() < self._held_until

    def is_ours(self, holder: str) -> bool:
        """Whether a holder is this one, or the one that it succeeds."""
        return holder in (self._holder, self._former)

    def take(self) -> bool:
        """Whether it is held now: it was free, or its holder has not renewed it in time."""
        newest = newest_entry(self._store)
        if newest is None:
            return self._write(1, self.jobs)
        number, entry, _ = newest
        self.jobs = entry.jobs
        if entry.holder and not self.is_ours(entry.holder):
            now = self._clock.monotonic()
            if self._seen[0] != number:
                self._seen = (number, now)
            if now - self._seen[1] < entry.lease_ms / 1000:
                return False
        return self._write(number + 1, entry.jobs)

    def renew(self, jobs: dict[str, JobState]) -> bool:
        """Says what the jobs are at, and holds on; False when somebody else has taken it."""
        return self._write(self.number + 1, jobs)

    def release(self, jobs: dict[str, JobState]) -> None:
        """Gives it back, if it is still held."""
        if self.held:
            self._write(self.number + 1, jobs, released=True)
        self._held_until = 0.0

    def _write(self, number: int, jobs: dict[str, JobState], *, released: bool = False) -> bool:
        before = self._clock.monotonic()
        entry = LeaseEntry("" if released else self._holder, "" if released else self._runner, self.lease_ms, jobs)
        content = msgspec.json.encode(entry)
        path = names.schedule_object(number)
        # What is there may be our own, put twice by the network.
        written = put_once(self._store, path, content, self._clock) or self._is(path, content)
        entries = _entries(self._store)
        if not written or not entries or entries[-1].path != path:
            self._held_until = 0.0
            return False
        self.number = number
        self._held_until = before + self.lease_ms / 1000
        self.jobs = jobs
        with suppress(SiltlogError):  # the next one tries again
            for old in entries[:-KEPT_ENTRIES]:
                self._store.delete(old.path)
        return True

    def _is(self, path: str, content: bytes) -> bool:
        try:
            return self._store.get(path) == content
        except FileNotFoundError:
            return False
