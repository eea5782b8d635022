"""Consumers of every `read=` scan a topic again and again while it is published to, flushed, compacted, vacuumed, and
its log start moves: each offset once, in order, and nothing is missing but what retention took."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest
from evidence import read_partition
from failure_rig import MIB, StartServer
from publishers import Ledger, Wire, start_publishers
from rewriter import Rewriter

from siltlog import Admin, Consumer, TopicPartition
from siltlog.consumers.library.sources import choice as far_behind
from siltlog.consumers.library.sources import table as table_source
from siltlog.consumers.library.sources.choice import READS, Read

PARTITIONS = 2
SECONDS = 7.0
SECONDS_MAX = 60.0
"""Until enough has changed, on a busy machine."""
REST_SECONDS = 0.5
"""Between one scan and the next."""
KEPT_MIN = 2_000
STALE_S = 1.0
GONE_AFTER_S = 6.5
"""Longer than the 5 s after which the server itself sees what others committed."""


class Scan:
    """One consumer from the earliest offsets on; what it was given, by partition."""

    def __init__(self, url: str, read: Read) -> None:
        self.consumer = Consumer(url, assign=[TopicPartition("logs", p) for p in range(PARTITIONS)], read=read)
        self.read = read
        self.offsets: list[list[np.ndarray]] = [[] for _ in range(PARTITIONS)]
        self.values: dict[tuple[int, int], str] = {}
        self.last = [-1] * PARTITIONS

    def go(self, ends: list[int], stopping: threading.Event) -> "Scan":
        with self.consumer:
            while not stopping.is_set() and any(last < end - 1 for last, end in zip(self.last, ends, strict=True)):
                rows = self.consumer.poll_arrow(timeout_ms=100)
                partitions = rows.column("partition").to_numpy()
                for partition in np.unique(partitions):
                    own = rows.filter(partitions == partition)
                    self.take(int(partition), own.column("offset").to_numpy(), own.column("value").to_pylist())
        return self

    def take(self, partition: int, offsets: np.ndarray, values: list[bytes]) -> None:
        assert offsets[0] > self.last[partition], (self.read, partition, offsets[0], self.last)
        assert (np.diff(offsets) > 0).all(), (self.read, partition)
        self.last[partition] = int(offsets[-1])
        self.offsets[partition].append(offsets)
        for offset, value in zip(offsets.tolist(), values, strict=True):
            self.values[partition, offset] = value.decode()


@pytest.mark.slow
def test_every_scan_is_whole(make_server: StartServer, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_behind, "PROBE_RECORDS", 50)
    monkeypatch.setattr(far_behind, "FAR_BYTES", 200_000)
    monkeypatch.setattr(far_behind, "NEAR_BYTES", 50_000)
    monkeypatch.setattr(table_source, "LIST_FILES_MAX", 7)
    monkeypatch.setattr(table_source, "LIST_S_MAX", STALE_S)
    server = make_server(head_bytes_max=MIB, flush_ms=25)
    server.start()
    wire, admin = Wire(server.url), Admin(server.url)
    wire.create("logs", PARTITIONS)
    ledger = Ledger()
    rewriter = Rewriter(server.root, "logs", PARTITIONS, rng, gone_after_s=GONE_AFTER_S)
    stopping = threading.Event()
    ends: list[int] = []

    def scan_again(read: Read) -> list[Scan]:
        scans = []
        while not stopping.is_set():
            until = [entry["table_offset"] for entry in wire.offsets("logs")]
            scans.append(Scan(server.url, read).go(until, stopping))
            stopping.wait(REST_SECONDS)
        return [*scans, Scan(server.url, read).go(ends, threading.Event())]

    def repeat(action: Callable[[], None], pause_s: float) -> None:
        while not stopping.wait(pause_s):
            action()

    retained = count()

    def retain() -> None:
        partition = next(retained) % PARTITIONS
        bounds = wire.offsets("logs")[partition]
        admin.delete_records("logs", partition, (bounds["log_start_offset"] * 9 + bounds["table_offset"]) // 10)

    def enough() -> bool:
        starts = [entry["log_start_offset"] for entry in wire.offsets("logs")]
        return min(rewriter.landed, rewriter.deleted) > 3 and min(starts) > 0 and len(ledger.acked) > KEPT_MIN

    publishers = start_publishers(server.url, "logs", PARTITIONS, ledger, rng, plain=1, idempotent=1)
    with ThreadPoolExecutor(len(READS) + 2) as threads:
        changing = [threads.submit(repeat, rewriter.once, 0.02), threads.submit(repeat, retain, 1.0)]
        scanning = [threads.submit(scan_again, read) for read in READS]
        try:
            stopping.wait(SECONDS)
            late = time.monotonic() + SECONDS_MAX
            while not enough() and time.monotonic() < late:
                stopping.wait(0.05)
            for publisher in publishers:
                publisher.finish()
            while any(entry["table_offset"] < entry["high_watermark"] for entry in wire.offsets("logs")):
                stopping.wait(0.05)
            ends[:] = [entry["high_watermark"] for entry in wire.offsets("logs")]
        finally:
            stopping.set()
        scans = [scan for future in scanning for scan in future.result(120)]
        for future in changing:
            future.result(60)
    starts = [entry["log_start_offset"] for entry in wire.offsets("logs")]
    assert min(starts) > 0
    assert rewriter.landed > 3, rewriter.refused
    assert rewriter.deleted > 3
    for scan in scans:
        for partition in range(PARTITIONS):
            seen = np.concatenate(scan.offsets[partition]) if scan.offsets[partition] else np.empty(0, np.int64)
            absent = np.setdiff1d(np.arange(scan.last[partition] + 1), seen)
            # Only what was below the log start in the end can have been below it when the scan came there.
            assert not len(absent) or absent[-1] < starts[partition], (scan.read, partition, absent[-5:], starts)
    found = [row for p in range(PARTITIONS) for row in read_partition(wire, "logs", p, starts[p])]
    for read in READS:
        last = [scan for scan in scans if scan.read == read][-1]
        assert last.last == [end - 1 for end in ends]
        assert [last.values[row.partition, row.offset] for row in found] == [row.value for row in found]
    assert not ledger.complaints, ledger.complaints[:5]
    everything = [place for scan in scans for place in scan.values.items()]
    shown = dict(everything)
    assert all(shown[place] == value for place, value in everything)
    kept = [(value, place) for value, place in ledger.acked.items() if place in shown or place[1] >= starts[place[0]]]
    assert len(kept) > KEPT_MIN // 2
    assert all(shown[place] == value for value, place in kept)
