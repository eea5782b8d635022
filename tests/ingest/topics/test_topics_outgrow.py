"""More topics and partitions than a small log can keep account of, on a real server."""

import re
from pathlib import Path

import pytest
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
