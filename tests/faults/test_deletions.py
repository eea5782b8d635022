"""Records are removed, by request and by the retention job, while the server is used and killed."""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from failure_rig import StartServer
from publishers import LOST, Wire

from siltlog.infra import names
from siltlog.infra.settings.settings import ServerSettings
from siltlog.pipelines.retention.retain import retain_topics
from siltlog.server_process import ServerProcess

JUMP = 1 << 32
WAIT_S = 60.0
RECORDS = "/v1/topics/logs/partitions/0/records"
PRODUCER = {"Silt_Producer_Id": "5f1c1a52-64a7-4c0f-8a83-0d7a4b0e8f11"}


def records(first: int, count: int) -> dict[str, object]:
    numbers = range(first, first + count)
    return {"records": [{"value": f"v{n}", "partition": 0, "sequence": n} for n in numbers]}


def state_objects(server: ServerProcess) -> list[str]:
    """Lists those of the topic's partition by the offset that they cover: the next is not written in half a minute."""
    return [path.name for path in (server.data_dir / "lake").rglob(f"{names.STATE_FOLDER}/*/0/*")]


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


@pytest.mark.parametrize("successor", ["same", "takes over"])
@pytest.mark.parametrize("how", ["deleted", "retained"])
def test_retries_are_known_after_all_they_sent_was_removed(make_server: StartServer, how: str, successor: str) -> None:
    first = make_server("first")
    first.start()
    wire = Wire(first.url)
    wire.create("logs", 1, retention_records=0)
    for start in (0, 10):
        assert wire.call("POST", "/v1/topics/logs/records?acks=table", records(start, 10), **PRODUCER).status == 200
        eventually(lambda: f"{10:020d}" in state_objects(first))
    if how == "deleted":
        assert wire.call("DELETE", f"{RECORDS}?before_offset=latest").document["log_start_offset"] == 20
        log_start = 20
    else:
        (report,) = retain_topics(ServerSettings(data_dir=first.data_dir, root=first.root), ["logs"])
        # It leaves the rows that nothing else says yet of their producer.
        assert (report.files, report.waiting_files, report.error) == (1, 1, None)
        log_start = 10
    first.kill()

    second = first if successor == "same" else make_server("second", root=first.root)
    second.start(*(["--take-over"] if second is not first else []))
    there = Wire(second.url)
    assert there.offsets("logs")[0]["log_start_offset"] == log_start
    again = there.call("POST", "/v1/topics/logs/records", records(10, 10), **PRODUCER)
    assert again.status == 200 and again.document["partitions"][0]["duplicate"], again
    onward = there.call("POST", "/v1/topics/logs/records", records(20, 10), **PRODUCER)
    first_offset = 20 if second is first else JUMP
    assert (onward.status, onward.document["partitions"][0]["first_offset"]) == (200, first_offset)
    read = there.call("GET", RECORDS).document
    assert [record["offset"] for record in read["records"]] == [
        *range(log_start, 20),
        *range(first_offset, first_offset + 10),
    ]


@dataclass
class Trimming:
    """Publishes and deletes until the server is gone, and remembers what it was told."""

    wire: Wire
    rng: random.Random
    acked: dict[int, str] = field(default_factory=dict)
    deleted: int = 0
    """The highest log start that was answered."""
    asked: int = 0
    """The highest that was asked for."""
    complaints: list[str] = field(default_factory=list)

    def publish(self) -> None:
        number = 0
        try:
            while True:
                values = [f"{self.rng.random()}-{number + index}" for index in range(5)]
                reply = self.wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": v} for v in values]})
                if reply.status != 200:
                    self.complaints.append(str(reply))
                    return
                first = reply.document["partitions"][0]["first_offset"]
                self.acked.update(enumerate(values, first))
                number += 5
                time.sleep(0.005)
        except LOST:
            return

    def delete(self) -> None:
        try:
            while True:
                end = max(self.acked, default=0)
                before = self.rng.randint(min(self.asked, end), end)
                self.asked = max(self.asked, before)
                reply = self.wire.call("DELETE", f"{RECORDS}?before_offset={before}")
                if reply.status != 200:
                    self.complaints.append(str(reply))
                    return
                self.deleted = max(self.deleted, reply.document["log_start_offset"])
                time.sleep(0.005)
        except LOST:
            return


@pytest.mark.slow
def test_killed_while_records_are_deleted(make_server: StartServer, rng: random.Random) -> None:
    server = make_server()
    server.start()
    Wire(server.url).create("logs", 1)
    known: dict[int, str] = {}
    deleted = asked = 0
    for _ in range(3):
        trimming = Trimming(Wire(server.url), rng, dict(known), deleted, asked)
        threads = [threading.Thread(target=target, daemon=True) for target in (trimming.publish, trimming.delete)]
        for thread in threads:
            thread.start()
        time.sleep(rng.uniform(0.5, 1.5))
        eventually(lambda: len(trimming.acked) > len(known) and trimming.deleted > deleted)  # noqa: B023
        server.kill()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        assert not trimming.complaints
        known, deleted, asked = trimming.acked, trimming.deleted, trimming.asked

        server.start()
        wire = Wire(server.url)
        bounds = wire.offsets("logs")[0]
        start = bounds["log_start_offset"]
        assert deleted <= start <= asked and bounds["high_watermark"] > max(known)
        found: dict[int, str] = {}
        offset = start
        while offset < bounds["high_watermark"]:
            page = wire.call("GET", f"{RECORDS}?offset={offset}&max_records=100000").document
            found.update((record["offset"], record["value"]) for record in page["records"])
            offset = page["next_offset"]
        assert list(found) == [*range(start, bounds["high_watermark"])]
        assert {at: found[at] for at in known if at >= start} == {at: v for at, v in known.items() if at >= start}
        again = wire.call("DELETE", f"{RECORDS}?before_offset={asked}").document
        assert again["log_start_offset"] == max(asked, start)
        deleted = again["log_start_offset"]
    assert deleted > 0
