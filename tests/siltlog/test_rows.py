"""Rows as JSON values and the keys taken out of them."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.errors import Refused
from siltlog.rows import ROWS_AT_ONCE, json_values, keys_of, pointer_parts


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
        {"carrier": "UA", "delay": None, "when": "2013-01-01T10:00:00Z", "fare": "1.50", "raw": "/w=="},
        {"carrier": None, "delay": 3, "when": None, "fare": None, "raw": None},
    ]


def test_every_row_of_a_long_table_comes_once_in_order() -> None:
    count = 2 * ROWS_AT_ONCE + 7
    values = json_values(pa.table({"n": list(range(count))}))
    assert [json.loads(value)["n"] for value in values] == list(range(count))


@given(st.lists(st.one_of(st.text(), st.integers(-(2**53), 2**53), st.booleans()), min_size=1, max_size=20))
def test_a_key_is_the_text_of_a_string_or_the_json_of_a_scalar(scalars: list[str | int | bool]) -> None:
    values = [json.dumps({"user": {"id": scalar}}).encode() for scalar in scalars]
    expected = [scalar if isinstance(scalar, str) else json.dumps(scalar) for scalar in scalars]
    assert list(keys_of(values, pointer_parts("/user/id"), 1)) == expected


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


def test_a_pointer_goes_through_arrays_by_index() -> None:
    assert list(keys_of([b'{"a": [1, {"b": "x"}]}'], pointer_parts("/a/1/b"), 1)) == ["x"]


@pytest.mark.parametrize(
    "value", [b'{"id": null}', b'{"id": {}}', b'{"id": []}', b"{}", b"[1]", b'"text"', b"no json", b"\xff"]
)
def test_a_value_without_a_key_is_refused_with_its_line(value: bytes) -> None:
    with pytest.raises(Refused, match="record 8") as refused:
        list(keys_of([b'{"id": 1}', value], pointer_parts("id"), 7))
    assert refused.value.error_code == "invalid_record"
    assert refused.value.members["line"] == 8
