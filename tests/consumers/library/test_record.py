"""Records of the library, from the columns that a fetch brings."""

import subprocess
import sys
from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from siltlog.consumers.library.record import ConsumerRecord, records_of
from siltlog.infra.columns import FETCH_SCHEMA

MOMENT = datetime(2026, 11, 21, 7, 36, 0, 123456, tzinfo=UTC)
PAIRS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3)


@given(st.lists(st.tuples(st.none() | st.binary(max_size=4), PAIRS), max_size=8), st.integers(0, 8), st.integers(1, 4))
def test_records_are_the_same_whatever_batches_they_come_in(
    given_rows: list[tuple[bytes | None, list[tuple[str, bytes | None]]]], start: int, size: int
) -> None:
    rows = [
        {"offset": at, "timestamp": MOMENT, "key": value, "value": value,
         "headers": [{"key": name, "value": text} for name, text in pairs] or None}
        for at, (value, pairs) in enumerate(given_rows)
    ]  # fmt: skip
    table = pa.Table.from_batches(
        pa.Table.from_pylist(rows, FETCH_SCHEMA).to_batches(max_chunksize=size), FETCH_SCHEMA
    ).slice(start)
    assert records_of("t", 0, table) == [
        ConsumerRecord("t", 0, at, MOMENT, value, value, tuple(pairs))
        for at, (value, pairs) in enumerate(given_rows)
        if at >= start
    ]


def test_columns_may_be_cut_differently() -> None:
    rows = [{"offset": at, "timestamp": MOMENT, "value": b"%d" % at} for at in range(5)]
    table = pa.Table.from_pylist(rows, FETCH_SCHEMA)
    cut = table.set_column(
        table.schema.get_field_index("value"),
        "value",
        pa.chunked_array([[b"0", b"1"], [b"2", b"3", b"4"]], pa.binary()),
    )
    assert records_of("t", 0, cut) == records_of("t", 0, table)
    assert records_of("t", 0, table.slice(5)) == []


def test_making_records_imports_no_pandas() -> None:
    """It would take half a second, at the first poll of every program."""
    script = """
import sys
import numpy as np
import pyarrow as pa
from siltlog.consumers.library.record import records_of
from siltlog.infra.arrow.arrays import binary_array, fixed_array
from siltlog.infra.columns import FETCH_SCHEMA, nulls

known = {
    "offset": fixed_array(np.array([3], np.int64), pa.int64()),
    "timestamp": fixed_array(np.array([7], np.int64), pa.timestamp("us", "UTC")),
    "value": binary_array([b"a"]),
}
columns = [known.get(field.name, nulls(1, field.type)) for field in FETCH_SCHEMA]
assert records_of("t", 0, pa.table(columns, schema=FETCH_SCHEMA).slice(0))[0].value == b"a"
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
