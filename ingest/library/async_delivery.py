"""Deliveries that `AsyncProducer.send_nowait` gives back: tasks wait for the batch that many records share."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pyarrow as pa

from siltlog.infra.client.record import PartitionMetadata, RecordMetadata
from siltlog.infra.errors import DeliveryFailed, SiltlogError
from siltlog.ingest.library.batch import Batch, Owner
from siltlog.ingest.library.delivery import Handle, batch_failure, batch_parts


class AsyncBatch(Batch):
    """A batch that tasks of one event loop wait for: all of them wake in one turn of it."""

    def __init__(self, topic: str, created: float, owner: Owner, table: pa.Table | None = None) -> None:
        super().__init__(topic, created, owner, table)
        self._waiters: list[asyncio.Future[None]] = []

    def waiter(self) -> "asyncio.Future[None]":
        """A future of the caller's own, so that one who is cancelled disturbs no other."""
        future = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        return future

    def finish(self) -> None:
        super().finish()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class _AsyncHandle(Handle, gc=False, eq=False):
    _batch: AsyncBatch

    def _check_done(self) -> None:
        if not self._batch.done:
            raise asyncio.InvalidStateError("it is still being sent; await the delivery")


class AsyncDelivery(_AsyncHandle, gc=False, eq=False):
    """The delivery of one record: `await delivery` is its acknowledgement. Like a future, but many share one state."""

    _index: int

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._batch.done:
            yield from self._batch.waiter()
        return self.result()

    def result(self) -> RecordMetadata:
        """Raises why the record did not arrive; InvalidStateError while that is not known."""
        self._check_done()
        return self._batch.metadata(self._index)

    def exception(self) -> SiltlogError | None:
        """Why the record did not arrive, None when it did. An error read here is not raised again by `flush`."""
        self._check_done()
        return self._batch.error(self._index)

    def add_done_callback(self, callback: Callable[["AsyncDelivery"], None]) -> None:
        """Calls it with this delivery once decided, in the event loop; at once when it already is."""
        self._batch.when_done(callback, self)


class AsyncBatchDelivery(_AsyncHandle, gc=False, eq=False):
    """The delivery of the rows of one `send_batch`: `await delivery` is their acknowledgement."""

    def __await__(self) -> Generator[Any, None, list[PartitionMetadata]]:
        if not self._batch.done:
            yield from self._batch.waiter()
        return self.result()

    def result(self) -> list[PartitionMetadata]:
        """Says what landed where, by request and partition. Raises DeliveryFailed when any row did not arrive."""
        error = self.exception()
        if error is not None:
            raise error
        return batch_parts(self._batch)

    def exception(self) -> DeliveryFailed | None:
        """Why rows did not arrive, None when all did. An error read here is not raised again by `flush`."""
        self._check_done()
        return batch_failure(self._batch)

    def add_done_callback(self, callback: Callable[["AsyncBatchDelivery"], None]) -> None:
        self._batch.when_done(callback, self)
