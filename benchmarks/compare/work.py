"""The work: what each system is asked to do, the same of all."""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.compare.syncs import covered
from benchmarks.compare.system import BULK_RECORDS, Running, System
from benchmarks.figures.figure import Figure, Kind, Point
from benchmarks.loads.load import Load, Plan, counted, run_load
from benchmarks.loads.records import json_record
from benchmarks.wires.caller import Caller

RECORD_BYTES = 100
SINGLE_CONNECTIONS = (1, 16, 64)
BULK_CONNECTIONS = (1, 4, 16)
PACE_PER_SECOND = 200
PERCENTILES = (50, 90, 99)
COME_SECONDS_MAX = 20.0
TURNS_MIN = 3
STRETCHED_SECONDS_MAX = 30.0
SENTENCES = {
    "syncs": "acknowledgements before which the server synced, one request after the other",
    "latency": f"one record of {RECORD_BYTES} B after the other, {PACE_PER_SECOND} a second: until a reader has it",
    "single": f"one record of {RECORD_BYTES} B a request, each connection waits for its acknowledgement",
    "bulk": f"{BULK_RECORDS} records of {RECORD_BYTES} B in flight a connection",
}


def measured(
    system: System, running: Running, seconds: float, folder: Path, *, only_bulk: bool
) -> Iterator[tuple[str, Figure]]:
    """Yields figures, each with the name of its table. Raises Missing where only the look at syncs cannot be had."""
    value = json_record(RECORD_BYTES)
    kind: Kind = "siltlog" if system.name.startswith("Siltlog") else "peer"
    if not only_bulk:
        for percent, milliseconds in _latency(system, running, value, seconds):
            point = Point("compare-latency", system.name, float(percent))
            label = f"{system.name}: p{percent}"
            yield "latency", Figure(label, milliseconds, "ms", kind, points=(point,))
        requests = system.single(running.port, value)
        for connections in SINGLE_CONNECTIONS:
            load = _load(system, running, requests, connections, 1, seconds)
            yield "single", _rate(system, f"{system.name}, {counted(connections)}", kind, load, 1, connections)
    requests = system.many(running.port, value)
    with Caller(running.port, system.wire, parts=system.bulk_replies) as caller:
        began = time.perf_counter()
        caller.call(requests[0])
        turn_seconds = time.perf_counter() - began
    for connections in BULK_CONNECTIONS:
        # Where one takes long and they take turns, each connection is to have several.
        needed = min(STRETCHED_SECONDS_MAX, TURNS_MIN * connections * turn_seconds)
        load = _load(system, running, requests, connections, system.bulk_replies, max(seconds, needed))
        label = f"{system.name}, {system.bulk}, {counted(connections)}"
        yield "bulk", _rate(system, label, kind, load, BULK_RECORDS, connections)
    if not only_bulk:
        looked = covered(system, running, value, folder)
        label = f"{system.name} ({system.synced_by}): {looked.by or 'nothing synced'}"
        yield "syncs", Figure(label, looked.acknowledgements, f"of {looked.requests}", kind)


def _load(
    system: System, running: Running, requests: Sequence[bytes], connections: int, replies: int, seconds: float
) -> Load:
    plan = Plan(
        system.protocol, running.port, connections, seconds, warmup_seconds=min(1.0, seconds / 3), replies=replies
    )
    return run_load(plan, requests)


def _rate(system: System, label: str, kind: Kind, load: Load, records: int, connections: int) -> Figure:
    chart = "compare-single" if records == 1 else "compare-bulk"
    return Figure(
        label,
        load.per_second * records,
        "records/s",
        kind,
        p50_ms=load.p50_ms,
        p99_ms=load.p99_ms,
        points=(Point(chart, system.name, float(connections)),),
    )


def _latency(system: System, running: Running, value: bytes, seconds: float) -> Iterator[tuple[int, float]]:
    """Yields percentiles in milliseconds, from sending a record until the reader has it.

    There is one publisher and one partition, so the first that comes is the first that was sent.
    """
    request = system.single(running.port, value)[0]
    count = int(seconds * PACE_PER_SECOND)
    had: list[float] = []
    reader = system.reader(running.port)

    def read() -> None:
        while len(had) < count:
            came = reader.receive()
            had.extend([time.perf_counter()] * came)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    sent = []
    with Caller(running.port, system.wire) as caller:
        began = time.perf_counter()
        for number in range(count):
            time.sleep(max(0.0, began + number / PACE_PER_SECOND - time.perf_counter()))
            sent.append(time.perf_counter())
            caller.call(request)
    reading.join(COME_SECONDS_MAX)
    if len(had) < count:
        raise RuntimeError(f"{system.name}: {count - len(had)} of {count} records did not come to the reader")
    ages = np.array(had[:count]) - np.array(sent)
    for percent in PERCENTILES:
        yield percent, float(np.percentile(ages, percent)) * 1000
