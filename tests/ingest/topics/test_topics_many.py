"""Many topics, and many partitions of one, on a server with default settings."""

from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import pytest
from chaos import CHAOS
from deltalake import DeltaTable
from http_rig import NO_REDIS, Http

from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

TOPICS = 60 if CHAOS > 1 else 30
PARTITIONS = 1_000 if CHAOS > 1 else 300


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with running_server(redis_url=NO_REDIS) as running:
        yield running


@pytest.mark.chaos
@pytest.mark.slow
def test_many_topics(server: ServerProcess) -> None:
    http = Http(server.url)
    names = [f"t{number:03}" for number in range(TOPICS)]
    without = len(http.get("/metrics").body)
    for name in names:
        http.create(name)
        assert http.publish(name, {"value": name}).status == 200
    listed = http.get(f"/v1/topics?limit={TOPICS}").json
    assert [topic["name"] for topic in listed["topics"]] == names and listed["next"] is None
    assert http.publish(names[-1], {"value": "x"}, query="?acks=table").status == 200
    server.kill()
    server.start()
    assert [http.end(name) for name in names] == [1] * (TOPICS - 1) + [2]
    positions = [{"topic": name, "partition": 0, "offset": 0} for name in names]
    fetched = http.json("POST", "/v1/fetch", {"partitions": positions}).json
    assert {record["value"] for record in fetched["records"]} == {*names, "x"}
    metrics = http.get("/metrics").body
    assert all(f'topic="{name}"'.encode() in metrics for name in names)
    assert len(metrics) - without < 1_000 * TOPICS
    assert server.stop() == 0
    server.start()
    tables = [topic["offsets"][0]["table_offset"] for topic in http.get(f"/v1/topics?limit={TOPICS}").json["topics"]]
    assert tables == [1] * (TOPICS - 1) + [2]


@pytest.mark.chaos
@pytest.mark.slow
def test_many_partitions(server: ServerProcess) -> None:
    http = Http(server.url)
    http.create("t", 2)
    assert http.json("PATCH", "/v1/topics/t", {"partitions": PARTITIONS}).status == 200
    folder = unquote(urlsplit(http.get("/v1/topics/t").json["table_uri"]).path)
    records = [{"value": partition, "partition": partition} for partition in range(PARTITIONS)]
    before = DeltaTable(folder).version()
    reply = http.publish("t", *records, query="?acks=table&timeout_ms=60000")
    assert reply.json["records"] == [[partition, 0] for partition in range(PARTITIONS)]
    table = DeltaTable(folder)
    assert (table.version() - before, len(table.file_uris())) == (1, PARTITIONS), "one commit, a file per partition"
    assert http.publish("t", *records).status == 200
    server.kill()
    server.start()
    offsets = http.get("/v1/topics/t").json["offsets"]
    assert [entry["high_watermark"] for entry in offsets] == [2] * PARTITIONS
    positions = [{"topic": "t", "partition": partition, "offset": 0} for partition in range(PARTITIONS)]
    fetched = http.json("POST", "/v1/fetch", {"partitions": positions, "max_records": 10_000}).json
    assert sorted(int(record["value"]) for record in fetched["records"]) == [n // 2 for n in range(2 * PARTITIONS)]
    assert server.stop() == 0
    assert len(DeltaTable(folder).file_uris()) == 2 * PARTITIONS
