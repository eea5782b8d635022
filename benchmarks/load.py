"""A load generator in a process of its own: connections that each send a request, wait for its reply, send the next.

As lean as Python can be, so that what is measured is the server: the bytes of the requests are made beforehand, and of
a reply nothing is read but where it ends and whether it is good. Run as `python -m benchmarks.load`; the requests come
on stdin, the result goes to stdout as JSON.
"""

import asyncio
import json
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import cast

import numpy as np
import uvloop

GRACE_SECONDS = 30.0
IsWhole = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Load:
    """What came of a load: replies in `seconds`, and how long each took."""

    replies: int
    seconds: float
    p50_ms: float
    p99_ms: float
    replies_in_all: int
    """With those of the warm-up."""
    cpu_seconds: float
    """Of the load generator."""

    @property
    def per_second(self) -> float:
        return self.replies / self.seconds


def counted(connections: int) -> str:
    return "1 connection" if connections == 1 else f"{connections} connections"


def http_request(port: int, path: str, body: bytes, media: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {media}\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


def resp_request(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def run_load(
    protocol: str, port: int, requests: Sequence[bytes], *, connections: int, seconds: float, warmup_seconds: float
) -> Load:
    """Loads a server on loopback from a new process. Raises RuntimeError with the first reply that is not good."""
    arguments = [protocol, port, connections, seconds, warmup_seconds, len(requests[0])]
    assert len({len(request) for request in requests}) == 1, "requests are cut out of stdin by their one length"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load", *map(str, arguments)],
        input=b"".join(requests),
        capture_output=True,
        timeout=seconds + warmup_seconds + GRACE_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the load failed: {done.stderr.decode(errors='replace').strip()[-600:]}")
    return Load(**json.loads(done.stdout))


class _Run:
    def __init__(self, requests: Sequence[bytes], is_whole: IsWhole) -> None:
        self.next_request = cycle(requests).__next__
        self.is_whole = is_whole
        self.latencies = array("d")
        self.stopping = False
        self.problem = ""


class _Connection(asyncio.Protocol):
    def __init__(self, run: _Run) -> None:
        self._run = run
        self._sent = 0.0
        self._left = b""
        self._write: Callable[[bytes], None] = lambda _: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._write = cast(asyncio.WriteTransport, transport).write

    def begin(self) -> None:
        self._sent = time.perf_counter()
        self._write(self._run.next_request())

    def data_received(self, data: bytes) -> None:
        run = self._run
        if self._left:
            data = self._left + data
        try:
            if not run.is_whole(data):
                self._left = data
                return
        except ValueError as error:
            run.problem = run.problem or str(error)
            run.stopping = True
            return
        self._left = b""
        now = time.perf_counter()
        run.latencies.append(now - self._sent)
        if not run.stopping:
            self._sent = now
            self._write(run.next_request())

    def connection_lost(self, error: Exception | None) -> None:
        if not self._run.stopping:
            self._run.problem = self._run.problem or f"the server closed the connection: {error}"
            self._run.stopping = True


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


def resp_is_whole(data: bytes) -> bool:
    """A bulk string, which is what XADD answers. Raises ValueError for anything else."""
    if data[:1] != b"$":
        raise ValueError(data.decode(errors="replace"))
    return data.endswith(b"\r\n") and data.count(b"\r\n") == 2


async def _load(run: _Run, port: int, connections: int, seconds: float, warmup_seconds: float) -> Load:
    loop = asyncio.get_running_loop()
    opened = [await loop.create_connection(lambda: _Connection(run), "127.0.0.1", port) for _ in range(connections)]
    for _, connection in opened:
        connection.begin()
    await asyncio.sleep(warmup_seconds)
    before = len(run.latencies)
    started, cpu_started = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    measured = np.array(run.latencies[before:])
    elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    run.stopping = True
    # Whoever is still waiting may get an answer: a server is not to be left with half a request.
    await asyncio.sleep(0.05)
    for transport, _ in opened:
        transport.close()
    if run.problem or not len(measured):
        raise RuntimeError(run.problem or "there was no reply")
    p50, p99 = np.percentile(measured, (50, 99)) * 1000
    return Load(len(measured), elapsed, float(p50), float(p99), len(run.latencies), cpu)


def main() -> None:
    protocol = sys.argv[1]
    port, connections, size = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[6])
    seconds, warmup_seconds = float(sys.argv[4]), float(sys.argv[5])
    sent = sys.stdin.buffer.read()
    requests = [sent[at : at + size] for at in range(0, len(sent), size)]
    run = _Run(requests, {"http": http_is_whole, "resp": resp_is_whole}[protocol])
    print(json.dumps(asdict(uvloop.run(_load(run, port, connections, seconds, warmup_seconds)))))


if __name__ == "__main__":
    main()
