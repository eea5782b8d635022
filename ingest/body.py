"""The bodies of a publish, read into columns at the door. Past this module nothing handles records one by one.

Every refusal names the record's index; a refused body has no effect.
"""

import base64
import binascii
import re
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.infra.clock import parse_us
from siltlog.infra.errors import problem
from siltlog.infra.http import INTEGER_MAX, malformed_json
from siltlog.infra.schema import HEADERS, TIMESTAMP

ROWS_MAX = 32
"""Up to so many records a request stays Python lists, to be joined with others' into one batch per group commit."""

HeaderList = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class Body:
    """A parsed publish of `count` records. Lists and arrays all have that length.

    Either `rows` (few records) or the Arrow columns are set. `partition` is -1 where the record names none.
    """

    count: int
    nbytes: int
    rows: "Rows | None" = None
    timestamp: pa.Array | None = None
    key: pa.Array | None = None
    value: pa.Array | None = None
    headers: pa.Array | None = None
    partition: npt.NDArray[np.int32] | None = None
    sequence: npt.NDArray[np.int64] | None = None
    positions: bool = True
    """Whether the reply lists every record's partition and offset."""


@dataclass(slots=True)
class Rows:
    """Columns as lists. `timestamps` are microseconds, None where the record has none."""

    timestamps: list[int | None]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[HeaderList | None]
    partitions: list[int]
    sequences: list[int | None]


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: str | None = None
    value_base64: str | None = None


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    value: msgspec.Raw = msgspec.Raw()
    value_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str | None] | list[_Header] | None = None
    timestamp: int | str | None = None
    partition: int | None = None
    sequence: int | None = None
    topic: msgspec.Raw = msgspec.Raw()
    offset: msgspec.Raw = msgspec.Raw()


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    records: list[_Record]


_decode_request = msgspec.json.Decoder(_Request).decode
_decode_text = msgspec.json.Decoder(str).decode
_INDEX = re.compile(r"\$\.records\[(\d+)\]")
_NULL = b"null"


def parse_json(body: bytes) -> Body:
    """`{"records": [{"key", "value", "headers", "timestamp", "partition", "sequence"}]}`."""
    try:
        if not body.isascii():
            # Values are kept as they were sent, unread: their encoding must be checked for them.
            body.decode("utf-8")
        records = _decode_request(body).records
    except msgspec.ValidationError as error:
        at = _INDEX.search(str(error))
        if at is None:
            raise problem("invalid_request", str(error)) from None
        raise problem("invalid_record", f"record {at[1]}: {error}", index=int(at[1])) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed_json(body, error) from None
    if not records:
        raise problem("invalid_request", "records is empty; send at least one")
    rows = Rows([], [], [], [], [], [])
    nbytes = 0
    index = 0
    try:
        for index, record in enumerate(records):  # noqa: B007
            nbytes += _read(record, rows)
    except ValueError as error:
        raise problem("invalid_record", f"record {index}: {error}", index=index) from None
    return from_rows(rows, nbytes)


def _read(record: _Record, rows: Rows) -> int:
    """Adds one record; about how many bytes it takes."""
    raw = bytes(record.value)
    value: bytes | None
    if not raw:
        if record.value_base64 is None:
            raise ValueError("value is missing; null makes a tombstone")
        value = _base64(record.value_base64, "value_base64")
    elif record.value_base64 is not None:
        raise ValueError("value and value_base64 are both given; send one")
    elif raw[0] == 0x22:
        value = _decode_text(raw).encode()
    else:
        value = None if raw == _NULL else raw
    key = None if record.key is None else record.key.encode()
    if record.key_base64 is not None:
        if key is not None:
            raise ValueError("key and key_base64 are both given; send one")
        key = _base64(record.key_base64, "key_base64")
    if value is None and key is None:
        raise ValueError("a null value is a tombstone and needs a key")
    rows.values.append(value)
    rows.keys.append(key)
    rows.timestamps.append(None if record.timestamp is None else timestamp_us(record.timestamp))
    rows.partitions.append(-1 if record.partition is None else _whole(record.partition, "partition", 2**31 - 1))
    rows.sequences.append(None if record.sequence is None else _whole(record.sequence, "sequence", INTEGER_MAX))
    headers = _headers(record.headers) if record.headers else None
    rows.headers.append(headers)
    size = len(value or b"") + len(key or b"") + 8
    if headers:
        size += sum(len(name) + len(content or b"") + 8 for name, content in headers)
    return size


def one_record(
    value: bytes,
    key: bytes | None,
    headers: HeaderList | None,
    timestamp: int | None,
) -> Body:
    """An octet-stream: the body is the value, and empty is empty."""
    rows = Rows([timestamp], [key], [value], [headers], [-1], [None])
    size = len(value) + len(key or b"") + sum(len(n) + len(v or b"") + 8 for n, v in headers or ())
    return Body(1, size + 8, rows)


def from_rows(rows: Rows, nbytes: int) -> Body:
    count = len(rows.values)
    if count <= ROWS_MAX:
        return Body(count, nbytes, rows)
    sequence = None
    if any(number is not None for number in rows.sequences):
        if None in rows.sequences:
            index = rows.sequences.index(None)
            raise problem("invalid_record", f"record {index} has no sequence, but others have", index=index)
        sequence = np.array(rows.sequences, np.int64)
    return Body(
        count,
        nbytes,
        timestamp=pa.array(rows.timestamps, pa.int64()).cast(TIMESTAMP),
        key=pa.array(rows.keys, pa.binary()),
        value=pa.array(rows.values, pa.binary()),
        headers=headers_array(rows.headers),
        partition=np.array(rows.partitions, np.int32),
        sequence=sequence,
    )


def headers_array(headers: list[HeaderList | None]) -> pa.Array | None:
    """HEADERS, or None where no record has any."""
    if not any(headers):
        return None
    return pa.array([[{"key": k, "value": v} for k, v in one] if one else None for one in headers], HEADERS)


def timestamp_us(value: int | str) -> int:
    """Microseconds of integer milliseconds or RFC 3339 text. Raises ValueError."""
    return parse_us(value if isinstance(value, str) else str(value))


def decode_base64(text: str, name: str) -> bytes:
    """Raises ValueError that names `name`."""
    return _base64(text, name)


def _base64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not base64") from None


def _whole(value: int, name: str, maximum: int) -> int:
    if not 0 <= value <= maximum:
        raise ValueError(f"{name} must be from 0 to {maximum}, not {value}")
    return value


def _headers(headers: dict[str, str | None] | list[_Header]) -> HeaderList:
    if isinstance(headers, dict):
        return [(name, None if text is None else text.encode()) for name, text in headers.items()]
    pairs: HeaderList = []
    for header in headers:
        if header.value_base64 is not None:
            if header.value is not None:
                raise ValueError(f"header {header.key!r} has value and value_base64; send one")
            pairs.append((header.key, _base64(header.value_base64, "value_base64")))
        else:
            pairs.append((header.key, None if header.value is None else header.value.encode()))
    return pairs
