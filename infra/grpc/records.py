"""Records of messages as Arrow, and back."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.columns import HEADERS, TIMESTAMP
from siltlog.infra.grpc.made.silt_pb2 import Header, PublishRecord, Record
from siltlog.infra.http.requests import encode_json

FEW_RECORDS_MAX = 32
FEW_BYTES_MAX = 16 * 1024
"""Base64 takes a third more: larger bodies are Arrow."""
_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("timestamp", TIMESTAMP),
        pa.field("partition", pa.int32()),
        pa.field("sequence", pa.int64()),
    ]
)
_PLAIN = pa.schema([_SCHEMA.field("key"), _SCHEMA.field("value")])
_HEAD, _PLAIN_HEAD = _SCHEMA.serialize().to_pybytes(), _PLAIN.serialize().to_pybytes()
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""A message without a head: "Columnar format", IPC streaming format."""
_decoder = msgspec.json.Decoder(list[dict[str, Any]])


def published_stream(records: Sequence[PublishRecord]) -> bytes:
    """The records of a publish as an Arrow IPC stream."""
    key = pa.array([_given(record, "key") for record in records], pa.binary())
    value = pa.array([_given(record, "value") for record in records], pa.binary())
    if not any(_has_more(record) for record in records):
        batch = pa.RecordBatch.from_arrays([key, value], schema=_PLAIN)
        return b"".join((_PLAIN_HEAD, batch.serialize(), _END))
    headers = [
        [{"key": one.key, "value": _given(one, "value")} for one in record.headers] or None for record in records
    ]
    columns = [
        key,
        value,
        pa.array(headers, HEADERS),
        pa.array([_given(record, "timestamp_us") for record in records], pa.int64()).view(TIMESTAMP),
        pa.array([_given(record, "partition") for record in records], pa.int32()),
        pa.array([_given(record, "sequence") for record in records], pa.int64()),
    ]
    # A column of nulls alone says what none says, and some may not be there.
    kept = [at for at, column in enumerate(columns) if at < 2 or column.null_count < len(column)]
    schema = pa.schema([_SCHEMA.field(at) for at in kept])
    batch = pa.RecordBatch.from_arrays([columns[at] for at in kept], schema=schema)
    return b"".join((schema.serialize(), batch.serialize(), _END))


def few_published(records: Sequence[PublishRecord]) -> bytes | None:
    """A few small records of a publish in JSON; None where they are more, or say more than a key and a value.

    The log keeps such one by one until their group commit; columns of a record each would cost it several times that.
    """
    if len(records) > FEW_RECORDS_MAX or any(map(_has_more, records)):
        return None
    rows = [
        {
            # A value of null is a tombstone.
            **({"value_base64": record.value} if record.HasField("value") else {"value": None}),
            **({"key_base64": record.key} if record.HasField("key") else {}),
        }
        for record in records
    ]
    body = encode_json({"records": rows})
    return body if len(body) <= FEW_BYTES_MAX else None


def fetched(stream: bytes) -> tuple[list[dict[str, Any]], pa.RecordBatchReader]:
    """The partitions that the answer of a fetch tells of, and the batches of it, FETCH_SCHEMA, still to be read."""
    reader = pa.ipc.open_stream(stream)
    return _decoder.decode(reader.schema.metadata[names.ARROW_METADATA_KEY.encode()]), reader


def add_records(records: Any, batches: Iterable[pa.RecordBatch], topic: str | None = None) -> None:
    """Adds the rows of batches to a repeated field; `topic` is theirs where they have no such column."""
    for batch in batches:
        columns = {name: batch.column(name) for name in batch.schema.names}
        topics = [topic] * batch.num_rows if topic is not None else columns["topic"].to_pylist()
        rows = zip(
            topics,
            columns["partition"].to_pylist(),
            columns["offset"].to_pylist(),
            columns["timestamp"].view(pa.int64()).to_pylist(),
            columns["key"].to_pylist(),
            columns["value"].to_pylist(),
            columns["headers"].to_pylist(),
            strict=True,
        )
        records.extend(_record(*row) for row in rows)


def _record(
    topic: str,
    partition: int,
    offset: int,
    timestamp_us: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[dict[str, Any]] | None,
) -> Record:
    # None leaves a field out.
    return Record(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_us=timestamp_us,
        key=key,
        value=value,
        headers=[Header(key=one["key"], value=one["value"]) for one in headers or ()],
    )


def _given(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _has_more(record: PublishRecord) -> bool:
    """Whether it says more than a key and a value."""
    return bool(
        record.headers or record.HasField("timestamp_us") or record.HasField("partition") or record.HasField("sequence")
    )
