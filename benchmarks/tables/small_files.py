"""How many files a topic of little data makes, and how fresh its table is, with a budget of files and without one."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import repeat
from typing import NamedTuple

import numpy as np

from benchmarks.bench import Bench, Server
from benchmarks.figures.figure import Figure
from benchmarks.loads.records import json_body, json_record
from benchmarks.tables.delta_log import entries
from benchmarks.tables.freshness import ages
from siltlog.infra import names
from siltlog.infra.settings.topic_config import SETTINGS

RECORDS_PER_SECOND = 275
PARTITIONS = 4
FLUSH_MS = (1_000, 250)
SETTLE_SECONDS = {1_000: 115.0, 250: 30.0}
"""How long it takes to use up what a topic that rested may make at once."""
SECONDS = 45.0
QUICK_SECONDS = 4.0
ANSWERS = 12
SECONDS_PER_HOUR = 3_600
BUDGETS = {"without a budget": -1, "with the default budget": int(SETTINGS["flush.files.per.hour"].default)}


class _Measured(NamedTuple):
    files_per_hour: float
    waits: list[float]
    """Seconds from sending a record until it was in the table."""
    answers: list[float]
    """Seconds until a publish with `acks=table` was answered, one after another."""


def small_files(bench: Bench) -> Iterator[Figure]:
    for flush_ms in FLUSH_MS:
        what = f"flush.ms {flush_ms:,}"
        for column, found in zip(BUDGETS, _side_by_side(bench, flush_ms), strict=True):
            yield Figure(f"{what}: small files", found.files_per_hour, "files/h", column=column)
            for name, percent in (("median", 50), ("p95", 95), ("at most", 100)):
                age = float(np.percentile(found.waits, percent))
                yield Figure(f"{what}: until a record is in the table, {name}", age, "s", column=column)
            yield Figure(f"{what}: acks=table, median", float(np.median(found.answers)), "s", column=column)


def _side_by_side(bench: Bench, flush_ms: int) -> list[_Measured]:
    """Both at the same time, so that what else the machine does slows them alike."""
    settle, seconds = (0.0, QUICK_SECONDS) if bench.quick else (SETTLE_SECONDS[flush_ms], SECONDS)
    with ExitStack() as stack, ThreadPoolExecutor(len(BUDGETS)) as pool:
        servers = []
        for budget in BUDGETS.values():
            settings = {"flush_ms": flush_ms, "flush_files_per_hour": budget, "schedule": "off"}
            servers.append(stack.enter_context(bench.server(partitions=PARTITIONS, **settings)))
        return list(pool.map(_measure, servers, repeat(settle), repeat(seconds)))


def _measure(server: Server, settle: float, seconds: float) -> _Measured:
    counts: list[int] = []
    settled = threading.Timer(settle, lambda: counts.append(_files(server)))
    settled.start()
    found = ages(server, settle + seconds, PARTITIONS, RECORDS_PER_SECOND)
    settled.join()
    files = _files(server) - counts[0]
    last = max(sent + age for sent, age in found)
    answers = [_answer(server) for _ in range(ANSWERS)]
    waits = [age for sent, age in found if sent >= settle]
    return _Measured(files / (last - settle) * SECONDS_PER_HOUR, waits, answers)


def _answer(server: Server) -> float:
    started = time.perf_counter()
    headers = {"Content-Type": names.MEDIA_JSON}
    body = json_body(json_record(100), 1)
    reply = server.pool.urlopen("POST", f"{server.publish_path}?acks=table", body=body, headers=headers)
    assert reply.status == 200, reply.data
    return time.perf_counter() - started


def _files(server: Server) -> int:
    return sum(len(entry.added) for entry in entries(server, 0))
