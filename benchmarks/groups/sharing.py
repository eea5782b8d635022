"""Four consumers of one group share 16 partitions while 200,000 records a second are published: do they keep up?"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figures.figure import Figure, Point
from benchmarks.groups.receiver import GROUP, Receiver, receiving
from benchmarks.loads.records import arrow_body, table
from siltlog.infra import names

MEMBERS = 4
PARTITIONS = 16
PER_SECOND = 200_000
BODY_RECORDS = 1_000
RECORD_BYTES = 100
CONNECTIONS = 4
SECONDS = 20.0
QUICK_SECONDS = 4.0
PARTS = 4
LOOK_SECONDS = 0.1
SETTLED_SECONDS_MAX = 30.0


def sharing(bench: Bench) -> Iterator[Figure]:
    body = arrow_body(table(BODY_RECORDS, RECORD_BYTES, keyed=False))
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    with bench.server(partitions=PARTITIONS) as server, ExitStack() as stack:
        members = [stack.enter_context(receiving("counts", server.url)) for _ in range(MEMBERS)]
        await_sharing(server, members)
        watch = _Acknowledged(server)
        bench.load(
            server.port,
            server.publish_path,
            [body],
            names.MEDIA_ARROW,
            CONNECTIONS,
            per_second=PER_SECOND / BODY_RECORDS,
            seconds=seconds,
        )
        published = watch.stop()
        read = [np.array(member.stop(), np.float64).reshape(-1, 2) for member in members]
    begin = published[-1][0] - seconds * 1e9
    measured = [(at, count) for at, count in published if at >= begin]
    elapsed = (measured[-1][0] - measured[0][0]) / 1e9
    lags = [(at, count - sum(_until(counts, at) for counts in read)) for at, count in measured]
    label = f"{MEMBERS} members, {PARTITIONS} partitions"
    published_figure = f"{label}: published"
    yield Figure(published_figure, (measured[-1][1] - measured[0][1]) / elapsed, "records/s")
    had = sum(_until(counts, measured[-1][0]) - _until(counts, measured[0][0]) for counts in read)
    yield Figure(f"{label}: read meanwhile", had / elapsed, "records/s", limit=published_figure)
    part = max(1, len(lags) // PARTS)
    for when, some in (("first", lags[:part]), ("last", lags[-part:])):
        mean = sum(lag for _, lag in some) / len(some)
        yield Figure(f"{label}: lag, mean of the {when} {seconds / PARTS:g} s", mean, "records")
    for second in range(int(seconds) + 1):
        lag = min(lags, key=lambda sample: abs(sample[0] - begin - second * 1e9))[1]
        yield Figure(f"lag at {second} s", lag, "records", "sample", points=(Point("lag", label, second),))


def await_sharing(server: Server, members: list[Receiver]) -> None:
    """Returns once each member holds as many partitions as any other."""
    for member in members:
        member.await_ready()
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    while True:
        held = [len(member["assignment"]) for member in server.admin.group(GROUP)["members"]]
        if len(held) == len(members) and sum(held) == PARTITIONS and len(set(held)) == 1:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the members of the group hold {held} partitions of {TOPIC}")
        time.sleep(0.05)


def _until(counts: "np.ndarray[tuple[int, int], np.dtype[np.float64]]", at: float) -> float:
    """How many records a member had had by then."""
    return float(np.interp(at, counts[:, 0], counts[:, 1], left=0))


class _Acknowledged:
    """Looks all the time at how many records are acknowledged."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._samples: list[tuple[float, int]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(LOOK_SECONDS):
            self._samples.append((time.perf_counter_ns(), self._server.positions()[0]))

    def stop(self) -> list[tuple[float, int]]:
        """When, in nanoseconds, and how many records."""
        self._ending.set()
        self._thread.join()
        return self._samples
