"""What the process of a query answers to what a server says, without the process: what DuckDB takes for a query, what
it reaches of itself, and where in the query an error is."""

import io
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from siltlog.consumers.sql import frames
from siltlog.consumers.sql.child import MESSAGE_BYTES_MAX, answer
from siltlog.consumers.sql.frames import Asked, Failed, Table, Tables
from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import RECORD_SCHEMA

CLOCK = SystemClock()
TOPIC = Table("orders", [("main", "orders"), ("silt", "orders")], [], {}, True)


@pytest.fixture(autouse=True)
def _threads_of_arrow() -> Iterator[None]:
    """A query takes as many as it may have; elsewhere they stay as they were."""
    before = pa.cpu_count()
    yield
    pa.set_cpu_count(before)


def head() -> bytes:
    """Four records."""
    rows = [{"partition": 0, "offset": number, "value": b"%d" % number} for number in range(4)]
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, RECORD_SCHEMA) as writer:
        writer.write_table(pa.Table.from_pylist(rows, RECORD_SCHEMA))
    return sink.getvalue()


def asked(sql: str) -> frames.Frame:
    """The last that comes of a query: a server that has one topic gives it, whatever is named."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=answer, args=(theirs, [], CLOCK))
        thread.start()
        try:
            frames.send(ours, frames.ASKED, msgspec.json.encode(Asked(sql)))
            told = frames.receive(ours, MESSAGE_BYTES_MAX)
            if told.kind == frames.NAMED:
                tables = Tables([TOPIC], False, False, 100, msgspec.Raw(b"{}"), CLOCK.monotonic())
                frames.send(ours, frames.TABLES, msgspec.json.encode(tables))
                frames.send(ours, frames.HEAD, head())
                told = frames.receive(ours, MESSAGE_BYTES_MAX)
        finally:
            ours.shutdown(socket.SHUT_RDWR)
            thread.join()
    return told


def failure(sql: str) -> Failed:
    told = asked(sql)
    assert told.kind == frames.FAILED, bytes(told.body[:1000])
    return msgspec.json.decode(told.body, type=Failed)


def test_a_query_is_answered() -> None:
    told = asked("select count(*) as n, max(string(value)) as v from silt.orders")
    assert told.kind == frames.ANSWER
    assert msgspec.json.decode(told.body)["rows"] == [[4, "3"]]


@pytest.mark.rule("SQ3")
@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("", "one query at a time, not 0"),
        ("select 1 from orders; select 2 from orders", "one query at a time, not 2"),
        ("select * from orders where offset > 1 offset 'x'", 'write "offset" for the column'),
        ("select a from orders group by offset 5 order", "syntax error"),
        ("explain analyze select * from orders", "EXPLAIN is not a query"),
        ("insert into orders select * from orders", "INSERT is not a query"),
        ("create table x as select * from orders", "CREATE is not a query"),
        ("copy orders to '{f}/out.csv'", "COPY is not a query"),
        ("attach '{f}/a.db'", "ATTACH is not a query"),
        ("install httpfs", "LOAD is not a query"),
        ("set lock_configuration = false", "SET is not a query"),
        ("pragma database_list", "PRAGMA is not a query"),
        ("select * from orders, read_csv('{f}/secret')", "only read topics"),
        ("select * from orders, read_text('{f}/secret')", "only read topics"),
        ("select * from orders, glob('{f}/*')", "only read topics"),
        ("select * from orders, '{f}/secret'", "{f}/secret"),
        ("select * from orders, 'http://127.0.0.1:1/x.parquet'", "only read topics"),
        ("select * from orders, read_parquet('s3://bucket/x')", ""),
        ("select getenv('PATH') from orders", "getenv"),
        ("select * from orders, duckdb_secrets()", "only read topics"),
    ],
)
def test_what_is_no_query_of_topics_is_refused(tmp_path: Path, sql: str, says: str) -> None:
    (tmp_path / "secret").write_text("hush")
    refused = failure(sql.replace("{f}", str(tmp_path)))
    assert says.replace("{f}", str(tmp_path)) in refused.reason
    assert "hush" not in refused.reason
    assert refused.kind in ("refused", "dialect", "outside", "no_table", "wrong"), "and not what a server is asked for"
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("selec 1", (1, 1)),
        ("select offset,\n  nothing from orders", (2, 3)),
        ("select `offset`, offset, offset, nothing from orders", (1, 34)),
        ("select " + "1, " * 80 + "nothing, " + "2, " * 80 + "3 from orders", (1, 248)),
        ("select 1 from orders where nosuch(1)", (1, 28)),
        ("select 'é', cast('x' as int) from orders", (1, 13)),
    ],
)
def test_an_error_has_its_place(sql: str, place: tuple[int, int]) -> None:
    assert failure(sql).place == place
