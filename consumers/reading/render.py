"""Renders records as JSON and NDJSON, their timestamps as text. Publishing the output again gives the same bytes."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import repeat
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, UnsetType

from siltlog.consumers.reading.budget import RECORD_COLUMNS
from siltlog.infra.errors import SiltlogError, problem

_MICROS = 1_000_000
_DAY_SECONDS = 86_400
_WIDTH = len("2026-11-21T07:36:00.123456Z")
_DAYS_MAX = 40_000
"""Spans of more days than these are formatted by Arrow: the table of their dates would be larger than it is worth."""

_FEW = 16
"""The number of values up to which writing each is cheaper than preparing their column."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (its text is to have no offset)
_FOUR_DIGIT_YEARS_US = (-62_135_596_800 * _MICROS, 253_402_300_800 * _MICROS)
_Bytes = npt.NDArray[np.uint8]
Values = Literal["text", "json", "base64"]
VALUES: tuple[Values, ...] = ("text", "json", "base64")

NESTING_MAX = 800
"""Python before 3.12 reads a thousand levels, those of the calls around it among them; later ones read more."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_EMBEDDED_FIRST = frozenset(b"{[-0123456789tf")
_EMBEDDED_LAST = frozenset(b"}]0123456789e")
_SYNTAX = msgspec.json.Decoder(msgspec.Raw)
_ENCODER = msgspec.json.Encoder()
_NO_HEADERS: list["Header"] = []

Text = str | None | UnsetType
"""UNSET: the bytes are no UTF-8 text, the member with `_base64` has them."""


def timestamp_texts(timestamps: pa.Array) -> list[str]:
    """`2026-11-21T07:36:00.123456Z` of each of a column of UTC microseconds (none null); length n."""
    if len(timestamps) <= _FEW:
        numbers: list[int] = timestamps.view(pa.int64()).to_pylist()
        if all(_FOUR_DIGIT_YEARS_US[0] <= micros < _FOUR_DIGIT_YEARS_US[1] for micros in numbers):
            return [f"{(_EPOCH + timedelta(0, 0, micros)).isoformat(timespec='microseconds')}Z" for micros in numbers]
    texts: list[str] = _timestamp_column(timestamps).to_pylist()
    return texts


def _timestamp_column(timestamps: pa.Array) -> pa.Array:
    count = len(timestamps)
    micros = timestamps.view(pa.int64()).to_numpy()
    lowest, highest = int(micros.min()), int(micros.max())
    first_day = lowest // _MICROS // _DAY_SECONDS
    last_day = highest // _MICROS // _DAY_SECONDS
    years_fit = _FOUR_DIGIT_YEARS_US[0] <= lowest and highest < _FOUR_DIGIT_YEARS_US[1]
    if not years_fit or last_day - first_day > _DAYS_MAX:
        texts = pc.cast(timestamps, pa.string())
        return pc.replace_substring(texts, " ", "T", max_replacements=1)
    seconds, fraction = np.divmod(micros, _MICROS)
    days, second_of_day = np.divmod(seconds, _DAY_SECONDS)
    dates = np.datetime_as_string(np.arange(first_day, last_day + 1).astype("datetime64[D]"))
    text = np.empty((count, _WIDTH), np.uint8)
    text[:, 0:10] = _rows(dates, 10)[days - first_day]
    text[:, 10] = ord("T")
    text[:, 11:19] = _times_of_day()[second_of_day]
    text[:, 19] = ord(".")
    text[:, 20:23] = _thousands()[fraction // 1000]
    text[:, 23:26] = _thousands()[fraction % 1000]
    text[:, 26] = ord("Z")
    offsets = np.arange(0, (count + 1) * _WIDTH, _WIDTH, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def _rows(texts: npt.NDArray[np.str_], width: int) -> _Bytes:
    """ASCII texts of one width as a matrix of bytes; shape (n, width)."""
    return np.frombuffer(texts.astype(f"S{width}").tobytes(), np.uint8).reshape(-1, width)


@cache
def _times_of_day() -> _Bytes:
    return _rows(np.array([f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}" for s in range(_DAY_SECONDS)]), 8)


@cache
def _thousands() -> _Bytes:
    return _rows(np.array([f"{n:03d}" for n in range(1000)]), 3)


class Header(msgspec.Struct, gc=False):
    key: str
    value: Text
    value_base64: bytes | UnsetType = UNSET


class Record(msgspec.Struct, gc=False):
    """A record of a reply; members that are UNSET are left out."""

    topic: str | UnsetType
    partition: int
    offset: int
    timestamp: str
    key: Text
    key_base64: bytes | UnsetType
    value: Text | msgspec.Raw
    value_base64: bytes | UnsetType
    headers: list[Header]


class Producer(msgspec.Struct, gc=False):
    """Tells who published a record. `sequence` is null where it came without one."""

    id: str
    epoch: int
    sequence: int | None


class ProducedRecord(Record):
    """A record that says who published it; null where nobody said so then."""

    producer: Producer | None


def records(batches: Sequence[pa.RecordBatch], values: Values, topic: str | UnsetType = UNSET) -> list[Record]:
    """Gives the records of RECORD_SCHEMA batches, in order; those of PRODUCED_SCHEMA as ProducedRecord.

    With `values` `text` a value that is no text comes as base64; with `json` one that is JSON is embedded.
    """
    if not batches:
        return []
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    key, key_base64 = _texts(batch.column("key"))
    value: Iterable[Text | msgspec.Raw]
    if values == "base64":
        value, value_base64 = _base64(batch.column("value"))
    elif values == "json":
        value, value_base64 = _embedded(batch.column("value"))
    else:
        value, value_base64 = _texts(batch.column("value"))
    members = (
        repeat(topic),
        batch.column("partition").to_numpy().tolist(),
        batch.column("offset").to_numpy().tolist(),
        timestamp_texts(batch.column("timestamp")),
        key,
        key_base64,
        value,
        value_base64,
        _headers(batch.column("headers")),
    )
    if batch.num_columns > RECORD_COLUMNS:
        return list(map(ProducedRecord, *members, _producers(batch)))
    return list(map(Record, *members))


def ndjson(lines: Sequence[Record]) -> bytes:
    """One record object per line, each ended by a newline."""
    return _ENCODER.encode_lines(lines)


def value_lines(batches: Iterable[pa.RecordBatch]) -> bytes:
    """The bare values, one per line. Raises `not_acceptable` that names the first record which cannot be a line."""
    out: list[bytes] = []
    for batch in batches:
        for index, value in enumerate(batch.column("value").to_pylist()):
            why = _no_line(value)
            if why is not None:
                raise _not_acceptable(batch.slice(index, 1), why)
            out.append(value)
    out.append(b"")
    return b"\n".join(out)


def _no_line(value: bytes | None) -> str | None:
    if value is None:
        return "is a tombstone"
    if b"\n" in value or value.endswith(b"\r"):
        return "does not fit on one line"
    try:
        _SYNTAX.decode(value)
        value.decode("utf-8")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "is not valid JSON"
    return None if _is_shallow(value) else "is nested too deeply"


def _not_acceptable(record: pa.RecordBatch, why: str) -> SiltlogError:
    partition, offset = record.column("partition")[0].as_py(), record.column("offset")[0].as_py()
    return problem(
        "not_acceptable",
        f"the record at partition {partition}, offset {offset} {why}, so lines=value cannot give it; "
        "use lines=record, or read on from the next offset",
        partition=partition,
        offset=offset,
    )


def _is_embeddable(value: bytes) -> bool:
    """Whether any reader of the reply can read it with `value` within: it must not cost the records around it."""
    try:
        msgspec.json.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return _is_shallow(value)


def _is_shallow(value: bytes) -> bool:
    """Whether a value, which is valid JSON, can be read inside of a reply by whoever reads it."""
    if value.count(b"[") + value.count(b"{") <= NESTING_MAX:
        return True
    brackets = np.frombuffer(_STRING.sub(b"", value).translate(None, _NO_BRACKETS), np.uint8)
    depths = np.where((brackets == ord("[")) | (brackets == ord("{")), 1, -1).cumsum()
    return int(depths.max(initial=0)) <= NESTING_MAX


def _texts(column: pa.Array) -> tuple[Iterable[Text], Iterable[bytes | UnsetType]]:
    """The column as text where it is UTF-8, and as bytes where it is not."""
    if column.null_count == len(column):
        return repeat(None, len(column)), repeat(UNSET)
    if len(column) > _FEW:
        try:
            return pc.cast(column, pa.string()).to_pylist(), repeat(UNSET)
        except pa.ArrowInvalid:
            pass
    texts: list[Text] = []
    rest: list[bytes | UnsetType] = []
    for data in column.to_pylist():
        text = _text(data)
        texts.append(text)
        rest.append(data if text is UNSET else UNSET)
    return texts, rest


def _text(data: bytes | None) -> Text:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return UNSET


def _base64(column: pa.Array) -> tuple[Iterable[Text], Iterable[bytes | UnsetType]]:
    data = column.to_pylist()
    return [None if item is None else UNSET for item in data], [UNSET if item is None else item for item in data]


def _embedded(column: pa.Array) -> tuple[Iterable[Text | msgspec.Raw], Iterable[bytes | UnsetType]]:
    """Raw where the text is a JSON object, array, number, `true` or `false` on one line, else as `_texts`."""
    texts, rest = _texts(column)
    return [_raw(text, data) for text, data in zip(texts, column.to_pylist(), strict=False)], rest


def _raw(text: Text, data: bytes | None) -> Text | msgspec.Raw:
    if not data or data[0] not in _EMBEDDED_FIRST or data[-1] not in _EMBEDDED_LAST:
        return text
    if b"\n" in data or b"\r" in data or not _is_embeddable(data):
        return text
    return msgspec.Raw(data)


def _headers(column: pa.Array) -> Iterable[list[Header]]:
    if column.null_count == len(column):
        return repeat(_NO_HEADERS, len(column))
    pairs = column.flatten()
    values, rest = _texts(pairs.field("value"))
    every = list(map(Header, pairs.field("key").to_pylist(), values, rest))
    return _split(every, pc.fill_null(pc.list_value_length(column), 0).to_pylist())


def _producers(batch: pa.RecordBatch) -> Iterator[Producer | None]:
    columns = [batch.column(name).to_pylist() for name in ("producer_id", "producer_epoch", "sequence")]
    return (
        None if id_ is None else Producer(id_, epoch or 0, sequence)
        for id_, epoch, sequence in zip(*columns, strict=True)
    )


def _split(every: list[Header], lengths: list[int]) -> Iterator[list[Header]]:
    at = 0
    for length in lengths:
        yield every[at : at + length]
        at += length
