"""Values that Arrow has otherwise than DuckDB come as they are."""

from typing import Any

import duckdb
import pytest

from siltlog.infra.sql.exact import exact, numbers
from siltlog.infra.sql.values import python_values

HIGH = 2**127


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("timetz '10:00:00+02'", "10:00:00+02"),
        ("timetz '10:00:00.5-02:30'", "10:00:00.5-02:30"),
        ("[timetz '24:00:00+00', null]", ["24:00:00+00", None]),
        (f"{HIGH}::uhugeint", HIGH),
        (f"{2 * HIGH - 1}::uhugeint", 2 * HIGH - 1),
        ("5::uhugeint", 5),
        (f"[{HIGH}::uhugeint, null]", [HIGH, None]),
        (f"[{HIGH}::uhugeint]::uhugeint[1]", [HIGH]),
        (
            f"{{'a \"b': [{HIGH}::uhugeint], 'uhugeint': 1, 'at': timetz '10:00:00+02', 'e': 'x'::enum('x', 'y')}}",
            {'a "b': [HIGH], "uhugeint": 1, "at": "10:00:00+02", "e": "x"},
        ),
        (f"map {{{HIGH}::uhugeint: timetz '10:00:00+02'}}", [(HIGH, "10:00:00+02")]),
        (f"row({HIGH}::uhugeint, 1)", {"element1": HIGH, "element2": 1}),
        (
            f"[row([row(timetz '10:00:00+02', {HIGH}::uhugeint)], {{'n': {HIGH}::uhugeint}})]",
            [{"element1": [{"element1": "10:00:00+02", "element2": HIGH}], "element2": {"n": HIGH}}],
        ),
        ("union_value(n := timetz '10:00:00+02')", "10:00:00+02"),
        ("170141183460469231731687303715884105727::hugeint", HIGH - 1),
        ("'UHUGEINT'", "UHUGEINT"),
        ("'x'::enum('x', 'UHUGEINT')", "x"),
    ],
)
def test_what_arrow_has_otherwise_comes_as_it_is(expression: str, value: Any) -> None:
    relation = duckdb.connect().sql(f'SELECT 1 AS x, {expression} AS "x", null AS "q""x" UNION ALL SELECT 2, null, 3')
    found = exact(relation).to_arrow_table()
    assert found.column_names == relation.columns
    assert [numbers(python_values(found.column(at).combine_chunks()), relation.types[at]) for at in range(3)] == [
        [1, 2],
        [value, None],
        [None, 3],
    ]


def test_columns_that_are_named_alike_keep_their_names() -> None:
    relation = duckdb.connect().sql(f'SELECT 1 AS "A", 2 AS "a", {HIGH}::uhugeint AS b, 4 AS b, {HIGH}::uhugeint AS b')
    assert exact(relation).to_arrow_reader(10).schema.names == ["A", "a", "b", "b", "b"]


def test_a_relation_that_is_exact_stays_as_it_is() -> None:
    relation = duckdb.connect().sql("SELECT 1, [2], {'a': time '10:00:00'}")
    assert exact(relation) is relation
