"""`AsyncConsumer.run`: every record through a handler, which may be a coroutine function."""

import asyncio
import inspect
import math
from collections.abc import Callable, Sequence

from siltlog.consumers.library.handler_run import HAND_OVER_SHARE
from siltlog.consumers.library.handling import Handling, HandlingOptions
from siltlog.consumers.library.inbox import Inbox, Watcher
from siltlog.consumers.library.lane import SLICE_S, Lane
from siltlog.consumers.library.record import ConsumerRecord
from siltlog.consumers.library.tasks import ConsumerTasks
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.clock import Clock

AsyncHandle = Callable[[ConsumerRecord], object]
"""A handler of one record; an awaitable that it returns is awaited."""


class AsyncHandlerRun:
    """One call of `run`, in the task that reads; handlers are called in tasks of their own."""

    def __init__(
        self, inbox: Inbox, tasks: ConsumerTasks, handle: AsyncHandle, options: HandlingOptions, clock: Clock
    ) -> None:
        """Raises Refused `invalid_request` for a consumer without a group."""
        self._inbox = inbox
        self._tasks = tasks
        self._handle = handle
        self._clock = clock
        self._handling = Handling(inbox, options, clock)
        self._workers = options.workers
        self._at_work: set[asyncio.Task[None]] = set()
        self._cancelled = False

    async def run(self) -> None:
        """Does what `HandlerRun.run` does. Cancelling it cancels its handlers too, and commits what is done."""
        watcher = Watcher(None, self._revoked, self._lost)
        self._inbox.ask()
        self._inbox.done_is_said = True
        self._inbox.watchers.insert(0, watcher)
        try:
            await self._loop()
        except asyncio.CancelledError:
            self._cancelled = True
            for task in self._at_work:
                task.cancel()
            raise
        finally:
            try:
                await self._end()
            finally:
                self._inbox.watchers.remove(watcher)
                self._inbox.done_is_said = False

    async def _loop(self) -> None:
        inbox, handling = self._inbox, self._handling
        idle_ms = inbox.options.idle_timeout_ms
        idle_at = math.inf
        inbox.begin_iteration()
        while True:
            self._say_alive()
            await self._tasks.run(inbox.mark_ends())
            await self._tasks.attend(handling.attend())
            self._tasks.launch()
            if inbox.ended():
                return
            while len(self._at_work) < self._workers and (lane := handling.startable()) is not None:
                task = asyncio.get_running_loop().create_task(self._work(lane))
                self._at_work.add(task)
                task.add_done_callback(self._at_work.discard)
            if not handling.idle:
                idle_at = math.inf
            elif idle_at == math.inf and idle_ms is not None:
                idle_at = self._clock.monotonic() + idle_ms / 1000
            if handling.idle and (inbox.stopped() or self._clock.monotonic() >= idle_at):
                return
            if not handling.has_outcomes:
                await self._tasks.wait(handling.wait_until(idle_at))

    async def _work(self, lane: Lane) -> None:
        error: BaseException | None = None
        try:
            now = self._clock.monotonic()
            ends = now + SLICE_S
            while not (lane.finished or lane.stopping):
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
        except Exception as failed:
            error = failed
        self._at_work.discard(asyncio.current_task())
        self._handling.finished(lane, error)
        self._tasks.notify()

    def _say_alive(self) -> None:
        """Shows the group, as a poll does, that this member is alive, unless a handler has taken so long that its
        partition has to go to others."""
        member = self._inbox.member
        assert member is not None
        alive_at = self._handling.alive_at()
        if alive_at is not None:
            self._tasks.begin_polling()
            self._tasks.end_polling()
            member.polled = alive_at

    async def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        seconds = HAND_OVER_SHARE * self._inbox.options.rebalance_timeout_ms / 1000
        await self._await(self._handling.stop(partitions), seconds)
        await self._tasks.run(self._handling.release(partitions))

    def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._handling.drop(partitions)

    async def _await(self, lanes: Sequence[Lane], seconds: float) -> None:
        """Returns once nobody is busy with them, or after `seconds`."""
        deadline = self._clock.monotonic() + seconds
        while self._at_work and self._handling.at_work(lanes) and (left := deadline - self._clock.monotonic()) > 0:
            timeout = None if left == math.inf else left
            await asyncio.wait(self._at_work, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    async def _end(self) -> None:
        """Waits for the running handlers, commits what is done, and hands the rest back."""
        await self._tasks.let_attending_end()
        await self._await(self._handling.stop(), math.inf)
        await self._tasks.run(self._handling.release(sorted(self._inbox.positions.states)))
