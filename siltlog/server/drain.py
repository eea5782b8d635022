"""The end of a server, in order: who asks is told, what was taken is acknowledged and flushed, connections close."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from siltlog.infra.errors import problem
from siltlog.infra.http.door import Door
from siltlog.infra.http.requests import BodyReader
from siltlog.infra.telemetry import Logger
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.log.log import Log

POLL_SECONDS = 0.01
LINGER_SECONDS = 0.2
"""Connections stay open at least so long: each request that is on its way meanwhile gets an answer, which asks for the
connection to be closed."""
JOBS_PART = 0.5
"""Share of the time that jobs get: one that does not end must not keep the partitions from being released."""


class Drain:
    def __init__(
        self,
        log: Log,
        flusher: Flusher,
        door: Door,
        publishes: BodyReader,
        wakes: Sequence[Callable[[], None]],
        logger: Logger,
        jobs_end: "asyncio.Task[None] | None" = None,
    ) -> None:
        """`publishes` reads what would be appended; `wakes` end the polls that wait; `jobs_end` waits until the jobs of
        the schedule have been told to end, did so and have said it."""
        self._log = log
        self._flusher = flusher
        self._door = door
        self._publishes = publishes
        self._wakes = wakes
        self._logger = logger
        self._jobs_end = jobs_end

    async def run(self, seconds_max: float, hurry: asyncio.Event) -> bool:
        """Drains the server. Returns False when not all was done within `seconds_max`, or before somebody was in a
        hurry."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        acked, refused = self._acked(), self._refused()
        self._logger.info("draining", seconds_max=seconds_max)
        self._log.draining = self._door.draining = True
        self._log.taking_runs = self._jobs_end is not None
        self._publishes.close(
            problem("shutting_down", "the server is shutting down; publish to another, or again in a moment")
        )
        for wake in self._wakes:
            wake()
        tasks: list[asyncio.Task[Any]] = [loop.create_task(self._finish(seconds_max)), loop.create_task(hurry.wait())]
        done, _ = await asyncio.wait(tasks, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED)
        finished = tasks[0] in done
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if not hurry.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(hurry.wait(), max(began + LINGER_SECONDS - loop.time(), 0))
        if finished:
            # A failure of this server's own is no reason to keep quiet about it.
            tasks[0].result()
        told = {
            "acknowledged_records": self._acked() - acked,
            "refused_requests": self._refused() - refused,
            "unanswered_requests": self._door.in_flight,
            "unflushed_bytes": self._log.unflushed_bytes(),
            "seconds": round(loop.time() - began, 3),
        }
        if finished and not told["unflushed_bytes"]:
            self._logger.info("drained", **told)
        else:
            why = "told to hurry" if hurry.is_set() else "not everything is in the tables"
            self._logger.warning(f"{why}; the write-ahead log keeps what is not for the next start", **told)
        return finished

    async def _finish(self, seconds_max: float) -> None:
        # Of users nothing more is taken from here on; who waits for the table is answered by this flush.
        await self._flush()
        if self._jobs_end is not None:
            await asyncio.wait([self._jobs_end], timeout=seconds_max * JOBS_PART)
            self._log.taking_runs = False
            await self._flush()
        while self._door.in_flight:  # noqa: ASYNC110 (a count on the hot path; an event would cost each request)
            await asyncio.sleep(POLL_SECONDS)
        await asyncio.gather(*(self._flusher.release(topic) for topic in self._log.topics()))

    async def _flush(self) -> None:
        await self._log.group_commit.commit()
        await self._flusher.drain()

    def _acked(self) -> int:
        return sum(topic.records_total for topic in self._log.topics())

    def _refused(self) -> int:
        return self._door.refused.get("shutting_down", 0)
