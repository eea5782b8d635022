"""Rows as JSON values and the keys taken out of them."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.client.bodies.json_rows import json_column, json_values, pointer_parts, text_column, texts_of


def test_a_row_is_one_object_with_nulls_kept() -> None:
    table = pa.table(
        {
            "carrier": ["UA", None],
            "delay": pa.array([None, 3], pa.int64()),
            "when": pa.array([datetime(2013, 1, 1, 10, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
            "fare": pa.array([Decimal("1.50"), None]),
            "raw": pa.array([b"\xff", None]),
        }
    )
    assert [json.loads(value) for value in json_values(table)] == [
        {"carrier": "UA", "delay": None, "when": "2013-01-01T10:00:00.000000Z", "fare": "1.50", "raw": "/w=="},
        {"carrier": None, "delay": 3, "when": None, "fare": None, "raw": None},
    ]


NAMES = st.text(min_size=1)
CELLS = {
    pa.string(): st.text(),
    pa.large_string(): st.text(),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.bool_(): st.booleans(),
    pa.list_(pa.string()): st.lists(st.text(), max_size=2),
    pa.struct([("a", pa.int32())]): st.fixed_dictionaries({"a": st.integers(-9, 9)}),
}


@given(st.data())
def test_what_a_row_holds_can_be_read_back_from_its_json(data: st.DataObject) -> None:
    names = data.draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    kinds = [data.draw(st.sampled_from(list(CELLS))) for _ in names]
    rows = data.draw(st.lists(st.tuples(*(st.none() | CELLS[kind] for kind in kinds)), min_size=1, max_size=5))
    columns = [pa.array(cells, kind) for cells, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    if data.draw(st.booleans()) and kinds[0] == pa.string():
        columns[0] = columns[0].dictionary_encode()
    batch = pa.record_batch(columns, names)
    read = [json.loads(value) for value in json_column(batch).to_pylist()]
    assert read == [dict(zip(names, row, strict=True)) for row in rows]


def test_numbers_that_json_has_not_are_null() -> None:
    batch = pa.record_batch(
        {"x": pa.array([float("nan"), float("inf"), 1.5]), "y": pa.array([1.5, None, 2], pa.float16())}
    )
    assert json_values(batch) == [b'{"x":null,"y":1.5}', b'{"x":null,"y":null}', b'{"x":1.5,"y":2}']
    assert json_values(pa.record_batch([pa.nulls(2)], ["n"])) == [b'{"n":null}'] * 2


def test_times_say_their_zone_where_they_have_one() -> None:
    when = datetime(2013, 1, 1, 10, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "new york": pa.array([when], pa.timestamp("s", "America/New_York")),
            "naive": pa.array([when.replace(tzinfo=None)], pa.timestamp("ms")),
            "day": pa.array([when.date()]),
        }
    )
    assert [json.loads(value) for value in json_values(batch)] == [
        {"new york": "2013-01-01T10:00:00Z", "naive": "2013-01-01T10:00:00.000", "day": "2013-01-01"}
    ]


def test_the_text_of_a_column_is_what_a_key_of_it_is() -> None:
    def texts(column: pa.Array) -> list[bytes | None]:
        found = text_column(column)
        assert found is not None and found.type == pa.binary()
        values: list[bytes | None] = found.to_pylist()
        return values

    assert texts(pa.array(['a"b', None])) == [b'a"b', None]
    assert texts(pa.array(["x", None, "x"]).dictionary_encode()) == [b"x", None, b"x"]
    assert texts(pa.array([b"\xff"])) == [b"\xff"]
    assert texts(pa.array([1, None])) == [b"1", None]
    assert texts(pa.array([True])) == [b"true"]
    assert texts(pa.array([Decimal("1.50")])) == [b"1.50"]
    assert text_column(pa.array([[1]])) is None


@given(st.lists(st.one_of(st.text(), st.integers(-(2**53), 2**53), st.booleans()), min_size=1, max_size=20))
def test_a_key_is_the_text_of_a_string_or_the_json_of_a_scalar(scalars: list[str | int | bool]) -> None:
    values = [json.dumps({"x": [1], "user": {"id": scalar}}).encode() for scalar in scalars]
    expected = [scalar if isinstance(scalar, str) else json.dumps(scalar) for scalar in scalars]
    assert list(texts_of(values, pointer_parts("/user/id"))) == expected


def test_a_number_keeps_its_digits() -> None:
    assert list(texts_of([b'{"id": 1.50}', b'{"id": 1e3}'], ["id"])) == ["1.50", "1e3"]


@pytest.mark.parametrize(
    ("key_from", "parts"),
    [
        ("carrier", ["carrier"]),
        ("/a/b", ["a", "b"]),
        ("/a~1b/~0/~01", ["a/b", "~", "~1"]),
        ("/", [""]),
        ("a/b", ["a/b"]),
    ],
)
def test_a_pointer_is_read_as_rfc_6901_says(key_from: str, parts: list[str]) -> None:
    assert pointer_parts(key_from) == parts


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        (b'{"a": [1, {"b": "x"}]}', "/a/1/b"),
        (b'{"a": {"1": {"b": "x"}}}', "/a/1/b"),
        (b'["y", "x"]', "/1"),
        (b'{"": "x"}', "/"),
        (b'{"a/b": {"~": "x"}}', "/a~1b/~0"),
    ],
)
def test_a_pointer_goes_through_objects_and_lists(value: bytes, pointer: str) -> None:
    assert list(texts_of([value], pointer_parts(pointer))) == ["x"]


@pytest.mark.parametrize(
    "value",
    [
        b'{"id": null}',
        b'{"id": {}}',
        b'{"id": []}',
        b"{}",
        b"[1]",
        b'"text"',
        b"no json",
        b"\xff",
        b'{"id": "\xff"}',
        b"",
    ],
)
@pytest.mark.parametrize("pointer", ["id", "/id/0", "/0"])
def test_a_value_without_a_key_ends_the_keys(value: bytes, pointer: str) -> None:
    texts = texts_of([b'{"id": ["1"], "0": 1}' if "0" in pointer else b'{"id": 1}', value], pointer_parts(pointer))
    assert next(texts) == "1"
    if (value, pointer) == (b"[1]", "/0"):
        assert next(texts) == "1"
        return
    with pytest.raises(ValueError, match=r"no string, number or boolean at|it is not JSON"):
        next(texts)
