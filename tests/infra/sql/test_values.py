"""Values of results that Python has no value for."""

from datetime import UTC, date, datetime, time
from typing import Any

import duckdb
import pytest

from siltlog.infra.sql.values import python_values


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("date '2026-11-30'", date(2026, 11, 30)),
        ("timestamptz '9999-12-31 23:59:59Z'", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("date '10000-01-01'", "10000-01-01"),
        ("timestamp '294247-01-10'", "294247-01-10T00:00:00.000000"),
        ("timestamptz '10000-01-01'", "10000-01-01T00:00:00.000000Z"),
        ("timestamp_s '10000-01-01'", "10000-01-01T00:00:00"),
        ("date 'infinity'", "infinity"),
        ("date '-infinity'", "-infinity"),
        ("timestamptz '-infinity'", "-infinity"),
        ("[date 'infinity', null]", ["infinity", None]),
        ("[date 'infinity', null]::date[2]", ["infinity", None]),
        ("{'at': timestamp 'infinity', 'n': 1}", {"at": "infinity", "n": 1}),
        ("map{date 'infinity': 1}", [("infinity", 1)]),
        ("union_value(at := date 'infinity')", "infinity"),
        ("time '24:00:00'", "24:00:00"),
        ("time '23:59:59.5'", time(23, 59, 59, 500_000)),
        ("[{'at': time '24:00:00', 'n': 1}]", [{"at": "24:00:00", "n": 1}]),
    ],
)
def test_times_that_python_has_not_are_text(expression: str, value: Any) -> None:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    found = connection.sql(f"SELECT {expression} AS x UNION ALL SELECT null").to_arrow_table()
    assert python_values(found.column("x").combine_chunks()) == [value, None]
