"""SIGKILL while topics change: of a change all is there or nothing, and no record is lost, doubled or misplaced."""

import json
import random
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from chaos import CHAOS
from evidence import check, read_api, read_table
from failure_rig import StartServer
from publishers import LOST, Ledger, Wire, start_publishers

from siltlog.infra import delta_names, names
from siltlog.infra.arrow.partitioner import partition_of
from siltlog.infra.store.store import open_store
from siltlog.infra.table.opening import load

ROUNDS = 6 if CHAOS > 1 else 4
SECONDS_MAX = 0.05
"""About as long as a change takes."""
COMMIT_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.001


def count_at(history: list[tuple[int, list[int]]], partition: int, offset: int) -> int:
    """Tells by which partition count a record was placed."""
    held = history[0][0]
    for count, firsts in history[1:]:
        if partition >= len(firsts) or offset >= firsts[partition]:
            held = count
    return held


@pytest.mark.rule("C1", "C2")
@pytest.mark.chaos
@pytest.mark.slow
def test_sigkill_while_a_topic_grows(make_server: StartServer, rng: random.Random) -> None:
    server = make_server()
    server.start()
    wire = Wire(server.url)
    wire.create("grows", 1)
    ledger = Ledger()
    count = 1
    folder = Path(unquote(urlsplit(server.root).path)) / names.topic_path("grows") / names.DELTA_LOG_FOLDER
    publishers = start_publishers(server.url, "grows", 1, ledger, rng, plain=3, idempotent=2)
    try:
        for turn in range(ROUNDS):
            time.sleep(0.3 * rng.random())
            told: list[Any] = []
            wanted = {"partitions": count + 1, "config": {"retention.ms": turn, "flush.ms": None if turn % 2 else 40}}
            change = threading.Thread(target=ask, args=(wire, wanted, told))
            change.start()
            if turn % 2:
                await_commit(folder, count + 1)
            else:
                time.sleep(SECONDS_MAX * rng.random())
            server.kill()
            change.join()
            server.start()
            document = wire.call("GET", "/v1/topics/grows").document
            known = document["partitions"], document["config"]["retention.ms"]["value"]
            assert known == (count + 1, turn) or (not told and known[0] == count and known[1] != turn), (known, told)
            assert known[0] == count + 1 or turn % 2 == 0
            count = known[0]
        assert wire.call("PATCH", "/v1/topics/grows", {"partitions": count + 1}).status == 200
        time.sleep(0.3)
    finally:
        for publisher in publishers:
            publisher.finish()
    found = read_api(wire, "grows", count + 1)
    check(found, ledger)
    assert server.stop() == 0
    assert read_table(server.root, "grows") == sorted(found)
    snapshot = load(open_store(server.root), "grows").snapshot
    assert [entry[0] for entry in snapshot.partition_history] == list(range(1, count + 2))
    server.start()
    placed = 0
    for partition in range(count + 1):
        path = f"/v1/topics/grows/partitions/{partition}/records?offset=0&max_records=1000000&max_bytes=67108864"
        for record in json.loads(wire.raw("GET", path).data)["records"]:
            if record["key"] is not None:
                then = count_at(snapshot.partition_history, partition, record["offset"])
                assert partition == partition_of(record["key"].encode(), then), (record, snapshot.partition_history)
                placed += 1
    assert placed


def await_commit(folder: Path, partitions: int) -> None:
    """Returns as soon as the commit is there: the server has not heard of it yet, or has just."""
    told = f'"{delta_names.PROPERTY_PARTITIONS}":"{partitions}"'
    end = time.monotonic() + COMMIT_SECONDS_MAX
    seen: set[str] = set()
    while time.monotonic() < end:
        for path in folder.glob("*.json"):
            if path.name not in seen:
                seen.add(path.name)
                if told in path.read_text("utf-8"):
                    return
        time.sleep(LOOK_SECONDS)
    raise AssertionError(f"no commit of {partitions} partitions")


def ask(wire: Wire, wanted: dict[str, Any], told: list[Any]) -> None:
    try:
        reply = wire.call("PATCH", "/v1/topics/grows", wanted)
    except LOST:
        return
    assert reply.status == 200, reply
    told.append(reply.document["partitions"])
