"""The workers of `Consumer.run`: threads that call the handler, or the thread that reads where there is to be one."""

import queue
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType

from siltlog.consumers.library.handling.handling import Handling
from siltlog.consumers.library.handling.partition_lane import Handle, PartitionLane, work
from siltlog.consumers.library.threads import ConsumerThreads
from siltlog.infra.clock import Clock


class Workers:
    """Enter it before a lane is started, and leave it after the last one."""

    def __init__(self, handle: Handle, handling: Handling, threads: ConsumerThreads, clock: Clock) -> None:
        self._handle = handle
        self._handling = handling
        self._threads = threads
        self._clock = clock
        workers = handling.options.workers
        # One handler is called by the thread that reads: what belongs to a thread stays there, and so does Ctrl-C.
        self._count = workers if workers > 1 else 0
        self._lanes: queue.SimpleQueue[PartitionLane | None] = queue.SimpleQueue()

    def __enter__(self) -> None:
        try:
            for number in range(self._count):
                # Daemons: a handler that never returns does not keep the process.
                threading.Thread(target=self._work, name=f"siltlog-worker-{number}", daemon=True).start()
        except BaseException:
            self._dismiss()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tells the threads to end once they have nothing to do; a handler that runs ends by itself."""
        self._dismiss()

    def _dismiss(self) -> None:
        for _ in range(self._count):
            self._lanes.put(None)

    def start(self, lane: PartitionLane) -> None:
        if self._count:
            self._lanes.put(lane)
        else:
            self._handling.finished(lane, self._handled(lane, self._handling.has_news))

    def wait_for(self, ready: Callable[[], bool], seconds: float) -> None:
        """Returns once it is `ready`, which a handler that ends may make it, or after `seconds`.

        At once where the handler is called by the thread that waits: interrupted, that one says no more how it ended.
        """
        if self._count:
            self._threads.wait_for(ready, seconds)

    def _work(self) -> None:
        with self._handling.within_run():
            while (lane := self._lanes.get()) is not None:
                self._threads.tell(partial(self._handling.finished, lane, self._handled(lane, bool)))

    def _handled(self, lane: PartitionLane, interrupted: Callable[[], bool]) -> BaseException | None:
        return work(lane, self._handle, self._clock, self._handling.halts, interrupted)
