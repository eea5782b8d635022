"""SIGKILL at any moment under publishers that do not stop: what was acknowledged is there once, in order."""

import os
import random
import time
from pathlib import Path

import pytest
from chaos import CHAOS
from evidence import check, read_api, read_table
from failure_rig import StartServer
from publishers import IdempotentPublisher, KeyedPublisher, Ledger, Wire, start_publishers
from watcher import Watcher

from siltlog import server_process
from siltlog.server_process import ServerProcess

PARTITIONS = 3
ROUNDS = 6 if CHAOS > 1 else 4
STARTS_CUT_SHORT = 8 if CHAOS > 1 else 5


@pytest.mark.chaos
@pytest.mark.slow
def test_sigkill_under_publishers(make_server: StartServer, rng: random.Random) -> None:
    server = make_server()
    server.start()
    wire = Wire(server.url)
    topics = {"logs": PARTITIONS, "few": 1}
    ledgers = {topic: Ledger() for topic in topics}
    for topic, partitions in topics.items():
        wire.create(topic, partitions)
    publishers = [
        *start_publishers(server.url, "logs", PARTITIONS, ledgers["logs"], rng, keyed=2),
        *start_publishers(server.url, "few", 1, ledgers["few"], rng, plain=1, idempotent=1),
    ]
    watcher = Watcher(server.url, "logs", PARTITIONS)
    watcher.start()
    for _ in range(ROUNDS):
        time.sleep(rng.choice((0.01, 0.3, 1.0, 3.0)) * rng.random())
        server.kill()
        server.start()
    time.sleep(0.5)
    for publisher in publishers:
        publisher.finish()
    watcher.finish()
    found = {topic: read_api(wire, topic, partitions) for topic, partitions in topics.items()}
    watcher.check(found["logs"])
    for topic, rows in found.items():
        check(rows, ledgers[topic])
    for kind in (IdempotentPublisher, KeyedPublisher):
        assert any(isinstance(publisher, kind) and publisher.repeats for publisher in publishers)
    assert server.stop() == 0
    for topic, rows in found.items():
        assert read_table(server.root, topic) == sorted(rows)


@pytest.mark.chaos
@pytest.mark.slow
def test_sigkill_during_start(make_server: StartServer, rng: random.Random) -> None:
    """Each start takes epochs, copies the tail of the log and claims: none may leave less than it found."""
    server = make_server(flush_ms=300)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", PARTITIONS)
    ledger = Ledger()
    publishers = start_publishers(server.url, "logs", PARTITIONS, ledger, rng, plain=2, idempotent=1)
    time.sleep(1.0)
    server.kill()
    started_s = _seconds_to_start(server)
    server.kill()
    for _ in range(STARTS_CUT_SHORT):
        _start_and_kill(server, started_s * (0.3 + 0.8 * rng.random()))
    server.start()
    for publisher in publishers:
        publisher.finish()
    found = read_api(wire, "logs", PARTITIONS)
    check(found, ledger)
    assert server.stop() == 0
    assert read_table(server.root, "logs") == sorted(found)


def _seconds_to_start(server: ServerProcess) -> float:
    before = time.monotonic()
    server.start()
    return time.monotonic() - before


def _start_and_kill(server: ServerProcess, seconds: float) -> None:
    """Publishers wait at its port: what it takes in its first moments counts like anything else."""
    with Path(os.devnull).open("wb") as nowhere:
        child = server_process._run(["serve"], server.data_dir, server._environment(), nowhere)
    try:
        time.sleep(seconds)
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
