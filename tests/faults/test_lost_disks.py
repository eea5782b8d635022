"""acks=object, and the data directory is lost with its server: what was acknowledged is there once, in order."""

import random
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from evidence import check, read_api, read_table
from failure_rig import StartServer, refused
from publishers import IdempotentPublisher, KeyedPublisher, Ledger, Wire, start_publishers
from s3_server import S3Server

from siltlog.infra.store.store import open_store
from siltlog.ingest.journal.codec import HEADER_BYTES
from siltlog.ingest.journal.pins import OBJECTS_MAX

PARTITIONS = 3
ROUNDS = 3


def _on_s3(server: S3Server) -> dict[str, Any]:
    root = server.root_uri(f"run-{uuid.uuid4().hex[:8]}")
    return {"root": root, "s3_endpoint": server.endpoint, "s3_region": server.region}


@pytest.mark.rule("CJ7", "CJ9")
@pytest.mark.parametrize("where", ["disk", pytest.param("s3", marks=pytest.mark.s3)])
@pytest.mark.slow
def test_the_disk_goes_with_its_server(
    make_server: StartServer, rng: random.Random, tmp_path: Path, where: str, request: pytest.FixtureRequest
) -> None:
    s3 = request.getfixturevalue("s3_server") if where == "s3" else None
    place = _on_s3(s3) if s3 else {"root": (tmp_path / "lake").as_uri()}
    # Of what is acknowledged some is in the table and some is not.
    server = make_server(**place, flush_ms=700, flush_bytes=1 << 20, object_interval_ms=rng.choice((0, 50)))
    server.start()
    wire = Wire(server.url)
    wire.create("logs", PARTITIONS, acks="object")
    ledger = Ledger()
    publishers = start_publishers(server.url, "logs", PARTITIONS, ledger, rng, plain=1, idempotent=2, keyed=1)
    for publisher in publishers:
        publisher.pause_s = 0.01
    for _ in range(ROUNDS):
        time.sleep(0.1 + 0.7 * rng.random())
        server.kill()
        if rng.random() < 0.75:
            shutil.rmtree(server.data_dir)
            if rng.random() < 0.3:
                assert "--take-over" in refused(server)
            server.start("--take-over")
        else:
            server.start()
    time.sleep(0.3)
    for publisher in publishers:
        publisher.finish()
    found = read_api(wire, "logs", PARTITIONS)
    check(found, ledger)
    for kind in (IdempotentPublisher, KeyedPublisher):
        assert any(isinstance(publisher, kind) and publisher.repeats for publisher in publishers)
    assert server.stop() == 0
    storage = None
    if s3:
        storage = open_store(server.root, s3_endpoint=s3.endpoint, s3_region=s3.region).storage_options()
    assert read_table(server.root, "logs", storage) == sorted(found)


@pytest.mark.rule("CJ10")
@pytest.mark.slow
def test_what_a_successor_would_read_is_bounded(make_server: StartServer, tmp_path: Path) -> None:
    server = make_server(root=(tmp_path / "lake").as_uri(), flush_ms=3_600_000, flush_bytes=1 << 30)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1, acks="object")
    for number in range(OBJECTS_MAX + 1):
        assert wire.offsets("logs")[0]["table_offset"] == 0
        assert wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": f"v{number}"}]}).status == 200
    deadline = time.monotonic() + 30
    while wire.offsets("logs")[0]["table_offset"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.rule("CJ7", "CJ8")
@pytest.mark.slow
def test_nothing_is_journaled_of_topics_that_do_not_ask_for_it(make_server: StartServer, tmp_path: Path) -> None:
    root = (tmp_path / "lake").as_uri()
    server = make_server(root=root)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    assert wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": "v"}]}).document["acks"] == "wal"
    assert open_store(root).list("wal") == []
    reply = wire.call("POST", "/v1/topics/logs/records?acks=object", {"records": [{"value": "v"}]})
    assert (reply.status, reply.error_code) == (422, "unsupported_acks")
    wire.create("safe", 1, acks="object")
    reply = wire.call("POST", "/v1/topics/safe/records?acks=wal", {"records": [{"value": "v"}]})
    assert (reply.status, reply.document["acks"]) == (200, "object")
    objects = open_store(root).list("wal")
    assert [int(info.path.rsplit("/", 1)[1]) for info in objects] == [0, 1]
    assert objects[0].size == HEADER_BYTES
