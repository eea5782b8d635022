"""A load generator in a process of its own: connections that each send a request, wait for its reply, send the next.

As lean as Python can be, so that what is measured is the server: the bytes of the requests are made beforehand, and of
a reply nothing is read but where it ends and whether it is good. Run as `python -m benchmarks.load PLAN`; the requests
come on stdin, the result goes to stdout as JSON.
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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from typing import cast

import numpy as np
import uvloop

GRACE_SECONDS = 60.0
CONNECTION = b"@@@@@@"
"""Stands in a request for the number of its connection."""
NUMBER = b"############"
"""Stands in a request for how many records its connection has sent before."""
STAMP = b"!!!!!!!!!!!!!!!!!!!!"
"""Stands in a request for when it is sent: nanoseconds of the clock that all processes of the machine share."""
OPENED_AT_ONCE = 200
TICK_SECONDS = 0.001
LATE_SECONDS = 0.003
"""A paced request that goes out later than this counts from when it should have gone out."""
IsWhole = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Plan:
    protocol: str
    """`http` or `resp`."""
    port: int
    connections: int
    seconds: float
    warmup_seconds: float
    idle: int = 0
    """Connections beside those, each open after one request and its reply."""
    per_second: float | None = None
    """So many requests and no more, over all connections."""
    replies: int = 1
    """One request has so many (RESP only: a pipeline of so many commands)."""
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
    """With those of the warm-up."""
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
        [sys.executable, "-m", "benchmarks.load", document],
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
        self.is_whole = {"http": http_is_whole, "resp": resp_is_whole(plan.replies)}[plan.protocol]
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
        self._sent = 0.0
        self._left = b""
        self._next = run.sender_of(number)
        self._write: Callable[[bytes], None] = lambda _: None
        self._paced = run.plan.per_second is not None
        self.settled: asyncio.Future[None] | None = asyncio.get_running_loop().create_future() if idle else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._write = cast(asyncio.WriteTransport, transport).write

    def begin(self, sent: float) -> None:
        """Sends; `sent` is what the latency counts from."""
        self._sent = sent
        self._write(self._next())

    def data_received(self, data: bytes) -> None:
        run = self._run
        if self._left:
            data = self._left + data
        try:
            if not run.is_whole(data):
                self._left = data
                return
        except ValueError as error:
            self._end(str(error))
            return
        self._left = b""
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
    """For so many bulk strings, which is what XADD answers. It raises ValueError for anything else."""

    def is_whole(data: bytes) -> bool:
        if data[:1] != b"$" or b"\n-" in data:
            raise ValueError(data.decode(errors="replace")[-300:])
        return data.endswith(b"\r\n") and data.count(b"\r\n") == 2 * replies

    return is_whole


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
