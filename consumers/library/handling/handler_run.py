# Made of async_handler_run.py by `make twins`: change that one.
"""`Consumer.run`: puts every record through a handler."""

import math
from collections.abc import Sequence

from siltlog.consumers.library.assignment import Watcher
from siltlog.consumers.library.handling.handling import Handling
from siltlog.consumers.library.handling.partition_lane import Handle, PartitionLane
from siltlog.consumers.library.handling.workers import Workers
from siltlog.consumers.library.inbox import Inbox
from siltlog.consumers.library.options import HandlingOptions
from siltlog.consumers.library.threads import ConsumerThreads
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.clock import Clock

HAND_OVER_SHARE = 0.8
"""How long a handler is waited for whose partition has to move, as a share of the rebalance timeout."""


class HandlerRun:
    """One call of `run`, on the thread that reads."""

    def __init__(
        self, inbox: Inbox, threads: ConsumerThreads, handle: Handle, options: HandlingOptions, clock: Clock
    ) -> None:
        """Raises Refused `invalid_request` for a consumer without a group."""
        self._inbox = inbox
        self._threads = threads
        self._clock = clock
        self._handling = Handling(inbox, options, clock)
        self._workers = Workers(handle, self._handling, threads, clock)

    def run(self) -> None:
        """Runs until woken or closed, or as `stop_at` and `idle_timeout_ms` say. Raises what a poll does.

        However it ends, the running handlers are waited for and what is done is committed.
        """
        watcher = Watcher(None, self._revoked, self._lost)
        self._inbox.ask()
        self._inbox.assignment.watchers.insert(0, watcher)
        try:
            with self._inbox.running():
                try:
                    with self._workers:
                        self._loop()
                finally:
                    self._end()
        finally:
            self._inbox.assignment.watchers.remove(watcher)

    def _loop(self) -> None:
        inbox, handling = self._inbox, self._handling
        idle_ms = inbox.options.idle_timeout_ms
        idle_at = math.inf
        inbox.begin_iteration()
        while True:
            self._say_alive()
            self._threads.run(inbox.mark_ends())
            self._threads.attend(handling.attend())
            self._threads.launch()
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
                self._threads.wait(handling.wait_until(idle_at), handling.has_outcomes)

    def _say_alive(self) -> None:
        """Shows the group, as a poll does, that this member is alive, unless a handler has taken so long that its
        partition has to go to others."""
        member = self._inbox.member
        assert member is not None
        alive_at = self._handling.alive_at()
        if alive_at is not None:
            self._threads.begin_polling()
            self._threads.end_polling()
            member.polled = alive_at

    def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        seconds = HAND_OVER_SHARE * self._inbox.options.rebalance_timeout_ms / 1000
        self._await(self._handling.stop(partitions), seconds)
        self._threads.run(self._handling.release(partitions))

    def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._handling.drop(partitions)

    def _await(self, lanes: Sequence[PartitionLane], seconds: float) -> None:
        """Returns once nobody is busy with them, or after `seconds`."""
        self._workers.wait_for(lambda: not self._handling.at_work(lanes), seconds)

    def _end(self) -> None:
        """Waits for the running handlers, commits what is done, and hands the rest back."""
        self._await(self._handling.stop(), math.inf)
        self._threads.run(self._handling.release(sorted(self._inbox.positions.states)))
        self._handling.raise_fatal()
