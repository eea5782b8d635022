"""A topic whose table cannot be written: the others go on, its own records stay readable, and land in the end."""

import contextlib
import random
import time
from pathlib import Path

import pytest
from evidence import check, read_api, read_table
from failure_rig import MIB, StartServer
from publishers import ARROW, FILLER, Ledger, Wire, arrow_body, start_publishers

from siltlog.infra import names
from siltlog.server_process import ServerProcess

RECORDS_PER_REQUEST = 60
PATIENCE_S = 90


class Obstacle:
    """A file where the folder of a topic's data files belongs."""

    def __init__(self, server: ServerProcess, topic: str) -> None:
        folder = server.data_dir / names.LAKE_FOLDER / names.topic_path(topic)
        self._path: Path = folder / names.partition_folder(0)
        self._aside = folder / "aside"

    def put(self) -> None:
        if self._path.exists():
            self._path.rename(self._aside)
        self._path.touch()

    def remove(self) -> None:
        self._path.unlink()
        if self._aside.exists():
            self._aside.rename(self._path)


def publish_until(wire: Wire, topic: str, ledger: Ledger, refusal: str | None, bytes_max: int) -> None:
    """Publishes until refused with that code, or until so many bytes were taken."""
    taken = 0
    deadline = time.monotonic() + PATIENCE_S
    while taken < bytes_max:
        assert time.monotonic() < deadline, f"{topic} is stuck"
        first = len(ledger.acked)
        values = [f"{topic}:{first + n} {FILLER}" for n in range(RECORDS_PER_REQUEST)]
        reply = wire.call("POST", f"/v1/topics/{topic}/records", arrow_body(values), **ARROW)
        if reply.status == 200:
            at = reply.document["partitions"][0]["first_offset"]
            ledger.acked.update({value: (0, at + n) for n, value in enumerate(values)})
            taken += sum(map(len, values))
        elif reply.error_code == refusal:
            return
        else:
            # A full log says so and passes: the flushes of this topic make room.
            assert (reply.status, reply.error_code) == (503, "wal_full"), reply
            assert reply.document["retry_after_ms"] > 0
            time.sleep(0.05)
    assert refusal is None, f"{taken} bytes were taken"


def one_unflushable(server: ServerProcess, wire: Wire) -> tuple[dict[str, Ledger], Obstacle]:
    """Makes two topics, of which `bad` cannot be flushed while the obstacle is there."""
    ledgers = {"bad": Ledger(), "good": Ledger()}
    for topic in ledgers:
        wire.create(topic, 1)
    obstacle = Obstacle(server, "bad")
    obstacle.put()
    return ledgers, obstacle


def check_all(wire: Wire, ledgers: dict[str, Ledger]) -> None:
    for topic, ledger in ledgers.items():
        check(read_api(wire, topic, 1), ledger)


def all_lands(server: ServerProcess, wire: Wire, ledgers: dict[str, Ledger]) -> None:
    """Stops the server; what could be read is in the tables then."""
    found = {topic: read_api(wire, topic, 1) for topic in ledgers}
    assert server.stop() == 0
    for topic, ledger in ledgers.items():
        check(found[topic], ledger)
        assert read_table(server.root, topic) == found[topic]


@pytest.mark.rule("W10", "P10")
@pytest.mark.slow
def test_the_others_go_on(make_server: StartServer) -> None:
    server = make_server()
    server.start()
    wire = Wire(server.url)
    ledgers, obstacle = one_unflushable(server, wire)
    publish_until(wire, "bad", ledgers["bad"], None, 3 << 19)
    deadline = time.monotonic() + 60
    while True:
        publish_until(wire, "good", ledgers["good"], None, 1 << 20)
        value = f"bad:{len(ledgers['bad'].acked)} x"
        reply = wire.call("POST", "/v1/topics/bad/records", {"records": [{"value": value}]})
        if reply.status == 503 and reply.error_code == "topic_unavailable":
            break
        if reply.status == 200:
            ((partition, offset),) = reply.document["records"]
            ledgers["bad"].acked[value] = (partition, offset)
        assert time.monotonic() < deadline
    # Several times the log's budget of the others' records goes through beside it.
    publish_until(wire, "good", ledgers["good"], None, 14 << 20)
    while wire.ready().status != 200:
        assert time.monotonic() < deadline + 60, wire.ready()
        time.sleep(0.1)
    check_all(wire, ledgers)

    server.kill()
    server.start()
    publish_until(wire, "good", ledgers["good"], None, 3 << 20)
    check_all(wire, ledgers)

    obstacle.remove()
    deadline = time.monotonic() + 60
    while wire.offsets("bad")[0]["table_offset"] < len(ledgers["bad"].acked):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    publish_until(wire, "bad", ledgers["bad"], None, 1 << 20)
    all_lands(server, wire, ledgers)


def test_a_table_that_fails_now_and_then(make_server: StartServer, rng: random.Random) -> None:
    """Nothing is lost, nothing is doubled, and publishing hardly notices."""
    server = make_server()
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    ledger = Ledger()
    publishers = start_publishers(server.url, "logs", 1, ledger, rng, plain=1, idempotent=1)
    obstacle = Obstacle(server, "logs")
    for _ in range(3):
        obstacle.put()
        time.sleep(0.3)
        obstacle.remove()
        time.sleep(0.5)
    for publisher in publishers:
        publisher.finish()
    found = read_api(wire, "logs", 1)
    check(found, ledger)
    assert server.stop() == 0
    assert read_table(server.root, "logs") == sorted(found)


def test_a_stop_while_the_table_fails_keeps_everything(make_server: StartServer) -> None:
    server = make_server()
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    ledger = Ledger()
    obstacle = Obstacle(server, "logs")
    obstacle.put()
    publish_until(wire, "logs", ledger, None, 1 << 20)
    assert server.stop() == 0
    server.start()
    check(read_api(wire, "logs", 1), ledger)
    obstacle.remove()
    assert server.stop() == 0
    assert len(read_table(server.root, "logs")) == len(ledger.acked)


@pytest.mark.rule("W10")
@pytest.mark.slow
def test_the_others_go_on_beside_requests_that_segments_have_no_room_for(make_server: StartServer) -> None:
    """Segments became smaller than what a topic that cannot be flushed has in each of its requests."""
    server = make_server(wal_bytes_max=24 * MIB)
    server.start()
    wire = Wire(server.url)
    ledgers, obstacle = one_unflushable(server, wire)
    for request in range(2):
        count = 2 * MIB // len(FILLER)
        values = [f"bad:{request * count + number} {FILLER}" for number in range(count)]
        reply = wire.call("POST", "/v1/topics/bad/records", arrow_body(values), **ARROW)
        assert reply.status == 200, reply
        at = reply.document["partitions"][0]["first_offset"]
        ledgers["bad"].acked.update({value: (0, at + number) for number, value in enumerate(values)})
    server.kill()

    server = make_server(wal_bytes_max=12 * MIB, wal_segment_bytes=MIB)
    server.start()
    wire = Wire(server.url)
    publish_until(wire, "good", ledgers["good"], None, 30 * MIB)
    said = server.log_path.read_text()
    assert "records carried forward" in said and "cannot be carried forward" not in said
    sizes = file_sizes(server.data_dir / "wal")
    # What is carried is there twice until the former copy is let go of.
    assert max(sizes) > 2 * MIB and sum(sizes) <= (12 + 6) * MIB, sizes
    check_all(wire, ledgers)
    server.kill()
    server.start()
    wire = Wire(server.url)
    publish_until(wire, "good", ledgers["good"], None, 15 * MIB)
    check_all(wire, ledgers)

    obstacle.remove()
    all_lands(server, wire, ledgers)


@pytest.mark.slow
def test_records_that_cannot_even_be_carried_forward_are_named_and_not_all_the_time(make_server: StartServer) -> None:
    """Damage in the write-ahead log under a topic that cannot be flushed: the log fills, and says why, now and then."""
    server = make_server()
    server.start()
    wire = Wire(server.url)
    ledgers, _ = one_unflushable(server, wire)
    # More than the head keeps in memory: the rest is read from the log.
    publish_until(wire, "bad", ledgers["bad"], None, 3 << 19)
    flip_first_filler(server)
    deadline = time.monotonic() + PATIENCE_S
    while "cannot be carried forward" not in server.log_path.read_text():
        reply = wire.call("POST", "/v1/topics/good/records", arrow_body(["x" * 4_000] * 60), **ARROW)
        assert reply.status == 200 or reply.error_code == "wal_full", reply
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for _ in range(100):
        wire.call("POST", "/v1/topics/good/records", {"records": [{"value": "y"}]})
        time.sleep(0.02)
    lines = [line for line in server.log_path.read_text().splitlines() if "cannot be carried forward" in line]
    assert 1 <= len(lines) <= 3
    assert "fail their checksum" in lines[0]
    assert any("topic bad takes no records" in warning for warning in wire.ready().document["warnings"])
    refused = wire.raw("POST", "/v1/topics/bad/records", arrow_body(["x"]), **ARROW)
    assert refused.status == 503
    assert int(refused.headers["Retry-After"]) > 0


def file_sizes(folder: Path) -> list[int]:
    """In bytes, of segments that may be given up meanwhile."""
    sizes = []
    for path in folder.glob("*.wal"):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sizes


def flip_first_filler(server: ServerProcess) -> None:
    """One bit of the oldest record text that the log's files have."""
    for path in sorted((server.data_dir / "wal").glob("*.wal")):
        at = path.read_bytes().find(FILLER[:100].encode())
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at + 50)
                file.write(b"!")
            return
    raise AssertionError("no record is in the log")
