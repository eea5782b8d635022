"""Reading from Python: records in order, by a group or from given partitions, each until it is done."""

import logging
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Literal, Self

import pyarrow as pa

from siltlog.consumers.group_member import MemberOptions
from siltlog.consumers.positions import PartitionState, Run
from siltlog.consumers.read_loop import (
    FETCH_RECORDS_MAX,
    LAST_COMMIT_MS,
    Isolation,
    LoopOptions,
    OnPartitions,
    ReadLoop,
    Reset,
)
from siltlog.consumers.record import ConsumerRecord, records_of
from siltlog.infra import names
from siltlog.infra.client.core import Endpoints
from siltlog.infra.client.record import TimeLike, TopicPartition, time_us
from siltlog.infra.client.transport import HttpTransport, Transport
from siltlog.infra.clock import Clock, SystemClock, format_us
from siltlog.infra.errors import ConfigError, SiltlogError, Unavailable, problem
from siltlog.infra.schema import FETCH_SCHEMA

CHUNK_RECORDS = 500
"""How many records an iteration makes of Arrow rows at a time."""
_log = logging.getLogger("siltlog.consumer")


class Consumer:
    """Give `group` and `topics`, or `assign`. One thread at a time; `wakeup` and `close` from any.

    A record is done when the next one is asked for. With `auto_commit` what is done is committed every
    `auto_commit_interval_ms`, before a partition is let go and when the consumer is closed. While the server cannot be
    reached, calls go on trying for `retry_timeout_ms`. Iteration ends with `stop_at="latest"` at the ends that were
    seen when it began, with `idle_timeout_ms` when nothing came for so long, else only when woken or closed.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        group: str | None = None,
        topics: str | Sequence[str] | None = None,
        assign: Sequence[TopicPartition] | None = None,
        auto_offset_reset: Reset = "earliest",
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        isolation: Isolation = "wal",
        stop_at: Literal["latest"] | None = None,
        idle_timeout_ms: int | None = None,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 60_000,
        max_poll_interval_ms: int = 300_000,
        retry_timeout_ms: int = 60_000,
        client_id: str | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        clock: Clock | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Raises ConfigError when an argument is not valid. Connects at the first call that needs the server."""
        subscribed = [topics] if isinstance(topics, str) else list(topics or ())
        _check_source(group, subscribed, assign)
        _check_choice("auto_offset_reset", auto_offset_reset, ("earliest", "latest", "error"))
        _check_choice("isolation", isolation, ("wal", "table"))
        _check_choice("stop_at", stop_at, (None, "latest"))
        self._topics = subscribed or sorted({at.topic for at in assign or ()})
        self._stop_at_ends = stop_at is not None
        self._idle_s = math.inf if idle_timeout_ms is None else idle_timeout_ms / 1000
        self._retry_s = retry_timeout_ms / 1000
        self._clock = clock or SystemClock()
        self._transport = transport or HttpTransport()
        member = None
        if group is not None:
            timeouts = (session_timeout_ms, rebalance_timeout_ms, max_poll_interval_ms)
            member = MemberOptions(group, subscribed, auto_offset_reset, *timeouts, client_id)
        options = LoopOptions(
            member=member,
            assign=list(assign or ()),
            auto_offset_reset=auto_offset_reset,
            isolation=isolation,
            auto_commit_interval_ms=auto_commit_interval_ms if auto_commit and member is not None else None,
            retry_timeout_ms=retry_timeout_ms,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
        )
        self._auto_commit = options.auto_commit_interval_ms is not None
        self._loop = ReadLoop(options, Endpoints(url), self._transport, self._clock)
        self._positions = self._loop.positions
        self._turn = threading.RLock()
        self._chunk: _Chunk | None = None
        self._marks: dict[TopicPartition, int] | None = None
        self._closed = False
        self._pid = os.getpid()

    # --- reading ------------------------------------------------------------------------------------------
    def poll(self, max_records: int = 500, timeout_ms: int = 1_000) -> list[ConsumerRecord]:
        """The next records, in order within each partition; empty when none came in `timeout_ms`.

        The records of the poll before are done.
        """
        with self._my_turn():
            return [record for run in self._take(max_records, timeout_ms) for record in _records(run)]

    def poll_arrow(self, max_records: int = FETCH_RECORDS_MAX, timeout_ms: int = 1_000) -> pa.Table:
        """As `poll`, with the columns topic, partition, offset, timestamp, key, value, headers."""
        with self._my_turn():
            tables = [run.rows for run in self._take(max_records, timeout_ms)]
            return pa.concat_tables(tables) if tables else FETCH_SCHEMA.empty_table()

    def __iter__(self) -> Self:
        self._marks = None
        return self

    def __next__(self) -> ConsumerRecord:
        if self._loop.closing:
            raise StopIteration
        self._begin_turn()
        try:
            now = self._clock.monotonic()
            chunk = self._chunk
            if chunk is None or chunk.next == len(chunk.records) or self._interrupted(now):
                with self._polling():
                    chunk = self._next_chunk()
                if chunk is None:
                    raise StopIteration
            else:
                chunk.run.state.done = chunk.run.state.position
                if self._loop.member is not None:
                    self._loop.member.polled = now
            return chunk.hand_out()
        finally:
            self._turn.release()

    def wakeup(self) -> None:
        """A poll that waits returns what it has, an iteration ends. From any thread."""
        with self._loop.news:
            self._loop.woken = True
            self._loop.news.notify_all()

    def _take(self, max_records: int, timeout_ms: int) -> list[Run]:
        if max_records < 1:
            raise ConfigError(f"max_records must be at least 1, not {max_records}")
        deadline = self._clock.monotonic() + timeout_ms / 1000
        self._next_is_asked_for()
        taken: list[Run] = []
        with self._polling():
            while True:
                self._loop.step()
                self._refuse_unplaced()
                left = max_records
                while left and (run := self._positions.take(left)) is not None:
                    run.state.position = run.after
                    taken.append(run)
                    left -= run.rows.num_rows
                self._loop.prefetch(None)
                if taken or self._ended() or self._clock.monotonic() >= deadline:
                    return taken
                self._loop.wait(deadline)

    def _next_chunk(self) -> "_Chunk | None":
        """Records for the iteration to hand out one by one; None when it ends."""
        self._next_is_asked_for()
        idle_at = self._clock.monotonic() + self._idle_s
        while True:
            if self._stop_at_ends and self._marks is None:
                self._marks = self._ends()
            self._loop.step()
            self._refuse_unplaced()
            run = self._positions.take(CHUNK_RECORDS, self._marks)
            if run is not None:
                self._chunk = _Chunk(run)
            self._loop.prefetch(self._marks)
            if self._ended():
                return None
            if run is not None:
                return self._chunk
            if self._marks is not None and self._loop.assigned and self._positions.finished(self._marks):
                self._marks = None
                return None
            if self._clock.monotonic() >= idle_at:
                return None
            self._loop.wait(idle_at)

    def _next_is_asked_for(self) -> None:
        """What was handed out is done; what an iteration has not handed out goes back."""
        chunk, self._chunk = self._chunk, None
        if chunk is not None and chunk.next < len(chunk.records):
            self._positions.give_back(chunk.rest())
        self._positions.mark_done()

    def _interrupted(self, now: float) -> bool:
        return self._loop.woken or self._loop.has_news or self._loop.commit_due(now)

    def _ended(self) -> bool:
        woken, self._loop.woken = self._loop.woken, False
        return woken or self._loop.closing

    def _ends(self) -> dict[TopicPartition, int]:
        return {
            TopicPartition(topic, partition): self._loop.end_of(bounds)
            for topic in self._topics
            for partition, bounds in self._loop.offsets(topic).items()
        }

    def _refuse_unplaced(self) -> None:
        unplaced = [f"{at.topic}/{at.partition}" for at, state in self._positions.states.items() if not state.placed]
        if unplaced:
            raise problem(
                "offset_out_of_range",
                f"there is no position for {', '.join(unplaced)} and auto_offset_reset is 'error'; seek first",
            )

    # --- committing ---------------------------------------------------------------------------------------
    def commit(self, what: ConsumerRecord | Mapping[TopicPartition, int] | None = None) -> None:
        """Commits what was handed out; or up to and including a record; or the offsets to read next.

        Raises Fenced when a partition has become another member's: its records are delivered there again.
        """
        with self._my_turn():
            if what is None:
                states = self._positions.states.items()
                offsets = {at: state.position for at, state in states if state.position != state.committed}
            elif isinstance(what, ConsumerRecord):
                offsets = {TopicPartition(what.topic, what.partition): what.offset + 1}
            else:
                offsets = dict(what)
            self._loop.commit(offsets)
            for at, offset in offsets.items():
                state = self._positions.states[at]
                state.done = max(state.done, min(offset, state.position))

    def committed(self, topic: str, partition: int) -> int | None:
        """The group's committed offset, None when it has none."""
        with self._my_turn():
            if self._loop.member is None:
                raise problem("invalid_request", "only a consumer of a group has committed offsets")
            return self._loop.member.committed().get(TopicPartition(topic, partition))

    # --- positions ----------------------------------------------------------------------------------------
    def assignment(self) -> list[TopicPartition]:
        """The partitions this consumer reads now."""
        return sorted(self._positions.states)

    def position(self, topic: str, partition: int) -> int:
        """The offset that is handed out next."""
        with self._my_turn():
            return self._state(topic, partition).position

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each partition has from its position to its end."""
        with self._my_turn():
            self._await_assignment()
            bounds = {topic: self._loop.offsets(topic) for topic in {at.topic for at in self._positions.states}}
            return {
                at: max(0, self._loop.end_of(bounds[at.topic][at.partition]) - state.position)
                for at, state in sorted(self._positions.states.items())
            }

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """The next record of the partition is the one at `offset`, or the first after it."""
        if offset < 0:
            raise ConfigError(f"an offset is a number from 0, not {offset}")
        with self._my_turn():
            self._move(self._state(topic, partition), offset)

    def seek_to_timestamp(self, topic: str, when: TimeLike) -> None:
        """To the first record at or after `when` in every assigned partition of the topic; to the end where none is."""
        with self._my_turn():
            found = self._loop.offsets(topic, format_us(time_us(when)))
            for state in self._states_of(topic):
                self._move(state, found[state.at.partition]["offset"])

    def seek_to_beginning(self, topic: str) -> None:
        with self._my_turn():
            found = self._loop.offsets(topic)
            for state in self._states_of(topic):
                self._move(state, found[state.at.partition]["log_start_offset"])

    def seek_to_end(self, topic: str) -> None:
        with self._my_turn():
            found = self._loop.offsets(topic)
            for state in self._states_of(topic):
                self._move(state, self._loop.end_of(found[state.at.partition]))

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of them until `resume`; they stay assigned."""
        with self._my_turn():
            self._unwind()
            for at in partitions:
                self._state(at.topic, at.partition).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        with self._my_turn():
            for at in partitions:
                self._state(at.topic, at.partition).paused = False

    def _state(self, topic: str, partition: int) -> PartitionState:
        self._await_assignment()
        state = self._positions.states.get(TopicPartition(topic, partition))
        if state is None:
            raise problem("invalid_request", f"{topic}/{partition} is not assigned to this consumer")
        return state

    def _states_of(self, topic: str) -> list[PartitionState]:
        self._await_assignment()
        return [state for at, state in self._positions.states.items() if at.topic == topic]

    def _move(self, state: PartitionState, offset: int) -> None:
        self._unwind()
        self._positions.seek(state.at, offset)

    def _unwind(self) -> None:
        """Takes back what an iteration has prepared; nothing of it becomes done by that."""
        chunk, self._chunk = self._chunk, None
        if chunk is not None and chunk.next < len(chunk.records):
            self._positions.give_back(chunk.rest())

    def _await_assignment(self) -> None:
        self._loop.start()
        deadline = self._clock.monotonic() + self._retry_s
        while not self._loop.assigned:
            self._loop.step()
            if self._loop.closing or self._clock.monotonic() > deadline:
                raise Unavailable("the group has assigned nothing yet", error_code="coordinator_unavailable")
            if not self._loop.assigned:
                self._loop.wait(deadline)

    # --- its turn and its end -----------------------------------------------------------------------------
    def _begin_turn(self) -> None:
        """Ends with `self._turn.release()`."""
        if self._closed or self._loop.closing:
            raise problem("invalid_request", "this consumer is closed; make a new one")
        if self._pid != os.getpid():
            raise problem("invalid_request", "this consumer was made before a fork; make a new Consumer here")
        if not self._turn.acquire(blocking=False):
            raise problem("invalid_request", "another thread is using this consumer; only wakeup() and close() may")

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        self._begin_turn()
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def _polling(self) -> Iterator[None]:
        member = self._loop.member
        if member is None:
            yield
            return
        member.poll_begins()
        try:
            yield
        finally:
            member.poll_ends()

    def close(self) -> None:
        """Commits what is done, leaves the group, lets go of threads and connections. Closing again does nothing.

        From another thread it ends the poll or iteration that is going on, and waits for it.
        """
        if self._pid != os.getpid():
            return
        with self._loop.news:
            self._loop.closing = True
            self._loop.news.notify_all()
        if not self._turn.acquire(blocking=False):
            self._loop.interrupt()
            self._turn.acquire()
        try:
            if self._closed:
                return
            self._closed = True
            self._loop.resume()
            try:
                if self._auto_commit:
                    self._loop.commit(self._positions.uncommitted(), LAST_COMMIT_MS)
            finally:
                self._loop.close()
                self._transport.close()
        finally:
            self._turn.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except SiltlogError as failed:
            if error is None:
                raise
            _log.warning("what was done could not be committed: %s", failed)


class _Chunk:
    """Records made of a run, handed out one by one; the position follows."""

    __slots__ = ("next", "records", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.records = _records(run)
        self.next = 0

    def hand_out(self) -> ConsumerRecord:
        record = self.records[self.next]
        self.next += 1
        self.run.state.position = self.run.after if self.next == len(self.records) else record.offset + 1
        return record

    def rest(self) -> Run:
        return self.run._replace(rows=self.run.rows.slice(self.next))


def _records(run: Run) -> list[ConsumerRecord]:
    return records_of(run.state.at.topic, run.state.at.partition, run.rows)


def _check_source(group: str | None, topics: Sequence[str], assign: Sequence[TopicPartition] | None) -> None:
    if assign is not None and (group is not None or topics):
        raise ConfigError("give either group= with topics=, or assign=, not both")
    if assign is None and not (group and topics):
        raise ConfigError("give group= and topics= to read as a group, or assign=[TopicPartition(...)] without one")
    for name in (*topics, *([group] if group is not None else [])):
        wrong = names.name_problem(name)
        if wrong is not None:
            raise ConfigError(wrong)
    if assign is not None and len(set(assign)) != len(assign):
        raise ConfigError("assign= names a partition twice")


def _check_choice(name: str, given: object, choices: Sequence[object]) -> None:
    if given not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(map(str, choices))}, not {given!r}")
