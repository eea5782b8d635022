"""`AsyncConsumer.run`: puts every record through a handler."""

import math
from collections.abc import Sequence

from siltlog.consumers.library.assignment import Watcher
from siltlog.consumers.library.handling.async_workers import AsyncWorkers
from siltlog.consumers.library.handling.handling import Handling
from siltlog.consumers.library.handling.partition_lane import Handle, PartitionLane
from siltlog.consumers.library.inbox import Inbox
from siltlog.consumers.library.options import HandlingOptions
from siltlog.consumers.library.tasks import ConsumerTasks
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.clock import Clock

HAND_OVER_SHARE = 0.8
"""How long a handler is waited for whose partition has to move, as a share of the rebalance timeout."""


class AsyncHandlerRun:
    """One call of `run`, in the task that reads."""

    def __init__(
        self, inbox: Inbox, tasks: ConsumerTasks, handle: Handle, options: HandlingOptions, clock: Clock
    ) -> None:
        """Raises Refused `invalid_request` for a consumer without a group."""
        self._inbox = inbox
        self._tasks = tasks
        self._clock = clock
        self._handling = Handling(inbox, options, clock)
        self._workers = AsyncWorkers(handle, self._handling, tasks, clock)

    async def run(self) -> None:
        """Runs until woken or closed, or as `stop_at` and `idle_timeout_ms` say. Raises what a poll does.

        However it ends, the running handlers are waited for and what is done is committed.
        """
        watcher = Watcher(None, self._revoked, self._lost)
        self._inbox.ask()
        self._inbox.assignment.watchers.insert(0, watcher)
        try:
            with self._inbox.running():
                try:
                    async with self._workers:
                        await self._loop()
                finally:
                    await self._end()
        finally:
            self._inbox.assignment.watchers.remove(watcher)

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
            while (lane := handling.startable()) is not None:
                self._workers.start(lane)
            if not handling.idle:
                idle_at = math.inf
            elif idle_at == math.inf and idle_ms is not None:
                idle_at = self._clock.monotonic() + idle_ms / 1000
            if handling.idle and (inbox.stopped() or self._clock.monotonic() >= idle_at):
                return
            if not handling.has_outcomes():
                await self._tasks.wait(handling.wait_until(idle_at), handling.has_outcomes)

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

    async def _await(self, lanes: Sequence[PartitionLane], seconds: float) -> None:
        """Returns once nobody is busy with them, or after `seconds`."""
        await self._workers.wait_for(lambda: not self._handling.at_work(lanes), seconds)

    async def _end(self) -> None:
        """Waits for the running handlers, commits what is done, and hands the rest back."""
        await self._await(self._handling.stop(), math.inf)
        await self._tasks.run(self._handling.release(sorted(self._inbox.positions.states)))
        self._handling.raise_fatal()
