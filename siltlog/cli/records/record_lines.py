"""Lines that are record objects, as HTTP takes and gives them, as columns: what was consumed can be published again."""

import base64
import binascii
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa

from siltlog.consumers.library.record import ConsumerRecord
from siltlog.infra.client.record import EPOCH, time_us
from siltlog.infra.columns import HEADERS, TIMESTAMP
from siltlog.infra.limits import PARTITION_MAX

Stored = list[tuple[str, bytes | None]]


class _Header(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: str
    value: str | None = None
    value_base64: str | None = None


class _Record(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """`topic`, `offset`, `sequence` and `producer` are those of another topic: passed over."""

    value: msgspec.Raw = msgspec.Raw()
    value_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str | None] | list[_Header] | None = None
    timestamp: int | str | None = None
    partition: int | None = None
    sequence: msgspec.Raw = msgspec.Raw()
    topic: msgspec.Raw = msgspec.Raw()
    offset: msgspec.Raw = msgspec.Raw()
    producer: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Record).decode
_text = msgspec.json.Decoder(str).decode
_decode_headers = msgspec.json.Decoder(dict[str, str | None] | list[_Header] | None).decode


def record_columns(lines: Sequence[bytes]) -> tuple[dict[str, pa.Array], tuple[int, str] | None]:
    """Columns value, key, headers, timestamp and partition of the lines before the first bad one, and which that is.

    A bad line is told as its index and what is wrong with it.
    """
    rows: list[tuple[Any, ...]] = []
    wrong: tuple[int, str] | None = None
    try:
        rows.extend(_rows(lines))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        wrong = len(rows), str(error)
    values, keys, headers, timestamps, partitions = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    columns = {
        "value": pa.array(values, pa.binary()),
        "key": pa.array(keys, pa.binary()),
        "headers": pa.array(headers, HEADERS),
        "timestamp": pa.array(timestamps, pa.int64()).cast(TIMESTAMP),
        "partition": pa.array(partitions, pa.int32()),
    }
    return columns, wrong


def consumer_record(topic: str, line: bytes | msgspec.Raw) -> ConsumerRecord:
    """The record that an object of a reply is. Raises msgspec.DecodeError, ValueError."""
    record = _decode(line)
    assert record.timestamp is not None and record.partition is not None
    timestamp = EPOCH + timedelta(microseconds=time_us(record.timestamp))
    key, headers = _bytes(record.key, record.key_base64, "key"), tuple(_headers(record.headers) or ())
    return ConsumerRecord(topic, record.partition, int(bytes(record.offset)), timestamp, key, _value(record), headers)


def headers_of(text: str | bytes) -> Stored | None:
    """Headers from JSON as records have it. Raises msgspec.DecodeError, ValueError."""
    return _headers(_decode_headers(text))


def _rows(lines: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
    for line in lines:
        record = _decode(line)
        value, key = _value(record), _bytes(record.key, record.key_base64, "key")
        if value is None and key is None:
            raise ValueError("a null value is a tombstone and needs a key")
        timestamp = None if record.timestamp is None else time_us(record.timestamp)
        partition = record.partition
        if partition is not None and not 0 <= partition <= PARTITION_MAX:
            raise ValueError(f"partition must be from 0 to {PARTITION_MAX}, not {partition}")
        yield value, key, _headers(record.headers), timestamp, partition


def _value(record: _Record) -> bytes | None:
    raw = bytes(record.value)
    if not raw:
        if record.value_base64 is None:
            raise ValueError("value is missing; null makes a tombstone")
        return _bytes(None, record.value_base64, "value")
    if record.value_base64 is not None:
        raise ValueError("value and value_base64 are both given")
    if raw.startswith(b'"'):
        return _text(raw).encode()
    raw.decode()  # it is kept as it stands, so nothing else has looked at its encoding
    return None if raw == b"null" else raw


def _headers(given: dict[str, str | None] | list[_Header] | None) -> Stored | None:
    if not given:
        return None
    if isinstance(given, dict):
        return [(name, _bytes(value, None, "value")) for name, value in given.items()]
    return [(header.key, _bytes(header.value, header.value_base64, "value")) for header in given]


def _bytes(text: str | None, encoded: str | None, name: str) -> bytes | None:
    if encoded is None:
        return None if text is None else text.encode()
    if text is not None:
        raise ValueError(f"{name} and {name}_base64 are both given")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name}_base64 is not base64") from None
