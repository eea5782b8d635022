"""What one node asks another about topics that it owns, and how that is written. Pure."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from siltlog.infra.columns import PRODUCED_SCHEMA, RECORD_SCHEMA
from siltlog.infra.errors import SiltlogError, from_problem, problem
from siltlog.infra.names import HEADER_HOP
from siltlog.infra.records import NewRecord

PREFIX = "/peers/"
WATCH, HEAD, BOUNDS, SYSTEM = (PREFIX + name for name in ("watch", "head", "bounds", "system"))
HOP_FIELD = HEADER_HOP
VERSION_FIELD = "Silt-Table-Version"


class WatchAsked(msgspec.Struct, frozen=True):
    """The next news of a watch. `n` counts those that came; a session that is not known begins anew, with all."""

    session: str = ""
    n: int = 0
    wait_ms: int = 0


class TopicNews(msgspec.Struct, frozen=True):
    """A topic that the node owns: the bounds of its partitions, and its table's version there."""

    name: str
    topic_id: str
    version: int
    bounds: tuple[tuple[int, int, int], ...]


class WatchNews(msgspec.Struct, frozen=True):
    """`gone`: topics that it owns no more. Where `whole`, it owns no others than it names."""

    session: str
    n: int
    topics: tuple[TopicNews, ...] = ()
    gone: tuple[str, ...] = ()
    whole: bool = False


class HeadAsked(msgspec.Struct, frozen=True):
    topic: str
    topic_id: str
    partition: int
    offset: int = 0
    end: int = 0
    max_records: int = 0
    max_bytes: int = 0
    producers: bool = False
    """A node of 0.1.0 passes it over, and gives records without."""


class BoundsNews(msgspec.Struct, frozen=True):
    bounds: tuple[int, int, int]
    version: int


class Ensure(msgspec.Struct, frozen=True, tag="ensure"):
    topic: str
    partitions: int
    config: dict[str, int | str]


class DeadLetters(msgspec.Struct, frozen=True, tag="dead_letters"):
    topic: str


class Append(msgspec.Struct, frozen=True, tag="append"):
    topic: str
    partition: int
    records: tuple[NewRecord, ...]
    producer_id: str = ""
    sequences: tuple[int, ...] = ()


class DeleteRecords(msgspec.Struct, frozen=True, tag="delete_records"):
    topic: str
    partition: int
    before_offset: int


class LastOf(msgspec.Struct, frozen=True, tag="last_of"):
    topic: str
    partition: int
    producer_id: str


class ProducersOf(msgspec.Struct, frozen=True, tag="producers_of"):
    topic: str
    prefix: str


SystemAsked = Ensure | DeadLetters | Append | DeleteRecords | LastOf | ProducersOf
"""What a node asks of the owner of a topic that it appends to by itself."""
system_asked: msgspec.json.Decoder[SystemAsked] = msgspec.json.Decoder(SystemAsked)
encode = msgspec.json.Encoder().encode
watch_asked = msgspec.json.Decoder(WatchAsked)
watch_news = msgspec.json.Decoder(WatchNews)
head_asked = msgspec.json.Decoder(HeadAsked)
bounds_news = msgspec.json.Decoder(BoundsNews)


def batches_written(batches: Sequence[pa.RecordBatch], producers: bool) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, PRODUCED_SCHEMA if producers else RECORD_SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def batches_read(content: bytes, producers: bool) -> list[pa.RecordBatch]:
    """Raises ArrowInvalid, Unavailable where the node does not know of producers that are asked for."""
    with pa.ipc.open_stream(pa.py_buffer(content)) as reader:
        if producers and reader.schema.equals(RECORD_SCHEMA):
            raise problem(
                "topic_unavailable",
                "the node that owns the topic has an earlier version, which does not say who sent a record: upgrade "
                "it, or read what is in the table (isolation=table)",
            )
        if not reader.schema.equals(PRODUCED_SCHEMA if producers else RECORD_SCHEMA):
            raise pa.ArrowInvalid("it has other columns than records have")
        return list(reader)


def error_of(status: int, body: bytes) -> SiltlogError:
    """The error that a node answered with."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = {}
    return from_problem(document if isinstance(document, dict) else {}, status)
