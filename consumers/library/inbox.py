"""The core of both consumers: it brings records from the log to the caller who asks for them. No IO.

What needs a server or the user's callbacks is a `Program`: it yields a `Request` or a `Tell`, is sent what came of it,
and goes on. Between two records the consumer has `attend` run to its end: partitions come and go, answers are taken,
what is done is committed. In between `take` and `next_chunk` hand out what is there, and `depart` names the fetches to
make next, whose answers `arrive`.

Only `arrive`, `wakeup` and the member's heartbeats come from beside the consumer.

Whoever says itself what is done (workers that finish out of order) sets `done_is_said` and moves the `done` of each
partition; the commits then follow, as with iteration.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeVar

from siltlog.consumers.library.assignment import Assignment
from siltlog.consumers.library.commits import LAST_COMMIT_MS, TOPIC_GONE_CODES
from siltlog.consumers.library.fetches import Answer, Fetches
from siltlog.consumers.library.lag import lag_of
from siltlog.consumers.library.options import ConsumerOptions
from siltlog.consumers.library.positions import (
    CHUNK_RECORDS,
    Chunk,
    Fetch,
    FetchProblem,
    PartitionState,
    Positions,
    Run,
)
from siltlog.consumers.library.program import Program
from siltlog.consumers.library.record import ConsumerRecord
from siltlog.consumers.library.sources.server import Choose, from_server
from siltlog.consumers.library.topic_bounds import TopicBounds
from siltlog.infra.client.core import BACKOFF_MS_MAX
from siltlog.infra.client.record import TimeLike, TopicPartition, checked_partition
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, OffsetOutOfRange, SiltlogError, problem
from siltlog.infra.records import Bounds, Lag

WAIT_S_MAX = 1.0
"""A wait is looked at this often, whatever it waits for."""
_log = logging.getLogger("siltlog.consumer")
T = TypeVar("T")
_within: ContextVar[tuple["Inbox", ...]] = ContextVar("siltlog_runs", default=())
"""The consumers of whose runs what goes on here is a part: a handler, a callback, or a task that one of these made."""


class Inbox:
    def __init__(self, options: ConsumerOptions, clock: Clock, choose: Choose = from_server) -> None:
        self.positions = Positions()
        self.woken = False
        self.closing = False
        self.done_is_said = False
        self.options = options
        self._clock = clock
        self._topics = TopicBounds(options.sees)
        self._fetches = Fetches(options, self.positions, self._topics, choose)
        self._chunk: Chunk | None = None
        self._interrupted = False
        self._is_handed_over = False
        self._marks: dict[TopicPartition, int] | None = None
        self._marked: dict[str, str | None] = {}
        """The id under which a topic's ends were seen, by its name."""
        self.assignment = Assignment(options, self.positions, self._topics, clock, self._give_back_chunk)
        self.member = self.assignment.member
        self.commits = self.assignment.commits

    def arrive(self, fetch: Fetch, answer: Answer) -> None:
        """Takes the answer to a fetch; the next `attend` acts on it."""
        self._fetches.arrive(fetch, answer)

    @property
    def has_news(self) -> bool:
        told = self.member is not None and self.member.has_news
        return told or self._fetches.has_landed or self.woken or self.closing

    def attend(self) -> Program[None]:
        """Takes what has come. Raises what cannot be helped by trying again; nothing is lost by that."""
        yield from self.assignment.begin()
        yield from self.assignment.take_news()
        while (landed := self._fetches.take()) is not None:
            self._land(*landed)
        yield from self.commits.commit_due()
        unplaced = [f"{at.topic}/{at.partition}" for at, state in self.positions.states.items() if not state.placed]
        if unplaced and not self.closing:
            raise problem(
                "offset_out_of_range",
                f"there is no position for {', '.join(unplaced)} and auto_offset_reset is 'error'; seek first",
            )

    def settle(self) -> Program[None]:
        """Attends for a caller who needs to know its partitions; a group has given none while not `assigned`."""
        yield from self.assignment.begin()
        if not self.assignment.known:
            yield from self.attend()

    def depart(self) -> list[Fetch]:
        """The fetches to make now, while the records at hand are handled; each must `arrive`."""
        if self.closing or self.assignment.is_unlearned:
            return []
        return self._fetches.depart(self._marks, self._clock.monotonic())

    def wait_until(self, deadline: float) -> float:
        """When to look again (monotonic seconds), unless something arrives before."""
        now = self._clock.monotonic()
        until = min(deadline, now + WAIT_S_MAX, self.commits.due_at)
        for state in self.positions.states.values():
            if now < state.rests_until < until:
                until = state.rests_until
        return until

    @property
    def is_ending(self) -> bool:
        """Whether `ended` is about to say so."""
        return self.woken or self.closing

    def ended(self) -> bool:
        """Whether a poll or an iteration is to return now; being woken counts once."""
        woken, self.woken = self.woken, False
        return woken or self.closing

    def _land(self, fetch: Fetch, answer: Answer) -> None:
        if isinstance(answer, SiltlogError):
            self.positions.release(fetch)
            raise answer
        for found in self.positions.land(fetch, answer):
            self._trouble(found)

    def _trouble(self, found: FetchProblem) -> None:
        """A partition could not be read."""
        now, state, error = self._clock.monotonic(), found.state, found.fetched.error
        assert error is not None
        bounds, reset = found.fetched.bounds, self.options.auto_offset_reset
        if isinstance(error, OffsetOutOfRange) and reset != "error" and bounds is not None:
            to = bounds.log_start_offset if reset == "earliest" else self._topics.end(bounds)
            _log.warning("%s: %s; going on at %d (auto_offset_reset=%s)", state.at, error, to, reset)
            self.positions.seek(state.at, to)
            return
        if self.member is not None and error.error_code in TOPIC_GONE_CODES:
            # Deleted, and perhaps created again: what the group has instead comes with its next assignment.
            _log.warning("%s/%d: %s", state.at.topic, state.at.partition, error)
            state.rests_until = now + BACKOFF_MS_MAX / 1000
            return
        state.troubled_since = state.troubled_since or now
        waited = now - state.troubled_since
        if error.retryable == "no" or waited > self.options.retry_timeout_ms / 1000:
            state.troubled_since = None
            raise error
        state.rests_until = now + (error.retry_after_ms or BACKOFF_MS_MAX) / 1000

    def begin_turn(self) -> None:
        """A call begins: its caller has received what the one before handed out, unless that was interrupted."""
        if not (self._is_handed_over or self.positions.is_confirmed):
            self.interrupt()
        if self._interrupted:
            self._go_back()
        self.positions.confirm()
        self._is_handed_over = False

    def handed_over(self, what: T) -> T:
        """Returns what a call hands out, as the last that it does: behind this store no signal is looked for until it
        is the caller's. The end of a `with` is no such place."""
        self._is_handed_over = True
        return what

    def interrupt(self) -> None:
        """A call was cut short between any two steps, as by Ctrl-C: the next goes back to what is known."""
        self._interrupted = True
        chunk, self._chunk = self._chunk, None
        if chunk is not None:
            self.positions.doubt(chunk.state)

    def _go_back(self) -> None:
        """Interrupted as well, it is made once more."""
        self.done_is_said = False
        self.assignment.go_back()
        self._fetches.forget()
        self.positions.go_back()
        self._interrupted = False

    def ask(self) -> None:
        """The next record is asked for: what was handed out is done; what an iteration has not handed out goes back."""
        self._give_back_chunk()
        if not self.done_is_said:
            self.positions.mark_done()

    def take(self, max_records: int) -> list[Run]:
        """Hands out up to `max_records` of the fetched records."""
        self._go_back_first()
        taken: list[Run] = []
        while max_records > 0 and (run := self.positions.take(max_records)) is not None:
            self.positions.handed_out(run)
            taken.append(run)
            max_records -= run.rows.num_rows
        return taken

    def next_run(self, max_records: int) -> Run | None:
        """Records of one partition, as far as is to be read; the caller says when they are handed out."""
        return self.positions.take(max_records, self._marks)

    def next_chunk(self) -> Chunk | None:
        """Records for an iteration to hand out one by one, None while there are none."""
        self._go_back_first()
        run = self.next_run(CHUNK_RECORDS)
        self._chunk = None if run is None else Chunk(run, self.positions)
        return self._chunk

    def _go_back_first(self) -> None:
        """Nothing is handed out of what a callback was interrupted in, which kept that to itself."""
        if self._interrupted and not self.done_is_said:
            self._go_back()

    def chunk_on(self, now: float) -> Chunk | None:
        """The chunk to hand out the next record of, which makes what came before done; None when `attend` is due."""
        chunk, member = self._chunk, self.member
        if chunk is None or not chunk.left or self.woken or self.closing or now >= self.commits.due_at:
            return None
        if member is not None:
            if member.has_news:
                return None
            member.polled = now
        if not self.done_is_said:
            chunk.state.done = chunk.state.position
        return chunk

    def rest_of_chunk(self) -> Iterator[ConsumerRecord]:
        """Yields record by record what `chunk_on` and `hand_out` give, while nothing else is due, but not the last one.

        A generator with everything at hand: this is what an iteration does a million times.
        """
        chunk, member, commits, monotonic = self._chunk, self.member, self.commits, self._clock.monotonic
        if chunk is None or self.done_is_said:
            return
        state, records = chunk.state, chunk.records
        while chunk.left > 1 and self._chunk is chunk and not (self.woken or self.closing):
            if member is not None:
                now = monotonic()
                if member.has_news or now >= commits.due_at:
                    return
                member.polled = now
            record = records[chunk.next]
            chunk.next += 1
            chunk.left -= 1
            state.done = state.position
            state.position = record.offset + 1
            yield record

    def _give_back_chunk(self) -> None:
        chunk, self._chunk = self._chunk, None
        if chunk is not None:
            chunk.give_back()

    @contextmanager
    def running(self) -> Iterator[None]:
        """A run, within which workers say what is done."""
        self.done_is_said = True
        try:
            with self.within_run():
                yield
        finally:
            self.done_is_said = False

    @contextmanager
    def within_run(self) -> Iterator[None]:
        """What goes on in here is a part of the run; a thread that a run starts says so itself."""
        token = _within.set((*_within.get(), self))
        try:
            yield
        finally:
            _within.reset(token)

    @property
    def is_within_run(self) -> bool:
        """Whether who asks is a part of a run that goes on, which cannot end before they do."""
        return self.done_is_said and self in _within.get()

    def in_use(self, other: Literal["thread", "task"]) -> SiltlogError:
        """The refusal for who is not the thread, or task, that has the turn."""
        why = f"another {other} is using this consumer; only wakeup() and close() may"
        if self.is_within_run:
            why = f"a handler with a {other} of its own may only call wakeup() and close(); the run has the consumer"
        return problem("invalid_request", why)

    def begin_iteration(self) -> None:
        self._marks = None
        self._marked = {}

    def mark_ends(self) -> Program[None]:
        """The ends at which an iteration with `stop_at` stops: as seen when it first meets a topic, by its id."""
        if self.options.stop_at is None:
            return
        states = self.positions.states
        named = {at.topic: state.topic_id for at, state in states.items() if state.topic_id is not None}
        for topic in sorted({*self.options.topics, *(at.topic for at in states)}):
            topic_id = named.get(topic) or self._topics.topic_id(topic)
            if topic in self._marked and topic_id in (None, self._marked[topic]):
                continue
            found = yield from self._topics.ask(topic)
            ends = {TopicPartition(topic, p): self._topics.end(bounds) for p, (bounds, _) in found.items()}
            others = {at: end for at, end in (self._marks or {}).items() if at.topic != topic}
            self._marks = others | ends
            self._marked[topic] = topic_id or self._topics.topic_id(topic)
        if self.assignment.known and self._marks is None:
            self._marks = {}

    def stopped(self) -> bool:
        """Whether an iteration has handed out all below the ends that it saw."""
        finished = self._marks is not None and self.assignment.known and self.positions.finished(self._marks)
        if finished:
            self._marks = None
        return finished

    def commit_asked(self, what: ConsumerRecord | Mapping[TopicPartition, int] | None) -> Program[None]:
        """Commits as `Commits.commit_asked` does: of what workers have, only what they are done with."""
        return self.commits.commit_asked(what, handed_out=not self.done_is_said)

    def close(self) -> Program[None]:
        """Makes the last commit. The membership is ended by who heartbeats."""
        if self.options.commits_by_itself:
            self._give_back_chunk()
            yield from self.commits.commit_what_is_there(self.positions.uncommitted(), LAST_COMMIT_MS)

    def state(self, topic: str, partition: int) -> PartitionState:
        state = self.positions.states.get(TopicPartition(topic, partition))
        if state is None:
            raise problem("invalid_request", f"{topic}/{partition} is not assigned to this consumer")
        return state

    def seek(self, state: PartitionState, offset: int) -> None:
        if offset < 0:
            raise ConfigError(f"an offset is a number from 0, not {offset}")
        self._give_back_chunk()
        self.positions.seek(state.at, offset)

    def seek_all(
        self, topic: str, to: Callable[[Bounds, int], int], timestamp: TimeLike | None = None
    ) -> Program[None]:
        """Every partition of the topic to what `to` makes of its bounds and the offset of `timestamp`."""
        found = yield from self._topics.ask(topic, timestamp)
        for at, state in list(self.positions.states.items()):
            if at.topic == topic:
                self.seek(state, to(*found[at.partition]))

    def lag(self) -> Program[dict[TopicPartition, Lag]]:
        """Computes the lag of every assigned partition."""
        self._give_back_chunk()
        return lag_of(self.positions, self._topics, self.options.sees, self._clock)

    def end_of(self, bounds: Bounds, _: int) -> int:
        return self._topics.end(bounds)

    def pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        states = [self.state(at.topic, at.partition) for at in map(checked_partition, partitions)]
        if paused:
            self._give_back_chunk()
        for state in states:
            state.paused = paused
