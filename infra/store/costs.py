"""What a rate costs a month on S3: requests and what is stored. Pure.

Prices are the list prices of S3 Standard in us-east-1 (https://aws.amazon.com/s3/pricing/), without a discount. How
many requests each thing makes is measured: `tests/infra/store/test_costs.py` counts them before a real S3 server.
"""

import re
from typing import NamedTuple

DOLLARS_PER_WRITE = 0.005 / 1_000
"""PUT, COPY, POST and LIST."""
DOLLARS_PER_READ = 0.0004 / 1_000
"""GET, HEAD and all others; DELETE is free."""
DOLLARS_PER_GB_MONTH = 0.023
"""The price of 2**30 bytes, for the first 50 TB."""
BYTES_PER_GB = 2**30
SECONDS_PER_MONTH = 30 * 24 * 3_600


_ASKED = re.compile(r'^silt_store_seconds_count{request="(\w+)"} (\S+)$', re.MULTILINE)
_FLUSHES = re.compile(r"^silt_flush_seconds_count (\S+)$", re.MULTILINE)
_STARTED = re.compile(r"^process_start_time_seconds (\S+)$", re.MULTILINE)
_WRITES = frozenset(("put", "list"))
_READS = frozenset(("get", "head"))


class Requests(NamedTuple):
    """Requests to S3, as it bills them. Fractions are averages."""

    writes: float = 0.0
    reads: float = 0.0

    def plus(self, other: "Requests", times: float = 1.0) -> "Requests":
        return Requests(self.writes + times * other.writes, self.reads + times * other.reads)

    @property
    def dollars(self) -> float:
        return self.writes * DOLLARS_PER_WRITE + self.reads * DOLLARS_PER_READ


FILE = Requests(writes=1, reads=1)
"""A partition's file in a flush: PUT, and HEAD for its size."""
COMMIT = Requests(writes=5.4, reads=9.3)
"""The rest of a flush: the entry of the table's log and four LIST of it, GET of the newest entries; and its share of
a checkpoint."""
COMMIT_UNSEEN = Requests(writes=4.2, reads=7.2)
"""The part of a commit that the library which writes Delta asks by itself; `silt_store_seconds` does not have it."""
IDLE_NODE = Requests(reads=1.2)
"""A second of a server: whether another has claimed, and that the root is still the same."""
IDLE_TOPIC = Requests(reads=0.2)
"""A second of a topic, whether it gets anything or not: what others committed."""
JOURNAL_OBJECT = Requests(writes=1)
"""An object with what topics with `acks=object` were sent."""
BEAT = Requests(writes=1)
"""A heartbeat of a node of a cluster."""


def flush(files: float) -> Requests:
    """One flush of a topic: a file for each partition that has something, and a commit."""
    return COMMIT.plus(FILE, files)


class Asked(NamedTuple):
    """What a server asked of its object store since it was started."""

    requests: Requests
    """Requests that it counted, and requests of the logs of tables, which are reckoned by the flushes."""
    flushes: float
    started_seconds: float
    """Since 1970."""

    def per_second(self, since: "Asked | None", seconds: float) -> Requests | None:
        """The rate in so many `seconds` since another look, or the start; None where that cannot be said."""
        before = Requests() if since is None else since.requests
        if seconds <= 0 or (since is not None and since.started_seconds != self.started_seconds):
            return None
        return Requests().plus(self.requests, 1 / seconds).plus(before, -1 / seconds)


def asked(metrics: str) -> Asked:
    """Reads it from the answer of `GET /metrics`."""
    counts = {request: float(count) for request, count in _ASKED.findall(metrics)}
    flushes = sum(float(count) for count in _FLUSHES.findall(metrics))
    counted = Requests(
        sum(count for request, count in counts.items() if request in _WRITES),
        sum(count for request, count in counts.items() if request in _READS),
    )
    started = max((float(seconds) for seconds in _STARTED.findall(metrics)), default=0.0)
    return Asked(counted.plus(COMMIT_UNSEEN, flushes), flushes, started)


def month_of(per_second: Requests) -> float:
    """Dollars a month."""
    return per_second.dollars * SECONDS_PER_MONTH


def stored_month(nbytes: float) -> float:
    """Dollars a month for what is stored."""
    return nbytes / BYTES_PER_GB * DOLLARS_PER_GB_MONTH


def flush_rate(bytes_per_second: float, partitions: int, flush_seconds: float, flush_bytes: float) -> Requests:
    """Requests a second for a topic whose partitions share what comes; they are flushed at the same time.

    `bytes_per_second` is in memory, as `flush_bytes`, which is of a partition.
    """
    interval = flush_seconds
    if bytes_per_second > 0:
        interval = min(interval, flush_bytes * partitions / bytes_per_second)
    return Requests().plus(flush(partitions), 1 / interval)
