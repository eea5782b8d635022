"""Names in SQL as DuckDB writes them."""

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.sql.identifiers import parts_of, place_before_quoting, quoted, with_quoted_names

_NAME = st.text(st.characters(codec="utf-8", exclude_characters="\0`"), min_size=1, max_size=12)


@pytest.mark.slow
@given(st.lists(_NAME, min_size=1, max_size=2), st.sampled_from(("", " AS x", " tablesample 10%")))
def test_what_duckdb_says_of_a_table_has_its_name(parts: list[str], rest: str) -> None:
    sql = f"SELECT * FROM {'.'.join(map(quoted, parts))}{rest}"
    with duckdb.connect() as connection:
        [told] = connection.get_table_names(sql, qualified=True)
    assert parts_of(told) == parts


@pytest.mark.parametrize(
    ("sql", "as_duckdb_has_it"),
    [
        ("select offset from `a-b`", 'select "offset" from "a-b"'),
        ("select 1 from t limit 1 offset 2", "select 1 from t limit 1 offset 2"),
        ("select 'offset' -- offset", "select 'offset' -- offset"),
    ],
)
def test_names_of_spark_and_the_reserved_one(sql: str, as_duckdb_has_it: str) -> None:
    assert with_quoted_names(sql) == as_duckdb_has_it


@given(st.lists(st.sampled_from(("`a b`", "offset", "'offset'", "x", "--offset\n", "offset 5")), max_size=6))
def test_places_are_found_as_they_were_before_names_were_quoted(words: list[str]) -> None:
    sql = " ".join([*words, "HERE"])
    assert place_before_quoting(sql, with_quoted_names(sql).index("HERE")) == sql.index("HERE")
