"""JSON and single-record bodies: what is stored is what was sent, and a refusal says where it is wrong."""

import base64
import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from siltlog.infra.clock import TIME_MAX_US, TIME_MIN_US, format_us
from siltlog.infra.errors import Refused
from siltlog.infra.limits import INTEGER_MAX
from siltlog.ingest.records.body import RECORDS_MAX, ROWS_MAX, Body, HeaderList, one_record
from siltlog.ingest.records.json import parse_json
from siltlog.ingest.records.json_columns import JsonRecord, columns_of
from siltlog.ingest.records.pointer import KeyPointer

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON_VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
ESCAPING = st.booleans()


@st.composite
def records(draw: st.DrawFn) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
    """A record without its value, the text of its value, and what is to be stored."""
    record: dict[str, Any] = {}
    stored: dict[str, Any] = {"key": None, "headers": None, "timestamp": None, "partition": -1, "sequence": None}
    match draw(st.sampled_from(["none", "text", "base64"])):
        case "text":
            record["key"] = draw(TEXT)
            stored["key"] = record["key"].encode()
        case "base64":
            stored["key"] = draw(st.binary(max_size=20))
            record["key_base64"] = base64.b64encode(stored["key"]).decode()
    kinds = ["json", "base64", *(["tombstone"] if stored["key"] is not None else [])]
    match draw(st.sampled_from(kinds)):
        case "json":
            value = draw(JSON_VALUES)
            text = json.dumps(value, ensure_ascii=draw(ESCAPING), indent=draw(st.sampled_from([None, 2]))).encode()
            stored["value"] = value.encode() if isinstance(value, str) else text
        case "base64":
            stored["value"] = draw(st.binary(max_size=40))
            record["value_base64"] = base64.b64encode(stored["value"]).decode()
            text = b""
        case _:
            text, stored["value"] = b"null", None
    headers: HeaderList = draw(st.lists(st.tuples(TEXT, st.none() | TEXT.map(str.encode)), max_size=3))
    form = draw(st.sampled_from(["none", "list", "base64", "object"]))
    if form != "none":
        if form == "object":
            headers = list(dict(headers).items())
            record["headers"] = {name: None if value is None else value.decode() for name, value in headers}
        else:
            record["headers"] = [_header(name, value, form) for name, value in headers]
        stored["headers"] = headers or None
    micros = draw(st.none() | st.integers(TIME_MIN_US, TIME_MAX_US))
    if micros is not None:
        whole = draw(st.booleans())
        stored["timestamp"] = micros // 1000 * 1000 if whole else micros
        record["timestamp"] = micros // 1000 if whole else format_us(micros)
    if draw(st.booleans()):
        record["partition"] = stored["partition"] = draw(st.integers(0, 2**31 - 1))
    if draw(st.booleans()):
        record |= {"topic": draw(TEXT), "offset": draw(st.integers(0, INTEGER_MAX))}
    return record, text, stored


def _header(name: str, value: bytes | None, form: str) -> dict[str, Any]:
    if form == "base64" and value is not None:
        return {"key": name, "value_base64": base64.b64encode(value).decode()}
    return {"key": name, "value": None if value is None else value.decode()}


def encoded(record: dict[str, Any], value: bytes) -> bytes:
    """The value last, as it is."""
    head = json.dumps(record).encode()
    if not value:
        return head
    return head[:-1] + (b", " if record else b"") + b'"value" : ' + value + b" }"


def body_of(*parts: bytes) -> bytes:
    return b'{"records": [' + b", ".join(parts) + b"]}"


def stored_in(body: Body) -> list[dict[str, Any]]:
    """The records of a body, whichever form they have."""
    if body.rows is not None:
        rows = body.rows
        columns = (rows.timestamps, rows.keys, rows.values, rows.headers, rows.partitions, rows.sequences)
        names = ("timestamp", "key", "value", "headers", "partition", "sequence")
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    value, key = body.contents()
    times = [None] * body.count if body.timestamp is None else body.timestamp.cast(pa.int64()).to_pylist()
    out = []
    for index in range(body.count):
        headers = None if body.headers is None else body.headers[index].as_py()
        out.append(
            {
                "timestamp": times[index],
                "key": None if key is None else key[index].as_py(),
                "value": value[index].as_py(),
                "headers": headers and [(header["key"], header["value"]) for header in headers],
                "partition": int(body.partition[index]) if body.partition is not None else -1,
                "sequence": int(body.sequence[index]) if body.sequence is not None else None,
            }
        )
    return out


@settings(max_examples=150, deadline=None)
@given(st.lists(records(), min_size=1, max_size=4), st.sampled_from([1, ROWS_MAX]))
def test_any_record_is_stored_byte_for_byte(given: list[tuple[dict[str, Any], bytes, dict[str, Any]]], n: int) -> None:
    """Few records stay lists, many become columns: the same comes out."""
    body = parse_json(body_of(*(encoded(record, value) for record, value, _ in given for _ in range(n))))
    assert stored_in(body) == [stored for _, _, stored in given for _ in range(n)]
    assert (body.rows is not None) == (body.count <= ROWS_MAX)
    assert body.positions
    content = sum(len(stored["value"] or b"") + len(stored["key"] or b"") for _, _, stored in given)
    assert body.nbytes >= content * n


TIMES = st.integers(TIME_MIN_US, TIME_MAX_US)
REGULAR = {
    "key": st.none() | TEXT,
    "timestamp": st.none() | TIMES.map(format_us),
    "partition": st.none() | st.integers(0, 2**31 - 1),
    "sequence": st.none() | st.integers(0, INTEGER_MAX),
    "headers": st.none()
    | st.dictionaries(TEXT, st.none() | TEXT, max_size=3)
    | st.lists(st.fixed_dictionaries({"key": TEXT, "value": st.none() | TEXT}), max_size=3),
}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_columns_are_the_rows(data: st.DataObject) -> None:
    """Many regular records are read a column at a time, and nothing else comes out than of a few."""
    own: dict[str, Any] = {name: strategy for name, strategy in REGULAR.items() if data.draw(st.booleans())}
    if data.draw(st.booleans()):
        own["timestamp"] = st.integers(TIME_MIN_US // 1000, TIME_MAX_US // 1000)
    whole = st.fixed_dictionaries(own)
    if data.draw(st.booleans()):
        # No gaps in any column.
        whole = whole.filter(lambda record: None not in record.values())
    value = data.draw(st.sampled_from([TEXT, JSON_VALUES.filter(lambda value: not isinstance(value, str))]))
    few = data.draw(st.lists(st.tuples(whole, value.map(json.dumps).map(str.encode)), min_size=1, max_size=4))
    if any(record.get("sequence") is None for record, _ in few):
        few = [({name: it for name, it in record.items() if name != "sequence"}, text) for record, text in few]
    parts = [encoded(record, text) for record, text in few]
    one_by_one = [row for part in parts for row in stored_in(parse_json(body_of(part)))]
    many = parse_json(body_of(*parts * ROWS_MAX * 2))
    assert many.rows is None
    assert stored_in(many) == one_by_one * ROWS_MAX * 2


@pytest.mark.parametrize(
    "member",
    [
        *("key", "timestamp", "partition", "sequence", "headers", "header list", "no headers", "header base64"),
        *("value_base64", "key_base64", "value", "times"),
    ],
)
def test_which_bodies_are_read_by_column(member: str) -> None:
    """Or the quick way would be gone and nobody would know."""
    record = {
        "value": {"value": "text"},
        "times": {"value": 1, "timestamp": "2026-11-21T07:36:00.123456Z"},
        "timestamp": {"value": 1, "timestamp": 5},
        "headers": {"value": 1, "headers": {"a": "b"}},
        "header list": {"value": 1, "headers": [{"key": "a", "value": "b"}]},
        "no headers": {"value": 1, "headers": []},
        "header base64": {"value": 1, "headers": [{"key": "a", "value_base64": "YQ=="}]},
        "value_base64": {"value_base64": "YQ=="},
        "key_base64": {"value": 1, "key_base64": "YQ=="},
    }.get(member, {"value": 1, member: "k" if member == "key" else 3})
    columns = columns_of([msgspec.json.decode(json.dumps(record), type=JsonRecord)] * 50, None)
    assert (columns is None) == member.endswith("base64")


@settings(max_examples=300, deadline=None)
@given(
    st.text("0123456789-:.TtZz +", min_size=1, max_size=29) | TIMES.map(format_us) | st.datetimes().map(str), st.data()
)
def test_times_of_a_column_are_those_of_a_record(text: str, data: st.DataObject) -> None:
    letters = list(text)
    for _ in range(data.draw(st.integers(0, 2))):
        letters[data.draw(st.integers(0, len(letters) - 1))] = data.draw(st.sampled_from("0123456789-:.TZ+é"))
    text = "".join(letters)
    part = encoded({"timestamp": text}, b"1")
    try:
        one = stored_in(parse_json(body_of(part)))
    except Refused as error:
        with pytest.raises(Refused) as caught:
            parse_json(body_of(*[part] * (ROWS_MAX + 1)))
        assert caught.value.detail == error.detail
    else:
        assert stored_in(parse_json(body_of(*[part] * (ROWS_MAX + 1)))) == one * (ROWS_MAX + 1)


def test_many_tombstones_and_words_that_begin_like_them() -> None:
    for count in (1, ROWS_MAX + 1):
        parts = [encoded({"key": "k"}, b"null")] * count
        assert [row["value"] for row in stored_in(parse_json(body_of(*parts)))] == [None] * count
        assert refusal(body_of(*parts, encoded({}, b"null"))).members["index"] == count
        mixed = [encoded({}, text) for text in (b'"null"', b"true", b'"a"', b"[null]")] * count
        assert [row["value"] for row in stored_in(parse_json(body_of(*mixed)))] == [
            b"null",
            b"true",
            b"a",
            b"[null]",
        ] * count


def test_sizes_are_bytes_and_not_characters() -> None:
    """Or the log would reserve too little for what it writes."""
    text = "é€🙂" * 100
    for count in (1, ROWS_MAX + 1):
        for record in ({"headers": {text: "a"}}, {"headers": [{"key": text}]}, {"key": text}):
            body = parse_json(body_of(*[encoded(record, b"1")] * count))
            assert body.nbytes >= count * len(text.encode())
    assert one_record(b"", None, [(text, None)], None).nbytes >= len(text.encode())


def test_keys_from_values() -> None:
    pointer = KeyPointer("/user/id")
    for count in (1, ROWS_MAX + 1):
        body = parse_json(body_of(*[encoded({}, b'{"user": {"id": 1.0}}')] * count), pointer)
        assert [row["key"] for row in stored_in(body)] == [b"1.0"] * count


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (encoded({}, b'{"user": 1}'), "nothing at key_from=/user/id"),
        (encoded({}, b'{"user": {"id": null}}'), "null"),
        (encoded({}, b"null"), "nothing at"),
        (encoded({"key": "a"}, b'{"user": {"id": 1}}'), "it has a key"),
        (encoded({"key_base64": "YQ=="}, b'{"user": {"id": 1}}'), "it has a key"),
        (encoded({"value_base64": "e30="}, b""), "base64"),
    ],
)
def test_a_value_without_the_key_is_refused(record: bytes, words: str) -> None:
    good = encoded({}, b'{"user": {"id": 1}}')
    for count in (1, ROWS_MAX + 1):
        with pytest.raises(Refused) as caught:
            parse_json(body_of(*[good] * count, record), KeyPointer("/user/id"))
        assert (caught.value.error_code, caught.value.members["index"]) == ("invalid_record", count)
        assert words in caught.value.detail


@pytest.mark.parametrize("count", [2, ROWS_MAX + 1])
def test_sequences(count: int) -> None:
    body = parse_json(body_of(*(encoded({"sequence": 5 + i, "partition": 0}, b"1") for i in range(count))))
    assert [row["sequence"] for row in stored_in(body)] == list(range(5, 5 + count))


@pytest.mark.parametrize(
    "text", [b'{"b" :1,  "a":[1.0,1e5]}', b"-0", b"1E400", b"0.10", b"true", b'["\\u00e9"]', b"[ ]"]
)
def test_what_is_no_string_keeps_its_text(text: bytes) -> None:
    assert stored_in(parse_json(body_of(encoded({}, text))))[0]["value"] == text


def refusal(body: bytes) -> Refused:
    with pytest.raises(Refused) as caught:
        parse_json(body)
    return caught.value


GOOD = b'{"value": 1}'


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (b"{}", "value is missing"),
        (b'{"value": null}', "tombstone"),
        (b'{"value": 1, "value_base64": "YQ=="}', "both given"),
        (b'{"value_base64": "Y!=="}', "value_base64 is not base64"),
        (b'{"value_base64": "YQ"}', "value_base64 is not base64"),
        (b'{"value": 1, "key": "a", "key_base64": "YQ=="}', "both given"),
        (b'{"value": 1, "key_base64": "\xc3\xa9"}', "key_base64 is not base64"),
        (b'{"value": 1, "key": 7}', "key"),
        (b'{"value": 1, "valu": 2}', "valu"),
        (b"7", "Expected `object`"),
        (b'{"value": 1, "timestamp": "yesterday"}', "RFC 3339"),
        (b'{"value": 1, "timestamp": "2026-11-21T07:36:00"}', "RFC 3339"),
        (b'{"value": 1, "timestamp": 253402300800000}', "years 1 to 9999"),
        (b'{"value": 1, "timestamp": -99999999999999999999}', "not a time"),
        (b'{"value": 1, "timestamp": 1.5}', "timestamp"),
        (b'{"value": 1, "partition": -1}', "partition must be from 0"),
        (b'{"value": 1, "partition": 2147483648}', "partition must be from 0"),
        (b'{"value": 1, "sequence": 9007199254740992}', "sequence must be from 0"),
        (b'{"value": 1, "headers": {"a": 1}}', "headers"),
        (b'{"value": 1, "headers": [{"value": "b"}]}', "key"),
        (b'{"value": 1, "headers": [{"key": "a", "value": "b", "value_base64": "YQ=="}]}', "value_base64"),
        (b'{"value": 1, "headers": [{"key": "a", "value_base64": "?"}]}', "value_base64 is not base64"),
    ],
)
def test_a_bad_record_is_refused_with_its_index(record: bytes, words: str) -> None:
    error = refusal(body_of(GOOD, record, GOOD))
    assert (error.error_code, error.status, error.members["index"]) == ("invalid_record", 422, 1)
    assert error.detail.startswith("record 1: ")
    assert words in error.detail


def test_a_sequence_that_some_records_lack() -> None:
    error = refusal(body_of(*[b'{"value": 1, "sequence": 1}'] * ROWS_MAX, GOOD))
    assert (error.error_code, error.members["index"]) == ("invalid_record", ROWS_MAX)


@pytest.mark.rule("B9")
@pytest.mark.parametrize(
    ("body", "byte"),
    [
        (b"", 0),
        (b"x", 0),
        (b'\xef\xbb\xbf{"records": []}', 0),
        (b'{"records": [{"value": 01}]}', 24),
        (b'{"records": [{"value": {"a": nul}}]}', 30),
        (b'{"records": [{"value": "a\xff"}]}', 25),
        (b'{"records": [{"value": {"a": "\xed\xa0\x80"}}]}', 30),
        (b'{"records": [{"value": "\\ud800"}]}', 24),
        (b'{"records": [{"value": {"a\\\\": "\\ud8FFx"}}]}', 38),
        (b'{"records": [{"value": 1, "headers": {"\\udc00": "a"}}]}', 45),
        (b'{"records": [{"value": "a\nb"}]}', 25),
        (b'{"records": [{"value": 1}', 25),
        (b'{"records": [{"value": 1}]} {}', 29),
    ],
)
def test_what_is_no_json_is_refused_with_the_byte(body: bytes, byte: int) -> None:
    error = refusal(body)
    assert (error.error_code, error.status) == ("malformed_body", 400)
    assert error.members["byte"] == byte
    assert f"byte {byte}" in error.detail


@pytest.mark.rule("B7")
def test_records_are_counted() -> None:
    error = refusal(body_of(*[b'{"value":1}'] * (RECORDS_MAX + 1)))
    assert (error.error_code, error.members["limit"]) == ("request_too_large", RECORDS_MAX)
    braces = body_of(encoded({}, b"[" + b"{}," * (4 * RECORDS_MAX) + b"{}]"))
    assert parse_json(braces).count == 1


def test_deep_nesting_is_refused() -> None:
    for depth in (20_000, 100_000):
        error = refusal(body_of(encoded({}, b"[" * depth + b"]" * depth)))
        assert (error.error_code, "nested" in error.detail) == ("malformed_body", True)


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"records": {}}', b'{"records": []}', b'{"records": [], "acks": 1}'])
def test_another_document_is_refused(body: bytes) -> None:
    assert (refused := refusal(body)).error_code == "invalid_request"
    assert "records" in refused.detail


@settings(max_examples=300, deadline=None)
@given(st.data())
@example(data=None)
def test_a_damaged_body_is_read_or_refused_and_nothing_else(data: st.DataObject | None) -> None:
    whole = body_of(
        encoded({"key": "k", "headers": [{"key": "h", "value": "é"}], "timestamp": 5}, b'{"a": [1, "\\n"]}')
    )
    if data is None:
        assert stored_in(parse_json(whole))
        return
    body = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))]
    try:
        parse_json(bytes(body))
    except Refused as error:
        assert error.error_code in ("malformed_body", "invalid_record", "invalid_request")
        if error.error_code == "malformed_body":
            assert 0 <= error.members["byte"] <= len(body)


def test_one_record_keeps_every_byte() -> None:
    body = one_record(b"\0\xff", b"k", [("a", b"\xff"), ("a", None)], 5)
    assert stored_in(body) == [
        {
            "timestamp": 5,
            "key": b"k",
            "value": b"\0\xff",
            "headers": [("a", b"\xff"), ("a", None)],
            "partition": -1,
            "sequence": None,
        }
    ]
    assert stored_in(one_record(b"", None, None, None))[0]["value"] == b"", "empty is no tombstone"
