"""Ctrl-C between any two steps of a consumer, whose user then goes on.

No record is skipped, and none comes out of order; what was on its way to the user comes again.
"""

import random
from typing import Any

import pytest
from chaos import seeds
from fake_server import FakeServer, Stored
from interrupting import Interrupts, Log

from siltlog.consumers.library import inbox
from siltlog.consumers.library.consumer import Consumer
from siltlog.consumers.library.handling import handling
from siltlog.infra.client.record import TopicPartition

PARTITIONS = 2
RECORDS = 23
AT_ONCE = 7
CHUNK = 5
SILENCE_MS = 20_000


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "CHUNK_RECORDS", CHUNK)
    monkeypatch.setattr(handling, "CHUNK_RECORDS", CHUNK)


class Reader:
    """A user who goes on after each interrupt, and what came."""

    def __init__(self, way: str, *steps: int) -> None:
        self.way = way
        self.next = dict.fromkeys(range(PARTITIONS), 0)
        self.came = 0
        self.wrong: list[str] = []
        self.last: dict[int, int] = {}
        fake = FakeServer()
        for partition in fake.topic("t", PARTITIONS).partitions:
            partition += [Stored(b"%d" % i, None, None, None) for i in range(RECORDS)]
        self.log = Log(fake, self.next.__getitem__)
        self.interrupts = Interrupts(*steps)
        options: dict[str, Any] = {"assign": [TopicPartition("t", p) for p in range(PARTITIONS)]}
        if way in GROUPED:
            options = {"group": "g", "topics": "t", "auto_commit_interval_ms": 50}
        self.consumer = Consumer(
            "http://log", transport=self.log, stop_at="latest", idle_timeout_ms=SILENCE_MS, **options
        )

    def note(self, partition: int, offset: int) -> None:
        self.came += 1
        if offset > self.next[partition]:
            self.wrong.append(f"{self.next[partition]} of {partition} was skipped")
        if offset > self.last.get(partition, -1) + 1:
            self.wrong.append(f"{offset} of {partition} came after {self.last.get(partition)}")
        self.last[partition] = offset
        self.next[partition] = max(self.next[partition], offset + 1)

    @property
    def has_all(self) -> bool:
        return all(offset == RECORDS for offset in self.next.values())

    def read(self) -> None:
        with self.interrupts.going_on():
            while not self.has_all:
                try:
                    getattr(self, self.way.split()[0])()
                except KeyboardInterrupt:
                    continue
                if not self.has_all:
                    self.wrong.append("it ended before all had come")
                    break
        self.consumer.close()

    def iterate(self) -> None:
        for record in self.consumer:
            self.note(record.partition, record.offset)

    def next_one(self) -> None:
        while not self.has_all:
            record = next(self.consumer)
            self.note(record.partition, record.offset)

    def poll(self) -> None:
        while not self.has_all:
            records = self.consumer.poll(max_records=AT_ONCE, timeout_ms=SILENCE_MS)
            for record in records:
                self.note(record.partition, record.offset)
            if not records:
                return
            if self.way == "poll and commit":
                self.consumer.commit()
                self.consumer.position("t", 0)

    def arrow(self) -> None:
        while not self.has_all:
            table = self.consumer.poll_arrow(max_records=AT_ONCE, timeout_ms=SILENCE_MS)
            for partition, offset in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True):
                self.note(partition, offset)
            if not table.num_rows:
                return

    def seek(self) -> None:
        """Over all of it in steps, each a seek of its own."""
        while not self.has_all:
            for partition, offset in self.next.items():
                self.consumer.seek("t", partition, offset)
            self.last = {partition: offset - 1 for partition, offset in self.next.items()}
            records = self.consumer.poll(max_records=AT_ONCE, timeout_ms=SILENCE_MS)
            for record in records:
                self.note(record.partition, record.offset)
            if not records:
                return

    def run(self) -> None:
        workers = 2 if self.way == "run with workers" else 1
        self.consumer.run(lambda record: self.note(record.partition, record.offset), workers=workers)


GROUPED = ("iterate in a group", "poll and commit", "run", "run with workers")
WAYS = {
    "iterate": 1,
    "iterate in a group": 1,
    "next_one": 1,
    "poll": AT_ONCE,
    "poll and commit": AT_ONCE,
    "arrow": AT_ONCE,
    "seek": AT_ONCE,
    "run": PARTITIONS * 2 * CHUNK,
    "run with workers": PARTITIONS * 2 * CHUNK,
}
"""Ways of reading, and how many records may come again after an interrupt."""


def check(reader: Reader) -> None:
    reader.read()
    told = f"{reader.way}, interrupted at {reader.interrupts.places}"
    assert not reader.wrong, f"{told}: {reader.wrong}"
    assert reader.came <= PARTITIONS * RECORDS + reader.interrupts.made * WAYS[reader.way], told
    assert not reader.log.early, f"{told}: {reader.log.early} were committed"
    if reader.way.startswith("run"):
        assert set(reader.log.committed.values()) == {RECORDS}, told


@pytest.mark.rule("M14")
@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize("way", WAYS)
def test_whoever_is_interrupted_and_goes_on_has_every_record_in_order(way: str, seed: int) -> None:
    chosen = random.Random(f"{way} {seed}")
    for _ in range(4):
        check(Reader(way, *(chosen.randint(1, 900) for _ in range(5))))
