"""Where a consumer is in its partitions, the rows it fetched, and the chunk of records it hands out. No IO, no
clock."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from siltlog.consumers.library.record import ConsumerRecord, records_of
from siltlog.consumers.library.sources.server import Fetched, FetchPlan
from siltlog.infra.arrow.arrays import numbers_of
from siltlog.infra.client.record import EPOCH, TopicPartition
from siltlog.infra.records import Bounds

CHUNKS_MAX = 4
"""Rows in more pieces are joined before they are split: each split would go through all pieces."""
Marks = Mapping[TopicPartition, int]
"""Offsets at which reading ends; partitions that are absent are not read."""
CHUNK_RECORDS = 500
"""How many records an iteration makes of Arrow rows at a time."""


class Lane(Protocol):
    """Records of a partition on their way through a run's handler."""

    @property
    def handed_out(self) -> int:
        """Up to where the handler was given them."""

    @property
    def upcoming(self) -> ConsumerRecord | None:
        """The one that is given to it next; None where that is not of these."""


class PartitionState:
    """`position` is the next offset to hand out, or to take for a run's handler, `asked` the next to fetch; what is
    below `done` is done.

    Offsets have gaps, so none of them is last + 1: each is what a source named as next, or a record's offset + 1.
    """

    __slots__ = (
        *("asked", "at", "bounds", "committed", "delivered", "done", "fetch", "held", "lane", "paused", "placed"),
        *("position", "rests_until", "runs", "topic_id", "troubled_since"),
    )

    def __init__(
        self, at: TopicPartition, offset: int, delivered: int | None = None, topic_id: str | None = None
    ) -> None:
        self.at = at
        self.paused = False
        self.held = False
        """What is read of it already is to be handled first."""
        self.lane: Lane | None = None
        """What a run has taken of it; a move, as by a seek, leaves that behind."""
        self.committed: int | None = offset
        """None while it is not known: a commit whose answer was lost may have changed it."""
        self.bounds: Bounds | None = None
        """The bounds that were last seen."""
        self.delivered = delivered
        """Below it records were handed out to a former member that did not commit them; None: it ended cleanly."""
        self.topic_id = topic_id
        """The id of the topic that the offsets belong to, where a group named it."""
        self.runs = 0
        """How many of them are buffered."""
        self.rests_until = 0.0
        """When it may be fetched again (monotonic seconds), as its last answer was a problem."""
        self.troubled_since: float | None = None
        self.move(offset)

    @property
    def withheld(self) -> bool:
        """Whether nothing of it is to be fetched or handed out now."""
        return self.paused or self.held

    @property
    def handed_out(self) -> int:
        """The next offset that a caller, or a run's handler, is given."""
        return self.position if self.lane is None else self.lane.handed_out

    def move(self, offset: int) -> None:
        self.placed = True
        self.lane = None
        self.position = self.asked = self.done = offset
        self.fetch: Fetch | None = None
        """The fetch that asks for it; what others bring is out of date."""

    def go_back(self) -> None:
        """Nothing behind the position is buffered or under way any more."""
        self.asked = self.position
        self.fetch = None
        self.runs = 0
        self.held = False
        self.lane = None


class Fetch(NamedTuple):
    """A fetch under way: what it asks for, and until when its answer may wait (monotonic seconds)."""

    plan: FetchPlan
    states: Sequence[PartitionState]
    waits_until: float

    @property
    def is_awaited(self) -> bool:
        return any(state.fetch is self for state in self.states)


class Run(NamedTuple):
    """Rows of one partition in order; `after` is the position once all of them are handed out."""

    state: PartitionState
    rows: pa.Table
    after: int
    nbytes: int


class FetchProblem(NamedTuple):
    state: PartitionState
    fetched: Fetched


class Positions:
    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        self.buffered_bytes = 0
        """Bytes of the records that are fetched and not handed out."""
        self._runs: deque[Run] = deque()
        self._unconfirmed: set[PartitionState] = set()
        """Partitions of which this call handed out records: whether they were received shows when the next begins."""

    def assign(
        self, at: TopicPartition, offset: int, delivered: int | None = None, topic_id: str | None = None
    ) -> None:
        self.states[at] = PartitionState(at, offset, delivered, topic_id)

    def revoke(self, lost: Iterable[TopicPartition]) -> None:
        for at in lost:
            state = self.states.pop(at)
            state.fetch = None
            self._drop(state)

    def seek(self, at: TopicPartition, offset: int) -> None:
        state = self.states[at]
        self._drop(state)
        state.move(offset)

    def _drop(self, state: PartitionState) -> None:
        self._runs = deque(run for run in self._runs if run.state is not state)
        state.runs = 0
        self.buffered_bytes = sum(run.nbytes for run in self._runs)

    def wanted(self, marks: Marks | None, now: float) -> list[PartitionState]:
        """The partitions to fetch from at their `asked`, and that no fetch under way asks for."""
        return [
            state
            for at, state in self.states.items()
            if state.fetch is None
            and not state.withheld
            and state.placed
            and state.rests_until <= now
            and (marks is None or state.asked < marks.get(at, 0))
        ]

    def land(self, fetch: Fetch, fetched: Sequence[Fetched]) -> list[FetchProblem]:
        """Takes the answer to a fetch; what has moved meanwhile is left out."""
        problems: list[FetchProblem] = []
        current = {state.at: state for state in self.release(fetch)}
        for part in fetched:
            state = current.get(part.at)
            if state is None:
                continue
            if part.bounds is not None:
                state.bounds = part.bounds
            if part.error is not None:
                problems.append(FetchProblem(state, part))
                continue
            state.troubled_since = None
            if part.rows is not None and part.rows.num_rows:
                nbytes = part.rows.nbytes
                self.buffered_bytes += nbytes
                state.runs += 1
                self._runs.append(Run(state, part.rows, part.next_offset, nbytes))
            elif state.position == state.asked:
                state.position = part.next_offset
            state.asked = part.next_offset
        return problems

    def release(self, fetch: Fetch) -> list[PartitionState]:
        """The partitions that still wait for this fetch, which no longer asks for them."""
        waiting = [state for state in fetch.states if state.fetch is fetch and self.states.get(state.at) is state]
        for state in waiting:
            state.fetch = None
        return waiting

    def take(self, max_records: int, marks: Marks | None = None) -> Run | None:
        """Takes at most `max_records` rows of one partition; the caller says when they are `handed_out`."""
        held: list[Run] = []
        taken: Run | None = None
        while self._runs and taken is None:
            run = self._runs.popleft()
            count = _to_hand_out(run, marks)
            if count == 0:
                held.append(run)
                continue
            count = min(count, max_records)
            if count < run.rows.num_rows:
                taken, rest = _split(run, count)
                self._runs.appendleft(rest)
            else:
                taken = run
                run.state.runs -= 1
        self._runs.extendleft(reversed(held))
        if taken is not None:
            self.buffered_bytes -= taken.nbytes
        return taken

    def give_back(self, run: Run) -> None:
        """Takes back the run that was taken last and not handed out."""
        if self.states.get(run.state.at) is run.state:
            self._runs.appendleft(run)
            run.state.runs += 1
            self.buffered_bytes += run.nbytes

    def handed_out(self, run: Run) -> None:
        """All of it; a gap that was read behind the last buffered record is passed with it."""
        self.doubt(run.state)
        run.state.position = run.after if run.state.runs else run.state.asked

    @property
    def is_confirmed(self) -> bool:
        """Whether nothing was handed out since `confirm`."""
        return not self._unconfirmed

    def confirm(self) -> None:
        """All that was handed out was received."""
        self._unconfirmed.clear()

    def doubt(self, state: PartitionState) -> None:
        """Notes that what is handed out of it may not be received: beyond what is done."""
        self._unconfirmed.add(state)

    def go_back(self) -> None:
        """Goes back to what was received for certain; what is buffered, or under way, is fetched again."""
        self._runs.clear()
        self.buffered_bytes = 0
        for state in self.states.values():
            if state in self._unconfirmed:
                state.position = state.done
            state.go_back()
        self._unconfirmed.clear()

    def next_timestamp_us(self, state: PartitionState) -> int | None:
        """Returns the timestamp of the next record to hand out; None where it is not buffered."""
        upcoming = None if state.lane is None else state.lane.upcoming
        if upcoming is not None:
            return (upcoming.timestamp - EPOCH) // timedelta(microseconds=1)
        return next((timestamp_us(run.rows) for run in self._runs if run.state is state), None)

    def all_held(self, marks: Marks | None) -> bool:
        """Whether something is buffered, and nothing of it may be handed out."""
        return bool(self._runs) and not any(_to_hand_out(run, marks) for run in self._runs)

    def forget_buffered(self) -> None:
        """Makes room: what is buffered is fetched again later."""
        for state in {id(run.state): run.state for run in self._runs}.values():
            self._drop(state)
            state.asked = state.position
            state.fetch = None

    def finished(self, marks: Marks) -> bool:
        """Whether everything below the marks has been handed out."""
        return all(state.position >= marks.get(at, 0) for at, state in self.states.items())

    def mark_done(self) -> None:
        for state in self.states.values():
            state.done = state.position

    def uncommitted(self, *, handed_out: bool = False) -> dict[TopicPartition, int]:
        """Returns the offsets to commit: up to what is done, or with `handed_out` up to all that was handed out."""
        found = {}
        for at, state in self.states.items():
            offset = state.position if handed_out else state.done
            if offset != state.committed and (reached := readable(state, offset)) != state.committed:
                found[at] = reached
        return found

    def committing(self, offsets: Iterable[TopicPartition]) -> None:
        for at in offsets:
            self.states[at].committed = None

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        for at, offset in offsets.items():
            if at in self.states:
                self.states[at].committed = offset


def timestamp_us(rows: pa.Table) -> int:
    """Returns the timestamp of the first row, in microseconds."""
    value: int = rows["timestamp"][0].value
    return value


def readable(state: PartitionState, offset: int) -> int:
    """`offset`, or the log start where retention has passed it: below it nothing can be committed."""
    return offset if state.bounds is None else max(offset, state.bounds.log_start_offset)


def _split(run: Run, count: int) -> tuple[Run, Run]:
    """The first `count` rows, and the rest; their bytes are shared by count."""
    if run.rows["offset"].num_chunks > CHUNKS_MAX:
        run = run._replace(rows=run.rows.combine_chunks())
    rest = run.rows.slice(count)
    nbytes = run.nbytes * count // run.rows.num_rows
    after: int = rest["offset"][0].as_py()
    return (
        Run(run.state, run.rows.slice(0, count), after, nbytes),
        Run(run.state, rest, run.after, run.nbytes - nbytes),
    )


def _to_hand_out(run: Run, marks: Marks | None) -> int:
    """How many rows of the run may be handed out now."""
    return 0 if run.state.withheld else _below(run, marks)


def _below(run: Run, marks: Marks | None) -> int:
    """How many rows of the run lie below its partition's mark; a position before a gap that spans it moves there."""
    if marks is None:
        rows: int = run.rows.num_rows
        return rows
    mark = marks.get(run.state.at, 0)
    count = sum(int(np.searchsorted(numbers_of(chunk, np.int64), mark)) for chunk in run.rows["offset"].chunks)
    if count == 0:
        run.state.position = max(run.state.position, mark)
    return count


class Chunk:
    __slots__ = ("_positions", "_run", "left", "next", "records", "state")

    def __init__(self, run: Run, positions: Positions) -> None:
        self._run = run
        self._positions = positions
        self.state = run.state
        self.records = records_of(run.state.at.topic, run.state.at.partition, run.rows)
        self.next = 0
        self.left = len(self.records)

    def hand_out(self) -> ConsumerRecord:
        record = self.records[self.next]
        self._positions.doubt(self.state)
        self.next += 1
        self.left -= 1
        if self.left:
            self.state.position = record.offset + 1
        else:
            self._positions.handed_out(self._run)
        return record

    def give_back(self) -> None:
        """Gives back the records that were not handed out."""
        if self.left:
            rows = self._run.rows.slice(self.next)
            nbytes = self._run.nbytes * self.left // len(self.records)
            self._positions.give_back(self._run._replace(rows=rows, nbytes=nbytes))
            self.left = 0


def records_in(run: Run) -> list[ConsumerRecord]:
    return records_of(run.state.at.topic, run.state.at.partition, run.rows)
