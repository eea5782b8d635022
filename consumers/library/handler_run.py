"""`Consumer.run`: puts every record through a handler, in the calling thread or in `Workers`, which are threads."""

import math
import queue
import threading
from collections.abc import Callable, Sequence

from siltlog.consumers.library.handling import Handling, HandlingOptions
from siltlog.consumers.library.inbox import Inbox, Watcher
from siltlog.consumers.library.lane import Lane, work
from siltlog.consumers.library.record import ConsumerRecord
from siltlog.consumers.library.threads import ConsumerThreads
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.clock import Clock

Handle = Callable[[ConsumerRecord], object]
Finished = Callable[[Lane, BaseException | None], None]
HAND_OVER_SHARE = 0.8
"""How long a handler is waited for whose partition has to move, as a share of the rebalance timeout."""


class Workers:
    """`finished(lane, error)` is called by the thread that had it."""

    def __init__(self, count: int, handle: Handle, clock: Clock, finished: Finished) -> None:
        self._handle = handle
        self._clock = clock
        self._finished = finished
        self._lanes: queue.SimpleQueue[Lane | None] = queue.SimpleQueue()
        self._count = count
        for number in range(count):
            # Daemons: a handler that never returns does not keep the process.
            threading.Thread(target=self._work, name=f"siltlog-worker-{number}", daemon=True).start()

    def put(self, lane: Lane) -> None:
        self._lanes.put(lane)

    def stop(self) -> None:
        """Tells the threads to end; a handler that runs ends by itself."""
        for _ in range(self._count):
            self._lanes.put(None)

    def _work(self) -> None:
        while (lane := self._lanes.get()) is not None:
            self._finished(lane, work(lane, self._handle, self._clock, bool))


class HandlerRun:
    """One call of `run`, on the thread that reads."""

    def __init__(
        self, inbox: Inbox, threads: ConsumerThreads, handle: Handle, options: HandlingOptions, clock: Clock
    ) -> None:
        """Raises Refused `invalid_request` for a consumer without a group."""
        self._inbox = inbox
        self._threads = threads
        self._handle = handle
        self._clock = clock
        self._handling = Handling(inbox, options, clock)
        self._free = options.workers
        # One handler is called by the thread that reads: what belongs to a thread stays there, and so does Ctrl-C.
        self._workers = Workers(options.workers, handle, clock, self._finished) if options.workers > 1 else None

    def run(self) -> None:
        """Runs until woken or closed, or as `stop_at` and `idle_timeout_ms` say. Raises what a poll does."""
        watcher = Watcher(None, self._revoked, self._lost)
        self._inbox.ask()
        self._inbox.done_is_said = True
        self._inbox.watchers.insert(0, watcher)
        try:
            self._loop()
        finally:
            try:
                self._end()
            finally:
                if self._workers is not None:
                    self._workers.stop()
                self._inbox.watchers.remove(watcher)
                self._inbox.done_is_said = False

    def _loop(self) -> None:
        inbox, handling = self._inbox, self._handling
        idle_ms = inbox.options.idle_timeout_ms
        idle_at = math.inf
        inbox.begin_iteration()
        while True:
            self._say_alive()
            self._threads.run(inbox.mark_ends())
            self._threads.run(handling.attend())
            self._threads.launch()
            if inbox.ended():
                return
            started = self._start()
            if not handling.idle:
                idle_at = math.inf
            elif idle_at == math.inf and idle_ms is not None:
                idle_at = self._clock.monotonic() + idle_ms / 1000
            if handling.idle and (inbox.stopped() or self._clock.monotonic() >= idle_at):
                return
            if not started:
                self._threads.wait(handling.wait_until(idle_at), self._has_outcomes)

    def _start(self) -> bool:
        """Gives lanes to whoever is free; whether the thread that reads was at work itself."""
        if self._workers is None:
            lane = self._handling.startable()
            if lane is None:
                return False
            self._handling.finished(lane, work(lane, self._handle, self._clock, self._interrupted))
            return True
        while self._free and (lane := self._handling.startable()) is not None:
            self._free -= 1
            self._workers.put(lane)
        return False

    def _finished(self, lane: Lane, error: BaseException | None) -> None:
        def change() -> None:
            self._free += 1
            self._handling.finished(lane, error)

        self._threads.tell(change)

    def _has_outcomes(self) -> bool:
        return self._handling.has_outcomes

    def _interrupted(self) -> bool:
        return self._inbox.has_news

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
        self._await(self._handling.stop(partitions), HAND_OVER_SHARE * self._inbox.options.rebalance_timeout_ms / 1000)
        self._threads.run(self._handling.release(partitions))

    def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._handling.drop(partitions)

    def _await(self, lanes: Sequence[Lane], seconds: float) -> None:
        """Returns once nobody is busy with them, or after `seconds`."""
        self._threads.wait_for(lambda: not self._handling.at_work(lanes), seconds)

    def _end(self) -> None:
        """Waits for the running handlers, commits what is done, and hands the rest back."""
        self._await(self._handling.stop(), math.inf)
        self._threads.run(self._handling.release(sorted(self._inbox.positions.states)))
