"""The fetches under way: what to ask which source for next, within the bytes that may be read ahead. No IO."""

from collections import deque
from collections.abc import Sequence

from siltlog.consumers.library.options import ConsumerOptions
from siltlog.consumers.library.positions import Fetch, Marks, PartitionState, Positions
from siltlog.consumers.library.sources.server import Choose, Fetched, FetchPlan, Wanted
from siltlog.consumers.library.topic_bounds import TopicBounds
from siltlog.infra.errors import SiltlogError

FETCH_WAIT_MS = 500
"""How long the server holds a fetch."""
MERGE_MS = 50
"""A second fetch of a source ends so long before the first one, so that they become one again."""
FETCHES_MAX = 2
"""Fetches of one source under way at once; the second is for partitions that came while the first one waits."""
STALE_MAX = 2
"""Besides these so many that nobody waits for any more: all they asked for was moved meanwhile."""
FETCH_RECORDS_MAX = 100_000
FETCH_BYTES_MAX = 16 * 1024 * 1024

Answer = Sequence[Fetched] | SiltlogError


class Fetches:
    def __init__(self, options: ConsumerOptions, positions: Positions, topics: TopicBounds, choose: Choose) -> None:
        self._options = options
        self._positions = positions
        self._topics = topics
        self._choose = choose
        self._fetch_bytes = min(FETCH_BYTES_MAX, options.buffer_bytes // 2)
        self._out: list[Fetch] = []
        self._landed: deque[tuple[Fetch, Answer]] = deque()

    def depart(self, marks: Marks | None, now: float) -> list[Fetch]:
        """The fetches to make now; each must `arrive`."""
        wanted = self._positions.wanted(marks, now)
        if not wanted:
            return []
        by_source: dict[str, list[PartitionState]] = {}
        for state in wanted:
            by_source.setdefault(self._choose(self._wanted(state), self._options.sees), []).append(state)
        fetches = [self._fetch(source, states, marks, now) for source, states in by_source.items()]
        return [fetch for fetch in fetches if fetch is not None]

    def arrive(self, fetch: Fetch, answer: Answer) -> None:
        """Waits to be taken. From any thread."""
        self._landed.append((fetch, answer))

    @property
    def has_landed(self) -> bool:
        return bool(self._landed)

    def take(self) -> tuple[Fetch, Answer] | None:
        """The next that landed, which then is no longer under way."""
        if not self._landed:
            return None
        fetch, answer = self._landed.popleft()
        self._out = [other for other in self._out if other is not fetch]
        return fetch, answer

    def forget(self) -> None:
        """Nobody waits any more for what is under way, nor for what was to depart and may not have."""
        self._out = []

    def _wanted(self, state: PartitionState) -> Wanted:
        topic_id = state.topic_id or self._topics.topic_id(state.at.topic)
        return Wanted(state.at, state.asked, topic_id, state.bounds)

    def _fetch(self, source: str, states: Sequence[PartitionState], marks: Marks | None, now: float) -> Fetch | None:
        every = [fetch for fetch in self._out if fetch.plan.source == source]
        out = [fetch for fetch in every if fetch.is_awaited]
        wait_ms = FETCH_WAIT_MS
        if out:
            wait_ms = min(wait_ms, int((out[0].waits_until - now) * 1000) - MERGE_MS)
        full = len(out) >= FETCHES_MAX or len(every) >= FETCHES_MAX + STALE_MAX
        if full or wait_ms <= 0 or not self._has_room(marks):
            return None
        wanted = tuple(self._wanted(state) for state in states)
        plan = FetchPlan(source, wanted, self._options.sees, FETCH_RECORDS_MAX, self._fetch_bytes, wait_ms)
        fetch = Fetch(plan, states, now + wait_ms / 1000)
        for state in states:
            state.fetch = fetch
        self._out.append(fetch)
        return fetch

    def _has_room(self, marks: Marks | None) -> bool:
        """Whether one more answer fits beside what is buffered and under way."""
        room = (
            self._options.buffer_bytes
            - self._fetch_bytes
            - sum(fetch.plan.bytes_max for fetch in self._out if fetch.is_awaited)
        )
        if self._positions.buffered_bytes > room and self._positions.all_held(marks):
            self._positions.forget_buffered()
        return self._positions.buffered_bytes <= room
