"""Keys that are revoked while nothing can be written but the data directory, by a server that is then killed."""

import json
import signal
import time
from pathlib import Path

import pytest
from access_rig import As, Secured, make_first_key
from http_rig import NO_REDIS
from s3_server import S3Server

from siltlog.infra import names
from siltlog.server_process import ServerProcess

MIB = 1024 * 1024
PATIENCE_S = 60


def audited(admin: As, operation: str) -> list[tuple[str, str]]:
    """Nothing while the topic is not read yet."""
    reply = admin.get(f"/v1/topics/{names.AUDIT_TOPIC}/partitions/0/records?offset=0&max_records=1000")
    told = [json.loads(record["value"]) for record in reply.json["records"]] if reply.status == 200 else []
    return [(each["resource"], each["outcome"]) for each in told if each["operation"] == operation]


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.rule("A18", "A30")
def test_a_revocation_and_its_record_survive_a_kill_while_the_store_is_away_and_the_log_is_full(
    tmp_path: Path, own_s3: S3Server
) -> None:
    settings = {
        "root": own_s3.root_uri("revoked"),
        "s3_endpoint": own_s3.endpoint,
        "s3_region": own_s3.region,
        "data_dir": tmp_path / "data",
        "redis_url": NO_REDIS,
        "auth": "on",
        "wal_bytes_max": 48 * MIB,
    }
    token = make_first_key(**settings)
    server = ServerProcess(tmp_path / "data", settings)
    server.start()
    try:
        secured = Secured(server, token)
        secured.admin.create("orders")
        key_id, thief = secured.key("thief", ("producer", "orders"))
        own_s3.process.send_signal(signal.SIGSTOP)
        until = time.monotonic() + PATIENCE_S
        for size in (4 * MIB, MIB, MIB // 16, 1024, 10):
            body = {"records": [{"value": "x" * (size // 10)}] * 10}
            while (reply := thief.json("POST", "/v1/topics/orders/records", body)).status == 200:
                assert time.monotonic() < until, "the log is never full"
            assert reply.json["error_code"] == "wal_full", reply
        begun = time.monotonic()
        assert secured.admin.call("DELETE", f"/v1/access/keys/{key_id}").status == 202
        assert time.monotonic() - begun < PATIENCE_S / 2
        assert thief.get("/v1/access/whoami").json["reason"] == "unknown"
        server.kill()
        assert json.loads((tmp_path / "data" / names.ACCESS_HELD_FILE).read_bytes()) == [key_id]
        owed = json.loads((tmp_path / "data" / names.AUDIT_OWED_FILE).read_bytes())
        assert [(each["audited"]["operation"], each["audited"]["outcome"]) for each in owed] == [
            ("revokeKey", "begun"),
            ("revokeKey", "done"),
        ]
        own_s3.process.send_signal(signal.SIGCONT)
        server.start()
        thief.url = server.url
        assert thief.get("/v1/access/whoami").json["reason"] == "unknown"
        secured.again()
        held = tmp_path / "data" / names.ACCESS_HELD_FILE
        until = time.monotonic() + PATIENCE_S
        while held.read_bytes() != b"[]":
            assert time.monotonic() < until, "what was held is never written"
            time.sleep(0.05)
        assert not [said for said in secured.admin.get("/readyz").json["warnings"] if "revoked" in said]
        until = time.monotonic() + PATIENCE_S
        while audited(secured.admin, "revokeKey") != [(f"id/{key_id}", "begun"), (f"id/{key_id}", "done")]:
            assert time.monotonic() < until, audited(secured.admin, "revokeKey")
            time.sleep(0.1)
    finally:
        own_s3.process.send_signal(signal.SIGCONT)
        server.stop()
