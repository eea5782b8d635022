"""Files of a topic in a running server: within their budget as soon as `flush.ms` says, past it seldom."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from http_rig import NO_REDIS, Http

from siltlog.infra.clock import SystemClock
from siltlog.infra.store.store import open_store
from siltlog.infra.table.table import TopicTable
from siltlog.testing import running_server

WAIT_SECONDS = 60.0
PER_HOUR = 24
BURST = 2
"""What this budget allows at once."""


def wait_for(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


@pytest.mark.rule("F3")
def test_a_topic_makes_no_more_files_than_it_may(tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path / "data", redis_url=NO_REDIS, flush_ms=1, schedule="off") as server:
        http = Http(server.url)
        http.create("t", 2, flush_files_per_hour=PER_HOUR)

        def files() -> int:
            count: int = http.get("/v1/topics/t").json["files"]
            return count

        def publish() -> None:
            assert http.publish("t", {"value": "a", "partition": 0}, {"value": "b", "partition": 1}).status == 200

        def in_table(partition: int) -> bool:
            bounds = http.bounds("t", partition)
            return bounds["table_offset"] == bounds["high_watermark"]

        publish()
        wait_for(lambda: in_table(0) and in_table(1), "a topic that rested is flushed after flush.ms")
        for _ in range(100):
            publish()
        assert http.publish("t", {"value": "c", "partition": 0}, query="?acks=table").status == 200
        assert in_table(0) and not in_table(1)
        assert files() <= BURST + 1, "no budget keeps back who waits for the table"
        assert len(http.read("t", 1)) == 101, "readers of the log see everything"
        http.json("PATCH", "/v1/topics/t", {"config": {"flush.files.per.hour": -1}})
        wait_for(lambda: in_table(1), "without a budget")
        http.json("PATCH", "/v1/topics/t", {"config": {"flush.files.per.hour": 0}})
        publish()
        assert not in_table(0) and not in_table(1)
        assert server.stop() == 0
        snapshot = TopicTable.open(open_store(server.root), "t", SystemClock()).snapshot
        assert dict(snapshot.offsets) == {0: 103, 1: 102}
