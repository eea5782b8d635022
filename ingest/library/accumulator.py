"""Decides which records travel together and when: by bytes or age, one batch after the other for each topic. No IO, no
clock.

The caller locks around every method; a lane that was taken is the taker's to ask for its next step, until it is given
back.
"""

from collections import deque
from collections.abc import Callable

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.client.record import Headers
from siltlog.infra.errors import problem
from siltlog.ingest.library.batch import ROW_BYTES, Batch, Owner
from siltlog.ingest.library.options import PublishOptions
from siltlog.ingest.library.placer import REQUEST_BYTES_TARGET, Limits
from siltlog.ingest.library.topic_lane import TopicLane


class Queue:
    """A lane's waiting batches. `open` takes records until it is taken or can grow no more; `closed` wait in order."""

    __slots__ = ("busy", "closed", "lane", "open")

    def __init__(self, lane: TopicLane) -> None:
        self.lane = lane
        self.open: Batch | None = None
        self.closed: deque[Batch] = deque()
        self.busy = False

    def close_open(self) -> None:
        if self.open is not None:
            self.closed.append(self.open)
            self.open = None

    def due(self, linger: float, timeout: float) -> float | None:
        """When the lane has something to do; None when it has nothing, or somebody is at it."""
        if self.busy:
            return None
        own, batch_due = self.lane.due, self.batch_due(linger, timeout)
        if own is None or batch_due is None:
            return batch_due if own is None else own
        return min(own, batch_due)

    def batch_due(self, linger: float, timeout: float) -> float | None:
        """When the lane is to have the next batch; None while there is none that it wants. At `timeout` it fails it."""
        lane = self.lane
        batch = self.closed[0] if self.closed else self.open
        if batch is None or not lane.wants(batch):
            return None
        if lane.ending:
            return 0.0
        due = 0.0 if batch.urgent or self.closed else batch.created + linger
        return min(max(due, lane.not_before), batch.created + timeout)

    def take_batch(self) -> Batch:
        if self.closed:
            return self.closed.popleft()
        batch, self.open = self.open, None
        assert batch is not None
        return batch


class Accumulator:
    def __init__(
        self, options: PublishOptions, owner: Owner, jitter: Callable[[], float], batch_type: type[Batch]
    ) -> None:
        self.used_bytes = 0
        self.unfinished: set[Batch] = set()
        self._options = options
        self._owner = owner
        self._batch_type = batch_type
        self._linger = options.linger_ms / 1000
        self._timeout = options.delivery_timeout_ms / 1000
        self._batch_bytes = min(options.batch_bytes, options.buffer_bytes)
        self._batch_bytes_max = max(self._batch_bytes, min(REQUEST_BYTES_TARGET, options.buffer_bytes))
        self._jitter = jitter
        self._limits = Limits()
        self._queues: dict[str, Queue] = {}
        self._active: dict[str, Queue] = {}

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers | None,
        timestamp_us: int,
        partition: int | None,
        size: int,
        monotonic: Callable[[], float],
    ) -> tuple[Batch, int, bool]:
        """The batch that took the record, its index there, and whether a sender should look now.

        `size` is that of key, value and headers in bytes; `monotonic` is asked when a batch begins. A full batch goes
        on growing while its lane has no use for another request, up to what one request takes.
        """
        queue = self._queues.get(topic) or self._new_queue(topic)
        size += ROW_BYTES
        batch = queue.open
        look = False
        if batch is None or (batch.full and batch.size_bytes + size > self._batch_bytes_max):
            queue.close_open()
            batch = queue.open = self._batch_type(topic, monotonic(), self._owner)
            self.unfinished.add(batch)
            self._active[topic] = queue
            look = True
        index = batch.count
        batch.values.append(value)
        batch.keys.append(key)
        batch.timestamps.append(timestamp_us)
        if key is not None:
            batch.keyed = batch.placed = True
        if headers is not None:
            batch.headers[index] = headers
        if partition is not None:
            batch.partitions[index] = partition
            batch.placed = True
        batch.count = index + 1
        batch.size_bytes += size
        self.used_bytes += size
        if batch.size_bytes >= self._batch_bytes and not batch.full:
            batch.full = batch.urgent = True
            look = True
        return batch, index, look

    def add_table(self, topic: str, table: pa.Table, now: float) -> Batch:
        queue = self._queues.get(topic) or self._new_queue(topic)
        queue.close_open()
        batch = self._batch_type(topic, now, self._owner, table)
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
            queue.lane.end()

    def take(self, now: float) -> TopicLane | None:
        """A lane with something to do now, its batch given to it; nobody else gets it until `give_back`."""
        for topic, queue in self._active.items():
            due = queue.due(self._linger, self._timeout)
            if due is None or due > now:
                continue
            batch_due = queue.batch_due(self._linger, self._timeout)
            if batch_due is not None and batch_due <= now:
                queue.lane.give(queue.take_batch())
            queue.busy = True
            # To the end of the line: no topic is served twice before another that is due.
            self._active[topic] = self._active.pop(topic)
            return queue.lane
        return None

    def give_back(self, lane: TopicLane) -> None:
        self._queues[lane.topic].busy = False

    def finished(self, batch: Batch) -> None:
        self.unfinished.discard(batch)
        self.used_bytes -= batch.size_bytes

    def rest(self, lane: TopicLane) -> None:
        """Forgets a lane that has nothing to do until the next record of its topic."""
        queue = self._queues[lane.topic]
        if lane.idle and not queue.busy and queue.open is None and not queue.closed:
            self._active.pop(lane.topic, None)

    def next_due(self) -> float | None:
        """When `take` will next have a lane, as far as known now."""
        linger, timeout = self._linger, self._timeout
        dues = [due for queue in self._active.values() if (due := queue.due(linger, timeout)) is not None]
        return min(dues, default=None)

    def _new_queue(self, topic: str) -> Queue:
        wrong = names.name_problem(topic)
        if wrong is not None:
            raise problem("invalid_request", wrong)
        queue = self._queues[topic] = Queue(TopicLane(topic, self._options, self._limits, self._jitter))
        return queue
