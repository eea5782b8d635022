"""`GET /v1/topics/{topic}/health` and `/files` of real servers."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_rig import secured_server
from http_rig import NO_REDIS, Http

from siltlog.infra import names
from siltlog.testing import running_server

SOON_SECONDS = 60.0


@pytest.fixture(scope="module")
def served() -> Iterator[Http]:
    with running_server(flush_ms=50, redis_url=NO_REDIS) as server:
        http = Http(server.url)
        http.create("orders", partitions=2, retention_records=5)
        for number in range(4):
            http.publish("orders", *[{"key": str(key), "value": f"{number}"} for key in range(20)], query="?acks=table")
        yield http


def rows_of(http: Http, query: str = "") -> list[dict[str, Any]]:
    found, after = [], ""
    while True:
        reply = http.get(f"/v1/topics/orders/files?limit=3{query}{after}")
        assert reply.status == 200, reply
        found += reply.json["files"]
        if reply.json["next"] is None:
            return found
        after = f"&after={reply.json['next']}"


def test_health_is_that_of_the_topic_as_it_is_described(served: Http) -> None:
    told, described = served.get("/v1/topics/orders/health").json, served.get("/v1/topics/orders").json
    assert (told["topic"], told["topic_id"]) == ("orders", described["topic_id"])
    table = told["table"]
    assert (table["files"], table["bytes"], table["rows"]) == (described["files"], described["bytes"], 80)
    assert (table["small_files"], table["small_files_share"]) == (described["files"], 1.0)
    assert 0 <= table["age_ms"] < 600_000
    bounds = ("partition", "log_start_offset", "table_offset", "high_watermark")
    assert [{name: each[name] for name in bounds} for each in told["partitions"]] == [
        {name: each[name] for name in bounds} for each in described["offsets"]
    ]
    assert told["retention"]["by_records"]["files"] == told["retention"]["files"] > 0
    assert told["compaction"]["files"] == described["files"]
    assert told["problems"] == []


def test_rows_of_files_lead_to_their_records(served: Http) -> None:
    rows = rows_of(served)
    assert len(rows) == served.get("/v1/topics/orders").json["files"] >= 8
    assert rows == sorted(rows, key=lambda row: (row["partition"], row["first_offset"]))
    assert rows_of(served, "&partition=1") == [row for row in rows if row["partition"] == 1]
    assert "path" not in json.dumps(rows)
    for row in rows:
        place = f"/v1/topics/orders/partitions/{row['partition']}/records"
        read = served.get(f"{place}?offset={row['first_offset']}&max_records={row['rows']}").json["records"]
        assert [read[0]["offset"], read[-1]["offset"]] == [row["first_offset"], row["last_offset"]]
        assert row["min_timestamp"] <= read[0]["timestamp"] <= row["max_timestamp"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("none/health", 404, "unknown_topic"),
        ("none/files", 404, "unknown_topic"),
        ("orders/files?partition=2", 404, "unknown_partition"),
        ("orders/files?after=7", 400, "invalid_parameter"),
        ("orders/files?after=0:x", 400, "invalid_parameter"),
        ("orders/health?x=1", 400, "invalid_parameter"),
    ],
)
def test_what_is_not_there_is_refused(served: Http, path: str, status: int, code: str) -> None:
    reply = served.get(f"/v1/topics/{path}")
    assert (reply.status, reply.error_code) == (status, code)


def test_what_retention_removes_is_what_it_was_said_to_remove(served: Http) -> None:
    served.create("kept", partitions=1, retention_records=10)
    for _ in range(5):
        served.publish("kept", *[{"value": "v"}] * 10, query="?acks=table")
    [moved] = served.get("/v1/topics/kept/health").json["retention"]["log_start_offsets"]
    assert (moved["before"], moved["after"], moved["files"], moved["rows"]) == (0, 40, 4, 40)


def test_whoever_may_not_describe_a_topic_is_told_nothing_of_it() -> None:
    with secured_server(flush_ms=50) as server:
        for topic in ("mine-1", "other-1"):
            server.admin.create(topic)
        _, mine = server.key("mine", ("consumer", "mine-"))
        for what in ("health", "files"):
            assert mine.get(f"/v1/topics/mine-1/{what}").status == 200
            for other in ("other-1", "none"):
                reply = mine.get(f"/v1/topics/{other}/{what}")
                assert (reply.status, reply.error_code) == (403, "forbidden")


def test_a_store_that_is_damaged_is_a_problem_and_no_error(tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path, flush_ms=50, redis_url=NO_REDIS) as server:
        http = Http(server.url)
        http.create("orders")
        http.publish("orders", {"value": "v"}, query="?acks=table")
        log = tmp_path / names.LAKE_FOLDER / names.topic_path("orders") / names.DELTA_LOG_FOLDER
        (log / "_last_checkpoint").write_text('{"ver')
        end = time.monotonic() + SOON_SECONDS
        while not (told := http.get("/v1/topics/orders/health").json)["problems"]:
            assert time.monotonic() < end
        assert told["table"]["checkpoint_version"] is None
        assert "cut short" in told["problems"][0]["detail"]
        assert told["table"]["files"] == 1
