"""Reading one partition across table and head, without a seam.

Each source answers for the interval that it covers: the table up to `offset/{p}` of the same snapshot as its list of
files, the head from its first frame. A read moves on by covered intervals, never to the first record that it happens
to find, so a record can be absent only where a source that covers its offset says so.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from siltlog.consumers.reading.budget import Budget, Share, head_bytes
from siltlog.consumers.reading.heads import Head
from siltlog.consumers.reading.row_groups import CheckedFiles, RowGroups
from siltlog.consumers.reading.view import PartitionView, TopicView
from siltlog.infra.errors import CorruptData, SiltlogError, problem
from siltlog.infra.records import Bounds
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.snapshot import TableSnapshot

Isolation = Literal["wal", "table"]
ISOLATIONS: tuple[Isolation, ...] = ("wal", "table")

AHEAD_FILES_MAX = 4
"""How many files a read begins to read before it has come to them."""


@dataclass(slots=True)
class PartitionRead:
    """RECORD_SCHEMA batches in order, PRODUCED_SCHEMA with `producers`, and those that were taken as they were sent;
    [asked offset, `next_offset`) was examined. `bounds` is from after the read."""

    bounds: Bounds
    next_offset: int
    producers: bool = False
    batches: list[Any] = field(default_factory=list)


class Reader:
    """Used on one event loop."""

    def __init__(self, row_groups: RowGroups) -> None:
        self._row_groups = row_groups
        self._checked = CheckedFiles()

    async def read(
        self,
        topic: TopicView,
        view: PartitionView,
        offset: int,
        budget: Budget,
        share: Share,
        isolation: Isolation,
        head: Head = (),
        producers: bool = False,
        sent: bool = False,
    ) -> PartitionRead:
        """Reads from `offset` on what fits into the budget, as far as the isolation shows.

        `head` is what the head gave from `offset` on a moment ago, where it was asked already, for `producers` too.
        `sent` takes batches as they were sent, where there are such.
        Raises OffsetOutOfRange outside [log start, high watermark], CorruptData where stored bytes are damaged or no
        source covers an offset (once nothing before that is left to give), Unavailable where the table cannot be read.
        """
        bounds = view.bounds()
        if not bounds.log_start_offset <= offset <= bounds.high_watermark:
            bounds = await decided(topic, view, offset)
        read = PartitionRead(bounds, offset, producers)
        end = visible_end(bounds, isolation)
        try:
            if isinstance(head, SiltlogError):
                raise head
            # Where its owner has gone meanwhile, the end is lower than it was.
            if head and last_of(head) < end:
                self._take(topic, view, read, head, budget, share)
            while read.next_offset < end and not budget.spent and not share.spent:
                if sent and _take_sent(view, read, end, budget, share):
                    continue
                if not await self._from_head(topic, view, read, end, budget, share):
                    await self._from_table(topic, view, read, end, budget, share)
        except SiltlogError:
            # Where its owner has gone away meanwhile, what only that had is not to be seen any more.
            if not read.batches and read.next_offset < visible_end(view.bounds(), isolation):
                raise
        read.bounds = view.bounds()
        return read

    async def _from_head(
        self, topic: TopicView, view: PartitionView, read: PartitionRead, end: int, budget: Budget, share: Share
    ) -> bool:
        """Reads on in the head; False when the head does not cover the next offset."""
        wanted = head_bytes(budget, share)
        batches = await view.read_head(read.next_offset, end, budget.records_left, wanted, read.producers)
        if batches is None:
            return False
        if not batches:
            raise uncovered(topic, view, read.next_offset, "the head covers it and gives nothing")
        self._take(topic, view, read, batches, budget, share)
        return True

    def _take(
        self,
        topic: TopicView,
        view: PartitionView,
        read: PartitionRead,
        batches: Sequence[pa.RecordBatch],
        budget: Budget,
        share: Share,
    ) -> None:
        for batch in batches:
            if batch.num_rows == 0 or batch.column("offset")[0].as_py() != read.next_offset:
                raise uncovered(topic, view, read.next_offset, "the head's records do not go on with it")
            taken = budget.take(batch, share)
            if taken.num_rows:
                read.batches.append(taken)
                read.next_offset = taken.column("offset")[-1].as_py() + 1
            if taken.num_rows < batch.num_rows:
                break

    async def _from_table(
        self, topic: TopicView, view: PartitionView, read: PartitionRead, end: int, budget: Budget, share: Share
    ) -> None:
        """Reads on in one snapshot of the table, up to the end of what it covers."""
        # Taken after the head declined: the head lets an offset go only once the topic's snapshot covers it.
        snapshot = topic.snapshot
        covered_end = min(snapshot.offsets.get(view.partition, 0), end)
        if read.next_offset >= covered_end:
            raise uncovered(
                topic, view, read.next_offset, f"the head starts above it and table version {snapshot.version} below"
            )
        start = snapshot.starts.get(view.partition, 0)
        if read.next_offset < start:
            # The log start moved since the bounds were read.
            check_range(topic, view, read.next_offset, view.bounds()._replace(log_start_offset=start))
        try:
            await self._scan(topic, view, snapshot, read, covered_end, budget, share)
        except CorruptData:
            # A file of an older snapshot may be gone; the newer one has its records elsewhere.
            if topic.snapshot.version == snapshot.version:
                raise

    async def _scan(
        self,
        topic: TopicView,
        view: PartitionView,
        snapshot: TableSnapshot,
        read: PartitionRead,
        covered_end: int,
        budget: Budget,
        share: Share,
    ) -> None:
        files = self._checked.of(topic.name, snapshot, view.partition)
        at = bisect_left(files, read.next_offset, key=last_offset_of)
        while read.next_offset < covered_end and not budget.spent and not share.spent:
            if at == len(files) or files[at].first_offset >= covered_end:
                read.next_offset = covered_end
                return
            file = files[at]
            position = max(read.next_offset, file.first_offset)
            self._ahead(topic.name, files, at, position, budget.records_left, read.producers)
            group = await self._row_groups.at(topic.name, file, position, read.producers)
            rows, ends = group.between(position, covered_end)
            taken = budget.take(rows, share, ends)
            if taken.num_rows:
                read.batches.append(taken)
                read.next_offset = taken.column("offset")[-1].as_py() + 1
            if taken.num_rows == rows.num_rows:
                read.next_offset = min(group.next_offset, covered_end)
            if group.next_offset > file.last_offset:
                at += 1
            if group.is_past_middle(read.next_offset) and at < len(files):
                following = max(group.next_offset, files[at].first_offset)
                self._row_groups.ahead(topic.name, files[at], following, read.producers)

    def _ahead(
        self, topic: str, files: Sequence[DataFile], at: int, position: int, wanted: int, producers: bool
    ) -> None:
        """Begins to read the files that a read of `wanted` records from `position` will come to."""
        rows = 0
        for file in files[at : at + AHEAD_FILES_MAX]:
            first = max(position, file.first_offset)
            if rows >= wanted or not self._row_groups.ahead(topic, file, first, producers):
                return
            rows += file.rows


def _take_sent(view: PartitionView, read: PartitionRead, end: int, budget: Budget, share: Share) -> bool:
    """Reads on in what the head has as it was sent; False where it has nothing of that which fits, or very much: as one
    batch that takes less time, and fewer bytes."""
    first = read.next_offset
    batches = view.sent(first, end)
    if len(batches) > share.sent_left:
        return False
    for batch in batches:
        if not budget.take_sent(batch, share):
            break
        read.batches.append(batch)
        read.next_offset = batch.next_offset
    return read.next_offset > first


def visible_end(bounds: Bounds, isolation: Isolation) -> int:
    return bounds.table_offset if isolation == "table" else bounds.high_watermark


async def decided(topic: TopicView, view: PartitionView, offset: int) -> Bounds:
    """The bounds that a read from `offset` begins with.

    Raises OffsetOutOfRange by what the partition's owner says; while nobody owns it none is above its end, and nothing
    is that the table has by now.
    """
    bounds = await view.decided()
    if bounds is not None and (offset <= bounds.high_watermark or not await view.reaches(offset)):
        check_range(topic, view, offset, bounds)
        return bounds
    bounds = view.bounds()
    check_range(topic, view, min(offset, bounds.high_watermark), bounds)
    return bounds


def check_range(topic: TopicView, view: PartitionView, offset: int, bounds: Bounds) -> None:
    """Raises OffsetOutOfRange where nobody can read from `offset` on."""
    if not bounds.log_start_offset <= offset <= bounds.high_watermark:
        detail = (
            f"offset {offset} of topic {topic.name}, partition {view.partition} is outside of "
            f"{bounds.log_start_offset} (log start) to {bounds.high_watermark} (high watermark); "
            "read from one within, or from earliest or latest"
        )
        raise _out_of_range(detail, topic, view, offset, bounds)


def check_there(
    topic: TopicView,
    view: PartitionView,
    offset: int,
    what: str = "record",
    then: str = "",
    bounds: Bounds | None = None,
) -> None:
    """Raises OffsetOutOfRange where there can be no record.

    `what` names the record, and `then` says at the end of the sentence what comes of it. Without `bounds` those count
    that this node knows.
    """
    bounds = bounds or view.bounds()
    first, end = bounds.log_start_offset, bounds.high_watermark
    if not first <= offset < end:
        detail = f"{topic.name}/{view.partition} has no {what} at {offset}: it has {first} to {end - 1}{then}"
        raise _out_of_range(detail, topic, view, offset, bounds)


def _out_of_range(detail: str, topic: TopicView, view: PartitionView, offset: int, bounds: Bounds) -> SiltlogError:
    return problem(
        "offset_out_of_range",
        detail,
        topic=topic.name,
        partition=view.partition,
        offset=offset,
        log_start_offset=bounds.log_start_offset,
        high_watermark=bounds.high_watermark,
    )


def uncovered(topic: TopicView, view: PartitionView, offset: int, why: str) -> SiltlogError:
    return problem(
        "corrupt_data",
        f"offset {offset} of topic {topic.name}, partition {view.partition} is in neither the table nor the head: "
        f"{why}; restart the server, which checks both and names what is missing",
        topic=topic.name,
        partition=view.partition,
        first_offset=offset,
        last_offset=offset,
    )


def last_of(batches: Sequence[pa.RecordBatch]) -> int:
    last: int = batches[-1].column("offset")[-1].as_py()
    return last


def last_offset_of(file: DataFile) -> int:
    return file.last_offset
