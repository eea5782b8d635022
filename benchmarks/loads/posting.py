"""Bulk bodies posted by a few threads of this process, each on its own connection with urllib3."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import urllib3

FULL_PAUSE_SECONDS = 0.02
HELD_PAUSE_SECONDS = 0.002


@dataclass(slots=True)
class Posted:
    """The posts that were acknowledged from the end of the warm-up to the end."""

    posts: int = 0
    posts_in_all: int = 0
    refused: int = 0
    """Posts that got 503 and were made again."""
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return self.posts / self.seconds

    def percentile_ms(self, percent: float) -> float:
        return float(np.percentile(self.latencies, percent)) * 1000


def post(
    pool: urllib3.HTTPConnectionPool,
    path: str,
    bodies: Sequence[bytes],
    media: str,
    *,
    threads: int,
    seconds: float,
    warmup_seconds: float = 0.0,
    posts_max: int | None = None,
    per_second: float | None = None,
    may_post: Callable[[], bool] = lambda: True,
    encoding: str | None = None,
) -> Posted:
    """Posts for `seconds`, or until `posts_max` were acknowledged; with `per_second` so many and no more.

    Nothing is posted while `may_post()` says no. A full write-ahead log (503) is waited for.
    Raises RuntimeError for any other refusal.
    """
    headers = {"Content-Type": media, **({"Content-Encoding": encoding} if encoding else {})}
    posted = Posted()
    lock = threading.Lock()
    number = itertools.count()
    problems: list[str] = []
    started = time.perf_counter()
    counted_from, end = started + warmup_seconds, started + warmup_seconds + seconds

    def run() -> None:
        while not problems:
            turn = next(number)
            if per_second is not None:
                time.sleep(max(0.0, started + turn / per_second - time.perf_counter()))
            while not may_post() and time.perf_counter() < end:
                time.sleep(HELD_PAUSE_SECONDS)
            before = time.perf_counter()
            if before >= end or (posts_max is not None and turn >= posts_max):
                return
            try:
                refused = _post_one(pool, path, bodies[turn % len(bodies)], headers, end)
            except Exception as error:
                problems.append(str(error))
                return
            now = time.perf_counter()
            with lock:
                posted.refused += refused
                posted.posts_in_all += 1
                if before >= counted_from:
                    posted.posts += 1
                    posted.latencies.append(now - before)
                    posted.seconds = now - counted_from

    workers = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if problems:
        raise RuntimeError(problems[0])
    return posted


def _post_one(pool: urllib3.HTTPConnectionPool, path: str, body: bytes, headers: Mapping[str, str], end: float) -> int:
    """How often it was refused before it was acknowledged."""
    refused = 0
    while True:
        reply = pool.urlopen("POST", path, body=body, headers=headers)
        if reply.status == 200:
            return refused
        if reply.status != 503 or time.perf_counter() > end + 60:
            raise RuntimeError(f"a publish was answered {reply.status}: {reply.data[:300]!r}")
        refused += 1
        time.sleep(FULL_PAUSE_SECONDS)
