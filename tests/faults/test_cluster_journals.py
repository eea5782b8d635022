"""acks=object in a cluster: owners die one after the other, and what was acknowledged goes on elsewhere."""

import time
from pathlib import Path

import pytest
from cluster_rig import SETTINGS, Nodes, cluster
from evidence import read_api
from s3_server import S3Server

from siltlog.infra.errors import ConfigError
from siltlog.infra.store.store import open_store
from siltlog.server_process import ServerProcess

NEVER_FLUSHED_MS = 3_600_000
RECORDS = 8
SOON_SECONDS = 60.0


@pytest.mark.rule("CJ7", "CJ12")
@pytest.mark.slow
def test_what_is_in_no_table_outlives_two_owners(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster") as nodes:
        wire = next(iter(nodes.values())).wire
        config = {"acks": "object", "flush.ms": NEVER_FLUSHED_MS}
        reply = wire.call("POST", "/v1/topics", {"name": "logs", "partitions": 2, "config": config})
        assert reply.status == 201, reply
        acked: dict[str, tuple[int, int]] = {}
        gone: list[str] = []
        for _ in range(2):
            acked |= _published(nodes, gone, len(acked))
            owner = nodes.owner("logs")
            nodes[owner].kill()
            gone.append(owner)
            acked |= _published(nodes, gone, len(acked))
            nodes[owner].start()
            gone.remove(owner)
        found = {value: (partition, offset) for partition, offset, value in read_api(wire, "logs", 2)}
        assert found == acked


@pytest.mark.rule("CM13")
@pytest.mark.slow
def test_journals_have_a_place_of_their_own(tmp_path: Path) -> None:
    journals = tmp_path / "journals"
    with cluster(tmp_path / "cluster", 2, flush_ms=NEVER_FLUSHED_MS, journal_root=journals.as_uri()) as nodes:
        reply = nodes["n1"].wire.create("logs", 2, acks="object")
        acked = _published(nodes, [], 0)
        owner = nodes.owner("logs")
        other = nodes["n2" if owner == "n1" else "n1"]
        nodes[owner].kill()
        acked |= _published(nodes, [owner], len(acked))
        found = {value: (partition, offset) for partition, offset, value in read_api(other.wire, "logs", 2)}
        assert found == acked, reply
        assert len(list(journals.glob("wal/*/*"))) >= 2
        assert not Path(nodes.root.removeprefix("file://"), "wal").exists()
        for place, said in (("", "in the root (its own)"), ((tmp_path / "another").as_uri(), "another (")):
            settings = {"root": nodes.root, "redis_url": nodes.redis_url, "node_id": "n9", "journal_root": place}
            settings |= {"advertise_url": "http://127.0.0.1:1", "secret_file": str(tmp_path / "cluster" / "secret")}
            log = tmp_path / "stray.log"
            stray = ServerProcess(tmp_path / "stray", {**SETTINGS, **settings}, log=log)
            with pytest.raises(ConfigError):
                stray.start()
            assert "set SILT_JOURNAL_ROOT to the same place" in (text := log.read_text()) and said in text


@pytest.mark.rule("CM13")
@pytest.mark.slow
@pytest.mark.s3
def test_journals_have_a_place_of_their_own_on_s3(s3_server: S3Server, tmp_path: Path) -> None:
    place = s3_server.root_uri(f"{tmp_path.name}-journals")
    with cluster(tmp_path / tmp_path.name, 2, s3=s3_server, flush_ms=NEVER_FLUSHED_MS, journal_root=place) as nodes:
        nodes["n1"].wire.create("logs", 2, acks="object")
        acked = _published(nodes, [], 0)
        owner = nodes.owner("logs")
        nodes[owner].kill()
        acked |= _published(nodes, [owner], len(acked))
        other = next(node for name, node in nodes.items() if name != owner)
        found = {value: (partition, offset) for partition, offset, value in read_api(other.wire, "logs", 2)}
        assert found == acked
        where = {"s3_endpoint": s3_server.endpoint}
        assert len(open_store(place, **where).list("wal")) >= 2
        assert open_store(nodes.root, **where).list("wal") == []


def _published(nodes: Nodes, gone: list[str], first: int) -> dict[str, tuple[int, int]]:
    """The places of some records, each sent until it is acknowledged: a key makes it land once."""
    wire = next(node for name, node in nodes.items() if name not in gone).wire
    acked: dict[str, tuple[int, int]] = {}
    for number in range(first, first + RECORDS):
        body = {"records": [{"value": f"v{number}", "key": str(number)}]}
        deadline = time.monotonic() + SOON_SECONDS
        while True:
            reply = wire.call("POST", "/v1/topics/logs/records", body, Idempotency_Key=f"once-{number}")
            if reply.status == 200:
                break
            assert time.monotonic() < deadline, reply
            time.sleep(0.1)
        assert reply.document["acks"] == "object"
        acked[f"v{number}"] = tuple(reply.document["records"][0])
    return acked
