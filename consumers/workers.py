"""Threads that call a handler, beside the one that reads."""

import queue
import threading
from collections.abc import Callable

from siltlog.consumers.lane import Lane, work
from siltlog.consumers.record import ConsumerRecord
from siltlog.infra.clock import Clock

Handle = Callable[[ConsumerRecord], object]
Finished = Callable[[Lane, BaseException | None], None]


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
        """What is under way ends by itself."""
        for _ in range(self._count):
            self._lanes.put(None)

    def _work(self) -> None:
        while (lane := self._lanes.get()) is not None:
            self._finished(lane, work(lane, self._handle, self._clock, bool))
