"""`/v1/settle`: what a node acknowledged is in tables alone."""

import base64
from contextlib import suppress
from pathlib import Path

import pytest
from access_rig import secured_server
from http_rig import NO_REDIS, Http

from siltlog.infra import names
from siltlog.infra.security.audit.chain import told
from siltlog.testing import running_server

WAL_BYTES = 8 * 1024 * 1024


def segments(data_dir: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted((data_dir / names.WAL_FOLDER).iterdir()):
        with suppress(FileNotFoundError):
            # It has become a spare one, or one of those a segment.
            found[path.name] = path.read_bytes()
    return found


@pytest.mark.slow
@pytest.mark.rule("ER5")
def test_the_write_ahead_log_goes_on_in_files_that_were_never_used(tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path, flush_ms=3_600_000, wal_bytes_max=WAL_BYTES) as server:
        http = Http(server.url)
        http.create("orders")
        for number in range(12):
            # Several segments, each of them full of the same.
            records = [{"value": f"before {number} " * 8_000}] * 6
            assert http.publish("orders", *records, query="?acks=table").status == 200
        assert sum(b"before" in content for content in segments(tmp_path).values()) > 1
        assert http.publish("orders", {"value": "before the last"}).status == 200
        reply = http.call("POST", "/v1/settle")
        assert (reply.status, reply.json) == (200, {"left": []})
        bounds = http.bounds("orders")
        assert bounds["table_offset"] == bounds["high_watermark"] == 73
        assert not any(b"before" in content for content in segments(tmp_path).values())
        assert http.publish("orders", {"value": "after"}).status == 200
        assert http.bounds("orders")["high_watermark"] == 74
        # Used files become segments again.
        for number in range(12):
            assert (
                http.publish("orders", *[{"value": f"behind {number} " * 8_000}] * 6, query="?acks=table").status == 200
            )
        assert any(name.endswith(names.WAL_SPARE_SUFFIX) for name in segments(tmp_path))
        assert http.call("POST", "/v1/settle?x=1").error_code == "invalid_parameter"


def test_what_cannot_be_let_go_of_is_told(tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path, flush_ms=50, redis_url=NO_REDIS, flush_files_per_hour=-1) as server:
        http = Http(server.url)
        http.create("stuck")
        http.create("well")
        folder = tmp_path / names.LAKE_FOLDER / names.topic_path("stuck")
        (folder / names.partition_folder(0)).touch()
        assert http.publish("stuck", {"value": 1}).status == 200
        assert http.publish("well", {"value": 1}, query="?acks=table").status == 200
        left = http.call("POST", "/v1/settle?wait_ms=1500").json["left"]
        assert left[0].startswith("stuck: ") and left[1].endswith("of stuck") and len(left) == 2
        assert http.bounds("well")["table_offset"] == 1


def test_it_is_for_operators_and_audited() -> None:
    with secured_server() as secured:
        _, producer = secured.key("loader", ("producer", ""))
        assert producer.call("POST", "/v1/settle").status == 403
        assert secured.admin.call("POST", "/v1/settle").json == {"left": []}
        records = secured.admin.read(names.AUDIT_TOPIC)
        told_of = [told(base64.b64decode(record["value_base64"])) for record in records]
        assert [one.outcome for one in told_of if one.operation == "settle"] == ["begun", "done"]
