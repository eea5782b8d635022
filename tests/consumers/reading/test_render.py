import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from fake_log import CREATED_US, Pairs, record_batch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from siltlog.consumers.reading import arrow_stream, render
from siltlog.consumers.reading.render import timestamp_texts
from siltlog.infra.clock import format_us
from siltlog.infra.columns import FETCH_SCHEMA, RECORD_SCHEMA, TIMESTAMP
from siltlog.infra.errors import Refused
from siltlog.ingest.records.arrow import parse_arrow
from siltlog.ingest.records.body import from_rows
from siltlog.ingest.records.json import parse_json

JSON_TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
).map(lambda value: json.dumps(value).encode())
VALUES = st.one_of(
    st.binary(max_size=12),
    st.text(max_size=8).map(str.encode),
    JSON_TEXTS,
    st.tuples(st.sampled_from([b" ", b"\n", b"\r", b""]), JSON_TEXTS, st.sampled_from([b" ", b"\n", b"\r", b""])).map(
        b"".join
    ),
    st.sampled_from(
        [b"null", b"NaN", b"1e999", b"-0", b"01", b'"a"', b"", b'{"a":\n1}', b'["\\ud800"]', b"tru", b"[" * 2_000]
    ),
)
HEADERS = st.none() | st.lists(
    st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), min_size=1, max_size=3
)
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=5) | st.text(max_size=5).map(str.encode),
        st.none() | VALUES,
        HEADERS,
        st.integers(-(2**40), 2**52),
    ),
    min_size=1,
    max_size=8,
)
Drawn = Sequence[tuple[bytes | None, bytes | None, Pairs | None, int]]


def batch_of(records: Drawn) -> pa.RecordBatch:
    """The records, those without key and value made storable."""
    keys = [b"k" if key is None and value is None else key for key, value, _, _ in records]
    return record_batch(
        3,
        100,
        [value for _, value, _, _ in records],
        keys=keys,
        headers=[headers for _, _, headers, _ in records],
        timestamps=[timestamp for _, _, _, timestamp in records],
    )


def stored(body: bytes) -> dict[str, list[Any]]:
    """What publishing `body` stores."""
    rows = parse_json(body).rows
    assert rows is not None
    return {"key": rows.keys, "value": rows.values, "headers": rows.headers, "timestamp": rows.timestamps}


def columns(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    headers = [h and [(pair["key"], pair["value"]) for pair in h] for h in batch.column("headers").to_pylist()]
    return {
        "key": batch.column("key").to_pylist(),
        "value": batch.column("value").to_pylist(),
        "headers": headers,
        "timestamp": batch.column("timestamp").cast(pa.int64()).to_pylist(),
    }


class TestWhatWasReadCanBePublishedAgain:
    @given(records=RECORDS, values=st.sampled_from(render.VALUES), cut=st.integers(0, 8))
    @example(records=[(None, b'{"a": 1}', None, 0)], values="json", cut=0)
    @example(
        records=[(b"k", None, None, 0), (b"\xff", b"null", [("h", b"\xfe"), ("h", None)], 1)], values="json", cut=1
    )
    @settings(max_examples=300, deadline=None)
    def test_as_json(self, records: Drawn, values: render.Values, cut: int) -> None:
        batch = batch_of(records)
        parts = [part for part in (batch.slice(0, cut), batch.slice(cut)) if part.num_rows]
        body = msgspec.json.encode({"records": render.records(parts, values, "flights")})
        assert stored(body) == columns(batch)
        assert json.loads(body), "any JSON reader can read it"

    @given(records=RECORDS, values=st.sampled_from(render.VALUES))
    @settings(max_examples=200, deadline=None)
    def test_as_ndjson_records(self, records: Drawn, values: render.Values) -> None:
        batch = batch_of(records)
        text = render.ndjson(render.records([batch], values))
        lines = text.split(b"\n")
        assert lines.pop() == b""
        assert len(lines) == batch.num_rows
        assert stored(b'{"records":[%s]}' % b",".join(lines)) == columns(batch)

    @given(values=st.lists(JSON_TEXTS, min_size=1, max_size=8))
    @settings(deadline=None)
    def test_as_bare_lines(self, values: list[bytes]) -> None:
        text = render.value_lines([record_batch(0, 0, values)])
        assert text.split(b"\n") == [*values, b""]

    @given(records=RECORDS)
    @settings(deadline=None)
    def test_as_arrow(self, records: Drawn) -> None:
        batch = batch_of(records)
        body = parse_arrow(b"".join(arrow_stream.record_stream([batch])), 1 << 30)
        assert body.value.equals(batch.column("value"))
        assert body.key.equals(batch.column("key"))
        assert body.timestamp.equals(batch.column("timestamp"))
        if body.headers is not None:
            assert body.headers.to_pylist() == batch.column("headers").to_pylist()


def one(value: bytes | None, values: render.Values, **record: Any) -> dict[str, Any]:
    batch = record_batch(0, 7, [value], **record)
    decoded: dict[str, Any] = json.loads(msgspec.json.encode(render.records([batch], values)[0]))
    return decoded


def test_a_record_has_the_members_of_the_contract() -> None:
    assert one(b"hello", "text") == {
        "partition": 0,
        "offset": 7,
        "timestamp": format_us(CREATED_US + 7),
        "key": None,
        "value": "hello",
        "headers": [],
    }


def test_bytes_that_are_no_text_are_base64() -> None:
    record = one(b"\xff\x00", "text", keys=[b"\xfe"], headers=[[("a", b"\xfd"), ("b", None), ("c", b"x")]])
    assert record["value_base64"] == base64.b64encode(b"\xff\x00").decode()
    assert record["key_base64"] == base64.b64encode(b"\xfe").decode()
    assert "value" not in record
    assert "key" not in record
    assert record["headers"] == [
        {"key": "a", "value_base64": base64.b64encode(b"\xfd").decode()},
        {"key": "b", "value": None},
        {"key": "c", "value": "x"},
    ]


@pytest.mark.parametrize("rows", [1, 16, 17, 100])
def test_many_records_are_rendered_as_each_of_them(rows: int) -> None:
    values = [b"\xff" if row % 5 == 4 else b"text %d" % row for row in range(rows)]
    batch = record_batch(0, 0, values)
    each = [render.records([batch.slice(row, 1)], "text")[0] for row in range(rows)]
    assert render.records([batch], "text") == each


def test_brackets_within_text_are_no_nesting() -> None:
    for value in (b'"' + b"[" * 2_000 + b'"', b'{"a":"' + b"{[" * 900 + b'"}'):
        assert render.value_lines([record_batch(0, 0, [value])]) == value + b"\n"


@pytest.mark.parametrize(
    ("value", "embedded"),
    [
        (b'{"a":  1.50}', True),
        (b"[1, 2]", True),
        (b"-1e3", True),
        (b"true", True),
        (b"false", True),
        (b"null", False),
        (b'"text"', False),
        (b" 1", False),
        (b"1 ", False),
        (b"[1,\n2]", False),
        (b"[1,\r2]", False),
        (b"{", False),
        (b"", False),
        (b"NaN", False),
        (b"1e999", False),
        (b'"\xff"', False),
        (b"[" * 800 + b"]" * 800, True),
        (b'{"a":' * 801 + b"1" + b"}" * 801, False),
        (b'["' + b"[" * 2_000 + rb"\"" + b'"]', True),
        (b"[" + b"{}," * 2_000 + b"1]", True),
    ],
)
def test_what_is_embedded_as_json(value: bytes, embedded: bool) -> None:
    text = msgspec.json.encode(render.records([record_batch(0, 0, [value])], "json")[0])
    assert (b'"value":' + value + b"," in text) == embedded
    assert msgspec.json.decode(text)["offset"] == 0


def test_base64_is_always_base64_but_for_tombstones() -> None:
    assert one(b"abc", "base64")["value_base64"] == "YWJj"
    tombstone = one(None, "base64", keys=[b"k"])
    assert tombstone["value"] is None
    assert "value_base64" not in tombstone


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "tombstone"),
        (b"{", "not valid JSON"),
        (b"", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b'"\xff"', "not valid JSON"),
        (b"[1,\n2]", "one line"),
        (b"1\r", "one line"),
    ],
)
def test_a_value_that_is_no_line_is_named(value: bytes | None, why: str) -> None:
    batch = record_batch(2, 40, [b"1", value], keys=[b"k", b"k"])
    with pytest.raises(Refused, match=f"partition 2, offset 41 .*{why}") as caught:
        render.value_lines([batch])
    assert caught.value.error_code == "not_acceptable"


def test_published_records_are_read_as_they_were_sent() -> None:
    body = b'{"records":[{"value":{"a": 1},"key":"k","headers":{"h":"x"}},{"value":"a string"},{"value":1.0}]}'
    rows = parse_json(body).rows
    assert rows is not None
    batch = record_batch(0, 0, rows.values, keys=rows.keys, headers=rows.headers)
    assert [record.value for record in render.records([batch], "text")] == ['{"a": 1}', "a string", "1.0"]
    assert from_rows(rows, 0).count == 3


@given(st.lists(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999), max_size=40))
@example([-1, 0, 1])
@example([-62_135_596_800_000_000, 253_402_300_799_999_999])
@settings(deadline=None)
def test_times_are_written_as_one_is(micros: list[int]) -> None:
    texts = timestamp_texts(pa.array(micros, pa.int64()).cast(TIMESTAMP))
    assert texts == [format_us(moment) for moment in micros]
    assert [datetime.fromisoformat(text).tzinfo for text in texts] == [UTC] * len(micros)


def test_times_after_year_9999_are_still_written() -> None:
    texts = timestamp_texts(pa.array([0, 253_402_300_800_000_000], pa.int64()).cast(TIMESTAMP))
    assert texts == ["1970-01-01T00:00:00.000000Z", "10000-01-01T00:00:00.000000Z"]


class TestArrowStream:
    def test_bodies_are_not_copied(self) -> None:
        batch = record_batch(0, 0, [bytes(100)] * 50_000)
        data = batch.column("value").buffers()[2]
        pieces = arrow_stream.record_stream([batch])
        inside = range(data.address, data.address + data.size)
        assert any(isinstance(piece, pa.Buffer) and piece.address in inside for piece in pieces)
        assert pa.ipc.open_stream(b"".join(pieces)).read_all().to_batches()[0].equals(batch)

    def test_small_batches_are_joined_and_huge_ones_split(self) -> None:
        small = [record_batch(0, offset, [b"x"]) for offset in range(5_000)]
        huge = record_batch(0, 5_000, [b"y"] * 200_000)
        last = record_batch(0, 205_000, [b"z"])
        messages = list(pa.ipc.open_stream(b"".join(arrow_stream.record_stream([*small, huge, last]))))
        assert [message.num_rows for message in messages] == [4_097, 903, 65_536, 65_536, 65_536, 3_392, 1]
        assert pa.Table.from_batches(messages).column("offset").to_pylist() == list(range(205_001))

    def test_a_fetch_names_the_topic_first(self) -> None:
        parts = [("a-topic", [record_batch(0, 0, [b"x", b"y"])]), ("b", []), ("c", [record_batch(1, 5, [b"z"])])]
        reader = pa.ipc.open_stream(b"".join(arrow_stream.fetch_stream(parts, {"silt": "[]"})))
        assert reader.schema == FETCH_SCHEMA
        assert reader.schema.metadata == {b"silt": b"[]"}
        assert reader.read_all().select(["topic", "offset"]).to_pylist() == [
            {"topic": "a-topic", "offset": 0},
            {"topic": "a-topic", "offset": 1},
            {"topic": "c", "offset": 5},
        ]

    @settings(deadline=None)
    @given(
        st.lists(st.tuples(st.sampled_from(["a", "topic-b"]), st.lists(st.integers(1, 300), max_size=3)), max_size=5)
    )
    def test_a_fetch_has_every_row_in_order_in_few_messages(self, shape: list[tuple[str, list[int]]]) -> None:
        parts, rows = [], []
        for number, (topic, counts) in enumerate(shape):
            batches = [record_batch(number, 1_000 * at, [b"v%d" % i for i in range(n)]) for at, n in enumerate(counts)]
            parts.append((topic, batches))
            rows += [{"topic": topic, **row} for batch in batches for row in batch.to_pylist()]
        stream = b"".join(arrow_stream.fetch_stream(parts))
        messages = list(pa.ipc.open_stream(stream))
        assert [row for message in messages for row in message.to_pylist()] == rows
        if sum(batch.get_total_buffer_size() for _, part in parts for batch in part) <= arrow_stream.SMALL_BYTES_MAX:
            assert len(messages) == bool(rows)

    def test_no_records_are_a_stream_too(self) -> None:
        table = pa.ipc.open_stream(b"".join(arrow_stream.record_stream([]))).read_all()
        assert table.schema == RECORD_SCHEMA
        assert table.num_rows == 0
