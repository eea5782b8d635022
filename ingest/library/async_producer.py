"""Publishing from asyncio: as Producer does, over the same core."""

import asyncio
import atexit
import os
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self, Unpack

from siltlog.infra.client.async_transport import AsyncTransport, thread_transport
from siltlog.infra.client.bodies.arrow_body import published_table
from siltlog.infra.client.credentials.async_authorized import async_open_transport
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.keywords import connect_timeout_of, credentials_of, spelled_out
from siltlog.infra.client.record import (
    HeadersLike,
    PartitionMetadata,
    RecordMetadata,
    TimeLike,
    encoded,
    partition_number,
    time_us,
)
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.ingest.library.async_delivery import AsyncBatch, AsyncBatchDelivery, AsyncDelivery
from siltlog.ingest.library.async_senders import AsyncSenders
from siltlog.ingest.library.batch import ROW_BYTES
from siltlog.ingest.library.delivery import unread
from siltlog.ingest.library.metrics import ProducerMetrics
from siltlog.ingest.library.options import ProducerKeywords, PublishOptions
from siltlog.ingest.library.senders import buffer_full


class AsyncProducer:
    """Idempotent: a retry never duplicates. Shared by the tasks of one event loop; not across a fork.

    With `linger_ms` 0 records gather by themselves while requests are under way. Where there is no room in the buffer
    `send` raises BufferFull after `max_block_ms`, and `send_nowait` at once.
    """

    @spelled_out(ProducerKeywords, PublishOptions, compression="auto", linger_ms=0)
    def __init__(
        self,
        url: str | Sequence[str],
        *,
        clock: Clock | None = None,
        transport: AsyncTransport | None = None,
        **options: Unpack[ProducerKeywords],
    ) -> None:
        """Raises ConfigError when an argument is not valid, or aiohttp is missing. Connects at the first send."""
        endpoints = Endpoints(url)
        self._options = PublishOptions.of("AsyncProducer", endpoints, {"linger_ms": 0, **options})
        self._clock = clock or SystemClock()
        self._now_us = self._clock.now_us
        self._transport = async_open_transport(
            endpoints, self._clock, credentials_of(options), transport, connect_timeout_of(options)
        )
        self._senders = AsyncSenders(endpoints, self._options, self._clock, self._transport)
        self._outbox = self._senders.outbox
        self._accumulator = self._outbox.accumulator
        self._closed = False
        self._pid = os.getpid()
        # Keeps it alive: what was sent and not flushed is not lost with the last reference.
        atexit.register(self._close_at_exit)

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: HeadersLike | None = None,
        timestamp: TimeLike | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Returns once the record is acknowledged; raises why it did not arrive. Who is cancelled has sent it.

        Raises TypeError or ValueError for what cannot be sent, BufferFull, and Refused once the producer is closed.
        """
        batch, index = self._accept(topic, value, key, headers, timestamp, partition)
        while batch is None:
            await self._senders.await_room(index)
            batch, index = self._accept(topic, value, key, headers, timestamp, partition)
        await batch.waiter()
        return batch.metadata(index)

    def send_nowait(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: HeadersLike | None = None,
        timestamp: TimeLike | None = None,
        partition: int | None = None,
        on_delivery: Callable[[AsyncDelivery], None] | None = None,
    ) -> AsyncDelivery:
        """Hands a record over and returns at once with its delivery; `on_delivery` is called with it once decided.

        Raises as `send` does, BufferFull without waiting.
        """
        batch, index = self._accept(topic, value, key, headers, timestamp, partition)
        if batch is None:
            raise buffer_full(self._options)
        delivery = AsyncDelivery(batch, index)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    async def send_batch(self, topic: str, records: Any) -> list[PartitionMetadata]:
        """Publishes an Arrow table or record batch, or a pandas or polars frame: one row a record.

        Returns what landed where once all of it is acknowledged; raises DeliveryFailed when any row did not arrive.
        Columns as for Producer.send_batch.
        """
        table = published_table(topic, records)
        self._enter()
        size = table.nbytes + ROW_BYTES
        if not self._senders.has_room(size):
            await self._senders.await_room(size)
            self._refuse_closed()
        return await AsyncBatchDelivery(self._add_table(topic, table))

    def send_batch_nowait(
        self, topic: str, records: Any, *, on_delivery: Callable[[AsyncBatchDelivery], None] | None = None
    ) -> AsyncBatchDelivery:
        """Does what `send_batch` does, but returns at once with the delivery. Raises BufferFull without waiting."""
        table = published_table(topic, records)
        self._enter()
        if not self._senders.has_room(table.nbytes + ROW_BYTES):
            raise buffer_full(self._options)
        delivery = AsyncBatchDelivery(self._add_table(topic, table))
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Waits until everything sent before is decided.

        Raises DeliveryFailed with what failed since the last flush and was not read from its delivery; TimeoutError
        when `timeout_ms` was not enough.
        """
        self._senders.enter()
        await self._flush(timeout_ms)

    def metrics(self) -> ProducerMetrics:
        """Says what this producer counted, and what it holds now."""
        return self._outbox.metrics()

    async def close(self, timeout_ms: int | None = None) -> None:
        """Flushes, then lets go of connections. Raises DeliveryFailed as `flush` does.

        What is not delivered in `timeout_ms` fails; a request that is on its way is waited for. Closing again does
        nothing.
        """
        if self._closed or self._pid != os.getpid():
            return
        self._senders.enter()
        self._closed = True
        atexit.unregister(self._close_at_exit)
        try:
            try:
                await self._flush(timeout_ms)
            except TimeoutError:
                self._senders.end()
                await self._flush(None)
        finally:
            await self._senders.stop()
            await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except SiltlogError as failed:
            raise failed from error

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AsyncProducer cannot be pickled: it has tasks and connections; make one in each process")

    def _accept(
        self,
        topic: str,
        value: Any,
        key: str | bytes | None,
        headers: HeadersLike | None,
        timestamp: TimeLike | None,
        partition: int | None,
    ) -> tuple[AsyncBatch, int] | tuple[None, int]:
        """The batch that took the record and its index there; None and its size while there is no room for it."""
        if self._closed or self._pid != os.getpid() or asyncio.get_running_loop() is not self._senders.loop:
            self._enter()
        stored, stored_key, named, size = encoded(topic, value, key, headers)
        if partition is not None:
            partition = partition_number(partition)
        us = self._now_us() if timestamp is None else time_us(timestamp)
        accumulator = self._accumulator
        if accumulator.used_bytes + size > self._options.buffer_bytes and not self._senders.has_room(size):
            return None, size
        batch, index, look = accumulator.append(
            topic, stored, stored_key, named, us, partition, size, self._clock.monotonic
        )
        if look:
            self._senders.look()
        return batch, index  # type: ignore[return-value]

    def _add_table(self, topic: str, table: Any) -> AsyncBatch:
        batch = self._accumulator.add_table(topic, table, self._clock.monotonic())
        self._senders.look()
        assert isinstance(batch, AsyncBatch)
        return batch

    async def _flush(self, timeout_ms: int | None) -> None:
        self._accumulator.close_open()
        waiting = list(self._accumulator.unfinished)
        self._senders.look()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                for batch in waiting:
                    assert isinstance(batch, AsyncBatch)
                    if not batch.done:
                        await batch.waiter()
        except TimeoutError:
            left = sum(batch.count for batch in waiting if not batch.done)
            raise TimeoutError(f"{left} records are still being sent after {timeout_ms} ms; flush again") from None
        failed = unread(self._outbox.ledger.take())
        if failed is not None:
            raise failed

    def _enter(self) -> None:
        self._senders.enter()
        self._refuse_closed()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise problem("invalid_request", "this producer is closed; make a new one")

    def _close_at_exit(self) -> None:
        """Flushes a producer that was not closed, with a ResourceWarning."""
        if self._pid != os.getpid() or self._closed:
            return
        self._closed = True
        warnings.warn(
            "an AsyncProducer was not closed; it is flushed now. Use it in `async with`, or await close()",
            ResourceWarning,
            stacklevel=2,
        )
        transport = thread_transport(self._transport)
        self._senders.finish_blocking(transport)
        transport.close()
        failed = unread(self._outbox.ledger.take())
        if failed is not None:
            raise failed
