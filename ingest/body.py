"""The bodies of a publish, read into columns at the door. Past this module nothing handles records one by one.

Every refusal names the record's index; a refused body has no effect.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra.clock import parse_us
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http import INTEGER_MAX
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
    except UnicodeDecodeError as error:
        raise problem("malformed_body", f"byte {error.start} is not UTF-8", byte=error.start) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise problem("malformed_body", f"the body is not valid JSON: {error}") from None
    if not records:
        raise problem("invalid_request", "records is empty; send at least one")
    rows = Rows([], [], [], [], [], [])
    nbytes = 0
    index = 0
    try:
        for index, record in enumerate(records):  # noqa: B007
            nbytes += _read(record, rows)
    except SiltlogError as error:
        raise _at(error, index) from None
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
        try:
            value = _decode_text(raw).encode()
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise problem("malformed_body", f"value: {error}") from None
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


_ARROW_IGNORED = frozenset(("topic", "offset"))
_ARROW_COLUMNS = frozenset(("key", "value", "headers", "timestamp", "partition", "sequence"))


def parse_arrow(body: bytes, bytes_max: int) -> Body:
    """An Arrow IPC stream with the columns of a record; only `value` is required."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            batches, size = [], 0
            for batch in reader:
                size += batch.nbytes
                if size > bytes_max:
                    raise problem(
                        "request_too_large",
                        f"the inflated body is above the limit of {bytes_max} bytes; send smaller batches",
                        limit=bytes_max,
                    )
                batch.validate(full=True)
                batches.append(batch)
            schema = reader.schema
    except (pa.ArrowInvalid, pa.ArrowException, OSError, ValueError) as error:
        raise problem("malformed_body", f"the body is not a valid Arrow IPC stream: {error}") from None
    unknown = [name for name in schema.names if name not in _ARROW_COLUMNS and name not in _ARROW_IGNORED]
    if unknown or len(set(schema.names)) < len(schema.names) or "value" not in schema.names:
        raise problem(
            "invalid_request",
            f"an Arrow body has the column value and may have "
            f"{', '.join(sorted(_ARROW_COLUMNS - {'value'}))}, each once; "
            f"this one has {', '.join(schema.names) or 'none'}",
        )
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches) if batches else None
    if batch is None or batch.num_rows == 0:
        raise problem("invalid_request", "the Arrow body has no records; send at least one")
    columns = dict(zip(schema.names, batch.columns, strict=True))
    value, key = _binary(columns, "value"), _binary(columns, "key")
    assert value is not None
    if value.null_count and (key is None or pc.any(pc.and_(value.is_null(), key.is_null())).as_py()):
        nulls = value.is_null() if key is None else pc.and_(value.is_null(), key.is_null())
        index = pc.index(nulls, True).as_py()
        raise problem("invalid_record", f"record {index}: a null value is a tombstone and needs a key", index=index)
    return Body(
        batch.num_rows,
        batch.nbytes,
        timestamp=_timestamps(columns),
        key=key,
        value=value,
        headers=_arrow_headers(columns),
        partition=_arrow_integers(columns, "partition", np.int32),
        sequence=_arrow_integers(columns, "sequence", np.int64),
        positions=False,
    )


def timestamp_us(value: int | str) -> int:
    """Microseconds of integer milliseconds or RFC 3339 text."""
    micros = value * 1000 if isinstance(value, int) else parse_us(value)
    if not -(2**62) < micros < 2**62:
        raise ValueError(f"timestamp {value} is out of range")
    return micros


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


def _at(error: SiltlogError, index: int) -> SiltlogError:
    return problem(error.error_code, f"record {index}: {error.detail}", index=index, **error.members)


def _binary(columns: dict[str, pa.Array], name: str) -> pa.Array | None:
    column = columns.get(name)
    if column is None or pa.types.is_null(column.type):
        if name == "value" and column is not None:
            return pa.nulls(len(column), pa.binary())
        return None
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == pa.binary():
        return column
    try:
        return column.cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise problem("invalid_request", f"the column {name} must be binary or string, not {column.type}") from None


def _timestamps(columns: dict[str, pa.Array]) -> pa.Array | None:
    column = columns.get("timestamp")
    if column is None or column.null_count == len(column):
        return None
    if column.type == TIMESTAMP:
        return column
    try:
        if pa.types.is_integer(column.type):
            return column.cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
        if pa.types.is_timestamp(column.type):
            return column.cast(TIMESTAMP, safe=False)
    except pa.ArrowInvalid as error:
        raise problem("invalid_request", f"the column timestamp: {error}") from None
    raise problem(
        "invalid_request", f"the column timestamp must be a timestamp or integer milliseconds, not {column.type}"
    )


def _arrow_headers(columns: dict[str, pa.Array]) -> pa.Array | None:
    column: Any = columns.get("headers")
    if column is None or column.null_count == len(column):
        return None
    try:
        column = column.cast(HEADERS)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise problem(
            "invalid_request", f"the column headers must be a list of structs of key and value, not {column.type}"
        ) from None
    if column.values.null_count or column.values.field("key").null_count:
        raise problem("invalid_request", "the column headers has a header without a key")
    # No headers are stored as null.
    return pc.if_else(pc.equal(pc.list_value_length(column), 0), pa.scalar(None, HEADERS), column)


def _arrow_integers(columns: dict[str, pa.Array], name: str, dtype: type) -> Any:
    column: Any = columns.get(name)
    if column is None or column.null_count == len(column):
        return None
    if not pa.types.is_integer(column.type):
        raise problem("invalid_request", f"the column {name} must be an integer, not {column.type}")
    if name == "sequence" and column.null_count:
        index = pc.index(column.is_null(), True).as_py()
        raise problem("invalid_record", f"record {index} has no sequence, but others have", index=index)
    low = pc.min(column).as_py()
    if low is not None and low < 0:
        index = pc.index(pc.less(column, 0), True).as_py()
        raise problem("invalid_record", f"record {index}: {name} must not be negative", index=index)
    try:
        numbers = column.cast(pa.from_numpy_dtype(np.dtype(dtype)))
    except pa.ArrowInvalid:
        raise problem("invalid_request", f"the column {name} has numbers that are too large") from None
    return numbers.fill_null(-1).to_numpy(zero_copy_only=False)
