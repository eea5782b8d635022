"""Queries at a node of a topic that another owns, and at one without DuckDB: real logs, connections and processes."""

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_log import FakeLog
from remote_rig import Node, owner_and_reader, run, until
from starlette.routing import Router

from siltlog.consumers.reading.view import LogView
from siltlog.consumers.sql import http, topics
from siltlog.consumers.sql.http import SqlHttp
from siltlog.infra.clock import MICROS_PER_SECOND, SystemClock
from siltlog.infra.cluster.router import Place
from siltlog.infra.errors import Refused
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.routes import routes_of
from siltlog.infra.http.streams import Streams
from siltlog.infra.security.grant import EVERYTHING, GRANT
from siltlog.infra.store.local import LocalStore

SQL = "select count(*), count(distinct offset), max(string(value)) from t"


async def asked(log: LogView, sql: str = SQL) -> dict[str, Any]:
    """The answer; what it is refused with passes."""
    queries = SqlHttp(log, Streams(Draining()), SystemClock())
    body = b""
    told = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal told
        if told:
            await asyncio.Event().wait()
        told = True
        return {"type": "http.request", "body": json.dumps({"sql": sql}).encode()}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal body
        body += message.get("body", b"")

    scope = {"type": "http", "method": "POST", "path": "/v1/sql", "query_string": b"", "headers": []}
    try:
        await Router(routes_of(queries))({**scope, "state": {GRANT: EVERYTHING}}, receive, send)
    finally:
        queries.close()
    document: dict[str, Any] = json.loads(body)
    return document


@asynccontextmanager
async def half_in_the_table(folder: Path) -> AsyncIterator[tuple[Node, Node]]:
    """An owner with 20 records in the table and 20 above it, and another node."""
    async with owner_and_reader(folder) as (a, b, _):
        await a.publish("t", *(f"old {n}" for n in range(20)))
        await a.flusher.drain()
        await a.publish("t", *(f"new {n:02}" for n in range(20)))
        await until(lambda: b.reads.topic("t").partitions[0].bounds().high_watermark == 40)
        assert b.reads.topic("t").partitions[0].far
        yield a, b


def test_any_node_answers_with_the_head_of_the_owner(tmp_path: Path) -> None:
    async def test() -> None:
        async with half_in_the_table(tmp_path) as (a, b):
            for node in (a, b):
                found = await asked(node.reads)
                assert found["rows"] == [[40, 40, "old 9"]]
                assert (found["head"], found["head_records"]) == (True, 20)

    run(test())


@pytest.mark.slow
def test_what_only_an_owner_has_that_is_gone_is_said_to_be_missing(tmp_path: Path) -> None:
    async def test() -> None:
        async with half_in_the_table(tmp_path) as (_, b):
            b.routes.set("t", Place(None, away_since_us=MICROS_PER_SECOND))
            b.reads.topic("t").went(True)
            found = await asked(b.reads)
            assert found["rows"] == [[20, 20, "old 9"]]
            assert (found["head"], found["head_records"]) == (False, 0)

    run(test())


@pytest.mark.rule("SQ6")
def test_a_head_that_is_too_large_is_left_out_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with half_in_the_table(tmp_path) as (a, _):
            monkeypatch.setattr(topics, "HEAD_BYTES_MAX", 100)
            found = await asked(a.reads)
            assert found["rows"] == [[20, 20, "old 9"]]
            assert (found["head"], found["head_records"]) == (False, 0)

    run(test())


def test_without_duckdb_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "find_spec", lambda _: None)
    with pytest.raises(Refused, match=r"pip install 'siltlog\[sql\]'") as refused:
        asyncio.run(asked(FakeLog(LocalStore(str(tmp_path)))))
    assert (refused.value.status, refused.value.error_code) == (501, "not_supported")
