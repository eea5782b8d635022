"""A record batch of version 2: its head, and the checks that a producer's batch must pass."""

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from siltlog.infra.clock import TIME_MAX_US
from siltlog.infra.kafka import native
from siltlog.infra.kafka.columns import NO_TIMESTAMP, Content, Located
from siltlog.infra.kafka.compression import CODECS, inflated
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.kafka.layout import FEW, Layout, gathered, layout
from siltlog.infra.kafka.wire import Buffer, Malformed
from siltlog.infra.store.checksum import crc32c

HEAD = Struct(">qiibIhiqqqhii")
LENGTH_END = 12
"""The bytes up to the length's end: the length counts what follows."""
EPOCH_END = 16
"""The bytes up to the end of the leader's epoch."""
ATTRIBUTES = slice(21, 23)
CRC_START = 21
"""The checksum is of what follows itself."""
MAGIC = 2
CODEC_BITS = 0b111
LOG_APPEND_TIME = 1 << 3
TRANSACTIONAL = 1 << 4
CONTROL = 1 << 5
NO_PRODUCER = -1
TIME_MAX_MS = TIME_MAX_US // 1000
_NO_NAMES = pa.nulls(0, pa.string())
"""Made once: Arrow gives up the interpreter's lock to make it, and waits for it when other threads are busy."""


# Not frozen: of one record that would be a good part of the time that all of this takes.
@dataclass(slots=True)
class BatchHead:
    base_offset: int
    leader_epoch: int
    codec: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    """NO_PRODUCER where it is not idempotent; else neither this nor the next two are negative."""
    producer_epoch: int
    first_sequence: int
    rows: int
    records: memoryview
    """Inflated."""
    content: Content


class Numbering(NamedTuple):
    """What an idempotent producer says of a batch."""

    producer_id: int
    producer_epoch: int
    first_sequence: int


class Rejected(Exception):
    """A producer's batch is not taken: `code` is the error of its partition's answer, `str()` a sentence, `index` the
    number of the record that is wrong, where it is one's fault."""

    def __init__(self, code: KafkaError, detail: str, index: int | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.index = index


def check(raw: Buffer, inflated_bytes_max: int) -> BatchHead:
    """The head of `raw`, exactly one batch whose records are well formed.

    `inflated_bytes_max` is below 2 GiB. Raises Rejected.
    """
    view = memoryview(raw).cast("B")
    if len(view) < HEAD.size:
        raise Rejected(KafkaError.CORRUPT_MESSAGE, f"{len(view)} bytes are no record batch")
    fields = HEAD.unpack_from(view)
    base_offset, length, leader_epoch, magic, crc, attributes, last_delta, base_ms, max_ms = fields[:9]
    producer_id, producer_epoch, first_sequence, rows = fields[9:]
    if magic != MAGIC:
        detail = f"the record batch has format {magic}; only {MAGIC} is taken, of clients since Kafka 0.11"
        raise Rejected(KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, detail)
    size = length + LENGTH_END
    if HEAD.size <= size < len(view):
        raise Rejected(KafkaError.INVALID_RECORD, "a partition of a request takes one record batch, and there are more")
    if size != len(view):
        raise Rejected(KafkaError.CORRUPT_MESSAGE, f"the record batch has {size} bytes, and {len(view)} came")
    if crc32c(pa.py_buffer(view[CRC_START:])) != crc:
        raise Rejected(KafkaError.CORRUPT_MESSAGE, "the record batch does not have its checksum; send it again")
    _check_attributes(attributes)
    if rows < 1 or last_delta != rows - 1:
        detail = f"the record batch has {rows} records, and {last_delta} as the last one's offset within it"
        raise Rejected(KafkaError.INVALID_RECORD, detail)
    if producer_id != NO_PRODUCER and min(producer_id, producer_epoch, first_sequence) < 0:
        detail = f"producer {producer_id} gives {producer_epoch} as its epoch and {first_sequence} as its sequence"
        raise Rejected(KafkaError.INVALID_RECORD, detail)
    codec = attributes & CODEC_BITS
    records = _inflated(view[HEAD.size :], codec, inflated_bytes_max)
    content = native.checked(records, rows, base_ms, TIME_MAX_MS) or located(records, rows, base_ms)
    return BatchHead(
        base_offset, leader_epoch, codec, base_ms, max_ms,
        producer_id, producer_epoch, first_sequence, rows, records, content,
    )  # fmt: skip


def located(records: memoryview, rows: int, base_ms: int) -> Located:
    """The records of a batch, as numpy finds them or a loop. Raises Rejected."""
    try:
        found = layout(records, rows)
    except Malformed as error:
        raise Rejected(KafkaError.INVALID_RECORD, str(error), _index_of(error)) from None
    _check_times(base_ms, found)
    return Located(records, base_ms, found, _header_names(records, found))


def numbering(raw: Buffer | None) -> Numbering | None:
    """What `raw` begins with says, though nothing of it is checked; None where no idempotent producer sent it."""
    if raw is None or len(raw) < HEAD.size:
        return None
    found = Numbering(*HEAD.unpack_from(raw)[9:12])
    return found if min(found) >= 0 else None


def _check_attributes(attributes: int) -> None:
    if attributes & CODEC_BITS not in CODECS:
        detail = f"compression {attributes & CODEC_BITS} is not known; use gzip, snappy, lz4 or zstd"
        raise Rejected(KafkaError.UNSUPPORTED_COMPRESSION_TYPE, detail)
    if attributes & (TRANSACTIONAL | CONTROL):
        raise Rejected(KafkaError.INVALID_RECORD, "transactions are not taken; send without a transactional.id")
    if attributes & LOG_APPEND_TIME:
        raise Rejected(KafkaError.INVALID_TIMESTAMP, "a producer cannot say that its times are those of the append")


def _inflated(data: memoryview, codec: int, bytes_max: int) -> memoryview:
    try:
        return inflated(data, codec, bytes_max)
    except OverflowError as error:
        raise Rejected(KafkaError.MESSAGE_TOO_LARGE, str(error)) from None
    except ValueError as error:
        raise Rejected(KafkaError.INVALID_RECORD, str(error)) from None


def _index_of(error: Malformed) -> int | None:
    _, _, number = error.where.partition("record ")
    return int(number) if number else None


def _check_times(base_ms: int, found: Layout) -> None:
    """Refuses times that no column of ours holds; -1 stands for none."""
    deltas = found.timestamp_deltas
    if len(deltas) <= FEW and _is_within(base_ms, deltas.tolist()):
        return
    if not NO_TIMESTAMP <= base_ms <= TIME_MAX_MS:
        raise Rejected(KafkaError.INVALID_TIMESTAMP, f"the time {base_ms} ms is not within the years 1970 to 9999", 0)
    outside = (deltas < NO_TIMESTAMP - base_ms) | (deltas > TIME_MAX_MS - base_ms)
    if outside.any():
        index = int(np.argmax(outside))
        detail = f"record {index}: its time, {base_ms + int(deltas[index])} ms, is not within the years 1970 to 9999"
        raise Rejected(KafkaError.INVALID_TIMESTAMP, detail, index)


def _is_within(base_ms: int, deltas: list[int]) -> bool:
    return min(base_ms, base_ms + min(deltas)) >= NO_TIMESTAMP and max(base_ms, base_ms + max(deltas)) <= TIME_MAX_MS


def _header_names(records: memoryview, found: Layout) -> pa.Array:
    bounds = found.header_bounds[:, 0]
    if not len(bounds):
        return _NO_NAMES
    names = gathered(records, bounds, None)
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        wrong = next(at for at in range(len(names)) if not _is_utf8(names[at].as_py()))
        index = int(np.searchsorted(np.cumsum(found.header_counts), wrong, side="right"))
        detail = f"record {index}: the name of a header is not UTF-8; names are text here"
        raise Rejected(KafkaError.INVALID_RECORD, detail, index) from None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
