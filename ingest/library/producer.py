"""Publishing from Python: batches, retries that never duplicate, and nothing dropped without a word."""

import atexit

# Arrow imports it when the first array is made, which fails once the interpreter ends: too late for the flush at exit.
import concurrent.futures.thread  # noqa: F401
import os
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self, Unpack

from siltlog.infra.client.bodies.arrow_body import published_table
from siltlog.infra.client.credentials.authorized import open_transport
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.keywords import connect_timeout_of, credentials_of, spelled_out
from siltlog.infra.client.record import HeadersLike, TimeLike, encoded, partition_number, time_us
from siltlog.infra.client.transport import Transport
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.ingest.library.batch import ROW_BYTES
from siltlog.ingest.library.delivery import BatchDelivery, Delivery, unread
from siltlog.ingest.library.metrics import ProducerMetrics
from siltlog.ingest.library.options import ProducerKeywords, PublishOptions
from siltlog.ingest.library.senders import Senders


class Producer:
    """Idempotent: a retry never duplicates. Safe from several threads; not across a fork.

    `url` is a server's URL, or several of one cluster. Records wait at most `linger_ms` for others to travel with, less
    when `batch_bytes` are there; while requests are under way a batch goes on growing.
    """

    @spelled_out(ProducerKeywords, PublishOptions, compression="auto")
    def __init__(
        self,
        url: str | Sequence[str],
        *,
        clock: Clock | None = None,
        transport: Transport | None = None,
        **options: Unpack[ProducerKeywords],
    ) -> None:
        """Raises ConfigError when an argument is not valid. Connects at the first send."""
        endpoints = Endpoints(url)
        chosen = PublishOptions.of("Producer", endpoints, options)
        self._clock = clock or SystemClock()
        self._now_us, self._monotonic = self._clock.now_us, self._clock.monotonic
        self._transport = open_transport(
            endpoints, self._clock, credentials_of(options), transport, connect_timeout_of(options)
        )
        self._senders = Senders(endpoints, chosen, self._clock, self._transport)
        self._lock = self._senders.lock
        self._outbox = self._senders.outbox
        self._accumulator = self._outbox.accumulator
        self._buffer_bytes = chosen.buffer_bytes
        self._closed = False
        self._pid = os.getpid()
        # Keeps it alive: what was sent and not flushed is not lost with the last reference.
        atexit.register(self._close_at_exit)

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: HeadersLike | None = None,
        timestamp: TimeLike | None = None,
        partition: int | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> Delivery:
        """Hands a record over and returns at once with its delivery; `on_delivery` is called with it once decided.

        Raises TypeError or ValueError for what cannot be sent, BufferFull, and Refused once the producer is closed.
        """
        stored, key, named, size = encoded(topic, value, key, headers)
        if partition is not None:
            partition = partition_number(partition)
        us = self._now_us() if timestamp is None else time_us(timestamp)
        if self._pid != os.getpid():
            self._refuse()
        with self._lock:
            if self._closed:
                self._refuse()
            accumulator = self._accumulator
            if accumulator.used_bytes + size > self._buffer_bytes:
                self._senders.await_room(size + ROW_BYTES, self._refuse_closed)
            batch, index, look = accumulator.append(topic, stored, key, named, us, partition, size, self._monotonic)
            if look:
                self._senders.look()
        delivery = Delivery(batch, index)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    def send_batch(
        self, topic: str, records: Any, *, on_delivery: Callable[[BatchDelivery], None] | None = None
    ) -> BatchDelivery:
        """Hands over an Arrow table or record batch, or a pandas or polars frame: one row a record.

        Columns as in the HTTP body: `value` (binary or string), and if wanted `key`, `headers`, `timestamp`,
        `partition`. The memory is referred to, not copied: leave it unchanged until the delivery is done. Raises as
        `send` does; a batch larger than the buffer waits until the buffer is empty.
        """
        table = published_table(topic, records)
        now = self._clock.monotonic()
        if self._pid != os.getpid():
            self._refuse()
        with self._lock:
            if self._closed:
                self._refuse()
            size = table.nbytes + ROW_BYTES
            if self._accumulator.used_bytes + size > self._buffer_bytes:
                self._senders.await_room(size, self._refuse_closed)
            batch = self._accumulator.add_table(topic, table, now)
            self._senders.look()
        delivery = BatchDelivery(batch)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    def flush(self, timeout_ms: int | None = None) -> None:
        """Waits until everything sent before is decided.

        Raises DeliveryFailed with what failed since the last flush and was not read from its delivery; TimeoutError
        when `timeout_ms` was not enough.
        """
        if self._pid != os.getpid():
            self._refuse()
        self._refuse_own_thread()
        deadline = None if timeout_ms is None else self._clock.monotonic() + timeout_ms / 1000
        with self._lock:
            self._accumulator.close_open()
            waiting = list(self._accumulator.unfinished)
            if waiting:
                self._senders.look()
        for batch in waiting:
            if not batch.wait(None if deadline is None else max(0.0, deadline - self._clock.monotonic())):
                left = sum(batch.count for batch in waiting if not batch.done)
                raise TimeoutError(f"{left} records are still being sent after {timeout_ms} ms; flush again")
        with self._lock:
            finished = self._outbox.ledger.take()
        failed = unread(finished)
        if failed is not None:
            raise failed

    def metrics(self) -> ProducerMetrics:
        """Says what this producer counted, and what it holds now."""
        if self._pid != os.getpid():
            self._refuse()
        with self._lock:
            return self._outbox.metrics()

    def close(self, timeout_ms: int | None = None) -> None:
        """Flushes, then lets go of threads and connections. Raises DeliveryFailed as `flush` does.

        What is not delivered in `timeout_ms` fails; a request that is on its way is waited for. Closing again does
        nothing.
        """
        if self._pid != os.getpid():
            return
        self._refuse_own_thread()
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self._close_at_exit)
        try:
            try:
                self.flush(timeout_ms)
            except TimeoutError:
                self._senders.end()
                self.flush()
        finally:
            self._senders.stop()
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except SiltlogError as failed:
            raise failed from error

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Producer cannot be pickled: it has threads and connections; make one in each process")

    def _close_at_exit(self) -> None:
        """Flushes a producer that was not closed, with a ResourceWarning."""
        if self._pid == os.getpid() and not self._closed:
            warnings.warn(
                "a Producer was not closed; it is flushed now. Use it as a context manager, or close it",
                ResourceWarning,
                stacklevel=2,
            )
            self.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            self._refuse()

    def _refuse(self) -> None:
        self._senders.refuse_forked()
        raise problem("invalid_request", "this producer is closed; make a new one")

    def _refuse_own_thread(self) -> None:
        if self._senders.is_own_thread():
            raise problem("invalid_request", "a delivery's callback cannot flush or close: it would wait for itself")
