"""Which records travel together and when: by bytes or age, one batch at a time for each topic. No IO, no clock.

The caller locks around every method; a lane that was taken is the taker's alone until it is given back.
"""

import threading
from collections import deque
from collections.abc import Callable

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.client.batch import ROW_BYTES, Batch, Row
from siltlog.infra.client.lane import Lane, Limits, PublishOptions
from siltlog.infra.errors import problem


class _Queue:
    """What waits for one lane. `open` takes records until it is due; `closed` are full, in order."""

    __slots__ = ("busy", "closed", "lane", "open")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.open: Batch | None = None
        self.closed: deque[Batch] = deque()
        self.busy = False

    def close_open(self) -> None:
        if self.open is not None:
            self.closed.append(self.open)
            self.open = None

    def due(self, linger: float) -> float | None:
        """When the lane has something to do; None when it has nothing, or is at it."""
        if self.busy:
            return None
        if self.closed or not self.lane.wants_batch:
            return 0.0 if self.lane.ending else self.lane.not_before
        if self.open is None:
            return None
        due = 0.0 if self.open.urgent else self.open.created + linger
        return max(due, self.lane.not_before)


class Accumulator:
    def __init__(
        self,
        options: PublishOptions,
        *,
        linger_ms: float,
        batch_bytes: int,
        lock: threading.Lock,
        jitter: Callable[[], float],
    ) -> None:
        self.used_bytes = 0
        self.unfinished: set[Batch] = set()
        self._options = options
        self._linger = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._lock = lock
        self._jitter = jitter
        self._limits = Limits()
        self._queues: dict[str, _Queue] = {}
        self._active: dict[str, _Queue] = {}

    def append(self, topic: str, row: Row, size: int, now: float) -> tuple[Batch, int, bool]:
        """The batch that took the row, its index there, and whether a sender should look now.

        `size` is that of key, value and headers in bytes.
        """
        queue = self._queues.get(topic) or self._new_queue(topic)
        size += ROW_BYTES
        batch = queue.open
        look = False
        if batch is None or batch.size_bytes + size > self._batch_bytes:
            queue.close_open()
            batch = queue.open = Batch(topic, now, self._lock)
            self.unfinished.add(batch)
            self._active[topic] = queue
            look = True
        index = batch.count
        batch.rows.append(row)
        batch.count = index + 1
        batch.size_bytes += size
        self.used_bytes += size
        if batch.size_bytes >= self._batch_bytes:
            queue.close_open()
            look = True
        return batch, index, look

    def add_table(self, topic: str, table: pa.Table, now: float) -> Batch:
        queue = self._queues.get(topic) or self._new_queue(topic)
        queue.close_open()
        batch = Batch(topic, now, self._lock, table)
        queue.closed.append(batch)
        self.unfinished.add(batch)
        self._active[topic] = queue
        self.used_bytes += batch.size_bytes
        return batch

    def hurry(self, batch: Batch) -> None:
        """Makes the open batch due now."""
        queue = self._queues[batch.topic]
        if queue.open is batch:
            batch.urgent = True

    def close_open(self) -> None:
        for queue in self._active.values():
            queue.close_open()

    def end(self) -> None:
        """No time is left: what is not on its way fails, and what is gets no other attempt."""
        self.close_open()
        for queue in self._queues.values():
            queue.lane.ending = True

    def take(self, now: float) -> Lane | None:
        """A lane with something to do now, its batch given to it; the caller owns it until `give_back`."""
        for topic, queue in self._active.items():
            due = queue.due(self._linger)
            if due is None or due > now:
                continue
            if queue.lane.wants_batch:
                if not queue.closed:
                    queue.close_open()
                queue.lane.give(queue.closed.popleft())
            queue.busy = True
            # To the end of the line: no topic is served twice before another that is due.
            self._active[topic] = self._active.pop(topic)
            return queue.lane
        return None

    def give_back(self, lane: Lane, finished: Batch | None) -> None:
        queue = self._queues[lane.topic]
        queue.busy = False
        if finished is not None:
            self.unfinished.discard(finished)
            self.used_bytes -= finished.size_bytes
        if lane.wants_batch and queue.open is None and not queue.closed:
            self._active.pop(lane.topic, None)

    def next_due(self) -> float | None:
        """When `take` will next have a lane, as far as known now."""
        dues = [due for queue in self._active.values() if (due := queue.due(self._linger)) is not None]
        return min(dues, default=None)

    def _new_queue(self, topic: str) -> _Queue:
        wrong = names.name_problem(topic)
        if wrong is not None:
            raise problem("invalid_request", wrong)
        queue = self._queues[topic] = _Queue(Lane(topic, self._options, self._limits, self._jitter))
        return queue
