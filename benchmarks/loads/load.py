"""A load generator in a process of its own: connections that each send a request, wait for its reply, send the next.

As lean as Python can be, so that what is measured is the server: the bytes of the requests are made beforehand, and of
a reply nothing is read but where it ends and whether it is good. Run as `python -m benchmarks.loads.load PLAN`; the
requests come on stdin, the result goes to stdout as JSON.
"""

import asyncio
import json
import resource
import ssl
import subprocess
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from typing import cast

import numpy as np
import uvloop

from benchmarks.wires import amqp, kafka, nats
from benchmarks.wires.wire import CONNECTION, IsWhole, Wire

GRACE_SECONDS = 60.0
NUMBER = b"############"
"""Stands in a request for how many records its connection has sent before."""
STAMP = b"!!!!!!!!!!!!!!!!!!!!"
"""Stands in a request for when it is sent: nanoseconds of the clock that all processes of the machine share."""
OPENED_AT_ONCE = 200
TICK_SECONDS = 0.001
LATE_SECONDS = 0.003
"""A paced request that goes out later than this counts from when it should have gone out."""


@dataclass(frozen=True, slots=True)
class Plan:
    protocol: str
    """One of WIRES."""
    port: int
    connections: int
    seconds: float
    warmup_seconds: float
    idle: int = 0
    """Connections beside those, each open after one request and its reply."""
    per_second: float | None = None
    """How many requests a second all connections together make at most."""
    replies: int = 1
    """One request has so many: a pipeline of so many commands, or messages."""
    records: int = 1
    """One request has so many, and NUMBER goes on by it."""
    request_bytes: int = 0
    ca: str = ""
    """The file of the authority that signed the server's certificate: TLS is spoken."""


@dataclass(frozen=True, slots=True)
class Load:
    """The outcome of a load: replies in `seconds`, and how long each took."""

    replies: int
    seconds: float
    p50_ms: float
    p99_ms: float
    replies_in_all: int
    """How many replies came, those of the warm-up included."""
    cpu_seconds: float
    """The load generator's own."""

    @property
    def per_second(self) -> float:
        return self.replies / self.seconds


def counted(connections: int) -> str:
    return "1 connection" if connections == 1 else f"{connections:,} connections"


def http_request(port: int, path: str, body: bytes, media: str, **headers: str) -> bytes:
    """Underscores of the headers' names become hyphens."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {media}\r\nContent-Length: {len(body)}"
    more = "".join(f"\r\n{name.replace('_', '-')}: {value}" for name, value in headers.items())
    return f"{head}{more}\r\n\r\n".encode() + body


def resp_request(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def run_load(plan: Plan, requests: Sequence[bytes]) -> Load:
    """Loads a server on loopback from a new process. Raises RuntimeError with the first reply that is not good."""
    assert len({len(request) for request in requests}) == 1, "requests are cut out of stdin by their one length"
    document = json.dumps({**asdict(plan), "request_bytes": len(requests[0])})
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.loads.load", document],
        input=b"".join(requests),
        capture_output=True,
        timeout=plan.seconds + plan.warmup_seconds + GRACE_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the load failed: {done.stderr.decode(errors='replace').strip()[-600:]}")
    return Load(**json.loads(done.stdout))


class _Run:
    def __init__(self, plan: Plan, requests: Sequence[bytes]) -> None:
        self.plan = plan
        self.requests = requests
        self.next_request = cycle(requests).__next__
        self.numbered = CONNECTION in requests[0] or NUMBER in requests[0]
        self.stamped = STAMP in requests[0]
        self.wire = WIRES[plan.protocol]
        self.tls = ssl.create_default_context(cafile=plan.ca) if plan.ca else None
        self.latencies = array("d")
        self.ready: deque[_Connection] = deque()
        """Connections of a paced load that wait for a turn."""
        self.stopping = False
        self.problem = ""

    def sender_of(self, connection: int) -> Callable[[], bytes]:
        """Makes what gives that connection its requests."""
        if self.stamped:
            return lambda: self.next_request().replace(STAMP, b"%020d" % time.perf_counter_ns())
        if not self.numbered:
            return self.next_request
        own = self.requests[connection % len(self.requests)].replace(CONNECTION, b"%06d" % connection)
        before, number, after = own.partition(NUMBER)
        if not number:
            return lambda: own
        sent = -self.plan.records

        def numbered() -> bytes:
            nonlocal sent
            sent += self.plan.records
            return b"%s%012d%s" % (before, sent, after)

        return numbered


class _Connection(asyncio.Protocol):
    def __init__(self, run: _Run, number: int, *, idle: bool = False) -> None:
        self._run = run
        self._is_whole = run.wire.replies(run.plan.replies)
        self._opening = [said.replace(CONNECTION, b"%06d" % number) for said in run.wire.opening]
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent = 0.0
        self._left = b""
        self._next = run.sender_of(number)
        self._write: Callable[[bytes], None] = lambda _: None
        self._paced = run.plan.per_second is not None
        self.settled: asyncio.Future[None] | None = asyncio.get_running_loop().create_future() if idle else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._write = cast(asyncio.WriteTransport, transport).write
        self._open()

    def _open(self) -> None:
        """Says what comes next before the first request."""
        if self._opening:
            self._write(self._opening.pop(0))
        else:
            self.opened.set_result(None)

    def begin(self, sent: float) -> None:
        """Sends; `sent` is what the latency counts from."""
        self._sent = sent
        self._write(self._next())

    def data_received(self, data: bytes) -> None:
        run = self._run
        if self._left:
            data = self._left + data
        opening = not self.opened.done()
        try:
            if not (run.wire.is_open if opening else self._is_whole)(data):
                self._left = data
                return
        except ValueError as error:
            self._end(str(error))
            return
        self._left = b""
        if opening:
            self._open()
            return
        now = time.perf_counter()
        if self.settled is not None:
            if not self.settled.done():
                self.settled.set_result(None)
            return
        run.latencies.append(now - self._sent)
        if run.stopping:
            return
        if self._paced:
            run.ready.append(self)
        else:
            self._sent = now
            self._write(self._next())

    def connection_lost(self, error: Exception | None) -> None:
        if not self._run.stopping:
            self._end(f"the server closed the connection: {error}")

    def _end(self, problem: str) -> None:
        self._run.problem = self._run.problem or problem
        self._run.stopping = True
        if not self.opened.done():
            self.opened.set_exception(RuntimeError(problem))
        if self.settled is not None and not self.settled.done():
            self.settled.set_result(None)


def http_is_whole(data: bytes) -> bool:
    """Raises ValueError for anything but 200."""
    head = data.find(b"\r\n\r\n")
    if head < 0:
        return False
    at = data.find(b"content-length: ", 0, head)
    whole = len(data) - head - 4 >= int(data[at + 16 : data.index(b"\r", at)])
    if whole and not data.startswith(b"HTTP/1.1 200"):
        raise ValueError(data.decode(errors="replace"))
    return whole


def resp_is_whole(replies: int) -> IsWhole:
    """Tells when `replies` bulk strings have come, which is what XADD answers; raises ValueError for anything else."""

    def is_whole(data: bytes) -> bool:
        if data[:1] != b"$" or b"\n-" in data:
            raise ValueError(data.decode(errors="replace")[-300:])
        return data.endswith(b"\r\n") and data.count(b"\r\n") == 2 * replies

    return is_whole


WIRES: Mapping[str, Wire] = {
    "http": Wire(lambda _: http_is_whole),
    "resp": Wire(resp_is_whole),
    "kafka": kafka.WIRE,
    "nats": nats.WIRE,
    "amqp": amqp.WIRE,
}


async def _load(run: _Run) -> Load:
    plan = run.plan
    loop = asyncio.get_running_loop()
    opened = await _opened(run, range(plan.idle), idle=True)
    active = await _opened(run, range(plan.idle, plan.idle + plan.connections), idle=False)
    pacer = None
    if plan.per_second is None:
        for _, connection in active:
            connection.begin(time.perf_counter())
    else:
        run.ready.extend(connection for _, connection in active)
        pacer = loop.create_task(_pace(run, plan.per_second))
    await asyncio.sleep(plan.warmup_seconds)
    before = len(run.latencies)
    started, cpu_started = time.perf_counter(), time.process_time()
    await asyncio.sleep(plan.seconds)
    measured = np.array(run.latencies[before:])
    elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    run.stopping = True
    if pacer is not None:
        await pacer
    # Whoever is still waiting may get an answer: a server is not to be left with half a request.
    await asyncio.sleep(0.05)
    for transport, _ in [*opened, *active]:
        transport.close()
    if run.problem or not len(measured):
        raise RuntimeError(run.problem or "there was no reply")
    p50, p99 = np.percentile(measured, (50, 99)) * 1000
    return Load(len(measured), elapsed, float(p50), float(p99), len(run.latencies), cpu)


async def _opened(run: _Run, numbers: Sequence[int], *, idle: bool) -> list[tuple[asyncio.BaseTransport, _Connection]]:
    """Connections, a few at a time: a listener's backlog is short."""
    loop = asyncio.get_running_loop()
    opened: list[tuple[asyncio.BaseTransport, _Connection]] = []
    for at in range(0, len(numbers), OPENED_AT_ONCE):
        made = [_Connection(run, number, idle=idle) for number in numbers[at : at + OPENED_AT_ONCE]]
        some = [loop.create_connection(partial(_same, each), "127.0.0.1", run.plan.port, ssl=run.tls) for each in made]
        fresh = await asyncio.gather(*some)
        await asyncio.gather(*(connection.opened for _, connection in fresh))
        opened += fresh
        if idle:
            for _, connection in fresh:
                connection.begin(time.perf_counter())
            await asyncio.gather(*(connection.settled for _, connection in fresh if connection.settled))
    return opened


def _same(connection: _Connection) -> _Connection:
    return connection


async def _pace(run: _Run, per_second: float) -> None:
    started = time.perf_counter()
    turn = 0
    while not run.stopping:
        now = time.perf_counter()
        while run.ready and (due := started + turn / per_second) <= now:
            run.ready.popleft().begin(due if now - due > LATE_SECONDS else time.perf_counter())
            turn += 1
        await asyncio.sleep(TICK_SECONDS)


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sent = sys.stdin.buffer.read()
    requests = [sent[at : at + plan.request_bytes] for at in range(0, len(sent), plan.request_bytes)]
    print(json.dumps(asdict(uvloop.run(_load(_Run(plan, requests))))))


if __name__ == "__main__":
    main()
