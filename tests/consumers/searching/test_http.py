"""Searches of a real server, line by line."""

import http.client
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from http_rig import NO_REDIS, Http
from processes import processor_seconds
from waiting import SECONDS_MAX, until

from siltlog.consumers.searching.http import LIMIT_MAX, SEARCHES_MAX
from siltlog.infra import names
from siltlog.infra.settings.settings import MIB
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

LARGE_BYTES = 2_000
"""LIMIT_MAX values of so many are more than sockets keep for who takes nothing."""


@pytest.fixture
def topic(http: Http) -> str:
    name = f"search-{uuid.uuid4().hex}"
    http.create(name, 2)
    return name


def lines(http: Http, topic: str, **body: Any) -> list[dict[str, Any]]:
    reply = http.json("POST", f"/v1/topics/{topic}/search", body)
    assert reply.status == 200, reply
    assert reply.headers["content-type"].startswith(names.MEDIA_NDJSON)
    assert reply.headers["cache-control"] == "no-store"
    return [json.loads(line) for line in reply.body.splitlines()]


def found(http: Http, topic: str, **body: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    every = lines(http, topic, **body)
    records = [line["record"] for line in every if "record" in line]
    return records, every[-1]["done"]


@contextmanager
def untaken(http: Http, topic: str) -> Iterator[http.client.HTTPResponse]:
    """A search of which the client takes the first line."""
    parts = urlsplit(http.url)
    connection = _connection(parts.hostname, parts.port)
    connection.request("POST", f"/v1/topics/{topic}/search", json.dumps({"limit": LIMIT_MAX}))
    reply = connection.getresponse()
    assert reply.status == 200
    assert b"progress" in reply.readline()
    try:
        yield reply
    finally:
        reply.close()
        connection.close()


def _connection(host: str | None, port: int | None) -> http.client.HTTPConnection:
    assert host
    return http.client.HTTPConnection(host, port, timeout=SECONDS_MAX)


def settled(http: Http, topic: str) -> None:
    """All of it is in the table."""

    def is_settled(partition: int) -> bool:
        bounds = http.bounds(topic, partition)
        return bounds["table_offset"] == bounds["high_watermark"]

    until(lambda: is_settled(0) and is_settled(1))


RECORDS = [
    {
        "value": json.dumps({"user": {"id": n % 3}, "item": ["tea", "cup"][n % 2]}),
        "key": f"k{n % 4}",
        "partition": n % 2,
        "headers": [{"key": "trace", "value": f"t{n % 3}"}] if n < 6 else [],
    }
    for n in range(12)
]


@pytest.mark.parametrize("in_table", [False, True])
@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        ({}, range(12)),
        ({"key": "k1"}, [1, 5, 9]),
        ({"contains": "cup"}, [1, 3, 5, 7, 9, 11]),
        ({"header": "trace"}, [0, 1, 2, 3, 4, 5]),
        ({"header": "trace", "header_value": "t1", "path": "/user/id", "equals": 1, "contains": "tea"}, [4]),
        ({"header": "other"}, []),
        ({"path": "/user/id", "equals": 2}, [2, 5, 8, 11]),
        ({"path": "/user", "equals": {"id": 2}, "contains": "tea"}, [2, 8]),
        ({"path": "/user/id", "equals": None}, []),
        ({"partitions": [1]}, [1, 3, 5, 7, 9, 11]),
        ({"from": {"offset": 1}, "to": {"offset": -3}}, [2, 3, 4, 5]),
        ({"from": {"offset": "latest"}}, []),
        ({"from": {"timestamp": "2100-01-01T00:00:00Z"}}, []),
    ],
)
def test_filters_and_places(http: Http, topic: str, asked: dict[str, Any], numbers: list[int], in_table: bool) -> None:
    http.publish(topic, *RECORDS)
    if in_table:
        settled(http, topic)
    records, done = found(http, topic, **asked)
    whole = {(one["partition"], one["offset"]): one for p in (0, 1) for one in http.read(topic, p, "values=text")}
    assert sorted((one["offset"], one["partition"]) for one in records) == [(n // 2, n % 2) for n in numbers]
    assert all(one == whole[one["partition"], one["offset"]] for one in records), "as other calls give it"
    assert done["ended_by"] == "end"
    assert done["next"] is None
    assert done["records"] == len(records)
    assert done["looked_at"] == done["of"]


def test_a_limit_is_exact_and_next_goes_on_to_the_same_end(http: Http, topic: str) -> None:
    http.publish(topic, *RECORDS)
    records, done = found(http, topic, contains="tea", limit=2)
    assert (len(records), done["ended_by"]) == (2, "limit")
    http.publish(topic, {"value": "tea, later", "partition": 0})
    seen = records
    while done["next"] is not None:
        records, done = found(http, topic, contains="tea", limit=1, **{"from": {"cursor": done["next"]}})
        assert len(records) <= 1
        seen += records
    assert sorted(one["offset"] for one in seen) == list(range(6))
    assert done["ended_by"] == "end"


def test_a_short_time_goes_on_too(http: Http, topic: str) -> None:
    http.publish(topic, *RECORDS)
    records, done = found(http, topic, timeout_ms=1)
    count = len(records)
    for _ in range(10):
        if done["next"] is None:
            break
        records, done = found(http, topic, timeout_ms=1, **{"from": {"cursor": done["next"]}})
        count += len(records)
    assert (count, done["next"]) == (12, None)


def test_values_that_are_no_text(http: Http, topic: str) -> None:
    http.publish(topic, {"value_base64": "/w==", "partition": 0}, {"value": '{"a":1}', "partition": 0})
    assert [one.get("value_base64") for one in found(http, topic)[0]] == ["/w==", None]
    assert [one.get("value") for one in found(http, topic, values="json")[0]] == [None, {"a": 1}]
    assert [one["value_base64"] for one in found(http, topic, values="base64")[0]] == ["/w==", "eyJhIjoxfQ=="]


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        ({"path": "/a"}, 422, "invalid_request", "path is given without equals"),
        ({"header_value": "a"}, 422, "invalid_request", "header_value is given without header"),
        ({"equals": 1}, 422, "invalid_request", "equals is given without path"),
        ({"path": "a", "equals": 1}, 422, "invalid_request", "JSON Pointer"),
        ({"from": {"offset": "soon"}}, 422, "invalid_request", "from.offset"),
        ({"from": {"offset": 1, "timestamp": 1}}, 422, "invalid_request", "one of them"),
        ({"to": {"cursor": "x"}}, 422, "invalid_request", "cursor"),
        ({"form": {}}, 422, "invalid_request", "form"),
        ({"limit": 0}, 422, "invalid_request", "limit"),
        ({"partitions": []}, 422, "invalid_request", "partitions"),
        ({"partitions": [2]}, 404, "unknown_partition", "0 to 1, not 2"),
    ],
)
def test_what_is_refused(http: Http, topic: str, body: dict[str, Any], status: int, code: str, says: str) -> None:
    reply = http.json("POST", f"/v1/topics/{topic}/search", body)
    assert (reply.status, reply.error_code) == (status, code)
    assert says in reply.json["detail"]


def test_a_topic_or_format_that_is_not_there(http: Http, topic: str) -> None:
    assert http.json("POST", "/v1/topics/none/search", {}).error_code == "unknown_topic"
    refused = http.json("POST", f"/v1/topics/{topic}/search", {}, Accept="application/json")
    assert refused.error_code == "not_acceptable"
    assert http.call("POST", f"/v1/topics/{topic}/search", b"{").error_code == "malformed_body"
    other = f"{topic}-other"
    http.create(other)
    http.publish(other, {"value": "x"}, {"value": "x"})
    cursor = found(http, other, limit=1)[1]["next"]
    assert http.json("POST", f"/v1/topics/{topic}/search", {"from": {"cursor": cursor}}).error_code == "unknown_topic"


def test_two_at_a_time_and_who_hangs_up_makes_room(http: Http, topic: str) -> None:
    values = pa.table({"value": [b"x" * LARGE_BYTES] * 400, "partition": pa.array([0] * 400, pa.int32())})
    for _ in range(LIMIT_MAX // 400):
        assert http.arrow(topic, values).status == 200
    with untaken(http, topic):
        for _ in range(SEARCHES_MAX - 1):
            with untaken(http, topic):
                refused = http.json("POST", f"/v1/topics/{topic}/search", {"limit": 1})
                assert (refused.status, refused.error_code) == (503, "overloaded")
                assert refused.headers["retry-after"] == "1"
                assert http.read(topic, 1) == [], "reads go on"
        # Else it would go on without a client.
        until(lambda: http.json("POST", f"/v1/topics/{topic}/search", {"limit": 1}).status == 200)
    assert found(http, topic, limit=LIMIT_MAX)[1]["records"] == LIMIT_MAX


def test_finds_what_the_head_let_go_of_and_tells_of_damage() -> None:
    with running_server(redis_url=NO_REDIS, flush_ms=50, head_bytes_max=MIB) as server:
        own = Http(server.url)
        own.create("large", 2)
        numbers = range(6_000)
        for first in range(0, 6_000, 1_000):
            values = [b"%d %b" % (n, b"." * 500) for n in numbers[first : first + 1_000]]
            rows = {"value": values, "key": [f"k{n}" for n in numbers[first : first + 1_000]]}
            partitions = pa.array([0] * 1_000, pa.int32())
            assert own.arrow("large", pa.table({**rows, "partition": partitions})).status == 200
        settled(own, "large")
        for asked in ({"key": "k7"}, {"contains": "7 ."}, {"key": "k7", "contains": "7 ."}):
            records, done = found(own, "large", limit=1_000, **asked)
            assert "k7" in [one["key"] for one in records]
            assert all(asked["contains"] in one["value"] for one in records if "contains" in asked)
            assert done["looked_at"] == 6_000
        for path in (server.data_dir / names.LAKE_FOLDER).rglob("*.parquet"):
            path.unlink()
        *_, told, last = lines(own, "large", contains="7 .")
        assert told["problem"]["error_code"] == "corrupt_data"
        assert "is missing" in told["problem"]["detail"]
        assert last["done"]["ended_by"] == "problem"
        assert last["done"]["next"]


def test_progress_is_told_while_nothing_is_found(http: Http, topic: str, small_server: ServerProcess) -> None:
    """Seconds in which the server did not run do not count, and none in which it writes the table."""
    values = pa.array([b'[["%d"], %b]' % (n, b'["a", 1.5, {"b": null}],' * 60 + b"0") for n in range(500)], pa.binary())
    table = pa.table({"value": values, "partition": pa.array([0] * 500, pa.int32())})
    for _ in range(80):
        assert http.arrow(topic, table).status == 200
    settled(http, topic)
    begun = processor_seconds(small_server.pid)
    every = lines(http, topic, path="/0/1", equals=7)
    seconds = processor_seconds(small_server.pid) - begun
    told = [line["progress"]["looked_at"] for line in every if "progress" in line]
    assert told == sorted(told)
    assert len(told) > 1 or seconds < 0.5
    assert every[-1]["done"] == {"looked_at": 40_000, "of": 40_000, "records": 0, "ended_by": "end", "next": None}
