"""acks=object: until an acknowledgement, on a local root, and over a store whose PUTs take as long as those of S3."""

import asyncio
import math
import random
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure
from benchmarks.loads.records import json_body
from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.store.store import ObjectStore, Put, open_store
from siltlog.infra.telemetry import logger
from siltlog.ingest.journal.journal import Journal, Shipped
from siltlog.ingest.wal import Frame, FrameKind

PER_SECOND = 1_000
CONNECTIONS = 16
VALUE_BYTES = 100
PUT_MS = {50: 60.0, 99: 250.0}
INTERVAL_MS = 200
GROUPS_PER_SECOND = 100
TARGET_LOCAL_MS = {50: 3.0, 99: 10.0}
TARGET_MS = {50: 300.0, 99: 600.0}
Z_99 = 2.326
"""Standard deviations of a normal distribution from its median to its 99th percentile."""


def object_acks(bench: Bench) -> Iterator[Figure]:
    body = json_body(b'"' + b"v" * VALUE_BYTES + b'"', 1)
    with bench.server(acks="object") as server:
        path = "/v1/topics/bench/records"
        load = bench.load(server.port, path, [body], names.MEDIA_JSON, CONNECTIONS, per_second=PER_SECOND)
    for percent, value in ((50, load.p50_ms), (99, load.p99_ms)):
        label = f"local root, {PER_SECOND:,} publishes/s: p{percent}"
        yield Figure(label, value, "ms", at_most=TARGET_LOCAL_MS[percent])
    store = _Slow(open_store((bench.scratch / "slow").as_uri()))
    took = asyncio.run(_landed(store, bench.seconds))
    for percent, target in TARGET_MS.items():
        value = float(np.percentile(took, percent)) * 1000
        label = f"PUTs of {PUT_MS[50]:.0f}/{PUT_MS[99]:.0f} ms, an object every {INTERVAL_MS} ms: p{percent}"
        yield Figure(label, value, "ms", at_most=target)


async def _landed(store: "_Slow", seconds: float) -> list[float]:
    """The seconds from shipping a group commit until it has landed."""
    took: list[float] = []

    def failed(error: BaseException) -> None:
        raise error

    journal = Journal(
        store,  # type: ignore[arg-type]
        SystemClock(),
        logger("error", "console"),
        cluster_id="bench",
        node_id="bench",
        interval_ms=INTERVAL_MS,
        start=lambda: "start",
        on_fatal=failed,
        on_sealed=lambda: None,
        on_landed=lambda seconds: None,
    )
    await journal.open()
    payload = pa.py_buffer(b"v" * VALUE_BYTES * (PER_SECOND // GROUPS_PER_SECOND))
    for number in range(int(seconds * GROUPS_PER_SECOND)):
        began = time.perf_counter()
        frame = Frame(FrameKind.RECORDS, bytes(16), 0, 1, number, 1, payload)
        journal.ship(Shipped([frame], payload.size, lambda began=began: took.append(time.perf_counter() - began)))  # type: ignore[misc]
        await asyncio.sleep(1 / GROUPS_PER_SECOND)
    landed = journal.all_landed()
    if landed is not None:
        await landed
    journal.close()
    return took


class _Slow:
    """A store whose conditional PUTs take a time of their own."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._chance = random.Random(7)
        self._spread = math.log(PUT_MS[99] / PUT_MS[50]) / Z_99

    def put_if_absent(self, path: str, data: bytes) -> Put:
        time.sleep(self._chance.lognormvariate(math.log(PUT_MS[50] / 1000), self._spread))
        return self._store.put_if_absent(path, data)

    def get(self, path: str) -> bytes:
        return self._store.get(path)

    def delete(self, path: str) -> None:
        self._store.delete(path)
