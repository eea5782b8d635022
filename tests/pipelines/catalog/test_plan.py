"""What a catalog should say, and what that changes."""

from dataclasses import replace

import pytest

from siltlog.pipelines.catalog.plan import COLUMNS, CatalogTable, changes, create_statement, table_name

ROOT = "s3://lake/siltlog"


def of(topic: str, root: str = ROOT) -> CatalogTable:
    return CatalogTable(table_name(topic), topic, root, f"{root}/topics/{topic}")


def actions(*given: object, kept: set[str] | None = None) -> dict[str, str]:
    wanted, found = given
    return {change.table: change.action for change in changes(wanted, found, ROOT, kept)}  # type: ignore[arg-type]


@pytest.mark.parametrize(("topic", "name"), [("events", "events"), ("Web.clicks-2", "web_clicks_2"), ("a__b", "a__b")])
def test_names_are_ones_that_every_catalog_knows(topic: str, name: str) -> None:
    assert table_name(topic) == name


def test_columns_are_those_of_the_table_in_the_types_of_spark() -> None:
    assert [str(column.type) for column in COLUMNS[:5]] == ["int", "bigint", "timestamp", "binary", "binary"]
    assert dict(COLUMNS)["headers"] == "array<struct<key:string,value:binary>>"


def test_what_is_lacking_is_made_what_differs_put_right_and_what_is_right_kept() -> None:
    moved = replace(of("b"), location="s3://old/b")
    fewer = replace(of("c"), columns=COLUMNS[:3])
    found = [of("a"), moved, fewer]
    assert actions([of("a"), of("b"), of("c"), of("d")], found) == {
        "a": "keep", "b": "update", "c": "update", "d": "create",
    }  # fmt: skip


def test_tables_without_a_topic_go_where_all_topics_are_known() -> None:
    found = [of("gone"), of("unread"), of("other", "s3://lake/other"), CatalogTable("theirs", "", "", "s3://x")]
    assert actions([of("a")], found, kept={"a", "unread"}) == {"a": "create", "gone": "drop"}
    assert actions([of("a")], found) == {"a": "create"}


def test_tables_of_others_are_never_touched() -> None:
    found = [CatalogTable("a", "", "", "s3://x"), of("b", "s3://lake/other")]
    told = changes([of("a"), of("b")], found, ROOT, {"a", "b"})
    assert [change.action for change in told] == ["refuse", "refuse"]
    assert "did not make" in told[0].why and "s3://lake/other" in told[1].why


def test_of_topics_with_one_name_neither_is_told_and_none_is_dropped() -> None:
    told = changes([of("a-b"), of("a.b")], [of("a-b")], ROOT, {"a-b", "a.b"})
    assert [(change.action, change.why) for change in told] == [("refuse", "a-b and a.b would have one name")] * 2


def test_statements_quote_what_they_name() -> None:
    table = replace(of("events"), location="file:/o'clock")
    assert create_statement(table, "logs") == (
        "CREATE TABLE IF NOT EXISTS `logs`.`events` USING DELTA LOCATION 'file:/o\\'clock'"
    )
