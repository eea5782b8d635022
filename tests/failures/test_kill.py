"""SIGKILL at any moment under publishers that do not stop: what was acknowledged is there once, in order, everywhere."""

import random
import signal
import threading
import time

import pytest
from conftest import StartServer
from evidence import check, read_api, read_partition, read_table
from publishers import IdempotentPublisher, Ledger, Wire, start_publishers

from siltlog.infra.errors import ConfigError
from siltlog.server_process import ServerProcess

PARTITIONS = 3
ROUNDS = 12


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
        *start_publishers(server.url, "logs", PARTITIONS, ledgers["logs"], rng),
        *start_publishers(server.url, "few", 1, ledgers["few"], rng, plain=1, idempotent=1),
    ]
    for _ in range(ROUNDS):
        time.sleep(rng.choice((0.01, 0.1, 0.5, 1.5)) * rng.random())
        server.kill()
        server.start()
    time.sleep(0.5)
    for publisher in publishers:
        publisher.finish()
    found = {topic: read_api(wire, topic, partitions) for topic, partitions in topics.items()}
    for topic, rows in found.items():
        check(rows, ledgers[topic])
    assert any(isinstance(publisher, IdempotentPublisher) and publisher.repeats for publisher in publishers)
    assert server.stop() == 0
    for topic, rows in found.items():
        assert read_table(server.root, topic) == sorted(rows)
    print({topic: len(rows) for topic, rows in found.items()})
