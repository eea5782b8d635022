"""Deliveries that `send` gives back: light handles on the state that the records of one batch share."""

from collections.abc import Callable, Sequence
from typing import NoReturn

import msgspec
import pyarrow as pa

from siltlog.infra.client.record import PartitionMetadata, RecordMetadata
from siltlog.infra.errors import DeliveryFailed, SiltlogError
from siltlog.ingest.library.batch import Batch, Failed, Landed


class Handle(msgspec.Struct, gc=False, eq=False):
    """The base of every delivery. A struct, because one is made in a quarter of the time that an `__init__` takes."""

    _batch: Batch

    def __reduce__(self) -> NoReturn:
        raise TypeError("a delivery cannot be pickled: it waits in this process; pickle its result()")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self._batch.topic}, {'done' if self._batch.done else 'under way'}>"

    def done(self) -> bool:
        """Whether it is decided: acknowledged or failed."""
        return self._batch.done


class _Awaited(Handle, gc=False, eq=False):
    def _await(self, timeout: float | None) -> None:
        batch = self._batch
        if batch.done:
            return
        batch.owner.hurry(batch)
        if not batch.wait(timeout):
            raise TimeoutError(f"not acknowledged within {timeout} s; it is still being sent")


class Delivery(_Awaited, gc=False, eq=False):
    """The delivery of one record. Like a future, but many share one state."""

    _index: int

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits, at most `timeout` seconds (TimeoutError), for the acknowledgement; raises why there is none."""
        self._await(timeout)
        return self._batch.metadata(self._index)

    def exception(self, timeout: float | None = None) -> SiltlogError | None:
        """Why the record did not arrive, None when it did. An error read here is not raised again by `flush`."""
        self._await(timeout)
        return self._batch.error(self._index)

    def add_done_callback(self, callback: Callable[["Delivery"], None]) -> None:
        """Calls it with this delivery once decided, on the sender's thread; at once when it already is."""
        self._batch.when_done(callback, self)


class BatchDelivery(_Awaited, gc=False, eq=False):
    """The delivery of the rows of one `send_batch`."""

    def result(self, timeout: float | None = None) -> list[PartitionMetadata]:
        """Says what landed where, by request and partition. Raises DeliveryFailed when any row did not arrive."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return batch_parts(self._batch)

    def exception(self, timeout: float | None = None) -> DeliveryFailed | None:
        """Why rows did not arrive, None when all did. An error read here is not raised again by `flush`."""
        self._await(timeout)
        return batch_failure(self._batch)

    def add_done_callback(self, callback: Callable[["BatchDelivery"], None]) -> None:
        self._batch.when_done(callback, self)


def batch_parts(batch: Batch) -> list[PartitionMetadata]:
    return [part for outcome in batch.outcomes if isinstance(outcome, Landed) for part in outcome.parts]


def batch_failure(batch: Batch) -> DeliveryFailed | None:
    """All that failed of a batch; it counts as read."""
    batch.unread_failures()
    return delivery_failed([(batch.topic, failed) for failed in batch.failures])


def delivery_failed(failed: Sequence[tuple[str, Failed]]) -> DeliveryFailed | None:
    """One error for all of them, with the records as tables by topic; None when there are none."""
    if not failed:
        return None
    failures: list[SiltlogError] = []
    tables: dict[str, list[pa.Table]] = {}
    for topic, part in failed:
        failures += [part.error] * (part.stop - part.start)
        if part.records is not None:
            tables.setdefault(topic, []).append(part.records)
    kinds = {error.error_code: error for error in failures}
    reasons = "; ".join(f"{code}: {error.detail}" for code, error in kinds.items())
    return DeliveryFailed(
        f"{len(failures)} {'record' if len(failures) == 1 else 'records'} did not arrive ({reasons})",
        failures=failures,
        records={topic: pa.concat_tables(parts, promote_options="default") for topic, parts in tables.items()},
        retryable="unknown" if any(error.retryable == "unknown" for error in failures) else "no",
    )


class FailureLedger:
    """Failures since the last flush, to be raised by the next one. The caller locks."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._batches: list[Batch] = []

    def add(self, batch: Batch) -> None:
        """Takes a finished batch; beyond `bytes_max` the errors are kept and the records are not."""
        if not batch.failures:
            return
        size = sum(failed.records.nbytes for failed in batch.failures if failed.records is not None)
        if self._bytes + size > self._bytes_max:
            batch.forget_records()
        else:
            self._bytes += size
        self._batches.append(batch)

    def take(self) -> list[Batch]:
        batches, self._batches, self._bytes = self._batches, [], 0
        return batches


def unread(batches: Sequence[Batch]) -> DeliveryFailed | None:
    """The failures that nobody read from a delivery."""
    return delivery_failed([(batch.topic, failed) for batch in batches for failed in batch.unread_failures()])
