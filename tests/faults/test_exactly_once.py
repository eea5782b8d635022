"""Retries across kills, recycled logs and hand-overs: each request is there once, and nobody who was fenced gets in."""

import random
import socket
import threading
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from evidence import read_api
from failure_rig import NEVER_FLUSHED, StartServer
from publishers import FILLER, Reply, Wire

from siltlog.infra import names
from siltlog.infra.metrics import catalogue
from siltlog.server_process import ServerProcess

PARTITIONS = 3
PATH = "/v1/topics/logs/records"
ROUNDS = 4
KEYS = 400
REQUESTS = 12


def cut_off(url: str, body: bytes, headers: dict[str, str]) -> socket.socket:
    """Sends a publish whole, and reads nothing."""
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    connection = socket.create_connection((parts.hostname, parts.port), timeout=20)
    lines = [f"POST {PATH} HTTP/1.1", "Host: localhost", f"Content-Type: {names.MEDIA_JSON}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "", ""]
    connection.sendall("\r\n".join(lines).encode() + body)
    return connection


@pytest.mark.slow
def test_publishes_without_an_answer_land_once_when_they_are_repeated(
    make_server: StartServer, rng: random.Random
) -> None:
    """The client gives up, the server is killed, at any moment; then every request is made again."""
    server = make_server(flush_ms=30)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", PARTITIONS)
    expected: Counter[str] = Counter()
    duplicates = 0
    sequences = Counter[tuple[str, int]]()
    for turn in range(ROUNDS):
        requests = [_request(turn, number, sequences, rng) for number in range(REQUESTS)]
        connections = [cut_off(server.url, body, headers) for body, _, headers in requests]
        if turn % 2:
            # At least one has landed; its answer is lost all the same.
            connections[rng.randrange(REQUESTS)].recv(1)
        else:
            time.sleep(0.02 * rng.random())
        if turn > 2:
            for connection in connections:
                connection.close()
        server.kill()
        for connection in connections:
            connection.close()
        server.start()
        for body, values, headers in requests:
            reply = wire.call("POST", PATH, body, **headers)
            assert reply.status == 200, reply
            duplicates += any(part["duplicate"] for part in reply.document["partitions"])
            again = wire.call("POST", PATH, body, **headers)
            assert again.document["records"] == reply.document["records"]
            assert all(part["duplicate"] for part in again.document["partitions"])
            expected.update(values)
    assert duplicates, "none had landed"
    assert Counter(row.value for row in read_api(wire, "logs", PARTITIONS)) == expected


def _request(
    turn: int, number: int, sequences: Counter[tuple[str, int]], rng: random.Random
) -> tuple[bytes, list[str], dict[str, str]]:
    """A body, its values and headers: every other one is a producer's, the others have a key."""
    values = [f"{turn}/{number}/{i}" for i in range(rng.choice((1, 5, 40)))]
    if number % 2:
        keyed = [{"value": value, "key": value} for value in values]
        return msgspec.json.encode({"records": keyed}), values, {"Idempotency_Key": f"{turn}/{number}"}
    producer_id = f"p{number}"
    records = []
    for value in values:
        partition = rng.randrange(PARTITIONS)
        records.append({"value": value, "partition": partition, "sequence": sequences[producer_id, partition]})
        sequences[producer_id, partition] += 1
    return msgspec.json.encode({"records": records}), values, {"Silt_Producer_Id": producer_id}


class PatientWire(Wire):
    """Comes back as long as the server has no room."""

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        deadline = time.monotonic() + 60
        while True:
            reply = super().call(method, path, body, **headers)
            if reply.status != 503:
                return reply
            assert time.monotonic() < deadline, reply
            time.sleep(0.05)


class Client:
    """A producer, one that replays with increasing sequences, and keyed requests; and what they were told."""

    def __init__(self) -> None:
        self.epoch = 0
        self.next_sequence = 0
        self.next_replayed = 0
        self.answered: dict[str, Any] = {}

    def publish(self, wire: Wire, name: str, acks: str) -> None:
        """Claims, and publishes with all three."""
        claimed = wire.call("POST", "/v1/topics/logs/producers/p")
        assert claimed.status == 200 and claimed.document["producer_epoch"] > self.epoch, claimed
        self.epoch = claimed.document["producer_epoch"]
        assert self._next(claimed) == self.next_sequence
        # A claim nobody published with: the epoch of a producer that has no records.
        assert wire.call("POST", "/v1/topics/logs/producers/silent").document["producer_epoch"] == self.epoch
        assert self.send(wire, self.epoch, self.next_sequence, 2, acks).status == 200
        self.next_sequence += 2
        reply = self.replay(wire, self.next_replayed + 3, self.next_replayed + 9, acks)
        assert (reply.status, [place[1] is None for place in reply.document["records"]]) == (200, [False, False])
        self.next_replayed += 10
        reply = self.keyed(wire, name, acks)
        assert reply.status == 200 and not reply.document["partitions"][0]["duplicate"], reply
        self.answered[name] = reply.document["records"]

    def check(self, wire: Wire) -> None:
        """Nothing of it is forgotten."""
        asked = wire.call("GET", "/v1/topics/logs/producers/p")
        assert (asked.document["producer_epoch"], self._next(asked)) == (self.epoch, self.next_sequence)
        for producer in ("p", "silent"):
            stale = self.send(wire, self.epoch - 1, 0, 1, "wal", partition=2, producer=producer)
            assert (stale.status, stale.error_code) == (409, "fenced_producer"), stale
            assert stale.document["producer_epoch"] == self.epoch
        again = self.send(wire, self.epoch, self.next_sequence - 2, 2, "wal")
        assert again.status == 200 and again.document["partitions"][0]["duplicate"]
        gap = self.send(wire, self.epoch, self.next_sequence + 1, 1, "wal")
        assert (gap.error_code, gap.document["next_sequence"]) == ("out_of_order_sequence", self.next_sequence)
        replayed = self.replay(wire, self.next_replayed - 7, self.next_replayed - 1, "wal")
        assert [place[1] for place in replayed.document["records"]] == [None, None]
        for name, places in self.answered.items():
            other = wire.call("POST", PATH, {"records": [{"value": "other"}]}, Idempotency_Key=name)
            assert (other.status, other.error_code) == (422, "idempotency_key_reused"), other
            assert self.keyed(wire, name, "table").document["records"] == places

    def send(
        self, wire: Wire, epoch: int, first: int, count: int, acks: str, *, partition: int = 0, producer: str = "p"
    ) -> Reply:
        numbers = range(first, first + count)
        records = [{"value": f"v{n}", "partition": partition, "sequence": n} for n in numbers]
        own = {"Silt_Producer_Id": producer, "Silt_Producer_Epoch": str(epoch)}
        return wire.call("POST", f"{PATH}?acks={acks}", {"records": records}, **own)

    def replay(self, wire: Wire, one: int, other: int, acks: str) -> Reply:
        records = [{"value": f"r{n}", "partition": 1, "sequence": n} for n in (one, other)]
        own = {"Silt_Producer_Id": "replay", "Silt_Sequence_Mode": "increasing"}
        return wire.call("POST", f"{PATH}?acks={acks}", {"records": records}, **own)

    def keyed(self, wire: Wire, name: str, acks: str) -> Reply:
        records = [{"value": f"{name} {n}", **({"key": str(n)} if n else {})} for n in range(6)]
        return wire.call("POST", f"{PATH}?acks={acks}", {"records": records}, Idempotency_Key=name)

    def _next(self, reply: Reply) -> int:
        return next((p["next_sequence"] for p in reply.document["partitions"] if p["partition"] == 0), 0)


def fill(wire: PatientWire, nbytes: int) -> None:
    """So much that segments are recycled."""
    records = [{"value": FILLER} for _ in range(60)]
    for _ in range(nbytes // (60 * len(FILLER))):
        reply = wire.call("POST", PATH, {"records": records})
        assert reply.status == 200, reply


@pytest.mark.slow
def test_claims_keys_and_sequences_outlive_everything(make_server: StartServer) -> None:
    """A kill with all of it in the log only, a log that was recycled, a clean hand-over, one without a word."""
    first = make_server("first", **{**NEVER_FLUSHED, "wal_bytes_max": 8 << 20})
    second = make_server("second", root=first.root)
    third = make_server("third", root=first.root)
    first.start()
    wire = PatientWire(first.url)
    wire.create("logs", PARTITIONS)
    client = Client()

    client.publish(wire, "killed", "wal")
    first.kill()
    first.start()
    client.check(wire)

    client.publish(wire, "in the table", "table")
    assert first.stop() == 0
    second.start()
    wire = PatientWire(second.url)
    client.check(wire)

    client.publish(wire, "recycled", "wal")
    fill(wire, 12 << 20)
    client.check(wire)
    second.kill()
    second.start()
    client.check(wire)

    # Nothing of this is in the log of the next one.
    client.publish(wire, "taken over", "table")
    second.kill()
    third.start("--take-over")
    wire = PatientWire(third.url)
    client.check(wire)
    client.publish(wire, "by its successor", "wal")
    third.kill()
    third.start()
    client.check(wire)
    assert third.stop() == 0


@pytest.mark.rule("E11")
@pytest.mark.slow
def test_more_producers_than_the_log_has_room_for(make_server: StartServer) -> None:
    """The ones unused for longest are forgotten, keys are refused; the server goes on, and starts again."""
    server = make_server(wal_bytes_max=4 << 20)
    server.start()
    wire = PatientWire(server.url)
    wire.create("logs", PARTITIONS)
    refused: list[Reply] = []

    def publish(worker: int) -> None:
        own = Wire(server.url)
        for number in range(KEYS):
            name = f"{worker}-{number}-{'x' * 150}"
            records = [{"value": 1, "partition": p, "sequence": 0} for p in range(PARTITIONS)]
            reply = own.call("POST", PATH, {"records": records}, Silt_Producer_Id=name)
            assert reply.status in (200, 503), reply
            records = [{"value": 1, "partition": p} for p in range(PARTITIONS)]
            reply = own.call("POST", PATH, {"records": records}, Idempotency_Key=name)
            if reply.status == 503:
                refused.append(reply)

    workers = [threading.Thread(target=publish, args=(n,)) for n in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert refused and refused[-1].error_code == "overloaded", refused[-1:]
    fill(wire, 5 << 20)
    _check_bounded(server)
    server.kill()
    server.start()
    _check_bounded(server)
    unknown = {"value": 1, "partition": 0, "sequence": 1}
    name = f"0-0-{'x' * 150}"
    reply = wire.call("POST", PATH, {"records": [unknown]}, Silt_Producer_Id=name)
    assert (reply.status, reply.error_code) == (409, "unknown_producer"), reply


def _check_bounded(server: ServerProcess) -> None:
    shown = Wire(server.url).raw("GET", "/metrics").data.decode()
    values = dict(line.rsplit(" ", 1) for line in shown.splitlines() if not line.startswith("#"))
    assert 0 < float(values[catalogue.PRODUCER_STATE_BYTES.name]) < 500_000
    assert float(values[catalogue.PRODUCERS_FORGOTTEN.name + '{topic="logs"}']) >= 0
