"""A live consumer in a process of its own, which says when it had what.

Run as `python -m benchmarks.groups.receiver KIND ADDRESS`. It says "ready" once it waits for records, reads until stdin
is closed, and then prints a JSON list. Times are nanoseconds of the clock that all processes of the machine share.

- `records`: a member of GROUP at a URL; of each record its partition, when it was sent, and when it was had
- `streams`: the same of a Valkey at a port, whose partition is 0
- `counts`: a member of GROUP that reads Arrow; when, and how many records it has had
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import TOPIC
from benchmarks.loads.load import STAMP
from benchmarks.loads.stream_reader import StreamReader
from benchmarks.servers.child import ending
from siltlog import Consumer

GROUP = "live"
RECORD_BYTES = 100
STAMP_AT = 9
"""Where a value has the stamp: it begins with `{"sent":"`."""
POLL_MS = 100
STREAM_RECORDS_MAX = 500
COUNT_NS = 50_000_000
STOP_SECONDS_MAX = 30.0


def stamped_value() -> bytes:
    """A value of JSON text with exactly RECORD_BYTES, which a load fills in."""
    value = b'{"sent":"%s","note":"' % STAMP
    return value + b"x" * (RECORD_BYTES - len(value) - 2) + b'"}'


class Receiver:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def await_ready(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise RuntimeError("a receiver ended before it began to read")

    def stop(self) -> list[list[int]]:
        """Returns what it had, once it has left its group."""
        told, _ = self._process.communicate(timeout=STOP_SECONDS_MAX)
        found: list[list[int]] = json.loads(told)
        return found


@contextmanager
def receiving(kind: str, address: str) -> Iterator[Receiver]:
    """A receiver that is starting."""
    arguments = [sys.executable, "-m", "benchmarks.groups.receiver", kind, address]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with ending(process):
        yield Receiver(process)


def main() -> None:
    kind, address = sys.argv[1:]
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    had: list[tuple[int, ...]] = []
    for some in {"records": _records, "streams": _streams, "counts": _counts}[kind](address, ended):
        had += some
    print(json.dumps(had))


def _records(url: str, ended: threading.Event) -> Iterator[list[tuple[int, ...]]]:
    with Consumer(url, group=GROUP, topics=[TOPIC]) as consumer:
        consumer.poll(timeout_ms=1)
        print("ready", flush=True)
        while not ended.is_set():
            records = consumer.poll(timeout_ms=POLL_MS)
            now = time.perf_counter_ns()
            yield [(record.partition, _sent(record.value or b""), now) for record in records]


def _streams(port: str, ended: threading.Event) -> Iterator[list[tuple[int, ...]]]:
    reader = StreamReader(int(port), GROUP, RECORD_BYTES)
    print("ready", flush=True)
    while not ended.is_set():
        values = reader.read(STREAM_RECORDS_MAX, POLL_MS)
        now = time.perf_counter_ns()
        yield [(0, _sent(value), now) for value in values]


def _counts(url: str, ended: threading.Event) -> Iterator[list[tuple[int, ...]]]:
    with Consumer(url, group=GROUP, topics=[TOPIC]) as consumer:
        consumer.poll_arrow(timeout_ms=1)
        print("ready", flush=True)
        count = told = 0
        while not ended.is_set():
            count += consumer.poll_arrow(timeout_ms=POLL_MS).num_rows
            now = time.perf_counter_ns()
            if now - told >= COUNT_NS:
                told = now
                yield [(now, count)]


def _sent(value: bytes) -> int:
    return int(value[STAMP_AT : STAMP_AT + len(STAMP)])


if __name__ == "__main__":
    main()
