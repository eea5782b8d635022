"""The accumulator of a producer that traces: each record carries the span of its send, which ends with its outcome."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.client.record import Headers
from siltlog.ingest.library.accumulator import Accumulator
from siltlog.ingest.library.batch import Batch, Failed, Landed, Outcome, Owner
from siltlog.ingest.library.options import PublishOptions

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from siltlog.infra.tracing.sending import Sending


class TracedAccumulator(Accumulator):
    """Accumulates as its base does, and keeps spans. `append` and `add_table` are called where the caller's span is
    current."""

    def __init__(
        self,
        options: PublishOptions,
        owner: Owner,
        jitter: Callable[[], float],
        batch_type: type[Batch],
        sending: "Sending",
    ) -> None:
        super().__init__(options, owner, jitter, batch_type)
        self._sending = sending
        self._spans: dict[Batch, list[tuple[int | None, Span]]] = {}
        """The spans of batches that are not decided, with the row of each; None for the whole batch."""

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
        span = self._sending.record(topic, len(value or b""))
        fields = self._sending.fields(span)
        if fields and not _carries(headers):
            own = tuple((name, text.encode()) for name, text in fields.items())
            headers = own if headers is None else headers + own
            size += sum(len(name) + len(text) for name, text in own)
        batch, index, look = super().append(topic, value, key, headers, timestamp_us, partition, size, monotonic)
        self._keep(batch, index, span, fields)
        return batch, index, look

    def add_table(self, topic: str, table: pa.Table, now: float) -> Batch:
        span = self._sending.batch(topic, table.num_rows)
        fields = self._sending.fields(span) if span.is_recording() else {}
        if fields:
            table = self._sending.with_fields(table, fields)
        batch = super().add_table(topic, table, now)
        self._keep(batch, None, span, fields)
        return batch

    def finished(self, batch: Batch) -> None:
        super().finished(batch)
        for index, span in self._spans.pop(batch, ()):
            self._end(batch, index, span)

    def _keep(self, batch: Batch, index: int | None, span: "Span", fields: dict[str, str]) -> None:
        if span.is_recording():
            self._spans.setdefault(batch, []).append((index, span))
            if not batch.trace:
                # The request has many records' spans and goes on from one of them.
                batch.trace = fields

    def _end(self, batch: Batch, index: int | None, span: "Span") -> None:
        failures = [outcome for outcome in batch.outcomes if isinstance(outcome, Failed) and _has(outcome, index)]
        if failures:
            self._sending.failed(span, failures[0].error)
            return
        landed = [outcome for outcome in batch.outcomes if isinstance(outcome, Landed) and _has(outcome, index)]
        self._sending.arrived(span, *(_place(landed[0], index) if landed and index is not None else ()))


def _place(landed: Landed, index: int) -> tuple[int, int | None]:
    """Partition and offset of a row."""
    part, rank = landed.parts[0], index - landed.start
    if landed.partition is not None and landed.rank is not None:
        number, rank = int(landed.partition[rank]), int(landed.rank[rank])
        part = next(part for part in landed.parts if part.partition == number)
    return part.partition, None if part.first_offset is None else part.first_offset + rank


def _has(outcome: Outcome, index: int | None) -> bool:
    return index is None or outcome.start <= index < outcome.stop


def _carries(headers: Headers | None) -> bool:
    """Whether the caller says by himself which trace the record belongs to."""
    return headers is not None and any(name == names.HEADER_TRACEPARENT for name, _ in headers)
