"""NDJSON: every line is stored as it is, or the body refused with the line and the byte."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.infra.errors import Refused
from siltlog.ingest.records.body import RECORDS_MAX, ROWS_MAX, Body
from siltlog.ingest.records.lines import parse_record_lines, parse_value_lines
from siltlog.ingest.records.pointer import KeyPointer

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON_LINES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
).map(lambda value: json.dumps(value, ensure_ascii=False).encode())
WHITE = st.sampled_from([b"", b" ", b"\t", b"  "])
ENDS = st.sampled_from([b"\n", b"\r\n"])


def values_of(body: Body) -> list[bytes | None]:
    if body.rows is not None:
        return body.rows.values
    found: list[bytes | None] = body.contents()[0].to_pylist()
    return found


def keys_of(body: Body) -> list[bytes | None]:
    if body.rows is not None:
        return body.rows.keys
    key = body.contents()[1]
    found: list[bytes | None] = [None] * body.count if key is None else key.to_pylist()
    return found


@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from([1, ROWS_MAX + 1]))
def test_every_line_is_stored_byte_for_byte(data: st.DataObject, times: int) -> None:
    body = b""
    values = []
    for _ in range(data.draw(st.integers(1, 5))):
        body += b"".join(data.draw(st.lists(st.tuples(WHITE, ENDS).map(b"".join), max_size=2)))
        values.append(data.draw(WHITE) + data.draw(JSON_LINES) + data.draw(WHITE))
        body += values[-1] + data.draw(ENDS)
    parsed = parse_value_lines(body * times)
    assert values_of(parsed) == values * times
    assert parsed.nbytes >= sum(map(len, values)) * times
    last = body.removesuffix(b"\n").removesuffix(b"\r")
    assert values_of(parse_value_lines(last)) == values, "the last line needs no end"


def test_null_is_four_bytes_and_a_string_keeps_its_quotes() -> None:
    assert values_of(parse_value_lines(b'null\n"a"\n')) == [b"null", b'"a"']


@pytest.mark.parametrize("times", [1, ROWS_MAX + 1])
def test_records(times: int) -> None:
    lines = b'{"value": {"a":1.0}, "key": "k"}\r\n\n{"value": "text"}\n {"value": null, "key": ""}\n'
    body = parse_record_lines(lines * times)
    assert values_of(body) == [b'{"a":1.0}', b"text", None] * times
    assert keys_of(body) == [b"k", None, b""] * times


@pytest.mark.parametrize("times", [1, ROWS_MAX + 1])
def test_keys_from_values(times: int) -> None:
    pointer = KeyPointer("/id")
    assert keys_of(parse_value_lines(b'{"id": "a"}\n{"id": 7}\n' * times, pointer)) == [b"a", b"7"] * times
    assert keys_of(parse_record_lines(b'{"value": {"id": "a"}}\n' * times, pointer)) == [b"a"] * times
    for parse, line in ((parse_value_lines, b'{"id": []}'), (parse_record_lines, b'{"value": {"id": []}}')):
        good = line.replace(b"[]", b"1") + b"\n"
        with pytest.raises(Refused) as caught:
            parse(good * times + b"\n" + line, pointer)
        error = caught.value
        assert (error.error_code, error.status) == ("invalid_record", 422)
        assert (error.members["line"], error.members["index"]) == (times + 2, times)
        assert f"line {times + 2}: " in error.detail


MALFORMED = [
    (b'{"a":1', 6, "ends"),
    (b"01", 1, ""),
    (b"nul", 3, "ends"),
    (b'"\xff"', 1, "UTF-8"),
    (b'"\\ud800"', 1, "surrogate"),
    (b"1 2", 3, "trailing"),
    (b"1,2", 2, "trailing"),
    (b"\x0b", 0, ""),
    (b"\xef\xbb\xbf1", 0, ""),
    (b"[" * 100_000, 0, "nested"),
]


@pytest.mark.parametrize(("line", "byte", "words"), MALFORMED)
@pytest.mark.parametrize("before", [b"", b"1\n\n\r\n2\r\n", b"1\n" * (ROWS_MAX + 1)])
@pytest.mark.parametrize("parse", [parse_value_lines, parse_record_lines])
def test_a_line_that_is_no_json_is_named(parse: Any, line: bytes, byte: int, words: str, before: bytes) -> None:
    if parse is parse_record_lines:
        before = before.replace(b"1", b'{"value":1}').replace(b"2", b'{"value":2}')
    with pytest.raises(Refused) as caught:
        parse(before + line + b"\n3\n")
    error = caught.value
    assert (error.error_code, error.status) == ("malformed_body", 400)
    number = before.count(b"\n") + 1
    assert (error.members["line"], error.members["byte"]) == (number, len(before) + byte)
    assert f"line {number} " in error.detail
    assert words in error.detail


@pytest.mark.rule("B13")
def test_lines_that_are_only_json_together() -> None:
    """Three lines, three values: and no line of them is one."""
    for parse in (parse_value_lines, parse_record_lines):
        with pytest.raises(Refused) as caught:
            parse(b'{"value": [1\n2]}\n{"value": 1}, {"value": 2}\n')
        assert (caught.value.error_code, caught.value.members["line"]) == ("malformed_body", 1)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"7", "object"),
        (b'{"valu": 1}', "valu"),
        (b'{"key": "a"}', "value is missing"),
        (b'{"value": null}', "tombstone"),
        (b'{"value": 1, "key": 7}', "key"),
        (b'{"value": 1, "timestamp": "now"}', "RFC 3339"),
    ],
)
@pytest.mark.parametrize("before", [1, ROWS_MAX + 1])
def test_a_record_that_is_wrong_is_named_by_its_line(line: bytes, words: str, before: int) -> None:
    with pytest.raises(Refused) as caught:
        parse_record_lines(b'\n{"value": 1}' * before + b"\n\n" + line + b"\n")
    error = caught.value
    assert (error.error_code, error.members["line"], error.members["index"]) == ("invalid_record", before + 3, before)
    assert error.detail.startswith(f"line {before + 3}: ")
    assert words in error.detail


@pytest.mark.parametrize("body", [b"", b"\n", b"\r\n \t\n", b"\n\n\n"])
def test_nothing_at_all(body: bytes) -> None:
    for parse in (parse_value_lines, parse_record_lines):
        with pytest.raises(Refused) as caught:
            parse(body)
        assert caught.value.error_code == "invalid_request"


@pytest.mark.rule("B7")
def test_lines_are_counted_before_they_are_made() -> None:
    assert parse_value_lines(b"1\n" * RECORDS_MAX).count == RECORDS_MAX
    for body in (b"1\n" * (RECORDS_MAX + 1), b"\n" * (RECORDS_MAX + 1)):
        for parse in (parse_value_lines, parse_record_lines):
            with pytest.raises(Refused) as caught:
                parse(body)
            assert (caught.value.error_code, caught.value.members["limit"]) == ("request_too_large", RECORDS_MAX)


@settings(max_examples=300, deadline=None)
@given(st.data(), st.booleans())
def test_damaged_lines_are_read_or_refused_and_nothing_else(data: st.DataObject, as_records: bool) -> None:
    line = b'{"value": {"a": [1, "\\n\xc3\xa9"]}, "key": "k", "headers": [{"key": "h"}]}\n'
    body = bytearray(line * data.draw(st.sampled_from([3, ROWS_MAX + 3])))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    parse = parse_record_lines if as_records else parse_value_lines
    try:
        parse(
            bytes(body[: data.draw(st.integers(0, len(body)))]), KeyPointer("/a") if data.draw(st.booleans()) else None
        )
    except Refused as error:
        assert error.error_code in ("malformed_body", "invalid_record", "invalid_request")
        if error.error_code == "malformed_body":
            assert 0 <= error.members["byte"] <= len(body)
        if error.error_code != "invalid_request":
            assert 1 <= error.members["line"] <= body.count(b"\n") + 1
