"""A bit that flips in stored bytes is found and named; nothing is skipped."""

import random
from pathlib import Path

import pytest
from failure_rig import NEVER_FLUSHED, StartServer, refused
from publishers import Wire

from siltlog.infra import names


def flip(path: Path, position: int, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


@pytest.mark.slow
def test_in_the_write_ahead_log(make_server: StartServer, rng: random.Random) -> None:
    server = make_server(**NEVER_FLUSHED)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    for number in range(20):
        value = f"needle-{number:02} " + "x" * 300
        assert wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": value}]}).status == 200
    server.kill()
    (segment,) = [path for path in (server.data_dir / "wal").glob("*.wal") if b"needle-05" in path.read_bytes()]
    whole = segment.read_bytes()
    # The last one was killed within moments of its acknowledgement.
    for needle in (b"needle-00", b"needle-07", b"needle-19"):
        flip(segment, whole.index(needle) + rng.randrange(200), rng)
        said = refused(server)
        assert str(segment) in said and "damaged" in said and "partition 0, offsets" in said
        segment.write_bytes(whole)
    server.start()
    reply = Wire(server.url).call("GET", "/v1/topics/logs/partitions/0/records")
    assert [record["value"][:9] for record in reply.document["records"]] == [f"needle-{n:02}" for n in range(20)]


@pytest.mark.slow
def test_in_a_data_file(make_server: StartServer, rng: random.Random) -> None:
    server = make_server()
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1, compression="none")
    for number in range(3):
        records = [{"value": f"needle-{number}{n} {n}" + "y" * 500} for n in range(50)]
        assert wire.call("POST", "/v1/topics/logs/records?acks=table", {"records": records}).status == 200
    server.stop()
    folder = server.data_dir / names.LAKE_FOLDER / names.topic_path("logs") / names.partition_folder(0)
    (damaged,) = [path for path in folder.glob("*.parquet") if b"needle-125" in path.read_bytes()]
    flip(damaged, damaged.read_bytes().index(b"needle-125") + 20, rng)

    server.start()
    wire = Wire(server.url)
    reply = wire.call("GET", "/v1/topics/logs/partitions/0/records?offset=60")
    assert (reply.status, reply.error_code) == (500, "corrupt_data")
    assert damaged.name in reply.document["detail"] and reply.document["topic"] == "logs"
    assert reply.document["retryable"] == "no"
    # What lies before it, and behind it, is still given.
    reply = wire.call("GET", "/v1/topics/logs/partitions/0/records?offset=0")
    assert (len(reply.document["records"]), reply.document["next_offset"]) == (50, 50)
    assert wire.call("GET", "/v1/topics/logs/partitions/0/records?offset=50").error_code == "corrupt_data"
    assert len(wire.call("GET", "/v1/topics/logs/partitions/0/records?offset=100").document["records"]) == 50
    assert wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": "on"}]}).status == 200
