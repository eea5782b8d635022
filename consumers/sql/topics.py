"""The topics of a query: which they are by its names, and each as one snapshot of its table with the head above it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from siltlog.consumers.reading.fetch import require_read, sources
from siltlog.consumers.reading.reader import uncovered
from siltlog.consumers.reading.row_groups import CheckedFiles
from siltlog.consumers.reading.view import LogView, PartitionView, TopicView
from siltlog.consumers.sql import frames
from siltlog.consumers.sql.reads import TableReads
from siltlog.infra.errors import SiltlogError, Unavailable, UnknownTopic, problem
from siltlog.infra.http.memory import Held
from siltlog.infra.security.grant import EVERYTHING, Grant
from siltlog.infra.sql.identifiers import DATABASE, parts_of
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.snapshot import TableSnapshot

MIB = 1024 * 1024
HEAD_BYTES_MAX = 64 * MIB
"""The limit of all heads of a query together."""
PIECE_RECORDS, PIECE_BYTES = 50_000, 4 * MIB
HEAD_COPIES = 2
"""A head is in memory as it was read, and as it is sent."""
TRIES_MAX = 10
"""How often a head is read anew because it let go of what the snapshot has not."""
_MAIN = "main"
_CATALOGUE = "memory"


@dataclass(slots=True)
class Named:
    """A topic that a query names, with the schemas and names that it has there."""

    topic: str
    places: list[tuple[str, str]]


@dataclass(slots=True)
class TopicRows:
    """Every record of a topic once: those of the snapshot from the starts on, then those of the head. `has_head` is
    false where its newest records are missing, because they are too many or the node that has them does not answer."""

    named: Named
    snapshot: TableSnapshot
    starts: dict[int, int]
    head: list[pa.RecordBatch] = field(default_factory=list)
    has_head: bool = True

    def files(self) -> list[DataFile]:
        """Lists its files, which may be many. Raises CorruptData where two of them overlap."""
        checked = CheckedFiles()
        return [
            file
            for partition, start in sorted(self.starts.items())
            for file in checked.of(self.named.topic, self.snapshot, partition)
            if file.last_offset >= start
        ]

    @property
    def head_records(self) -> int:
        return sum(batch.num_rows for batch in self.head)


def named_topics(log: LogView, grant: Grant, found: Sequence[str]) -> list[Named]:
    """The topics that the names of a query mean, each of which may be read.

    Raises Refused `forbidden`, `invalid_request` where there is none; UnknownTopic.
    """
    if not found:
        raise problem(
            "invalid_request", "the query names no topic: each topic is a table, as in SELECT ... FROM orders"
        )
    by_topic: dict[str, Named] = {}
    for name in found:
        schema, table, whole = _place(name)
        topic = _topic(log, grant, table if schema in (_MAIN, DATABASE) else whole, whole)
        named = by_topic.setdefault(topic, Named(topic, []))
        if (schema.lower(), table.lower()) not in [(one.lower(), other.lower()) for one, other in named.places]:
            named.places.append((schema, table))
    return list(by_topic.values())


def _place(name: str) -> tuple[str, str, str]:
    """Schema and name of a view, and the topic that it is where the schema is none of ours."""
    parts = parts_of(name)
    if len(parts) == 3 and parts[0].lower() == _CATALOGUE:
        parts = parts[1:]
    whole = ".".join(parts)
    if len(parts) == 1:
        return _MAIN, parts[0], whole
    if len(parts) == 2:
        schema = parts[0].lower()
        return (schema if schema in (_MAIN, DATABASE) else parts[0]), parts[1], whole
    raise _unknown(whole, quote=True)


def _topic(log: LogView, grant: Grant, name: str, whole: str) -> str:
    """SQL does not tell case: a topic whose name is that but for it is meant, of those that may be read."""
    if _may_read(grant, name):
        try:
            return log.topic(name).name
        except UnknownTopic:
            pass
    folded = name.lower()
    for topic in log.topics():
        if topic.name.lower() == folded and _may_read(grant, topic.name):
            return topic.name
    require_read(grant, name)
    raise _unknown(whole, quote="." in whole)


def _may_read(grant: Grant, topic: str) -> bool:
    return all(grant.may("read", "topic", name) for name in sources(topic))


def _unknown(name: str, *, quote: bool) -> SiltlogError:
    hint = "; a name with '-' or '.' goes in double quotes" if quote else ""
    return problem("unknown_topic", f"there is no topic {name[:200]}{hint}", topic=name[:200])


class HeadRoom:
    """The bytes that heads of a query may still take."""

    def __init__(self, held: Held | None) -> None:
        self._left = HEAD_BYTES_MAX
        self._held = held

    def take(self, nbytes: int) -> bool:
        """False where there is no room. Raises Unavailable `overloaded` where the server has none."""
        if nbytes > self._left:
            return False
        if self._held is not None:
            self._held.take(HEAD_COPIES * nbytes)
        self._left -= nbytes
        return True

    def give_back(self, nbytes: int) -> None:
        """What was taken is read once more; the server's own room stays taken until the query has ended."""
        self._left += nbytes


async def rows_of(log: LogView, named: Named, room: HeadRoom, rest: Callable[[], Awaitable[None]]) -> TopicRows:
    """A topic as it is now, its newest acknowledged record in it.

    Raises UnknownTopic, Unavailable, CorruptData where the head has a hole. `rest` is awaited where others are to have
    their turn.
    """
    view = log.topic(named.topic)
    ends: dict[int, int] = {}
    has_head = True
    for partition in view.partitions:
        try:
            bounds = await partition.decided() if has_head else None
        except Unavailable:
            bounds = None
        # Where nobody says how far it goes, the table is all that there is.
        has_head = bounds is not None
        ends[partition.partition] = 0 if bounds is None else bounds.high_watermark
    for _ in range(TRIES_MAX):
        snapshot = view.snapshot
        starts = {
            one.partition: max(snapshot.starts.get(one.partition, 0), one.bounds().log_start_offset)
            for one in view.partitions
        }
        rows = TopicRows(named, snapshot, starts, has_head=has_head)
        if await _add_heads(view, rows, ends, room, rest):
            return rows
    raise problem("topic_unavailable", f"the table of {named.topic} moves on faster than it is read; ask again")


async def _add_heads(
    view: TopicView, rows: TopicRows, ends: dict[int, int], room: HeadRoom, rest: Callable[[], Awaitable[None]]
) -> bool:
    """Adds the heads from the snapshot on; False where one let go of records meanwhile, which a newer snapshot has."""
    for partition in view.partitions:
        at = max(rows.snapshot.offsets.get(partition.partition, 0), rows.starts.get(partition.partition, 0))
        end = ends.get(partition.partition, 0)
        while at < end and rows.has_head:
            try:
                batches = await partition.read_head(at, end, PIECE_RECORDS, PIECE_BYTES)
            except Unavailable:
                rows.has_head = False
                break
            if batches is None:
                if view.snapshot.version == rows.snapshot.version:
                    raise _between(view, partition, at)
                room.give_back(sum(batch.nbytes for batch in rows.head))
                return False
            if not batches:
                raise uncovered(view, partition, at, "the head covers it and gives nothing")
            if not room.take(sum(batch.nbytes for batch in batches)):
                rows.has_head = False
                break
            rows.head += batches
            at = batches[-1].column("offset")[-1].as_py() + 1
            await rest()
    if not rows.has_head:
        # Part of it would be neither the table nor the topic.
        rows.head = []
    return True


def _between(view: TopicView, partition: PartitionView, offset: int) -> SiltlogError:
    return uncovered(
        view, partition, offset, f"the head starts above it and table version {view.snapshot.version} below"
    )


def given_tables(topics: Sequence[TopicRows], reads: TableReads) -> tuple[list[frames.Table], list[memoryview]]:
    """What the process of the query is told of the topics, and their heads. It may read the files that are named.

    For a thread: there may be many files. Raises CorruptData.
    """
    tables, heads = [], []
    for rows in topics:
        head = _packed(rows.head)
        if head is not None:
            heads.append(head)
        files = [
            (reads.add(rows.named.topic, file), file.size_bytes, file.partition, file.first_offset, file.last_offset)
            for file in rows.files()
        ]
        tables.append(frames.Table(rows.named.topic, rows.named.places, files, rows.starts, head is not None))
    return tables, heads


def _packed(batches: Sequence[pa.RecordBatch]) -> memoryview | None:
    if not batches:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return memoryview(sink.getvalue())


def still_readable(grant: Grant, topics: Sequence[str]) -> Callable[[], None]:
    """Asks again whether each may be read. Raises Refused."""
    if grant is EVERYTHING:
        return lambda: None
    return partial(_require_all, grant, topics)


def _require_all(grant: Grant, topics: Sequence[str]) -> None:
    for topic in topics:
        require_read(grant, topic)
