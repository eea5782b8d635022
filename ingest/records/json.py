"""Record objects in JSON, `{"records": [...]}` or one per line, read into columns at the door.

What is no string is stored as its text, byte for byte as sent. Every refusal names the record; a refused body has no
effect.
"""

import base64
import binascii
import re
from collections.abc import Callable, Sequence

import msgspec

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.limits import INTEGER_MAX, PARTITION_MAX, malformed_json
from siltlog.ingest.records.body import (
    RECORDS_MAX,
    ROWS_MAX,
    Body,
    HeaderList,
    Rows,
    from_rows,
    record_bytes,
    timestamp_us,
    too_many_records,
)
from siltlog.ingest.records.json_columns import JsonHeader, JsonRecord, PlainRecord, columns_of, plain_body_of
from siltlog.ingest.records.pointer import KeyPointer

Refuse = Callable[[int, str], SiltlogError]
"""Makes the refusal that says where a record is, of its index and of what is wrong with it."""


class _Request(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: list[JsonRecord]


class _Count(msgspec.Struct, gc=False):
    records: list[msgspec.Raw]


class _PlainRequest(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: list[PlainRecord]


RECORD_BYTES_MIN = len(b'{"value":1}')
PLAIN_BYTES_MIN = 2048
"""Bodies from this size on are first tried as plain records, which are quicker to look through."""
LOOK_BYTES = 16 * 1024
LOOK_RECORDS_MIN = 4
"""Fewer in the first LOOK_BYTES: records so large, or so few, that reading them one by one costs no more."""

_decode_request = msgspec.json.Decoder(_Request).decode
_decode_count = msgspec.json.Decoder(_Count).decode
_decode_plain = msgspec.json.Decoder(_PlainRequest).decode
_decode_text = msgspec.json.Decoder(str).decode
_INDEX = re.compile(r"\$\.records\[(\d+)\]")
_NULL = b"null"


def parse_json(body: bytes, key_from: KeyPointer | None = None) -> Body:
    """`{"records": [{"key", "value", "headers", "timestamp", "partition", "sequence"}]}`."""
    try:
        if not body.isascii():
            # Values are kept as they were sent, unread: their encoding must be checked for them.
            body.decode("utf-8")
        if len(body) > RECORDS_MAX * RECORD_BYTES_MIN and body.count(b"{") > RECORDS_MAX:
            # Or a body of a few bytes a record would become objects of a hundred each before it could be refused.
            _check_count(body)
        if len(body) >= PLAIN_BYTES_MIN and body.count(b'"value', 0, LOOK_BYTES) >= LOOK_RECORDS_MIN:
            columns = _plain(body, key_from)
            if columns is not None:
                return columns
        records = _decode_request(body).records
    except msgspec.ValidationError as error:
        at = _INDEX.search(str(error))
        if at is None:
            detail = f'{error}; the body is {{"records": [{{"key": ..., "value": ...}}, ...]}}'
            raise problem("invalid_request", detail) from None
        raise _refused_record(int(at[1]), str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed_json(body, error) from None
    if not records:
        raise problem("invalid_request", "records is empty; send at least one")
    return body_of_records(records, key_from, _refused_record)


def _check_count(body: bytes) -> None:
    if len(_decode_count(body).records) > RECORDS_MAX:
        raise too_many_records()


def _plain(body: bytes, key_from: KeyPointer | None) -> Body | None:
    """The columns of a body of many plain records; None where it is another."""
    try:
        records = _decode_plain(body).records
    except msgspec.ValidationError:
        return None
    return plain_body_of(records, key_from) if len(records) > ROWS_MAX else None


def body_of_records(records: Sequence[JsonRecord], key_from: KeyPointer | None, refuse: Refuse) -> Body:
    """Makes a body of at least one record. A large body that is irregular or wrong is read record by record."""
    if len(records) > ROWS_MAX:
        columns = columns_of(records, key_from)
        if columns is not None:
            return columns
    rows = Rows([], [], [], [], [], [])
    nbytes = 0
    for index, record in enumerate(records):
        try:
            nbytes += _read(record, key_from, rows)
        except ValueError as error:
            raise refuse(index, str(error)) from None
    return from_rows(rows, nbytes)


def _refused_record(index: int, what: str) -> SiltlogError:
    return problem("invalid_record", f"record {index}: {what}", index=index)


def _time(given: int | str) -> int:
    try:
        return timestamp_us(given)
    except ValueError as error:
        raise ValueError(f"timestamp: {error}") from None


def _read(record: JsonRecord, key_from: KeyPointer | None, rows: Rows) -> int:
    """Adds one record; about how many bytes it takes. Raises ValueError."""
    raw = bytes(record.value)
    value: bytes | None
    if not raw:
        if record.value_base64 is None:
            raise ValueError("value is missing; null makes a tombstone")
        value = decode_base64(record.value_base64, "value_base64")
    elif record.value_base64 is not None:
        raise ValueError("value and value_base64 are both given; send one")
    elif raw[0] == 0x22:
        value = _decode_text(raw).encode()
    else:
        value = None if raw == _NULL else raw
    key = _key(record) if key_from is None else _key_from(key_from, record, raw)
    if value is None and key is None:
        raise ValueError("a null value is a tombstone and needs a key")
    rows.values.append(value)
    rows.keys.append(key)
    rows.timestamps.append(None if record.timestamp is None else _time(record.timestamp))
    rows.partitions.append(-1 if record.partition is None else _whole(record.partition, "partition", PARTITION_MAX))
    rows.sequences.append(None if record.sequence is None else _whole(record.sequence, "sequence", INTEGER_MAX))
    headers = _headers(record.headers) if record.headers else None
    rows.headers.append(headers)
    return record_bytes(value, key, headers)


def _key(record: JsonRecord) -> bytes | None:
    if record.key_base64 is None:
        return None if record.key is None else record.key.encode()
    if record.key is not None:
        raise ValueError("key and key_base64 are both given; send one")
    return decode_base64(record.key_base64, "key_base64")


def _key_from(pointer: KeyPointer, record: JsonRecord, raw: bytes) -> bytes:
    if record.key is not None or record.key_base64 is not None:
        raise ValueError("it has a key, and key_from takes the key from its value; leave one out")
    if not raw:
        raise ValueError("key_from takes the key from a JSON value, and this one is base64; give its key")
    return pointer.key(raw)


def decode_base64(text: str, name: str) -> bytes:
    """Raises ValueError that names `name`."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not base64") from None


def _whole(value: int, name: str, maximum: int) -> int:
    if not 0 <= value <= maximum:
        raise ValueError(f"{name} must be from 0 to {maximum}, not {value}")
    return value


def _headers(headers: dict[str, str | None] | list[JsonHeader]) -> HeaderList:
    if isinstance(headers, dict):
        return [(name, None if text is None else text.encode()) for name, text in headers.items()]
    pairs: HeaderList = []
    for header in headers:
        if header.value_base64 is not None:
            if header.value is not None:
                raise ValueError(f"header {header.key!r} has value and value_base64; send one")
            pairs.append((header.key, decode_base64(header.value_base64, "value_base64")))
        else:
            pairs.append((header.key, None if header.value is None else header.value.encode()))
    return pairs
