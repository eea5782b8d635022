"""Decides which rows of a topic's batches go next, and to which partitions. No IO, no clock."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from siltlog.infra.arrow.partitioner import PARTITIONERS, PlacedBy
from siltlog.infra.client.bodies.arrow_body import Placement, out_of_range, place
from siltlog.infra.errors import SiltlogError, problem
from siltlog.ingest.library.batch import Batch

COLUMN_BYTES = 16
"""Partition and sequence of a row, with room for padding."""
REQUEST_BYTES_TARGET = 8 * 1024 * 1024
REQUEST_RECORDS_TARGET = 1_000_000


@dataclass(slots=True)
class Limits:
    """The most that the server takes in one request; shared by the lanes of a producer."""

    request_bytes: int = REQUEST_BYTES_TARGET
    records: int = REQUEST_RECORDS_TARGET
    known: bool = False

    def learn(self, document: Mapping[str, Any]) -> None:
        limits = document.get("limits", {})
        # A tenth stays free for what frames the columns.
        self.request_bytes = min(self.request_bytes, max(1, int(limits.get("request_bytes", self.request_bytes) * 0.9)))
        self.records = min(self.records, limits.get("records", self.records))
        self.known = True

    def fitting(self, batch: Batch, start: int, end: int) -> int:
        """The largest end at most `end` whose rows fit in one request; at least one row does."""
        count = min(end - start, self.records)
        if count == batch.count and batch.size_bytes + count * COLUMN_BYTES <= self.request_bytes:
            return end
        columns = batch.columns()
        while count > 1:
            size = columns.slice(start, count).nbytes + count * COLUMN_BYTES
            if size <= self.request_bytes:
                break
            count = max(1, min(count - 1, int(count * self.request_bytes / size)))
        return start + count


class Placed(NamedTuple):
    """Rows [start, stop) of a batch that know where they go, and go next."""

    batch: Batch
    start: int
    stop: int
    placement: Placement


class Placer:
    """Rows go in the order of their sends: whatever comes back goes before all that was sent after it."""

    def __init__(self, topic: str, limits: Limits, jitter: Callable[[], float]) -> None:
        self.placed: Placed | None = None
        self.batches: list[Batch] = []
        """The batches that are not decided."""
        self._topic = topic
        self._limits = limits
        self._keyless = int(jitter() * 2**31)

    def waiting(self) -> list[Batch]:
        """The batches with rows that are not on their way."""
        waiting = [batch for batch in self.batches if batch.pending]
        return waiting if self.placed is None else [self.placed.batch, *waiting]

    def take_finished(self) -> list[Batch]:
        """The batches every row of which is decided."""
        finished = [batch for batch in self.batches if not batch.pending and not batch.requests]
        if finished:
            self.batches = [batch for batch in self.batches if batch.pending or batch.requests]
        return finished

    def place_next(self, by: PlacedBy, busy: Collection[int], *, checked: bool) -> None:
        """Cuts and places the next rows if there are any. `checked`: rows may name only partitions that there are."""
        partitions, partitioner = by.partitions, PARTITIONERS[by.partitioner]
        while self.placed is None:
            batch = next((batch for batch in self.batches if batch.pending), None)
            if batch is None:
                return
            start, end, sticky = batch.pending[0]
            stop = self._limits.fitting(batch, start, end)
            records = batch.slice(start, stop)
            wrong = out_of_range(records, partitions) if checked else []
            if wrong:
                bad = start + wrong[0]
                del batch.pending[0]
                batch.failed(bad, bad + 1, self._no_partition(batch, bad, partitions))
                batch.requeue((start, bad), (bad + 1, end), keyless=sticky)
                continue
            keyless = sticky if sticky is not None and sticky < partitions else self._next_keyless(partitions, busy)
            placement = place(records, partitions, keyless, partitioner)
            del batch.pending[0]
            batch.requeue((stop, end), keyless=sticky)
            batch.requests += 1
            self.placed = Placed(batch, start, stop, placement)

    def take_placed(self) -> None:
        self.placed = None

    def unplace(self) -> None:
        if self.placed is not None:
            batch, start, stop, placement = self.placed
            self.placed = None
            batch.requests -= 1
            batch.requeue((start, stop), keyless=placement.keyless)

    def give_back(self, batch: Batch, placement: Placement, *ranges: tuple[int, int]) -> None:
        """Rows that were on their way wait again."""
        self.unplace()
        batch.requeue(*ranges, keyless=placement.keyless)

    def fail_waiting(self, batches: Sequence[Batch], error: SiltlogError) -> None:
        self.unplace()
        for batch in batches:
            batch.fail_pending(error)

    def _next_keyless(self, partitions: int, busy: Collection[int]) -> int:
        """Keyless rows stick to one partition for a request: the next in turn that is free."""
        self._keyless += 1
        turn = (self._keyless + more for more in range(partitions))
        self._keyless = next((number for number in turn if number % partitions not in busy), self._keyless)
        return self._keyless % partitions

    def _no_partition(self, batch: Batch, row: int, partitions: int) -> SiltlogError:
        partition = batch.columns()["partition"][row].as_py()
        return problem(
            "unknown_partition",
            f"{self._topic} has no partition {partition}; it has {partitions}, numbered from 0",
            topic=self._topic,
            partition=partition,
        )
