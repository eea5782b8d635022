"""Topics over HTTP, against a real server: made, found, listed, deleted, made again."""

import time
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from deltalake import DeltaTable
from http_rig import Http, Reply

from siltlog.infra import names
from siltlog.infra.clock import parse_us
from siltlog.infra.settings.topic_config import SETTINGS


@pytest.fixture
def name() -> str:
    """A name that no topic has yet."""
    return f"topics-{uuid.uuid4()}"


def refused(reply: Reply, status: int, code: str) -> str:
    assert (reply.status, reply.error_code) == (status, code), reply
    detail: str = reply.json["detail"]
    return detail


def test_a_new_topic_is_an_empty_table(http: Http, name: str) -> None:
    reply = http.json("POST", "/v1/topics", {"name": name, "partitions": 3, "config": {"flush.ms": 250}})
    assert (reply.status, reply.headers["location"]) == (201, f"/v1/topics/{name}")
    document = reply.json
    assert (document["name"], document["partitions"], document["records"], document["files"]) == (name, 3, 0, 0)
    assert uuid.UUID(document["topic_id"]).version == 4
    assert parse_us(document["created_at"]) > 0
    assert document["config"]["flush.ms"] == {"value": 250, "source": "topic"}
    assert document["config"]["acks"] == {"value": "wal", "source": "default"}
    assert set(document["config"]) == set(SETTINGS)
    zero = {"log_start_offset": 0, "table_offset": 0, "high_watermark": 0}
    kept = {"bytes": 0, "files": 0, "head_start_offset": 0, "head_bytes": 0, "wal_segments": 0, "wal_bytes": 0}
    assert document["offsets"] == [{"partition": p, **zero, **kept} for p in range(3)]
    assert http.get(f"/v1/topics/{name}").json == document
    table = DeltaTable(unquote(urlsplit(document["table_uri"]).path))
    assert [field.name for field in table.schema().fields][:2] == ["partition", "offset"]
    assert table.to_pyarrow_dataset().count_rows() == 0


def test_a_partition_tells_where_its_records_are(http: Http, name: str) -> None:
    http.create(name, 2, **{"flush.ms": 600_000})
    value = "x" * 1_000
    for number in range(3):
        http.publish(name, {"value": value, "partition": 1, "key": str(number)})

    def told() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = http.get(f"/v1/topics/{name}").json["offsets"]
        return rows

    quiet, busy = told()
    assert (quiet["wal_segments"], quiet["wal_bytes"], quiet["head_bytes"], quiet["bytes"]) == (0, 0, 0, 0)
    assert busy["wal_segments"] == 1 and 3_000 < busy["wal_bytes"] < 6_000
    assert busy["head_start_offset"] == 0 and busy["head_bytes"] > 3_000 and busy["files"] == 0
    assert http.json("PATCH", f"/v1/topics/{name}", {"config": {"flush.ms": 50}}).status == 200
    deadline = time.monotonic() + 60
    while told()[1]["table_offset"] < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    quiet, busy = told()
    assert (busy["wal_segments"], busy["wal_bytes"], busy["files"]) == (0, 0, 1)
    whole = http.get(f"/v1/topics/{name}").json
    assert busy["bytes"] == whole["bytes"] > 0 == quiet["bytes"]
    listed = http.get(f"/v1/topics?prefix={name}").json["topics"][0]["offsets"]
    assert set(listed[0]) == {"partition", "log_start_offset", "table_offset", "high_watermark"}


def test_settings_of_the_server_are_told_as_such(http: Http, name: str) -> None:
    assert http.create(name)["config"]["flush.ms"] == {"value": 50, "source": "server"}


def test_a_topic_has_one_partition_unless_said(http: Http, name: str) -> None:
    assert http.json("POST", "/v1/topics", {"name": name}).json["partitions"] == 1


def test_put_makes_or_finds(http: Http, name: str) -> None:
    path = f"/v1/topics/{name}"
    first = http.json("PUT", path, {"partitions": 2, "config": {"flush.ms": 70}})
    assert first.status == 201
    for same in ({}, {"partitions": 2}, {"name": name, "config": {"flush.ms": 70}}):
        again = http.json("PUT", path, same)
        assert (again.status, again.json["topic_id"]) == (200, first.json["topic_id"])
    assert http.call("PUT", path).status == 200
    assert "with 2 partitions, not 3" in refused(http.json("PUT", path, {"partitions": 3}), 409, "topic_exists")
    other = {"config": {"flush.ms": 71}}
    assert "flush.ms" in refused(http.json("PUT", path, other), 409, "topic_exists")
    assert "retention.ms" in refused(http.json("PUT", path, {"config": {"retention.ms": 5}}), 409, "topic_exists")
    refused(http.json("PUT", path, {"name": "another"}), 422, "invalid_request")


def test_a_name_that_is_taken(http: Http, name: str) -> None:
    http.create(name)
    refused(http.json("POST", "/v1/topics", {"name": name}), 409, "topic_exists")
    detail = refused(http.json("POST", "/v1/topics", {"name": name.upper()}), 409, "topic_exists")
    assert "only by case" in detail
    refused(http.json("PUT", f"/v1/topics/{name.upper()}", {}), 409, "topic_exists")


@pytest.mark.parametrize("wrong", ["", ".", "..", "_jobs", "a.dlq", "a b", "a/b", "é", "x" * 197])
def test_names_that_cannot_be(http: Http, wrong: str) -> None:
    refused(http.json("POST", "/v1/topics", {"name": wrong}), 422, "invalid_request")


def test_names_that_just_can(http: Http) -> None:
    for fine in ("x" * 196, "a..b", "-", "9", "A_b.C-d"):
        assert http.json("POST", "/v1/topics", {"name": fine}).status == 201
        assert http.call("DELETE", f"/v1/topics/{fine}").status == 204


@pytest.mark.parametrize(
    ("document", "status", "code", "words"),
    [
        ({"partitions": 0}, 422, "invalid_request", "from 1 to 10000"),
        ({"partitions": 10_001}, 422, "invalid_request", "from 1 to 10000"),
        ({"partitions": "2"}, 422, "invalid_request", "partitions"),
        ({"partitons": 2}, 422, "invalid_request", "partitons"),
        ({"config": {"flush.seconds": 2}}, 422, "invalid_config", "flush.seconds"),
        ({"config": {"flush.ms": "2"}}, 422, "invalid_config", "whole number"),
        ({"config": {"acks": "all"}}, 422, "invalid_config", "wal, object, table"),
        ({"config": [1]}, 422, "invalid_request", "config"),
        ({"name": None}, 422, "invalid_request", "name"),
    ],
)
def test_what_is_wrong_is_told(
    http: Http, name: str, document: dict[str, Any], status: int, code: str, words: str
) -> None:
    assert words in refused(http.json("POST", "/v1/topics", {"name": name, **document}), status, code)
    refused(http.get(f"/v1/topics/{name}"), 404, "unknown_topic")


def test_bodies_and_queries_that_are_wrong(http: Http, name: str) -> None:
    assert "byte 9" in refused(http.call("POST", "/v1/topics", b'{"name": }'), 400, "malformed_body")
    refused(http.call("POST", "/v1/topics", b'{"name": "' + b"x" * 1_100_000 + b'"}'), 413, "request_too_large")
    refused(http.json("POST", "/v1/topics?partitions=2", {"name": name}), 400, "invalid_parameter")
    refused(http.get("/v1/topics?size=2"), 400, "invalid_parameter")
    refused(http.get("/v1/topics?limit=0"), 400, "invalid_parameter")


def test_lists_in_pages(http: Http) -> None:
    prefix = f"list-{uuid.uuid4()}-"
    created = sorted(prefix + suffix for suffix in ("b", "a", "C", "d", "0"))
    for topic in created:
        http.create(topic)
    found, after = [], ""
    while True:
        page = http.get(f"/v1/topics?prefix={prefix}&limit=2&after={after}").json
        found += [document["name"] for document in page["topics"]]
        after = page["next"]
        if after is None:
            break
        assert len(page["topics"]) == 2
    assert found == created
    everything = http.get("/v1/topics?limit=5000").json
    assert everything["next"] is None
    assert set(created) <= {document["name"] for document in everything["topics"]}
    assert http.get(f"/v1/topics?prefix={prefix}x").json == {"topics": [], "next": None}


@pytest.mark.parametrize("order", ["", "&sort=records", "&sort=name&order=desc"])
def test_lists_those_whose_names_end_alike(http: Http, order: str) -> None:
    prefix = f"ends-{uuid.uuid4()}-"
    for topic in ("a-old", "a", "b-old", "-old.c"):
        http.create(prefix + topic)
    found, after = [], ""
    while after is not None:
        page = http.get(f"/v1/topics?prefix={prefix}&suffix=-old&limit=1&after={after}{order}").json
        found += [document["name"] for document in page["topics"]]
        after = page["next"]
    assert sorted(found) == [f"{prefix}a-old", f"{prefix}b-old"]


def test_numbers_of_a_topic_with_records(http: Http, name: str) -> None:
    http.create(name, 2)
    http.publish(name, *({"value": i, "partition": i % 2} for i in range(5)), query="?acks=table")
    document = http.get(f"/v1/topics/{name}").json
    assert (document["records"], document["files"]) == (5, 2)
    assert document["bytes"] == sum(
        path.stat().st_size for path in Path(unquote(urlsplit(document["table_uri"]).path)).rglob("*.parquet")
    )
    assert [entry["table_offset"] for entry in document["offsets"]] == [3, 2]


def test_a_deleted_topic_is_gone_and_its_name_is_free(http: Http, name: str) -> None:
    old = http.create(name, 2)
    producer = {"Silt_Producer_Id": "p"}
    sent = {"value": "old", "partition": 0, "sequence": 0}
    assert http.publish(name, sent, query="?acks=table", **producer).status == 200
    http.publish(name, {"value": "not in the table", "partition": 1})
    assert http.call("DELETE", f"/v1/topics/{name}").status == 204
    refused(http.call("DELETE", f"/v1/topics/{name}"), 404, "unknown_topic")
    refused(http.get(f"/v1/topics/{name}"), 404, "unknown_topic")
    refused(http.publish(name, {"value": 1}), 404, "unknown_topic")
    assert name not in {topic["name"] for topic in http.get("/v1/topics?limit=1000").json["topics"]}
    new = http.create(name, 3)
    assert new["topic_id"] != old["topic_id"]
    assert (new["records"], new["files"], len(new["offsets"])) == (0, 0, 3)
    assert http.read(name, 0) == http.read(name, 1) == []
    # Its producers are new, too: what the old topic saw is no duplicate here.
    reply = http.publish(name, sent | {"value": "new"}, query="?acks=table", **producer).json
    assert (reply["records"], reply["partitions"][0]["duplicate"]) == ([[0, 0]], False)
    assert [record["value"] for record in http.read(name, 0, "values=text")] == ["new"]


def test_the_systems_topics_are_not_deleted(http: Http) -> None:
    refused(http.call("DELETE", "/v1/topics/_jobs"), 404, "unknown_topic")


def test_content_types_of_topics(http: Http, name: str) -> None:
    http.create(name)
    reply = http.get(f"/v1/topics/{name}")
    assert (reply.headers["content-type"], reply.headers["cache-control"]) == (names.MEDIA_JSON, "no-store")
