"""The page SQL in a real browser: what is shown is what the server answers, and what is cancelled ends there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_rig import as_caller, secured_server
from browser import Page, needs_chromium
from http_rig import NO_REDIS, Http
from sql_rig import ENDLESS, children_of
from waiting import until

from siltlog.infra import names
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

HOSTILE = '<img src=x onerror="window.hurt = 1">'
pytestmark = [pytest.mark.client, pytest.mark.timeout(300), needs_chromium]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(redis_url=NO_REDIS, flush_ms=200) as server:
        yield server


def ask(page: Page, sql: str, button: str = "Run") -> Any:
    at = page.go("sql")
    at.get_by_label("Query").fill(sql)
    at.get_by_role("button", name=button, exact=button == "Plan").click()
    at.get_by_role("button", name="Run").wait_for()
    return at


def cells(at: Any) -> list[list[str]]:
    at.get_by_role("region", name="Rows").wait_for()
    return [row.locator("td").all_inner_texts() for row in at.locator("main tbody tr").all()]


def test_the_newest_record_is_in_the_answer(page: Page, http: Http) -> None:
    http.create("newest")
    http.publish("newest", {"key": "ada", "value": "tea"}, query="?acks=table")
    at = page.go("sql")
    for value in ("cup", "pot"):
        http.publish("newest", {"key": "bob", "value": value})
        sql = 'select "offset", string(value) as v, null as nothing from newest order by 1'
        at.get_by_label("Query").fill(sql)
        # The answer that the page got: by the next one more may be in the table.
        with at.expect_response("**/v1/sql") as answered:
            at.get_by_label("Query").press("Control+Enter")
        answer = answered.value.json()
        at.get_by_role("cell", name=value).wait_for()
        assert cells(at) == [["NULL" if cell is None else str(cell) for cell in row] for row in answer["rows"]]
        page.shows(f"newest at version {answer['snapshot']['newest']}")
    assert at.locator("td.number").count() == 3
    assert at.locator("td.number .null").count() == 0


def test_names_are_put_at_the_cursor_and_completed_with_their_quotes(page: Page, http: Http) -> None:
    http.create("order.eu")
    at = page.go("sql")
    query = at.get_by_label("Query")
    query.press_sequentially("select off")
    at.get_by_role("button", name='"offset"').wait_for()
    query.press("Tab")
    assert query.input_value() == 'select "offset"'
    query.press_sequentially(" from")
    at.get_by_role("button", name="order.eu", exact=True).click()
    assert query.input_value() == 'select "offset" from "order.eu"'
    query.press("Control+Enter")
    page.shows("The query gave no row.")
    assert "q=select" in at.url
    at.reload()
    at.get_by_text("Asked before (1)").click()
    assert query.input_value() == 'select "offset" from "order.eu"'


def test_the_columns_of_a_table_are_those_that_the_server_says(page: Page, http: Http) -> None:
    http.create("columns")
    at = page.go("sql")
    at.get_by_role("button", name="Columns of columns").click()
    shown = at.locator(".tables ul ul li").all_inner_texts()
    said = http.json("POST", "/v1/sql", {"sql": "select * from columns limit 0"}).json["columns"]
    assert [text.replace('"offset"', "offset", 1) for text in shown] == [
        f"{each['name']} {each['type']}" for each in said
    ]


def test_what_is_cancelled_ends_at_the_server(page: Page, http: Http, server: ServerProcess) -> None:
    http.create("endless")
    http.publish("endless", {"value": "1"})
    at = page.go("sql")
    at.get_by_label("Query").fill(ENDLESS.format(topic="endless"))
    at.get_by_role("button", name="Run").click()
    until(lambda: bool(children_of(server.pid)))
    at.get_by_role("button", name="Cancel").click()
    page.shows("Cancelled")
    until(lambda: not children_of(server.pid))


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("select string(key),\n  nothing from placed", "To line 2, column 3"),
        ("selec 1", "To line 1, column 1"),
        ("select 1\nfrom nowhere", "To line 2, column 6"),
    ],
)
def test_an_error_says_where_it_is(page: Page, http: Http, sql: str, place: str) -> None:
    http.json("PUT", "/v1/topics/placed", {})
    at = ask(page, sql)
    at.get_by_role("button", name=place).click()
    at.locator("textarea:focus").wait_for()
    assert at.get_by_label("Query").evaluate("it => it.selectionStart") == sum(
        (place.endswith("column 3") and 22, place.endswith("column 6") and 14)
    )


def test_a_plan_is_told_and_nothing_run(page: Page, http: Http) -> None:
    http.create("planned")
    at = ask(page, "select count(*) from planned", "Plan")
    at.get_by_role("region", name="Plan").wait_for()
    assert "Aggregate" in at.locator(".plan").inner_text()


def test_rows_are_drawn_exported_and_told_to_be_cut(page: Page, http: Http, tmp_path: Path) -> None:
    http.create("many")
    http.publish("many", *({"key": f"k{number:03}", "value": "=1+1"} for number in range(101)))
    at = page.go("sql")
    at.get_by_label("Query").fill(
        "select string(key) as key, string(value) as v, 9007199254740993 as n from many order by 1"
    )
    at.get_by_label("Rows at most").select_option("100")
    at.get_by_role("button", name="Run").click()
    page.shows("the server cut after 100")
    assert cells(at)[0] == ["k000", "=1+1", "9007199254740993"]
    saved = {}
    for kind in ("CSV", "NDJSON"):
        with at.expect_download() as download:
            at.get_by_role("button", name=kind, exact=True).click()
        saved[kind] = Path(download.value.path()).read_text().splitlines()
    assert saved["CSV"][:2] == ["key,v,n", "k000,'=1+1,9007199254740993"]
    assert [json.loads(line)["key"] for line in saved["NDJSON"]] == [f"k{number:03}" for number in range(100)]
    at.get_by_label("chart").check()
    assert at.locator(".bars dt").first.inner_text() == "k000 · =1+1"


def test_numbers_over_a_time_are_a_chart(page: Page, http: Http) -> None:
    http.create("timed")
    http.publish("timed", {"value": "1"}, {"value": "2"})
    at = ask(page, "select timestamp, count(*) as n from timed group by 1 order by 1")
    at.get_by_label("chart").check()
    at.get_by_role("img", name="n, as a chart").wait_for()


def test_numbers_are_shown_and_exported_by_all_their_digits(page: Page, http: Http) -> None:
    http.create("one")
    http.publish("one", {"value": "a"})
    at = ask(
        page,
        "select -9007199254740993 as n, [9007199254740993] as l, '-1' as t, "
        "-12345678901234567.125::decimal(20, 3) as d, 0.1 + 0.2::double as f from one",
    )
    assert cells(at) == [
        ["-9007199254740993", "[9007199254740993]", "-1", "-12345678901234567.125", "0.30000000000000004"]
    ]
    saved = {}
    for kind in ("CSV", "NDJSON"):
        with at.expect_download() as download:
            at.get_by_role("button", name=kind, exact=True).click()
        saved[kind] = Path(download.value.path()).read_text().splitlines()
    assert saved["CSV"] == [
        "n,l,t,d,f",
        "-9007199254740993,[9007199254740993],'-1,-12345678901234567.125,0.30000000000000004",
    ]
    [line] = saved["NDJSON"]
    whole = {"n": -(2**53) - 1, "l": [2**53 + 1], "t": "-1"}
    assert json.loads(line, parse_float=str) == {**whole, "d": "-12345678901234567.125", "f": "0.30000000000000004"}
    at.get_by_label("chart").check()
    assert at.locator(".bars dt").first.inner_text().endswith("-12345678901234567.125")


def test_a_row_is_opened_to_see_all_of_it(page: Page, http: Http) -> None:
    http.create("long")
    text = " ".join(f"word-{number}" for number in range(400))
    http.publish("long", {"key": "a", "value": text})
    at = ask(page, "select string(key) as key, string(value) as v, null as nothing from long")
    at.locator("tr[data-row]").click()
    facts = at.get_by_label("One row").locator("dd")
    assert facts.all_inner_texts() == ["a", text, "NULL"]
    at.get_by_role("button", name="Close the row").click()
    assert at.get_by_label("One row").count() == 0


def test_what_rows_say_is_text(page: Page, http: Http) -> None:
    http.create("hostile")
    http.publish("hostile", {"value": HOSTILE})
    at = ask(page, f"""select string(value) as "{HOSTILE.replace('"', "'")}" from hostile""")
    assert cells(at) == [[HOSTILE]]
    assert at.locator("main img").count() == 0
    assert at.evaluate("window.hurt") is None


def test_a_server_without_duckdb_says_what_to_install(page: Page) -> None:
    problem = {"status": 501, "error_code": "not_supported", "detail": "this server answers no SQL"}
    page.at.route(
        "**/v1/sql", lambda route: route.fulfill(status=501, content_type=names.MEDIA_PROBLEM, body=json.dumps(problem))
    )
    ask(page, "select 1")
    page.shows("pip install 'siltlog[sql]'")


def test_tables_are_those_that_the_caller_may_read(browser: Any) -> None:
    with secured_server() as secured:
        for topic in ("own-t", "other-t"):
            assert secured.admin.json("POST", "/v1/topics", {"name": topic}).status == 201
        _, consumer = secured.key("reader", ("consumer", "own-"), ("viewer", ""))
        with as_caller(browser, secured, consumer) as page:
            at = page.go("sql")
            at.get_by_role("button", name="own-t", exact=True).wait_for()
            assert at.get_by_role("button", name="other-t", exact=True).count() == 0
            ask(page, 'select * from "other-t"')
            page.shows("no right to read")
        assert consumer.json("POST", "/v1/sql", {"sql": 'select * from "other-t"'}).status == 403
