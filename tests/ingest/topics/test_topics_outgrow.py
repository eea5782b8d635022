"""More topics and partitions than a small log can keep account of, on a real server."""

import re
from pathlib import Path
from typing import Any

import pytest
from cluster_rig import cluster
from cut_door import CutDoor
from http_rig import NO_REDIS, Http
from waiting import until

from siltlog.server_process import ServerProcess

MIB = 1024 * 1024
MANY = 3_000


@pytest.mark.rule("C7")
@pytest.mark.slow
def test_what_a_small_log_has_no_room_for_is_refused_until_it_is_given_larger_segments(tmp_path: Path) -> None:
    settings = {"redis_url": NO_REDIS, "auto_create_partitions": 1_000, "flush_ms": 100}
    server = ServerProcess(tmp_path / "data", settings | {"wal_bytes_max": 4 * MIB})
    server.start()
    try:
        http = Http(server.url)
        http.create("many", MANY)
        refused = http.json("POST", "/v1/topics", {"name": "more", "partitions": 1_000})
        assert (refused.status, refused.error_code) == (403, "cap_reached")
        grown = http.json("PATCH", "/v1/topics/many", {"partitions": MANY + 1_000})
        assert (grown.status, grown.error_code) == (403, "cap_reached")
        published = http.publish("made", {"value": "x"})
        assert (published.status, published.error_code) == (403, "cap_reached")
        assert [topic["name"] for topic in http.get("/v1/topics").json["topics"]] == ["many"]
        # Records are taken all the same, as fast as they are flushed.
        records = [{"value": "v" * 40_000, "partition": number} for number in range(10)]
        for _ in range(20):
            until(lambda: http.publish("many", *records).status == 200)
        assert http.json("PATCH", "/v1/topics/many", {"config": {"flush.ms": 500}}).status == 200
        server.kill()

        advice = re.search(r"SILT_WAL_SEGMENT_BYTES=(\d+) or more and SILT_WAL_BYTES_MAX=(\d+)", refused.json["detail"])
        assert advice is not None, refused.json
        segment_bytes, bytes_max = map(int, advice.groups())
        larger = {"wal_segment_bytes": segment_bytes, "wal_bytes_max": bytes_max}
        server = ServerProcess(tmp_path / "data", settings | larger)
        server.start()
        http = Http(server.url)
        http.create("more", 1_000)
        assert sum(entry["high_watermark"] for entry in http.get("/v1/topics/many").json["offsets"]) == 200
        assert server.stop() == 0
    finally:
        if server.running:
            server.kill()
        server.stop()


@pytest.mark.rule("C7")
@pytest.mark.slow
def test_nodes_count_the_topics_of_all_since_one_may_come_to_own_them(tmp_path: Path) -> None:
    def logs(name: str, _: CutDoor) -> dict[str, Any]:
        return {"wal_bytes_max": (4 if name == "n1" else 8) * MIB}

    with cluster(tmp_path / "cluster", 2, each=logs) as nodes:
        small, larger = (Http(nodes[name].url) for name in ("n1", "n2"))
        for number in range(3):
            larger.create(f"t{number}", 1_500)
        nodes.until(lambda: all(nodes.owner(f"t{number}") for number in range(3)), "they are owned")
        assert {nodes.owner(f"t{number}") for number in range(3)} == set(nodes)
        for http, partitions in ((small, 1), (larger, 3_000)):
            refused = http.json("POST", "/v1/topics", {"name": "more", "partitions": partitions})
            assert (refused.status, refused.error_code) == (403, "cap_reached")
        # What there is, is taken over all the same, also by a node whose own settings would not have had it made.
        nodes["n2"].kill()
        for number in range(3):
            nodes.until(lambda number=number: nodes.owner(f"t{number}", "n1") == "n1", "it is taken over")
            until(lambda number=number: small.publish(f"t{number}", {"value": "v" * 300_000}).status == 200)
        nodes["n1"].kill()
        nodes["n1"].start()
        nodes.until(lambda: small.publish("t0", {"value": "x"}).status == 200, "its state has room for a start")
