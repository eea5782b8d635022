"""Random records, as Kafka's and as our columns."""

import random

import pyarrow as pa
from kafka_oracle import Record

from siltlog.infra.columns import HEADERS, RECORD_SCHEMA, TIMESTAMP
from siltlog.infra.kafka.columns import Columns

NOW_MS = 1_700_000_000_000


def random_records(chance: random.Random, count: int, headers: bool = True) -> list[Record]:
    return [_random_record(chance, headers) for _ in range(count)]


def _random_record(chance: random.Random, headers: bool) -> Record:
    named = [
        (chance.choice(("", "trace", "Größe", "n" * 70)), _some_bytes(chance))
        for _ in range(chance.choice((0, 0, 1, 2, 5)) if headers else 0)
    ]
    return NOW_MS + chance.randint(-(10**6), 10**6), _some_bytes(chance), _some_bytes(chance), tuple(named)


def _some_bytes(chance: random.Random) -> bytes | None:
    return None if chance.random() < 0.2 else chance.randbytes(chance.choice((0, 1, 8, 63, 64, 100, 300)))


def columns_of(records: list[Record], offsets: list[int]) -> pa.RecordBatch:
    """RECORD_SCHEMA; half a millisecond later, which readers do not see."""
    named = [[{"key": name, "value": value} for name, value in headers] or None for *_, headers in records]
    columns = [
        pa.array([0] * len(records), pa.int32()),
        pa.array(offsets, pa.int64()),
        pa.array([millis * 1000 + 500 for millis, *_ in records], pa.int64()).view(TIMESTAMP),
        pa.array([key for _, key, *_ in records], pa.binary()),
        pa.array([value for _, _, value, _ in records], pa.binary()),
        pa.array(named, HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def batch_of(columns: Columns) -> pa.RecordBatch:
    """The columns, those too that no record has."""
    types = (TIMESTAMP, pa.binary(), pa.binary(), HEADERS)
    rows = len(columns.value)
    arrays = [pa.nulls(rows, own) if each is None else each for each, own in zip(columns[:4], types, strict=True)]
    fields = [pa.field(name, own) for name, own in zip(Columns._fields[:4], types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def records_of(columns: Columns) -> list[Record]:
    """The records of columns that a codec has made."""
    batch = batch_of(columns)
    millis = batch.column("timestamp").view(pa.int64()).to_pylist()
    rows = zip(millis, *(batch.column(name).to_pylist() for name in ("key", "value", "headers")), strict=True)
    return [
        (
            -1 if micros is None else micros // 1000,
            key,
            value,
            tuple((each["key"], each["value"]) for each in named or ()),
        )
        for micros, key, value, named in rows
    ]
