"""Where a consumer is in its partitions, and the records it has fetched and not handed out. No IO, no clock."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.arrow_arrays import numbers_of
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.errors import SiltlogError, from_problem
from siltlog.infra.schema import FETCH_SCHEMA

Marks = Mapping[TopicPartition, int]
"""Offsets at which reading ends; partitions that are absent are not read."""


class PartitionState:
    """`position` is the next offset to hand out, `asked` the next to fetch; what is below `done` is done.

    Offsets have gaps, so none of them is last + 1: each is what the server named as next, or a record's offset + 1.
    """

    __slots__ = ("asked", "at", "committed", "done", "paused", "placed", "position")

    def __init__(self, at: TopicPartition, offset: int) -> None:
        self.at = at
        self.paused = False
        self.committed = offset
        self.move(offset)

    def move(self, offset: int) -> None:
        self.placed = True
        self.position = self.asked = self.done = offset


class Run(NamedTuple):
    """Rows of one partition in order; `after` is the position once all of them are handed out."""

    state: PartitionState
    rows: pa.Table
    after: int


class FetchProblem(NamedTuple):
    state: PartitionState
    error: SiltlogError
    log_start_offset: int
    table_offset: int
    high_watermark: int


class Positions:
    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        self._runs: deque[Run] = deque()

    @property
    def buffered_bytes(self) -> int:
        return sum(run.rows.nbytes for run in self._runs if not run.state.paused)

    def assign(self, at: TopicPartition, offset: int) -> None:
        self.states[at] = PartitionState(at, offset)

    def revoke(self, lost: Iterable[TopicPartition]) -> None:
        for at in lost:
            self._drop(self.states.pop(at))

    def seek(self, at: TopicPartition, offset: int) -> None:
        state = self.states[at]
        self._drop(state)
        state.move(offset)

    def _drop(self, state: PartitionState) -> None:
        self._runs = deque(run for run in self._runs if run.state is not state)

    # --- fetching -----------------------------------------------------------------------------------------
    def wanted(self, marks: Marks | None) -> list[PartitionState]:
        """The partitions to fetch from, each at its `asked`."""
        return [
            state
            for at, state in self.states.items()
            if not state.paused and state.placed and (marks is None or state.asked < marks.get(at, 0))
        ]

    def accept(self, asked: Sequence[tuple[PartitionState, int]], reply: pa.Table) -> list[FetchProblem]:
        """Takes a reply to a fetch of `asked` (state and offset); what has moved meanwhile is left out."""
        parts: list[dict[str, Any]] = msgspec.json.decode(reply.schema.metadata[names.ARROW_METADATA_KEY.encode()])
        rows = _by_partition(reply)
        problems: list[FetchProblem] = []
        current = {
            state.at: state for state, offset in asked if self.states.get(state.at) is state and state.asked == offset
        }
        for part in parts:
            state = current.get(TopicPartition(part["topic"], part["partition"]))
            if state is None:
                continue
            if part["error"] is not None:
                error = from_problem(part["error"], part["error"].get("status", 500))
                bounds = [part.get(name) or 0 for name in ("log_start_offset", "table_offset", "high_watermark")]
                problems.append(FetchProblem(state, error, *bounds))
                continue
            found = rows.get(state.at)
            if found is not None:
                self._runs.append(Run(state, found, part["next_offset"]))
            elif state.position == state.asked:
                state.position = part["next_offset"]
            state.asked = part["next_offset"]
        return problems

    # --- handing out --------------------------------------------------------------------------------------
    def take(self, max_records: int, marks: Marks | None = None) -> Run | None:
        """At most `max_records` rows of one partition; the caller moves `position` as it hands them out."""
        held: list[Run] = []
        taken: Run | None = None
        while self._runs and taken is None:
            run = self._runs.popleft()
            count = 0 if run.state.paused else _below(run, marks)
            if count == 0:
                held.append(run)
                continue
            count = min(count, max_records)
            if count < run.rows.num_rows:
                rest = run.rows.slice(count)
                self._runs.appendleft(Run(run.state, rest, run.after))
                taken = Run(run.state, run.rows.slice(0, count), rest["offset"][0].as_py())
            else:
                taken = run
        self._runs.extendleft(reversed(held))
        return taken

    def give_back(self, run: Run) -> None:
        """What was taken last and not handed out."""
        if self.states.get(run.state.at) is run.state:
            self._runs.appendleft(run)

    def finished(self, marks: Marks) -> bool:
        """Whether everything below the marks has been handed out."""
        return all(state.position >= marks.get(at, 0) for at, state in self.states.items())

    def mark_done(self) -> None:
        for state in self.states.values():
            state.done = state.position

    def uncommitted(self) -> dict[TopicPartition, int]:
        """What is done and not committed."""
        return {at: state.done for at, state in self.states.items() if state.done != state.committed}

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        for at, offset in offsets.items():
            if at in self.states:
                self.states[at].committed = offset


def _below(run: Run, marks: Marks | None) -> int:
    """How many rows of the run lie below its partition's mark; a position before a gap that spans it moves there."""
    if marks is None:
        rows: int = run.rows.num_rows
        return rows
    mark = marks.get(run.state.at, 0)
    count = int(np.searchsorted(run.rows["offset"].to_numpy(), mark))
    if count == 0:
        run.state.position = max(run.state.position, mark)
    return count


def _by_partition(table: pa.Table) -> dict[TopicPartition, pa.Table]:
    """The rows of each topic-partition, which lie together in a reply."""
    count = table.num_rows
    if count == 0:
        return {}
    table = table.replace_schema_metadata(None).select(FETCH_SCHEMA.names)
    partitions = numbers_of(table["partition"].combine_chunks(), np.int32)
    changes = partitions[1:] != partitions[:-1]
    topics = table["topic"].combine_chunks().dictionary_encode()
    if len(topics.dictionary) > 1:
        codes = numbers_of(topics.indices, np.int32)
        changes |= codes[1:] != codes[:-1]
    starts = [0, *(np.flatnonzero(changes) + 1).tolist(), count]
    found: dict[TopicPartition, pa.Table] = {}
    for start, stop in pairwise(starts):
        at = TopicPartition(topics[start].as_py(), int(partitions[start]))
        rows = table.slice(start, stop - start)
        found[at] = rows if at not in found else pa.concat_tables([found[at], rows])
    return found
