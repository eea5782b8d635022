"""The door of a real server: who may call, what every reply has, health, metrics, and how it stops."""

import json
import os
import re
import signal
import threading
import time
import uuid
from pathlib import Path

import pytest
from http_rig import NO_REDIS, Http, exchange

from siltlog.infra.metrics import catalogue
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server


def status_of(http: Http, headers: str, path: str = "/healthz") -> tuple[int, str]:
    """Sends a GET with exactly these headers, and gives the status and the error code of a problem."""
    with http.connect() as connection:
        got = exchange(connection, f"GET {path} HTTP/1.1\n{headers}")
    head, _, body = got.partition(b"\r\n\r\n")
    return int(head.split()[1]), str(json.loads(body).get("error_code", "")) if body else ""


# --- who may call -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "host",
    ["localhost", "LocalHost:7070", "127.0.0.1:1", "127.9.9.9", "[::1]:7070", "silt.example", "SILT2.example:80", ""],
)
def test_names_it_answers_for(http: Http, host: str) -> None:
    assert status_of(http, f"Host: {host}") == (200, "")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "8.8.8.8",
        "10.0.0.1:7070",
        "[::2]",
        "[::1",
        "silt.example.",
        "x@y",
        "[x]",
        "localhost:80, evil.example",
        "localhost:x",
        "localhost/evil.example",
        "x@localhost",
    ],
)
def test_names_it_does_not_answer_for(http: Http, host: str) -> None:
    assert status_of(http, f"Host: {host}") == (421, "unknown_host")


@pytest.mark.parametrize("host", ["localhost\nHost: evil.example", "evil.example\nHost: localhost"])
def test_two_names_are_no_name(http: Http, host: str) -> None:
    assert status_of(http, f"Host: {host}") == (400, "invalid_parameter")


def test_a_page_of_its_own_and_of_those_that_may(http: Http) -> None:
    assert status_of(http, "Host: localhost:7070\nOrigin: http://localhost:7070") == (200, "")
    for origin in ("https://app.example", "https://other.example"):
        reply = http.get("/healthz", Origin=origin)
        assert reply.headers["access-control-allow-origin"] == origin
        assert "Origin" in reply.headers["vary"]
        exposed = reply.headers["access-control-expose-headers"].split(", ")
        assert {"Silt-Request-Id", "Silt-Next-Offset", "Retry-After"} <= set(exposed)


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://app.example", "null", "https://app.example:444", ""]
)
def test_pages_that_may_not(http: Http, origin: str) -> None:
    reply = http.get("/healthz", Origin=origin)
    assert (reply.status, reply.error_code) == (403, "origin_not_allowed")
    assert "access-control-allow-origin" not in reply.headers
    preflight = http.call("OPTIONS", "/v1/topics", Origin=origin, Access_Control_Request_Method="POST")
    assert preflight.status == 403


def test_a_page_asks_first(http: Http) -> None:
    reply = http.call(
        "OPTIONS",
        "/v1/topics/t/records",
        Origin="https://app.example",
        Access_Control_Request_Method="POST",
        Access_Control_Request_Headers="content-type, silt-producer-id",
    )
    assert (reply.status, reply.body) == (204, b"")
    assert reply.headers["access-control-allow-origin"] == "https://app.example"
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert reply.headers["access-control-allow-headers"] == "content-type, silt-producer-id"
    problem = http.get("/v1/topics/absent", Origin="https://app.example")
    assert (problem.status, problem.headers["access-control-allow-origin"]) == (404, "https://app.example")


# --- what every reply has ---------------------------------------------------------------------------------
def test_request_ids(http: Http) -> None:
    for name in ("Silt_Request_Id", "X_Request_Id"):
        assert http.get("/healthz", **{name: "my-id:7"}).headers["silt-request-id"] == "my-id:7"
    given = http.get("/healthz", X_Request_Id="a-proxy's", Silt_Request_Id="mine")
    assert given.headers["silt-request-id"] == "mine"
    ids = {http.get("/healthz").headers["silt-request-id"] for _ in range(3)}
    assert len(ids) == 3
    for wrong in ("x" * 129, "", "é", "my id", 'a"b', "<b>"):
        for name in ("Silt_Request_Id", "X_Request_Id"):
            got = http.get("/healthz", **{name: wrong}).headers["silt-request-id"]
            assert got not in ("", wrong)
    problem = http.get("/v1/topics/absent", Silt_Request_Id="mine")
    assert problem.json["request_id"] == problem.headers["silt-request-id"] == "mine"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/topics", {"GET", "HEAD", "POST"}),
        ("POST", "/v1/topics/t", {"GET", "HEAD", "PUT", "PATCH", "DELETE"}),
        ("GET", "/v1/topics/t/records", {"POST"}),
        ("POST", "/healthz", {"GET", "HEAD"}),
        ("GET", "/v1/fetch", {"POST"}),
        ("OPTIONS", "/v1/topics", {"GET", "HEAD", "POST"}),
    ],
)
def test_a_method_that_is_not_for_a_path(http: Http, method: str, path: str, allowed: set[str]) -> None:
    reply = http.call(method, path)
    assert (reply.status, reply.error_code) == (405, "method_not_allowed")
    assert set(reply.headers["allow"].split(", ")) == allowed
    assert reply.json["detail"].endswith(f"; it takes {reply.headers['allow']}")


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/topics/", "/healthz/", "/v2/topics", "/v1/topics/a/b/records", "//healthz"]
)
def test_what_is_not_there_is_no_redirect(http: Http, path: str) -> None:
    reply = http.get(path)
    assert (reply.status, reply.error_code) == (404, "not_found")


def test_the_root_leads_on(http: Http) -> None:
    document = http.get("/").json
    assert document.pop("name") == "siltlog" and document.pop("version")
    for path in document.values():
        assert http.get(path).status in (200, 503), path  # groups are away here
    browser = http.call("GET", "/", Accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert (browser.status, browser.headers["location"]) == (303, "ui/")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/v1/cluster", "/v1/topics", "/v1/topics/absent"])
def test_head_is_get_without_its_body(http: Http, path: str) -> None:
    head, get = http.call("HEAD", path), http.get(path)
    assert (head.status, head.body) == (get.status, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


# --- what a node says of itself ---------------------------------------------------------------------------
def test_health_and_readiness(http: Http) -> None:
    assert http.get("/healthz").json == {"status": "up"}
    ready = http.get("/readyz")
    # Groups are away on this server; publishing is not.
    assert (ready.status, ready.json["status"], ready.json["reasons"]) == (200, "ready", [])
    assert any("Redis" in warning for warning in ready.json["warnings"])


def test_the_cluster(http: Http, small_server: ServerProcess) -> None:
    document = http.get("/v1/cluster").json
    assert set(document) == {"version", "cluster_id", "view", "controller", "nodes", "limits", "features"}
    assert document["view"] is document["controller"] is None
    assert document["nodes"] == [{"id": "node-0", "url": small_server.url}]
    assert document["cluster_id"] == (small_server.data_dir / "lake" / "cluster" / "id").read_text().strip()
    assert document["limits"] == {
        "request_bytes": 1_048_576,
        "record_bytes": 100_000,
        "records": 1_000_000,
        "wait_ms": 30_000,
        "fetch_bytes": 64 * 1024 * 1024,
    }


NOT_HERE = {
    metric.name
    for metric in (
        catalogue.KAFKA_REQUESTS,
        catalogue.KAFKA_ERRORS,
        catalogue.KAFKA_MISPLACED_BATCHES,
        catalogue.KAFKA_SESSION_PARTITIONS,
        catalogue.CLUSTER_NODES,
        catalogue.TOPICS_OWNED,
        catalogue.TOPICS_WAITING,
        catalogue.TOPICS_TAKEN,
        catalogue.TOPICS_LET_GO,
        catalogue.CLUSTER_VIEW,
        catalogue.CLUSTER_CONTROLLER,
        catalogue.CLUSTER_SILENT_SECONDS,
        catalogue.CLUSTER_UNREACHABLE,
        catalogue.PROXIED,
    )
}
"""There is no other node, and nobody listens for Kafka's clients."""


def test_every_metric_has_its_name_and_every_name_its_metric(http: Http) -> None:
    topic = f"metrics-{uuid.uuid4()}"
    http.create(topic)
    for _ in range(2):
        records = ({"value": "12345", "partition": 0, "sequence": number} for number in (0, 1))
        assert http.publish(topic, *records, query="?acks=table", Silt_Producer_Id="p").status == 200
    text = http.get("/metrics").body.decode()
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    pinned = {metric.name for metric in catalogue.CATALOGUE}
    created = {family for family in families if family.endswith("_created")}
    assert {family for family in families - created if not family.startswith("process_")} == pinned - NOT_HERE
    assert {family for family in pinned if not family.startswith("silt_")} == set()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines[f'{catalogue.RECORDS.name}{{topic="{topic}"}}']) == 2
    assert float(lines[f'{catalogue.FLUSHED_RECORDS.name}{{topic="{topic}"}}']) == 2
    assert float(lines[f'{catalogue.FLUSHED_FILES.name}{{topic="{topic}"}}']) == 1
    assert float(lines[f'{catalogue.REPLIES.name}{{operation="createTopic",status="201"}}']) >= 1
    assert float(lines[catalogue.WAL_USED_BYTES.name]) > 0
    assert 0 < float(lines[catalogue.WAL_USED_BYTES.name]) < float(lines[catalogue.WAL_BYTES_MAX.name])
    state = (catalogue.READY, catalogue.DRAINING, catalogue.REDIS_UP)
    assert [float(lines[metric.name]) for metric in state] == [1, 0, 0], "this server has no Redis"
    assert float(lines["process_resident_memory_bytes"]) > 0
    of_topic = f'{{topic="{topic}"}}'
    assert float(lines[f"{catalogue.TABLE_LAG_SECONDS.name}{of_topic}"]) == 0
    assert float(lines[f"{catalogue.TABLE_LIVE_FILES.name}{of_topic}"]) == 1
    assert float(lines[f"{catalogue.TABLE_SMALL_FILES.name}{of_topic}"]) == 1
    waited, committed = (
        float(lines[f"{metric.name}_sum"]) for metric in (catalogue.ACK_SECONDS, catalogue.WAL_COMMIT_SECONDS)
    )
    assert waited >= committed > 0
    assert float(lines[f'{catalogue.STORE_SECONDS.name}_count{{request="put"}}']) >= 1
    assert float(lines[f'{catalogue.STORE_ERRORS.name}{{request="put"}}']) == 0
    assert http.get(f"/v1/topics/{topic}/partitions/0/records?offset=0").status == 200
    text = http.get("/metrics").body.decode()
    assert f"{catalogue.READ_RECORDS.name}{of_topic} 2.0" in text
    assert re.search(rf"^{catalogue.READ_BYTES.name}{re.escape(of_topic)} [1-9]", text, re.MULTILINE)
    assert http.call("DELETE", f"/v1/topics/{topic}").status == 204
    assert topic not in http.get("/metrics").body.decode(), "what is deleted leaves no line behind"


# --- how it stops -----------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_stop_answers_what_was_begun_and_puts_everything_into_the_table(tmp_path: Path) -> None:
    """Publishers go on until they are refused; a poll that waits returns; afterwards the table has it all."""
    with running_server(data_dir=tmp_path / "data", redis_url=NO_REDIS, flush_ms=60_000) as server:
        http = Http(server.url)
        http.create("t", 2)
        acked: list[tuple[int, int]] = []
        ends: list[int | str] = []
        started = threading.Barrier(5)

        def publisher(partition: int) -> None:
            own = Http(server.url)
            started.wait()
            while True:
                try:
                    reply = own.publish("t", {"value": 1, "partition": partition})
                except Exception as error:
                    ends.append(type(error).__name__)
                    return
                if reply.status != 200:
                    ends.append(reply.error_code)
                    assert reply.headers["retry-after"]
                    return
                acked.append(tuple(reply.json["records"][0]))

        polled: list[int] = []

        def poller() -> None:
            own = Http(server.url)
            started.wait()
            polled.append(
                own.get("/v1/topics/t/partitions/0/records?offset=latest&wait_ms=30000&min_bytes=1000000").status
            )

        threads = [threading.Thread(target=publisher, args=(i % 2,)) for i in range(3)]
        threads.append(threading.Thread(target=poller))
        for thread in threads:
            thread.start()
        started.wait()
        while len(acked) < 50:
            assert not ends
            time.sleep(0.01)
        os.kill(server.pid, signal.SIGTERM)
        assert server.stop() == 0
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert polled == [200]
        assert "shutting_down" in ends
        server.restart()
        http = Http(server.url)
        bounds = [http.bounds("t", partition) for partition in (0, 1)]
        assert all(entry["table_offset"] == entry["high_watermark"] for entry in bounds)
        # Each acknowledged once, and nothing else was taken.
        assert sorted(acked) == [(p, offset) for p in (0, 1) for offset in range(bounds[p]["high_watermark"])]


@pytest.mark.slow
def test_a_stop_does_not_keep_waiting_those_who_wait_for_the_table() -> None:
    with running_server(redis_url=NO_REDIS, flush_ms=60_000) as server:
        http = Http(server.url)
        http.create("t")
        replies: list[int] = []

        def publisher() -> None:
            replies.append(Http(server.url).publish("t", {"value": 1}, query="?acks=table&timeout_ms=10000").status)

        thread = threading.Thread(target=publisher)
        thread.start()
        while http.end("t") == 0:
            time.sleep(0.01)
        assert server.stop() == 0
        thread.join(20)
        assert replies == [200]


@pytest.mark.rule("P8")
@pytest.mark.slow
def test_a_full_log_refuses_keeps_what_it_acknowledged_and_goes_on_once_it_can(tmp_path: Path) -> None:
    """The folder of the tables is gone for a while."""
    settings = {"redis_url": NO_REDIS, "wal_bytes_max": 4 * 1024 * 1024, "flush_ms": 50, "head_bytes_max": 1024 * 1024}
    with running_server(data_dir=tmp_path / "data", **settings) as server:
        http = Http(server.url)
        http.create("t")
        topic = tmp_path / "data" / "lake" / "topics" / "t"
        away = tmp_path / "away"
        topic.rename(away)
        topic.write_text("not a folder")
        taken = 0
        once = {"value": "0 once", "partition": 0, "sequence": 0}
        assert http.publish("t", once, Silt_Producer_Id="p").status == 200
        taken += 1
        while True:
            reply = http.publish("t", *({"value": f"{taken + i} " + "x" * 2_000} for i in range(20)))
            if reply.status != 200:
                break
            taken += 20
            assert taken < 10_000
        assert reply.error_code == "wal_full"
        assert (reply.status, reply.json["retryable"]) == (503, "yes")
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.json["retry_after_ms"] > 0
        assert taken > 100
        again = http.publish("t", once, Silt_Producer_Id="p").json
        assert (again["records"], again["partitions"][0]["duplicate"]) == ([[0, 0]], True)
        # Everything acknowledged is still read, from memory and from the log.
        assert numbers(http) == list(range(taken))
        topic.unlink()
        away.rename(topic)
        while (reply := http.publish("t", {"value": f"{taken} again"}, query="?acks=table")).status != 200:
            assert reply.status in (503, 504)
            if reply.status == 504:
                break
        first = reply.json["records"][0][1] if reply.status == 200 else None
        assert first in (None, taken)
        assert numbers(http)[:taken] == list(range(taken))
        assert http.get("/readyz").status == 200


def numbers(http: Http) -> list[int]:
    found: list[int] = []
    offset = 0
    while True:
        reply = http.get(f"/v1/topics/t/partitions/0/records?offset={offset}&max_bytes=1000000").json
        found += [int(record["value"].split()[0]) for record in reply["records"]]
        offset = reply["next_offset"]
        if offset >= reply["high_watermark"]:
            return found
