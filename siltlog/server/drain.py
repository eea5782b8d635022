"""The end of a server, in order: who asks is told, what was taken is acknowledged and flushed, connections close."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from siltlog.infra.errors import problem
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.requests import BodyReader
from siltlog.infra.telemetry import Logger
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog

POLL_SECONDS = 0.01
LINGER_SECONDS = 0.2
"""Connections stay open at least so long: each request that is on its way meanwhile gets an answer, which asks for the
connection to be closed."""
JOBS_PART = 0.5
"""Share of the time that jobs get: one that does not end must not keep the partitions from being released."""
HURRIED = "told to hurry; the write-ahead log keeps what is not for the next start"
UNFINISHED = "not everything is in the tables; the write-ahead log keeps what is not for the next start"


class Acknowledged:
    """Counts the records that are acknowledged since it was made, those of topics that are let go meanwhile too."""

    def __init__(self, topics: Callable[[], Sequence[TopicLog]]) -> None:
        self._topics = topics
        self._before = {topic: topic.records_total for topic in topics()}

    def records(self) -> int:
        before = dict.fromkeys(self._topics(), 0) | self._before
        return sum(topic.records_total - count for topic, count in before.items())


class Drain:
    def __init__(
        self,
        draining: Draining,
        log: Log,
        flusher: Flusher,
        publishes: BodyReader,
        drains: Sequence[Callable[[], None]],
        *,
        requests: Callable[[], int],
        refused: Mapping[str, int],
        stop_jobs: Callable[[], None] | None,
        last_words: Callable[[], Awaitable[None]] | None = None,
        logger: Logger,
    ) -> None:
        """`publishes` reads what would be appended, `drains` end the calls that wait; `requests()` counts those under
        way, `refused` those that were, by error code. `stop_jobs` ends the jobs of the schedule and blocks until they
        have said so; None where none runs. `last_words` writes what the requests have left to say to the log."""
        self._draining = draining
        self._log = log
        self._flusher = flusher
        self._publishes = publishes
        self._drains = drains
        self._requests = requests
        self._refused_by_code = refused
        self._stop_jobs = stop_jobs
        self._last_words = last_words
        self._logger = logger

    async def run(self, seconds_max: float, hurry: asyncio.Event) -> bool:
        """Drains the server. Returns False when not all was done within `seconds_max`, or before somebody was in a
        hurry."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        acked, refused = Acknowledged(self._log.topics), self._refused()
        jobs_end = None if self._stop_jobs is None else loop.create_task(asyncio.to_thread(self._stop_jobs))
        self._logger.info("draining", seconds_max=seconds_max)
        self._draining.begin(taking_runs=jobs_end is not None)
        self._publishes.close(
            problem("shutting_down", "the server is shutting down; publish to another, or again in a moment")
        )
        for drain in self._drains:
            drain()
        finishing = loop.create_task(self._finish(seconds_max, jobs_end))
        tasks: list[asyncio.Task[Any]] = [finishing, loop.create_task(hurry.wait())]
        done, _ = await asyncio.wait(tasks, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED)
        finished = finishing in done
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if not hurry.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(hurry.wait(), max(began + LINGER_SECONDS - loop.time(), 0))
        if finished:
            # A failure of this server's own is no reason to keep quiet about it.
            finishing.result()
        told = {
            "acknowledged_records": acked.records(),
            "refused_requests": self._refused() - refused,
            "unanswered_requests": self._requests(),
            "unflushed_bytes": self._log.topic_logs.unflushed_bytes(),
            "seconds": round(loop.time() - began, 3),
        }
        if finished and not told["unflushed_bytes"]:
            self._logger.info("drained", **told)
        else:
            self._logger.warning(HURRIED if hurry.is_set() else UNFINISHED, **told)
        if jobs_end is not None:
            await jobs_end
        return finished

    async def _finish(self, seconds_max: float, jobs_end: "asyncio.Task[None] | None") -> None:
        # Of users nothing more is taken from here on; who waits for the table is answered by this flush.
        await self._flush()
        if jobs_end is not None:
            await asyncio.wait([jobs_end], timeout=seconds_max * JOBS_PART)
            self._draining.runs_are_told()
            await self._flush()
        while self._requests():  # noqa: ASYNC110 (a count on the hot path; an event would cost each request)
            await asyncio.sleep(POLL_SECONDS)
        if self._last_words is not None:
            await self._last_words()
            await self._flush()
        await asyncio.gather(*(self._flusher.release(topic) for topic in self._log.topics()))

    async def _flush(self) -> None:
        await self._log.group_commit.commit()
        await self._flusher.drain()

    def _refused(self) -> int:
        return self._refused_by_code.get("shutting_down", 0)
