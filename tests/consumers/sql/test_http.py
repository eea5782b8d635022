"""Queries of a real server: what is acknowledged is in the answer once, and nothing else can be reached."""

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chaos import CHAOS
from http_rig import NO_REDIS, Http, Reply
from processes import opened_by
from s3_server import S3Server
from sql_rig import ENDLESS, children_of, is_busy
from waiting import SECONDS_MAX, until

from siltlog.consumers.sql.http import QUERIES_MAX, ROWS_MAX
from siltlog.infra import names
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

PAUSE_SECONDS = 0.04
PAUSE_SHARE = 4
"""Between one publish and the next, and of what the last one took; without a pause, publishing would take most of what
a query needs."""
EVERYTHING = 'select "partition", "offset", string(value) as v from "{topic}" order by all'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Topics stay in their heads until they ask for the table; its environment has what no child may see."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-server")
        patch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "secret-of-the-server")
        folder = tmp_path_factory.mktemp("sql") / "data"
        with running_server(data_dir=folder, redis_url=NO_REDIS, flush_ms=600_000) as running:
            yield running


@pytest.fixture
def http(server: ServerProcess) -> Http:
    return Http(server.url)


@pytest.fixture
def topic(http: Http) -> str:
    name = f"t{uuid.uuid4().hex}"
    http.create(name, 2)
    return name


def ask(http: Http, sql: str, **body: Any) -> Reply:
    return http.json("POST", "/v1/sql", {"sql": sql, **body})


def answer(http: Http, sql: str, **body: Any) -> dict[str, Any]:
    reply = ask(http, sql, **body)
    assert reply.status == 200, reply
    assert reply.headers["cache-control"] == "no-store"
    document: dict[str, Any] = reply.json
    return document


def rows(http: Http, sql: str) -> list[list[Any]]:
    found: list[list[Any]] = answer(http, sql)["rows"]
    return found


def publish(http: Http, topic: str, *numbers: int, acks: str = "wal") -> None:
    records = [{"value": str(n), "key": f"k{n % 3}", "partition": n % 2} for n in numbers]
    assert http.publish(topic, *records, query=f"?acks={acks}").status == 200


def begun(http: Http, sql: str) -> HTTPConnection:
    """A query whose answer nobody takes."""
    parts = urlsplit(http.url)
    connection = _connection(parts.hostname, parts.port)
    connection.request("POST", "/v1/sql", json.dumps({"sql": sql}), {"Content-Type": names.MEDIA_JSON})
    return connection


def _connection(host: str | None, port: int | None) -> HTTPConnection:
    assert host
    return HTTPConnection(host, port, timeout=SECONDS_MAX)


def test_the_table_and_the_head_are_one(http: Http, topic: str) -> None:
    publish(http, topic, *range(20))
    first = answer(http, EVERYTHING.format(topic=topic))
    assert (first["head"], first["head_records"], first["cut"]) == (True, 20, False)
    publish(http, topic, *range(20, 40), acks="table")
    publish(http, topic, *range(40, 60))
    both = answer(http, EVERYTHING.format(topic=topic))
    assert both["head_records"] == 20
    assert both["snapshot"][topic] > first["snapshot"][topic]
    assert both["rows"] == [[n % 2, n // 2, str(n)] for p in (0, 1) for n in range(60) if n % 2 == p]
    assert [column["name"] for column in both["columns"]] == ["partition", "offset", "v"]
    assert [column["type"] for column in both["columns"]] == ["INTEGER", "BIGINT", "VARCHAR"]


@pytest.mark.rule("SQ1")
def test_a_record_is_there_once_while_it_moves_into_the_table() -> None:
    with running_server(redis_url=NO_REDIS, flush_ms=150) as own:
        http = Http(own.url)
        http.create("moving", 2)
        acknowledged, stop = [0], threading.Event()

        def publishing() -> None:
            while not stop.is_set():
                first, began = acknowledged[0], time.monotonic()
                publish(http, "moving", *range(first, first + 50))
                acknowledged[0] += 50
                time.sleep(max(PAUSE_SECONDS, PAUSE_SHARE * (time.monotonic() - began)))

        thread = threading.Thread(target=publishing)
        thread.start()
        try:
            for _ in range(8 if CHAOS > 1 else 4):
                before = acknowledged[0]
                sql = "select count(*), count(distinct (partition, offset)), 2 * (max(offset) + 1) from moving"
                [[count, distinct, end]] = rows(http, sql)
                assert before <= count == distinct == end
        finally:
            stop.set()
            thread.join()


@pytest.mark.rule("SQ5")
def test_what_is_below_the_log_start_is_hidden(http: Http, topic: str) -> None:
    publish(http, topic, *range(20), acks="table")
    publish(http, topic, *range(20, 40))
    assert http.call("DELETE", f"/v1/topics/{topic}/partitions/0/records?before_offset=7").status == 200
    seen = rows(http, f"select partition, min(offset), max(offset) from {topic} group by 1 order by 1")
    assert seen == [[0, 7, 19], [1, 0, 19]]
    for function in ("query_table('files of {topic}')", "query('select * from \"files' || ' of {topic}\"')"):
        source = function.format(topic=topic)
        other_way = ask(http, f"select min(f.offset) from {source} f, {topic} where f.partition = 0")
        assert other_way.status in (404, 422) or other_way.json["rows"] == [[7]], other_way


def test_names_with_dots_and_dashes_and_any_case(http: Http) -> None:
    for name in ("lost-luggage", "a.b", "Mixed"):
        http.create(name)
        publish(http, name, 2)
    written = ('"lost-luggage"', "`lost-luggage`", 'silt."lost-luggage" x', "a.b", '"a.b" as y', "silt.mixed", "MIXED")
    counts = ", ".join(f"(select count(*) from {name})" for name in written)
    assert rows(http, f"select {counts}") == [[1] * len(written)]
    [[pairs]] = rows(http, 'select count(*) from Mixed m, mixed n, "a.b" tablesample 100%')
    assert pairs == 1
    refused = ask(http, "select count(*) from memory.a.b.c")
    assert (refused.status, "double quotes" in refused.json["detail"]) == (404, True)


def test_values_are_as_json_has_them(http: Http, topic: str) -> None:
    http.publish(topic, {"value_base64": "/w==", "key": "k", "headers": [{"key": "h", "value": "x"}], "partition": 0})
    [row] = rows(
        http,
        "select value, key, headers, producer_id, 1.50::decimal(4,2), 12345678901234567890123::hugeint, "
        "interval 40 day, interval 14 month, 'nan'::double, '-inf'::double, true, {'a': [1, null]}, map {1: 'x'}, "
        "date '2026-01-02', timestamp_ns '2026-01-02 03:04:05.123456789', timestamptz '2026-01-02 03:04:05+00', "
        f"get_json_object('{{\"a\": 7}}', '$.a') from {topic}",
    )
    assert row[0] == {"base64": "/w=="}
    assert row[1:4] == ["k", [{"key": "h", "value": "x"}], None]
    assert row[4:11] == [1.5, 12345678901234567890123, "P40D", "P14M", "NaN", "-Infinity", True]
    assert row[11:13] == [{"a": [1, None]}, [[1, "x"]]]
    assert row[13:] == ["2026-01-02", "2026-01-02T03:04:05.123456", "2026-01-02T03:04:05Z", "7"]


def test_values_that_arrow_has_otherwise_are_as_duckdb_has_them(http: Http, topic: str) -> None:
    http.publish(topic, {"value": "v"})
    high = f"{2**127}::uhugeint"
    sql = f"select timetz '10:00:00+02' a, {high} b, time '24:00:00' c, [{high}] d, row({high}, 1) d from {topic}"
    found = answer(http, sql)
    in_row = {"element1": 2**127, "element2": 1}
    assert found["rows"] == [["10:00:00+02", 2**127, "24:00:00", [2**127], in_row]]
    kinds = ["TIME WITH TIME ZONE", "UHUGEINT", "TIME", "UHUGEINT[]", "TUPLE(UHUGEINT, INTEGER)"]
    assert found["columns"] == [
        {"name": name, "type": kind} for name, kind in zip(["a", "b", "c", "d", "d"], kinds, strict=True)
    ]
    reply = http.json("POST", "/v1/sql", {"sql": sql}, Accept=names.MEDIA_ARROW)
    with pa.ipc.open_stream(reply.body) as stream:
        row = stream.read_all().select(["a", "b"]).to_pylist()
    assert row == [{"a": "10:00:00+02", "b": str(2**127)}]


def test_an_arrow_stream_has_the_same(http: Http, topic: str) -> None:
    publish(http, topic, *range(10), acks="table")
    publish(http, topic, 10)
    body = {"sql": f"select offset, value from {topic} order by offset desc", "limit": 3}
    reply = http.json("POST", "/v1/sql", body, Accept=names.MEDIA_ARROW)
    assert reply.headers["content-type"] == names.MEDIA_ARROW
    with pa.ipc.open_stream(reply.body) as stream:
        told = json.loads(stream.schema.metadata[names.ARROW_METADATA_KEY.encode()])
        table = stream.read_all()
    assert table.to_pylist()[0] == {"offset": 5, "value": b"10"}
    assert (table.num_rows, told["cut"], told["head"], told["head_records"]) == (3, True, True, 1)
    assert http.json("POST", "/v1/sql", body, Accept="text/csv").error_code == "not_acceptable"


def test_a_limit_cuts_and_says_so(http: Http, topic: str) -> None:
    publish(http, topic, *range(5))
    for limit, cut in ((4, True), (5, False)):
        found = answer(http, f"select 1 from {topic}", limit=limit)
        assert (len(found["rows"]), found["cut"]) == (min(limit, 5), cut)
    endless = answer(http, f"select r.range from range(1000000000000) r, {topic}", limit=10**9)
    assert (len(endless["rows"]), endless["cut"]) == (ROWS_MAX, True)
    large = answer(http, f"select repeat('x', 1000000) from {topic} a, {topic} b")
    assert (len(large["rows"]), large["cut"]) == (16, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "code", "says"),
    [
        ("selec 1", "invalid_request", "DuckDB's SQL"),
        ("select 1", "invalid_request", "names no topic"),
        ("select * from nothing", "unknown_topic", "no topic nothing"),
        ("select nothing from {t}", "invalid_request", "the columns of a topic are partition, offset"),
        ("copy {t} to '{f}/out.csv'", "invalid_request", "COPY is not a query"),
        ("select * from {t}, read_csv('{f}/secret')", "invalid_request", "only read topics"),
        ("select * from {t}, '{f}/secret'", "unknown_topic", "no topic"),
        ("select * from {t}, query('select * from \"files of other\"')", "unknown_topic", "files of other"),
        ("select {deep} from {t}", "invalid_request", "depth"),
        (
            "select repeat('x', 20000) from {t}, range(100000) order by offset * hash(range)",
            "query_limit",
            "memory",
        ),
        ("select list(range) from range(1000000000), {t}", "query_limit", "memory"),
        ("select repeat('x', 20000000) from {t}", "query_limit", "16 MiB"),
    ],
)
def test_what_is_refused(http: Http, tmp_path: Path, topic: str, sql: str, code: str, says: str) -> None:
    (tmp_path / "secret").write_text("hush")
    publish(http, topic, *range(4))
    deep = "(" * 3_000 + "1" + ")" * 3_000
    reply = ask(http, sql.replace("{t}", topic).replace("{f}", str(tmp_path)).replace("{deep}", deep))
    assert reply.error_code == code, reply
    assert says in reply.json["detail"]
    assert "hush" not in reply.json["detail"]
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_an_error_has_its_place(http: Http, topic: str) -> None:
    publish(http, topic, 1)
    assert ask(http, f"select `offset`,\n  nothing from {topic}").json["place"] == {"line": 2, "column": 3}


def test_a_plan_is_told_and_not_run(http: Http, topic: str) -> None:
    planned = answer(http, ENDLESS.format(topic=topic), plan=True)
    assert [column["name"] for column in planned["columns"]] == ["explain_key", "explain_value"]
    assert "Arrow Scan" in planned["rows"][0][1]
    refused = ask(http, f"analyze select 1 from {topic}", plan=True)
    assert refused.error_code == "invalid_request", refused


@pytest.mark.rule("SQ4")
def test_it_ends_in_time(http: Http, server: ServerProcess, topic: str) -> None:
    publish(http, topic, 0)
    ended = ask(http, ENDLESS.format(topic=topic), timeout_ms=1_000)
    assert (ended.error_code, ended.json["limit"]) == ("query_limit", "time")
    until(lambda: not children_of(server.pid))


@pytest.mark.rule("SQ4")
def test_publishing_goes_on_beside_it(http: Http, server: ServerProcess, topic: str) -> None:
    publish(http, topic, 0)
    until(lambda: not children_of(server.pid))
    connection = begun(http, ENDLESS.format(topic=topic))
    until(lambda: is_busy(server.pid))
    [pid] = children_of(server.pid)
    for number in range(1, 6):
        publish(http, topic, number)
    assert children_of(server.pid) == [pid], "it is not one after the other"
    connection.close()
    until(lambda: not children_of(server.pid))


@pytest.mark.rule("SQ4")
def test_hanging_up_ends_it_and_makes_room(http: Http, server: ServerProcess, topic: str) -> None:
    publish(http, topic, 0)
    # Who hung up in the test before has his place a moment longer than his process.
    until(lambda: not children_of(server.pid))
    until(lambda: ask(http, f"select 1 from {topic}").status == 200)
    until(lambda: not children_of(server.pid))
    asked = [begun(http, ENDLESS.format(topic=topic)) for _ in range(QUERIES_MAX)]
    until(lambda: len(children_of(server.pid)) == QUERIES_MAX)
    refused = ask(http, f"select 1 from {topic}")
    assert (refused.status, refused.error_code, refused.headers["retry-after"]) == (503, "overloaded", "1")
    until(lambda: is_busy(server.pid))
    for connection in asked:
        connection.close()
    until(lambda: not children_of(server.pid))
    until(lambda: ask(http, f"select 1 from {topic}").status == 200)


@pytest.mark.rule("SQ3")
def test_its_process_has_nothing_of_the_server(http: Http, server: ServerProcess, topic: str) -> None:
    publish(http, topic, 0)
    # The process of a query that was answered just now may end a moment later.
    until(lambda: not children_of(server.pid))
    connection = begun(http, ENDLESS.format(topic=topic))
    until(lambda: bool(children_of(server.pid)))
    [pid] = children_of(server.pid)
    process = Path(f"/proc/{pid}")
    until(lambda: "Max data size             2684354560" in (process / "limits").read_text())
    environment = dict(line.split("=", 1) for line in (process / "environ").read_text().split("\0") if line)
    assert "secret-of-the-server" not in str(environment)
    allowed = {"PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "OPENBLAS_NUM_THREADS"}
    allowed |= {"JE_ARROW_MALLOC_CONF", "ARROW_DEFAULT_MEMORY_POOL"}
    assert {name for name in environment if not name.startswith(("LC_", "PYTHON"))} <= allowed
    opened = opened_by(pid)
    assert not [path for path in opened if path.startswith(("/tmp", str(server.data_dir)))], opened
    assert (process / "cwd").readlink() == Path("/")
    assert os.getpriority(os.PRIO_PROCESS, pid) == 10
    connection.close()


@pytest.mark.rule("SQ4")
def test_it_ends_with_a_server_that_is_killed(tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path / "data", redis_url=NO_REDIS) as own:
        http = Http(own.url)
        http.create("one")
        publish(http, "one", 0)
        connection = begun(http, ENDLESS.format(topic="one"))
        pid = own.pid
        until(lambda: is_busy(pid))
        own.kill()
        until(lambda: not children_of(pid))
        connection.close()


def test_it_ends_with_a_server_that_is_stopped(tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path / "data", redis_url=NO_REDIS) as own:
        http = Http(own.url)
        http.create("one")
        publish(http, "one", 0)
        replies: list[Reply] = []
        thread = threading.Thread(target=lambda: replies.append(ask(http, ENDLESS.format(topic="one"))))
        thread.start()
        pid = own.pid
        until(lambda: is_busy(pid))
        own.stop()
        thread.join()
        assert replies[0].error_code == "shutting_down"
        assert children_of(pid) == []


@pytest.mark.rule("SQ6")
def test_damage_is_told_and_a_file_that_is_gone(http: Http, server: ServerProcess, topic: str) -> None:
    publish(http, topic, *range(400), acks="table")
    sql = f"select count(string(value)), max(offset), max(key) from {topic}"
    assert rows(http, sql) == [[400, 199, "k2"]]
    files = sorted((server.data_dir / names.LAKE_FOLDER / "topics" / topic).rglob("*.parquet"))
    content = bytearray(files[0].read_bytes())
    values = pq.read_metadata(files[0]).row_group(0).column(3)
    assert values.path_in_schema == "value"
    content[values.data_page_offset + values.total_compressed_size - 9] ^= 1
    files[0].write_bytes(content)
    damaged = ask(http, sql)
    assert (damaged.status, damaged.error_code) == (500, "corrupt_data"), damaged
    assert "checksum" in damaged.json["detail"]
    files[0].unlink()
    gone = ask(http, sql)
    assert gone.error_code == "corrupt_data"
    assert gone.json["path"].endswith(files[0].name)
    assert "is missing" in gone.json["detail"]


def test_files_that_have_nothing_of_it_are_not_opened(http: Http, server: ServerProcess, topic: str) -> None:
    for first in (0, 100):
        publish(http, topic, *range(first, first + 100), acks="table")
    for folder in (server.data_dir / names.LAKE_FOLDER / "topics" / topic).glob("partition=*"):
        older, _ = sorted(folder.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
        older.unlink()
    assert rows(http, f"select count(*) from {topic} where offset >= 50") == [[100]]
    assert ask(http, f"select count(value) from {topic}").error_code == "corrupt_data"


@pytest.mark.s3
def test_files_in_a_bucket_come_through_the_server(s3_server: S3Server) -> None:
    root = s3_server.root_uri("sql")
    settings = {"s3_endpoint": s3_server.endpoint, "s3_region": s3_server.region}
    with running_server(root=root, redis_url=NO_REDIS, flush_ms=600_000, **settings) as own:
        http = Http(own.url)
        http.create("orders", 2)
        publish(http, "orders", *range(200), acks="table")
        publish(http, "orders", *range(200, 210))
        found = answer(http, "select count(*), max(offset), sum(cast(string(value) as int)) from orders")
        assert (found["rows"], found["head_records"]) == ([[210, 104, sum(range(210))]], 10)
        assert found["snapshot"]["orders"] > 0
