"""Rows as replies have them: how many fit, and values that JSON does not have."""

from decimal import Decimal
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.consumers.sql.answer import ROWS_BYTES_MAX, Rows, TooLarge, cell


def batches(*sizes: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"n": list(range(size))}, pa.schema([("n", pa.int64())])) for size in sizes]


@given(st.lists(st.integers(0, 20)), st.integers(1, 40))
def test_a_limit_is_exact_and_what_is_left_is_told(sizes: list[int], limit: int) -> None:
    rows = Rows(batches(*sizes), pa.schema([("n", pa.int64())]), limit)
    assert sum(batch.num_rows for batch in rows.batches) == min(limit, sum(sizes))
    assert rows.cut == (sum(sizes) > limit)


def test_rows_are_cut_where_they_take_too_many_bytes() -> None:
    value = b"x" * (ROWS_BYTES_MAX // 4)
    schema = pa.schema([("v", pa.binary())])
    found = Rows([pa.record_batch({"v": [value] * 3}, schema)] * 2, schema, 100)
    assert sum(batch.num_rows for batch in found.batches) == 3
    assert found.cut
    with pytest.raises(TooLarge, match="16 MiB"):
        Rows([pa.record_batch({"v": [b"x" * (ROWS_BYTES_MAX + 1)]}, schema)], schema, 100)


@pytest.mark.parametrize(
    ("value", "as_json"),
    [
        (b"text", "text"),
        (b"\xff", {"base64": "/w=="}),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        ({1: [b"x", None]}, {"1": ["x", None]}),
        (Decimal("1.50"), Decimal("1.50")),
        (pa.MonthDayNano([0, 1, 1_000_000_000]), "P1DT1S"),
        (pa.MonthDayNano([-2, 0, 0]), "-P2M"),
        (pa.MonthDayNano([2, 1, 0]), "P2M P1D"),
    ],
)
def test_values(value: Any, as_json: Any) -> None:
    assert cell(value) == as_json


def test_the_same_name_twice_is_two_columns() -> None:
    schema = pa.schema([("n", pa.int64()), ("n", pa.int64())])
    rows = Rows([pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], schema=schema)], schema, 10)
    document = msgspec.json.decode(rows.json_bytes([duckdb.sqltype("BIGINT")] * 2, {"head": True}))
    assert document["rows"] == [[1, 2]]
    assert [column["name"] for column in document["columns"]] == ["n", "n"]
