"""A member joins a group, and leaves it again: for how long is nothing delivered of a partition?

16 partitions get a hundred records a second each. What counts is the longest time between two records of a partition
at the members together: of partitions that stay where they are, and of those that go to the new member and back.
"""

import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figures.figure import Figure
from benchmarks.groups.receiver import receiving, stamped_value
from benchmarks.groups.sharing import MEMBERS, PARTITIONS, await_sharing
from benchmarks.loads.load import Load
from siltlog.infra import names

PER_SECOND = 100
SECONDS = 12.0
QUICK_SECONDS = 6.0
TARGET_INTERVALS = 2.0
Had = Sequence[Sequence[int]]


def rebalance(bench: Bench) -> Iterator[Figure]:
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    value = stamped_value().decode()
    records = ",".join(f'{{"value":{value},"partition":{number}}}' for number in range(PARTITIONS))
    body = f'{{"records":[{records}]}}'.encode()
    with bench.server(partitions=PARTITIONS) as server, ExitStack() as stack:
        members = [stack.enter_context(receiving("records", server.url)) for _ in range(MEMBERS)]
        await_sharing(server, members)
        interval_ms = _heartbeat_interval_ms(server)
        loading = _Loading(bench, server, body, seconds)
        loading.wait(seconds / 3)
        with receiving("records", server.url) as another:
            another.await_ready()
            loading.wait(seconds / 3)
            moved = another.stop()
        loading.join()
        stayed = [member.stop() for member in members]
    if not moved:
        raise RuntimeError("nothing went to the member that joined")
    gaps = _gaps([*stayed, moved])
    went = {partition for partition, _, _ in moved}
    stays = max(gap for partition, gap in gaps.items() if partition not in went)
    goes = max(gaps[partition] for partition in went)
    quiet = max(_gaps(stayed, until=min(had for _, _, had in moved) - int(seconds / 6 * 1e9)).values())
    yield Figure("no rebalance: longest time between two records of a partition", quiet, "ms")
    yield Figure("partitions that stay: the same while a member joins and leaves", stays, "ms")
    yield Figure("partitions that move: the same", goes, "ms")
    yield Figure(
        f"partitions that move: the same, in heartbeat intervals ({interval_ms:,} ms)",
        goes / interval_ms,
        "",
        at_most=TARGET_INTERVALS,
    )


def _gaps(had: Sequence[Had], until: float = float("inf")) -> Mapping[int, float]:
    """The longest time in milliseconds between two deliveries of each partition."""
    times: dict[int, list[int]] = defaultdict(list)
    for member in had:
        for partition, _, at in member:
            if at < until:
                times[partition].append(at)
    return {partition: float(np.diff(np.sort(at)).max()) / 1e6 for partition, at in times.items() if len(at) > 1}


def _heartbeat_interval_ms(server: Server) -> int:
    path = f"/v1/groups/probe/members/{uuid.uuid4()}"
    reply = server.pool.request("PUT", path, json={"generation": 0, "topics": [TOPIC]})
    assert reply.status == 200, reply.data
    server.pool.request("DELETE", path)
    return int(reply.json()["heartbeat_interval_ms"])


class _Loading:
    """A load that goes on while something else is done."""

    def __init__(self, bench: Bench, server: Server, body: bytes, seconds: float) -> None:
        self._problem: BaseException | None = None
        self._ended = threading.Event()

        def run() -> None:
            try:
                self._load(bench, server, body, seconds)
            except Exception as error:
                self._problem = error
            finally:
                self._ended.set()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def _load(self, bench: Bench, server: Server, body: bytes, seconds: float) -> Load:
        plan = {"per_second": PER_SECOND, "seconds": seconds}
        return bench.load(server.port, server.publish_path, [body], names.MEDIA_JSON, MEMBERS, **plan)

    def wait(self, seconds: float) -> None:
        """Returns then, or when the load ends."""
        self._ended.wait(seconds)

    def join(self) -> None:
        self._thread.join()
        if self._problem is not None:
            raise self._problem
