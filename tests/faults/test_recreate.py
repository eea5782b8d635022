"""A topic that is deleted and made again while everything goes on: the new one shows nothing of the old."""

import random
import threading
import time

import pytest
from chaos import CHAOS
from evidence import check, read_api, read_once, read_table
from failure_rig import StartServer
from publishers import LOST, Ledger, PlainPublisher, Publisher, Wire

PARTITIONS = 2
LIVES = 5 if CHAOS > 1 else 4
BREATH_SECONDS = 0.02
"""Between one read and the next."""


class LifePublisher(PlainPublisher):
    """What it publishes names the life of the topic that it was begun in."""

    def _not_done(self, reply, values):  # type: ignore[no-untyped-def]
        if reply.status == 404 and reply.error_code == "unknown_topic":
            with self.ledger.lock:
                self.ledger.refused.update(values)
            return True
        return super()._not_done(reply, values)


class Reader(threading.Thread):
    """Reads the topic from its start again and again; keeps what it was shown of each topic id."""

    def __init__(self, url: str, ids: dict[str, int], complaints: list[str]) -> None:
        super().__init__(daemon=True)
        self._wire = Wire(url)
        self._ids = ids
        self._complaints = complaints
        self.stopping = threading.Event()
        self.rows = 0

    def run(self) -> None:
        while not self.stopping.wait(BREATH_SECONDS):
            lives_before = len(self._ids)
            try:
                rows, _, _ = read_once(self._wire, "again", 0, 0)
            except AssertionError as error:
                if "unknown_topic" not in str(error):
                    self._complaints.append(str(error)[:500])
                continue
            except LOST:
                time.sleep(0.02)
                continue
            self.rows += len(rows)
            shown = {int(row.value.split("-")[0]) for row in rows}
            # Records of one life alone, and of none that was over before the read began.
            if len(shown) > 1 or any(life < lives_before - 1 for life in shown):
                self._complaints.append(f"lives {shown} shown; {lives_before} were begun")


@pytest.mark.chaos
@pytest.mark.slow
def test_deleted_and_made_again_under_load(make_server: StartServer, rng: random.Random) -> None:
    server = make_server()
    server.start()
    wire = Wire(server.url)
    ids: dict[str, int] = {}
    complaints: list[str] = []
    ledgers: list[Ledger] = []
    publishers: list[Publisher] = []
    readers = [Reader(server.url, ids, complaints) for _ in range(2)]
    for life in range(LIVES):
        document = wire.create("again", PARTITIONS)
        ids[document["topic_id"]] = life
        assert len(ids) == life + 1
        ledgers.append(Ledger())
        new: list[Publisher] = [
            LifePublisher(server.url, "again", PARTITIONS, ledgers[-1], rng.getrandbits(32), f"{life}-plain-{i}")
            for i in range(3)
        ]
        for thread in [*new, *(readers if life == 0 else [])]:
            thread.start()
        publishers += new
        time.sleep(0.3 + rng.random())
        deadline = time.monotonic() + 60
        while not ledgers[-1].acked or not all(reader.rows for reader in readers):
            assert time.monotonic() < deadline and not complaints, complaints[:3]
            time.sleep(0.02)
        if life % 3 == 1:
            server.kill()
            server.start()
        if life == LIVES - 1:
            break
        # Those of this life publish on through the end of it, and into the next where they are told nothing.
        deleted = wire.call("DELETE", "/v1/topics/again")
        assert deleted.status == 204, deleted
        for publisher in new:
            publisher.finish()
        if life % 3 == 2:
            server.kill()
            server.start()
            assert wire.call("GET", "/v1/topics/again").status == 404
    for publisher in publishers[-3:]:
        publisher.finish()
    for reader in readers:
        reader.stopping.set()
        reader.join()
    assert not complaints, complaints[:3]
    assert all(reader.rows for reader in readers)
    found = read_api(wire, "again", PARTITIONS)
    check(found, ledgers[-1])
    assert found
    server.kill()
    server.start()
    assert read_api(wire, "again", PARTITIONS) == found
    assert server.stop() == 0
    assert read_table(server.root, "again") == sorted(found)


def test_the_same_records_published_to_the_next_life_are_new(make_server: StartServer) -> None:
    """Producers are forgotten with their topic, also over a restart."""
    server = make_server()
    server.start()
    wire = Wire(server.url)
    producer = {"Silt_Producer_Id": "6c1f4b1e-3a5b-4a57-9a07-52c13b7cf001"}
    body = {"records": [{"value": f"v{n}", "partition": 0, "sequence": n} for n in range(5)]}
    for life in range(3):
        wire.create("again", 1 + life)
        reply = wire.call("POST", "/v1/topics/again/records", body, **producer)
        assert (
            reply.document["partitions"][0] | {"duplicate": False, "first_offset": 0} == reply.document["partitions"][0]
        )
        if life == 1:
            server.kill()
            server.start()
        again = wire.call("POST", "/v1/topics/again/records", body, **producer)
        assert again.document["partitions"][0]["duplicate"]
        assert wire.call("DELETE", "/v1/topics/again").status == 204
    server.kill()
    server.start()
    assert wire.call("GET", "/v1/topics").document["topics"] == []
