"""One producer that many tasks share, each awaiting the acknowledgement of its record before it sends the next."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np
import uvloop

from benchmarks.bench import TOPIC, Bench
from benchmarks.figures.figure import Figure, Kind, Point
from benchmarks.loads.load import resp_request
from benchmarks.loads.records import json_record
from benchmarks.servers.bare_server import SWITCH_INTERVAL_SECONDS, GroupedFile
from benchmarks.servers.child import valkey_server
from siltlog import AsyncProducer

TASKS = (64, 256)
TARGET = {64: 40_000.0, 256: 80_000.0}
RECORD_BYTES = 100
Send = Callable[[], Awaitable[object]]
Awaited = tuple[list[float], float, int]
"""Seconds that each acknowledgement took and the seconds they were measured in; how many there were in all."""


def shared(bench: Bench) -> Iterator[Figure]:
    value = json_record(RECORD_BYTES)
    for tasks in TASKS:
        with bench.server() as server:
            before = server.cpu_seconds()
            awaited = uvloop.run(_by_producer(bench, server.url, value, tasks))
            cpu_us = (server.cpu_seconds() - before) / awaited[2] * 1e6
        yield _figure(
            "one AsyncProducer", "siltlog", tasks, awaited, limit=_limit(tasks), target=TARGET[tasks], cpu_us=cpu_us
        )
    for tasks in TASKS:
        yield _figure(_LIMIT, "limit", tasks, uvloop.run(_by_file(bench, bench.scratch, value, tasks)))
    for tasks in TASKS:
        with valkey_server(bench.scratch / f"valkey-{tasks}") as valkey:
            awaited = uvloop.run(_by_stream(bench, valkey.port, value, tasks))
        yield _figure("Valkey stream, always synced, one connection", "peer", tasks, awaited)


async def _by_producer(bench: Bench, url: str, value: bytes, tasks: int) -> Awaited:
    async with AsyncProducer(url) as producer:
        return await _awaited(bench, lambda: producer.send(TOPIC, value), tasks)


async def _by_file(bench: Bench, folder: Path, value: bytes, tasks: int) -> Awaited:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    try:
        file = GroupedFile(folder)
        return await _awaited(bench, lambda: file.keep(value), tasks)
    finally:
        sys.setswitchinterval(interval)


async def _by_stream(bench: Bench, port: int, value: bytes, tasks: int) -> Awaited:
    loop = asyncio.get_running_loop()
    transport, stream = await loop.create_connection(_Multiplexed, "127.0.0.1", port)
    request = resp_request(b"XADD", b"stream", b"*", b"v", value)
    awaited = await _awaited(bench, lambda: stream.call(request), tasks)
    transport.close()
    return awaited


async def _awaited(bench: Bench, send: Send, tasks: int) -> Awaited:
    latencies: list[float] = []
    stopping = False

    async def one() -> None:
        while not stopping:
            before = time.perf_counter()
            await send()
            latencies.append(time.perf_counter() - before)

    running = [asyncio.create_task(one()) for _ in range(tasks)]
    await asyncio.sleep(bench.warmup_seconds)
    first, started = len(latencies), time.perf_counter()
    await asyncio.sleep(bench.seconds)
    measured, seconds = latencies[first:], time.perf_counter() - started
    stopping = True
    await asyncio.gather(*running)
    return measured, seconds, len(latencies)


class _Multiplexed(asyncio.Protocol):
    """Many callers on one connection to Valkey: what one turn of the loop brings goes out as one write."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport
        self._held: list[bytes] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._left = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's are none of asyncio's classes

    def call(self, request: bytes) -> "asyncio.Future[None]":
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(request)
        future = self._loop.create_future()
        self._waiting.append(future)
        return future

    def _flush(self) -> None:
        held, self._held = self._held, []
        self._transport.write(b"".join(held))

    def data_received(self, data: bytes) -> None:
        # A reply is two lines: its length, then the id of the entry.
        *lines, self._left = (self._left + data).split(b"\r\n")
        if len(lines) % 2:
            self._left = lines.pop() + b"\r\n" + self._left
        done = len(lines) // 2
        for future in self._waiting[:done]:
            future.set_result(None)
        del self._waiting[:done]

    def connection_lost(self, error: Exception | None) -> None:
        for future in self._waiting:
            future.set_exception(RuntimeError(f"Valkey closed the connection: {error}"))


def _figure(
    what: str,
    kind: Kind,
    tasks: int,
    awaited: Awaited,
    *,
    limit: str = "",
    target: float | None = None,
    cpu_us: float | None = None,
) -> Figure:
    latencies, seconds, _ = awaited
    p50, p99 = np.percentile(latencies, (50, 99)) * 1000
    return Figure(
        f"{what}, {tasks} tasks",
        len(latencies) / seconds,
        "records/s",
        kind,
        limit,
        target,
        p50_ms=float(p50),
        p99_ms=float(p99),
        cpu_us=cpu_us,
        points=(Point("shared", what, tasks),),
    )


_LIMIT = "tasks of one process that share a synced file, no HTTP"


def _limit(tasks: int) -> str:
    return f"{_LIMIT}, {tasks} tasks"
