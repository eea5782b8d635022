"""A record as the Python library gives it, and many of them from Arrow columns."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from siltlog.infra.client.record import Headers


class ConsumerRecord(msgspec.Struct, frozen=True, gc=False):
    """Bytes are as stored; `timestamp` is an aware datetime in UTC with microseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: Headers

    def text(self) -> str | None:
        """The value as UTF-8, None for a tombstone. Raises UnicodeDecodeError."""
        return None if self.value is None else self.value.decode()

    def json(self) -> Any:
        """The value decoded from JSON, None for a tombstone. Raises msgspec.DecodeError, a ValueError."""
        return None if self.value is None else msgspec.json.decode(self.value)


def records_of(topic: str, partition: int, rows: pa.Table) -> list[ConsumerRecord]:
    """The rows (columns offset, timestamp, key, value, headers), all of one topic-partition, as records in order."""
    count = rows.num_rows
    return [
        ConsumerRecord(topic, partition, offset, moment.replace(tzinfo=UTC), key, value, pairs)
        for offset, moment, key, value, pairs in zip(
            rows["offset"].to_numpy().tolist(),
            rows["timestamp"].to_numpy().astype("datetime64[us]").tolist(),
            rows["key"].to_numpy().tolist() if rows["key"].null_count < count else [None] * count,
            rows["value"].to_numpy().tolist(),
            _headers(rows["headers"]),
            strict=True,
        )
    ]


def _headers(column: pa.ChunkedArray) -> list[Headers]:
    if column.null_count == len(column):
        return [()] * len(column)
    return [tuple((pair["key"], pair["value"]) for pair in pairs or ()) for pairs in column.to_pylist()]
