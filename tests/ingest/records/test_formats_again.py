"""What was published in any format, and read in any, can be published again as it is, and gives the same bytes."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from fake_log import Pairs, record_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.consumers.reading import render
from siltlog.consumers.reading.arrow_stream import fetch_stream, record_stream
from siltlog.infra.clock import TIME_MAX_US, TIME_MIN_US, format_us
from siltlog.infra.columns import HEADERS, TIMESTAMP
from siltlog.infra.errors import Refused
from siltlog.ingest.records.arrow import parse_arrow
from siltlog.ingest.records.body import ROWS_MAX, Body, one_record
from siltlog.ingest.records.json import parse_json
from siltlog.ingest.records.lines import parse_record_lines, parse_value_lines

LIMIT = 1 << 24
Record = tuple[bytes | None, bytes | None, Pairs | None, int]
"""Key, value, headers, microseconds."""

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON_TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
).flatmap(lambda value: st.sampled_from([json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)]))
ODD = [
    b"",
    b" ",
    b"null",
    b"NaN",
    b"1e999",
    b"-0",
    b"1.0",
    b'"',
    b'"a"',
    b"\xff",
    b"\r",
    b"1\r",
    b"{}\n",
    b"\xef\xbb\xbf1",
]
VALUES = st.one_of(st.binary(max_size=12), TEXT.map(str.encode), JSON_TEXTS.map(str.encode), st.sampled_from(ODD))
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=5) | TEXT.map(str.encode),
        st.none() | VALUES,
        st.none() | st.lists(st.tuples(TEXT, st.none() | st.binary(max_size=4)), min_size=1, max_size=3),
        st.integers(TIME_MIN_US, TIME_MAX_US) | st.integers(0, 2**44).map(lambda ms: ms * 1000),
    ).map(lambda record: (b"k", *record[1:]) if record[0] is record[1] is None else record),
    min_size=1,
    max_size=5,
)


# --- published ------------------------------------------------------------------------------------------
def _json_record(record: Record, how: str) -> bytes:
    key, value, headers, micros = record
    members = [f'"timestamp":{micros // 1000 if micros % 1000 == 0 else json.dumps(format_us(micros))}'.encode()]
    members += [_member("key", key, how)] if key is not None else []
    members += (
        [
            b'"headers":['
            + b",".join(b'{"key":%s,%s}' % (_text(n.encode()), _member("value", v, how)) for n, v in headers)
            + b"]"
        ]
        if headers
        else []
    )
    return b"{" + b",".join((*members, _member("value", value, how))) + b"}"


def _member(name: str, content: bytes | None, how: str) -> bytes:
    if content is None:
        return b'"%s":null' % name.encode()
    text = _text(content)
    if how == "base64" or text is None:
        return b'"%s_base64":"%s"' % (name.encode(), base64.b64encode(content))
    return b'"%s":%s' % (name.encode(), text)


def _text(content: bytes) -> bytes | None:
    try:
        return json.dumps(content.decode()).encode()
    except UnicodeDecodeError:
        return None


def _as_json(records: Sequence[Record]) -> Body:
    return parse_json(b'{"records":[' + b",".join(_json_record(record, "text") for record in records) + b"]}")


def _as_base64(records: Sequence[Record]) -> Body:
    return parse_json(b'{"records":[' + b",".join(_json_record(record, "base64") for record in records) + b"]}")


def _as_lines(records: Sequence[Record]) -> Body:
    return parse_record_lines(b"\n".join(_json_record(record, "text") for record in records))


def _as_arrow(records: Sequence[Record]) -> Body:
    keys, values, headers, micros = zip(*records, strict=True)
    pairs = [None if one is None else [{"key": k, "value": v} for k, v in one] for one in headers]
    batch = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.large_binary()),
            "headers": pa.array(pairs, HEADERS),
            "timestamp": pa.array(micros, TIMESTAMP),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    return parse_arrow(sink.getvalue().to_pybytes(), LIMIT)


PUBLISHED: list[Callable[[Sequence[Record]], Body]] = [_as_json, _as_base64, _as_lines, _as_arrow]


def stored(body: Body) -> list[Record]:
    if body.rows is not None:
        rows = body.rows
        found = zip(rows.keys, rows.values, rows.headers, rows.timestamps, strict=True)
        return [(key, value, headers, micros) for key, value, headers, micros in found]
    nothing = [None] * body.count
    value, key = body.contents()
    headers = nothing if body.headers is None else body.headers.to_pylist()
    return list(
        zip(
            nothing if key is None else key.to_pylist(),
            value.to_pylist(),
            [one and [(pair["key"], pair["value"]) for pair in one] for one in headers],
            nothing if body.timestamp is None else body.timestamp.cast(pa.int64()).to_pylist(),
            strict=True,
        )
    )


# --- read, and published again --------------------------------------------------------------------------
def _json_again(batch: pa.RecordBatch, values: render.Values) -> Body:
    reply = msgspec.json.encode({"topic": "t", "records": render.records([batch], values), "next_offset": 9})
    records = msgspec.json.decode(reply, type=dict[str, msgspec.Raw])["records"]
    return parse_json(b'{"records": ' + bytes(records) + b"}")


def _fetched_again(batch: pa.RecordBatch, values: render.Values) -> Body:
    return parse_json(msgspec.json.encode({"records": render.records([batch], values, "t")}))


def _lines_again(batch: pa.RecordBatch, values: render.Values) -> Body:
    return parse_record_lines(render.ndjson(render.records([batch], values)))


def _arrow_again(batch: pa.RecordBatch, values: render.Values) -> Body:
    return parse_arrow(b"".join(record_stream([batch])), LIMIT)


def _fetched_arrow_again(batch: pa.RecordBatch, values: render.Values) -> Body:
    return parse_arrow(b"".join(fetch_stream([("t", [batch])], {"silt": "[]"})), LIMIT)


AGAIN: list[tuple[Callable[[pa.RecordBatch, render.Values], Body], render.Values]] = [
    *((again, values) for again in (_json_again, _fetched_again, _lines_again) for values in render.VALUES),
    (_arrow_again, "text"),
    (_fetched_arrow_again, "text"),
]


def read_batch(records: Sequence[Record]) -> pa.RecordBatch:
    keys, values, headers, micros = zip(*records, strict=True)
    return record_batch(3, 100, list(values), keys=list(keys), headers=list(headers), timestamps=list(micros))


@pytest.mark.parametrize("published", PUBLISHED)
@settings(max_examples=60, deadline=None)
@given(records=RECORDS, times=st.sampled_from([1, 1, ROWS_MAX + 1]))
def test_every_pair_of_formats(
    published: Callable[[Sequence[Record]], Body], records: list[Record], times: int
) -> None:
    records = records * times
    found = stored(published(records))
    assert found == records
    batch = read_batch(found)
    for again, values in AGAIN:
        body = again(batch, values)
        assert stored(body) == records, (again, values)
        partitions: Any = body.rows.partitions if body.rows is not None else body.partition
        assert list(partitions) == [3] * len(records)


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(VALUES, min_size=1, max_size=5),
    times=st.sampled_from([1, ROWS_MAX + 1]),
    ends=st.sampled_from([b"\n", b"\r\n"]),
)
def test_bare_values(values: list[bytes], times: int, ends: bytes) -> None:
    """Through lines of values where each is one; else both sides refuse."""
    values = values * times
    batch = read_batch([(None, value, None, 0) for value in values])
    try:
        lines = render.value_lines([batch])
    except Refused as error:
        assert error.error_code == "not_acceptable"
        return
    assert [value for _, value, _, _ in stored(parse_value_lines(lines))] == values
    joined = ends.join(values) + ends
    assert [value for _, value, _, _ in stored(parse_value_lines(joined))] == values


@settings(max_examples=60, deadline=None)
@given(record=RECORDS.map(lambda records: records[0]))
def test_a_blob(record: Record) -> None:
    key, value, headers, micros = record
    body = one_record(value or b"", key, headers, micros)
    found = stored(body)
    assert found == [(key, value or b"", headers, micros)]
    for again, values in AGAIN:
        assert stored(again(read_batch(found), values)) == found


@pytest.mark.rule("B14")
def test_values_are_read_only_as_deep_as_they_can_be_published() -> None:
    """Where reading as lines or embedded gives a value, publishing it from deeper in the program takes it."""

    def deeper(calls: int, parse: Callable[[], Body]) -> Body:
        return parse() if calls == 0 else deeper(calls - 1, parse)

    refused = 0
    for depth in (100, *range(700, 1_000, 4)):
        value = b"[" * depth + b"]" * depth
        batch = read_batch([(None, value, None, 0)])
        again = deeper(20, lambda batch=batch: _json_again(batch, "json"))  # type: ignore[misc]
        assert stored(again)[0][1] == value
        try:
            lines = render.value_lines([batch])
        except Refused as error:
            assert "nested" in error.detail or "not valid JSON" in error.detail
            refused += 1
        else:
            assert stored(deeper(20, lambda lines=lines: parse_value_lines(lines)))[0][1] == value  # type: ignore[misc]
    assert refused
