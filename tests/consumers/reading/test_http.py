"""Reading over HTTP from a real server process's stack: uvicorn with httptools and uvloop, on loopback."""

import asyncio
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
import urllib3
import uvicorn
from fake_log import CREATED_US, FakeLog, FakePartition, FakeTopic
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.http import ReadLimits, ReadsHttp
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra import names
from siltlog.infra.clock import format_us
from siltlog.infra.columns import FETCH_SCHEMA, RECORD_SCHEMA
from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.requests import problem_reply
from siltlog.infra.http.routes import routes_of
from siltlog.infra.security.grant import EVERYTHING, GRANT
from siltlog.infra.store.local import LocalStore

T = TypeVar("T")
LIMITS = ReadLimits(wait_ms=400, records=50_000, bytes=4_000_000, request_bytes=10_000)
RECORDS = "/v1/topics/flights/partitions/0/records"


class Server:
    def __init__(self, folder: Path) -> None:
        self.log = FakeLog(LocalStore(str(folder)))
        self._row_groups = RowGroups(self.log.store)
        self.made_elsewhere: set[str] = set()
        """Topics that this server hears of once it looks for them."""
        self.looked_for: list[str] = []
        self._http = urllib3.PoolManager(retries=False)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(20)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        reads = ReadsHttp(self.log, Fetcher(self.log, self._row_groups), LIMITS, self._see)
        router = Router(routes_of(reads))

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"] = {GRANT: EVERYTHING}
            try:
                await router(scope, receive, send)
            except SiltlogError as error:
                await problem_reply(error, "r")(scope, receive, send)

        config = uvicorn.Config(app, port=0, http="httptools", lifespan="off", log_config=None, access_log=False)
        self._server = uvicorn.Server(config)
        serving = asyncio.ensure_future(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.01)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"
        self._ready.set()
        await serving

    async def _see(self, topic: str) -> None:
        self.looked_for.append(topic)
        if topic in self.made_elsewhere:
            self.log.create(topic, 1)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._row_groups.close()

    def do(self, change: Callable[[], T]) -> T:
        """Changes the log on the server's loop."""

        async def on_loop() -> T:
            return change()

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result(20)

    def get(self, path: str, accept: str | None = None, **headers: str) -> urllib3.BaseHTTPResponse:
        return self.call("GET", path, accept=accept, **headers)

    def call(
        self, method: str, path: str, *, accept: str | None = None, body: Any = None, **headers: str
    ) -> urllib3.BaseHTTPResponse:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if accept is not None:
            headers["Accept"] = accept
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        return self._http.request(method, self.url + path, body=content, headers=headers, decode_content=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.close()


@pytest.fixture
def topic(server: Server) -> FakeTopic:
    return server.do(lambda: server.log.create("flights", 2))


@pytest.fixture
def view(server: Server, topic: FakeTopic) -> FakePartition:
    """Ten records: [0, 6) in two files, [4, 10) in the head; offset 2 was compacted away, the log starts at 1."""
    view = topic.partitions[0]

    def fill() -> None:
        for first in (0, 4, 6):
            last = {0: 4, 4: 6, 6: 10}[first]
            view.append([b'{"n": %d}' % offset for offset in range(first, last)], keys=[b"k"] * (last - first))
            if first < 6:
                view.flush()
        view.evict(4)
        view.rewrite([topic.snapshot.files_of(0)[0]], without=[2])
        view.retain(1)

    server.do(fill)
    return view


def document(reply: urllib3.BaseHTTPResponse, status: int = 200) -> Any:
    assert reply.status == status, reply.data
    return json.loads(reply.data)


def offsets(reply: urllib3.BaseHTTPResponse) -> list[int]:
    return [record["offset"] for record in document(reply)["records"]]


def arrow(reply: urllib3.BaseHTTPResponse) -> pa.Table:
    assert reply.status == 200, reply.data
    assert reply.headers["Content-Type"] == names.MEDIA_ARROW
    return pa.ipc.open_stream(reply.data).read_all()


class TestRecords:
    def test_json(self, server: Server, view: FakePartition) -> None:
        reply = server.get(RECORDS)
        found = document(reply)
        assert reply.headers["Content-Type"] == names.MEDIA_JSON
        assert reply.headers["Cache-Control"] == "no-store"
        assert reply.headers["Vary"] == "Accept, Accept-Encoding"
        assert [record["offset"] for record in found["records"]] == [1, 3, 4, 5, 6, 7, 8, 9]
        assert found["records"][0] == {
            "partition": 0,
            "offset": 1,
            "timestamp": format_us(CREATED_US + 1),
            "key": "k",
            "value": '{"n": 1}',
            "headers": [],
        }
        del found["records"]
        assert found == {
            "topic": "flights",
            "partition": 0,
            "next_offset": 10,
            "log_start_offset": 1,
            "table_offset": 6,
            "high_watermark": 10,
        }

    def test_arrow_and_ndjson_have_the_bounds_in_headers(self, server: Server, view: FakePartition) -> None:
        for accept in (names.MEDIA_ARROW, names.MEDIA_NDJSON):
            reply = server.get(RECORDS + "?offset=3&max_records=2", accept)
            assert reply.headers["Content-Type"] == accept
            assert {name: reply.headers[name] for name in _BOUNDS} == dict(
                zip(_BOUNDS, ["5", "1", "6", "10"], strict=True)
            )
        table = arrow(server.get(RECORDS, names.MEDIA_ARROW))
        assert table.schema == RECORD_SCHEMA
        assert table.column("offset").to_pylist() == [1, 3, 4, 5, 6, 7, 8, 9]
        lines = server.get(RECORDS, names.MEDIA_NDJSON).data.splitlines()
        assert [json.loads(line)["offset"] for line in lines] == [1, 3, 4, 5, 6, 7, 8, 9]

    def test_values(self, server: Server, view: FakePartition) -> None:
        assert document(server.get(RECORDS + "?offset=9&values=json"))["records"][0]["value"] == {"n": 9}
        assert document(server.get(RECORDS + "?offset=9&values=base64"))["records"][0]["value_base64"] == (
            "eyJuIjogOX0="
        )

    def test_bare_lines(self, server: Server, view: FakePartition) -> None:
        for accept in (None, "*/*", names.MEDIA_NDJSON):
            assert server.get(RECORDS + "?offset=8&lines=value", accept).data == b'{"n": 8}\n{"n": 9}\n'
        assert document(server.get(RECORDS + "?lines=value", names.MEDIA_JSON), 406)["error_code"] == "not_acceptable"
        server.do(lambda: view.append([None], keys=[b"k"]))
        reply = document(server.get(RECORDS + "?offset=8&lines=value"), 406)
        assert (reply["partition"], reply["offset"]) == (0, 10)

    def test_where_to_begin(self, server: Server, view: FakePartition) -> None:
        assert offsets(server.get(RECORDS + "?offset=earliest"))[0] == 1
        latest = document(server.get(RECORDS + "?offset=latest"))
        assert (latest["records"], latest["next_offset"]) == ([], 10)
        assert document(server.get(RECORDS + "?offset=latest&isolation=table"))["next_offset"] == 6
        assert offsets(server.get(RECORDS + "?isolation=table")) == [1, 3, 4, 5]
        millis = (CREATED_US + 5) // 1000
        assert offsets(server.get(f"{RECORDS}?timestamp={millis}"))[0] == 1
        assert offsets(server.get(f"{RECORDS}?timestamp={format_us(CREATED_US + 7)}"))[0] == 7
        assert offsets(server.get(f"{RECORDS}?timestamp=2100-01-01T00:00:00Z")) == []

    def test_outside_is_416_with_both_bounds(self, server: Server, view: FakePartition) -> None:
        for offset in (0, 11):
            found = document(server.get(f"{RECORDS}?offset={offset}"), 416)
            assert found["error_code"] == "offset_out_of_range"
            assert (found["log_start_offset"], found["high_watermark"]) == (1, 10)

    def test_limits_above_the_most_are_cut(self, server: Server, view: FakePartition) -> None:
        asked = "max_records=99999999&max_bytes=99999999999&min_bytes=1&wait_ms=99999999"
        assert len(offsets(server.get(f"{RECORDS}?{asked}"))) == 8
        waited = document(server.get(f"{RECORDS}?offset=latest&{asked}"))
        assert waited["records"] == []
        assert offsets(server.get(f"{RECORDS}?max_bytes=1")) == [1]

    def test_json_has_500_records_unless_said(self, server: Server, topic: FakeTopic) -> None:
        server.do(lambda: topic.partitions[0].append([b"x"] * 2_000))
        assert len(offsets(server.get(RECORDS))) == 500
        assert len(offsets(server.get(RECORDS + "?max_records=1500"))) == 1_500
        assert arrow(server.get(RECORDS, names.MEDIA_ARROW)).num_rows == 2_000

    @pytest.mark.parametrize(
        ("query", "status", "code"),
        [
            ("?nonsense=1", 400, "invalid_parameter"),
            ("?offset=-1", 400, "invalid_parameter"),
            ("?offset=soon", 400, "invalid_parameter"),
            ("?offset=1&offset=2", 400, "invalid_parameter"),
            ("?offset=1&timestamp=1", 400, "invalid_parameter"),
            ("?isolation=none", 400, "invalid_parameter"),
            ("?values=xml", 400, "invalid_parameter"),
            ("?lines=all", 400, "invalid_parameter"),
            ("?max_records=0", 400, "invalid_parameter"),
            ("?max_bytes=many", 400, "invalid_parameter"),
            ("?timestamp=yesterday", 422, "invalid_request"),
            ("?timestamp=2026-11-21T07:36:00", 422, "invalid_request"),
            ("?topic_id=another", 404, "unknown_topic"),
        ],
    )
    def test_refusals(self, server: Server, topic: FakeTopic, query: str, status: int, code: str) -> None:
        assert document(server.get(RECORDS + query), status)["error_code"] == code

    def test_what_is_not_there(self, server: Server, topic: FakeTopic) -> None:
        for path, code in (
            ("/v1/topics/none/partitions/0/records", "unknown_topic"),
            ("/v1/topics/flights/partitions/2/records", "unknown_partition"),
            ("/v1/topics/flights/partitions/-1/records", "unknown_partition"),
            ("/v1/topics/flights/partitions/first/records", "unknown_partition"),
            (f"/v1/topics/flights/partitions/{'9' * 5000}/records", "unknown_partition"),
        ):
            assert document(server.get(path), 404)["error_code"] == code
        assert document(server.get(RECORDS, "text/html"), 406)["error_code"] == "not_acceptable"
        assert server.get(f"{RECORDS}?topic_id={topic.topic_id}").status == 200

    def test_head_is_get_without_a_body(self, server: Server, view: FakePartition) -> None:
        for accept in (names.MEDIA_ARROW, names.MEDIA_JSON):
            head, get = server.call("HEAD", RECORDS, accept=accept), server.get(RECORDS, accept)
            assert head.status == 200
            assert head.data == b""
            assert head.headers["Content-Length"] == get.headers["Content-Length"] == str(len(get.data))

    def test_a_long_poll_returns_with_the_record(self, server: Server, view: FakePartition) -> None:
        with ThreadPoolExecutor(1) as threads:
            poll = threads.submit(server.get, RECORDS + "?offset=latest&wait_ms=400")
            while not server.do(lambda: view.callbacks):
                assert not poll.done(), poll.result().data
            server.do(lambda: view.append([b"new"]))
            assert offsets(poll.result()) == [10]

    def test_an_earliest_read_follows_a_log_start_that_moves(self, server: Server, view: FakePartition) -> None:
        async def retention() -> None:
            if view.bounds().log_start_offset < 4:
                view.retain(view.bounds().log_start_offset + 1)

        server.log.pause = retention
        assert offsets(server.get(RECORDS)) == [4, 5, 6, 7, 8, 9]

    def test_damage_is_500_and_named(self, server: Server, view: FakePartition) -> None:
        file = view.topic.snapshot.files_of(0)[0]
        server.do(lambda: view.topic.delete_objects([file]))
        found = document(server.get(RECORDS), 500)
        assert found["error_code"] == "corrupt_data"
        assert found["path"].endswith(file.path)


class TestContentCoding:
    def test_zstd_and_gzip_where_they_are_accepted(self, server: Server, topic: FakeTopic) -> None:
        server.do(lambda: topic.partitions[0].append([b"x" * 100] * 5_000))
        for accept in (names.MEDIA_ARROW, names.MEDIA_NDJSON):
            plain = server.get(RECORDS, accept)
            assert "Content-Encoding" not in plain.headers
            for asked, coding in (("gzip", "gzip"), ("zstd, gzip", "zstd"), ("zstd;q=0.5, gzip", "gzip")):
                reply = server.get(RECORDS, accept, Accept_Encoding=asked)
                assert reply.headers["Content-Encoding"] == coding
                assert len(reply.data) < len(plain.data) / 4
                assert _inflated(reply.data, coding, len(plain.data)) == plain.data
            assert "Content-Encoding" not in server.get(RECORDS, accept, Accept_Encoding="br, gzip;q=0").headers

    def test_small_replies_are_left_alone(self, server: Server, topic: FakeTopic) -> None:
        assert "Content-Encoding" not in server.get(RECORDS, Accept_Encoding="gzip").headers


class TestFetch:
    def test_json(self, server: Server, view: FakePartition) -> None:
        body = {"partitions": [_at(0, 5), _at(1, 0), _at(0, 0, "none")], "values": "json", "max_records": 3}
        found = document(server.call("POST", "/v1/fetch", body=body))
        assert [(record["topic"], record["offset"], record["value"]) for record in found["records"]] == [
            ("flights", offset, {"n": offset}) for offset in (5, 6, 7)
        ]
        assert [part["next_offset"] for part in found["partitions"]] == [8, 0, 0]
        assert [part["error"] and part["error"]["status"] for part in found["partitions"]] == [None, None, 404]

    def test_arrow(self, server: Server, view: FakePartition) -> None:
        reply = server.call("POST", "/v1/fetch", accept=names.MEDIA_ARROW, body={"partitions": [_at(0, 1)]})
        table = arrow(reply)
        assert table.schema == FETCH_SCHEMA
        (part,) = json.loads(table.schema.metadata[b"silt"])
        assert (part["next_offset"], part["high_watermark"], part["error"]) == (10, 10, None)

    def test_what_another_node_made_just_now_is_looked_for(self, server: Server, topic: FakeTopic) -> None:
        server.made_elsewhere.add("made")
        body = {"partitions": [_at(0, 0), _at(0, 0, "made"), _at(0, 0, "none"), _at(1, 0)]}
        found = document(server.call("POST", "/v1/fetch", body=body))
        assert [part["error"] and part["error"]["status"] for part in found["partitions"]] == [None, None, 404, None]
        assert sorted(server.looked_for) == ["made", "none"]

    def test_waits(self, server: Server, view: FakePartition) -> None:
        body = {"partitions": [_at(0, 10), _at(1, 0)], "wait_ms": 400, "min_bytes": 1}
        with ThreadPoolExecutor(1) as threads:
            poll = threads.submit(lambda: server.call("POST", "/v1/fetch", body=body))
            while not server.do(lambda: view.callbacks):
                assert not poll.done(), poll.result().data
            server.do(lambda: view.topic.partitions[1].append([b"new"]))
            assert [record["partition"] for record in document(poll.result())["records"]] == [1]

    @pytest.mark.parametrize(
        ("body", "status", "code"),
        [
            (b"{", 400, "malformed_body"),
            (b"\xff", 400, "malformed_body"),
            ({}, 422, "invalid_request"),
            ({"partitions": []}, 422, "invalid_request"),
            ({"partitions": [{"topic": "flights", "partition": 0}]}, 422, "invalid_request"),
            ({"partitions": [{"topic": "flights", "partition": -1, "offset": 0}]}, 422, "invalid_request"),
            ({"partitions": [{"topic": "flights", "partition": 0, "offset": 2**53}]}, 422, "invalid_request"),
            ({"partitions": [{"topic": "flights", "partition": 0, "offset": "earliest"}]}, 422, "invalid_request"),
            ({"partitions": [{"topic": "flights", "partition": 0, "offset": 0, "more": 1}]}, 422, "invalid_request"),
            ({"partitions": [{"topic": "flights", "partition": 0, "offset": 0}] * 2}, 422, "invalid_request"),
            ({"partitions": [{"topic": "flights", "partition": 0, "offset": 0}], "more": 1}, 422, "invalid_request"),
            ({"partitions": [{"topic": "x" * 11_000, "partition": 0, "offset": 0}]}, 413, "request_too_large"),
        ],
    )
    def test_refusals(self, server: Server, topic: FakeTopic, body: Any, status: int, code: str) -> None:
        assert document(server.call("POST", "/v1/fetch", body=body), status)["error_code"] == code

    def test_ndjson_is_not_offered(self, server: Server, topic: FakeTopic) -> None:
        reply = server.call("POST", "/v1/fetch", accept=names.MEDIA_NDJSON, body={"partitions": [_at(0, 0)]})
        assert document(reply, 406)["error_code"] == "not_acceptable"


class TestOffsets:
    def test_bounds_and_the_offset_of_a_time(self, server: Server, view: FakePartition) -> None:
        path = "/v1/topics/flights/offsets"
        bounds = [
            {"partition": 0, "log_start_offset": 1, "table_offset": 6, "high_watermark": 10},
            {"partition": 1, "log_start_offset": 0, "table_offset": 0, "high_watermark": 0},
        ]
        found = document(server.get(path))
        assert found == {"topic": "flights", "topic_id": view.topic.topic_id, "partitions": bounds}
        for asked, offset in ((0, 1), (CREATED_US + 2, 3), (CREATED_US + 8, 8), (CREATED_US + 10, 10)):
            found = document(server.get(f"{path}?timestamp={format_us(asked)}"))
            assert [part["offset"] for part in found["partitions"]] == [offset, 0]

    def test_refusals(self, server: Server, topic: FakeTopic) -> None:
        assert document(server.get("/v1/topics/none/offsets"), 404)["error_code"] == "unknown_topic"
        assert document(server.get("/v1/topics/flights/offsets?at=1"), 400)["parameter"] == "at"
        assert document(server.get("/v1/topics/flights/offsets?timestamp=x"), 422)["error_code"] == "invalid_request"


_BOUNDS = (
    names.HEADER_NEXT_OFFSET,
    names.HEADER_LOG_START_OFFSET,
    names.HEADER_TABLE_OFFSET,
    names.HEADER_HIGH_WATERMARK,
)


def _at(partition: int, offset: int, topic: str = "flights") -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "offset": offset}


def _inflated(data: bytes, coding: str, size: int) -> bytes:
    if coding == "gzip":
        return gzip.decompress(data)
    return pa.Codec(coding).decompress(data, size).to_pybytes()
