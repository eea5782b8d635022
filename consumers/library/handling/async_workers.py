"""The workers of `AsyncConsumer.run`: tasks that call the handler, and await what it returns where they can."""

import asyncio
import inspect
import math
from collections.abc import Callable
from types import TracebackType

from siltlog.consumers.library.handling.handling import Handling
from siltlog.consumers.library.handling.partition_lane import SLICE_S, Handle, PartitionLane
from siltlog.consumers.library.tasks import ConsumerTasks
from siltlog.infra.clock import Clock


class AsyncWorkers:
    """Enter it before a lane is started, and leave it after the last one; cancelling what is in it cancels handlers."""

    def __init__(self, handle: Handle, handling: Handling, tasks: ConsumerTasks, clock: Clock) -> None:
        self._handle = handle
        self._handling = handling
        self._tasks = tasks
        self._clock = clock
        self._at_work: set[asyncio.Task[None]] = set()
        self._cancelled = False

    async def __aenter__(self) -> None:
        """Begins nothing: each lane is a task."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            self._cancelled = True
            for task in self._at_work:
                task.cancel()
        await self._tasks.let_attending_end()

    def start(self, lane: PartitionLane) -> None:
        task = asyncio.get_running_loop().create_task(self._work(lane))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def wait_for(self, ready: Callable[[], bool], seconds: float) -> None:
        """Returns once it is `ready`, which a handler that ends may make it, or after `seconds`."""
        deadline = self._clock.monotonic() + seconds
        while self._at_work and not ready() and (left := deadline - self._clock.monotonic()) > 0:
            timeout = None if left == math.inf else left
            await asyncio.wait(self._at_work, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    async def _work(self, lane: PartitionLane) -> None:
        error: BaseException | None = None
        lane.begun = True
        try:
            now = self._clock.monotonic()
            ends = now + SLICE_S
            while not (lane.finished or self._handling.halts(lane)):
                lane.started = now
                told = self._handle(lane.record)
                if inspect.isawaitable(told):
                    await told
                lane.passed()
                now = self._clock.monotonic()
                if lane.single or now >= ends:
                    break
        except asyncio.CancelledError:
            # Given up with the run, or else a failure like others.
            error = None if self._cancelled else RuntimeError("what the handler waited for was cancelled")
        except BaseException as failed:
            # Also what is no Exception: left in this task, nobody would hear of it.
            error = failed
        self._at_work.discard(asyncio.current_task())
        self._handling.finished(lane, error)
        self._tasks.notify()
