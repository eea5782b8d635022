"""Spans of producers: `send {topic}` from the call that hands a record over to its acknowledgement."""

from collections.abc import Mapping

import pyarrow as pa
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider, get_current_span

from siltlog.infra.errors import SiltlogError
from siltlog.infra.tracing.attributes import (
    BATCH_RECORDS,
    BODY_BYTES,
    ERROR_TYPE,
    OFFSET,
    OPERATION_NAME,
    OPERATION_TYPE,
    PARTITION,
    SILTLOG,
    SYSTEM,
    TOPIC,
)
from siltlog.infra.tracing.context import fields_of, with_headers
from siltlog.infra.tracing.draw import Draw, spared


class Sending:
    """Safe from several threads."""

    def __init__(self, provider: TracerProvider) -> None:
        self._draw = Draw(provider)

    def record(self, topic: str, value_bytes: int) -> Span:
        """Begins the span of one record, below what is current."""
        return self._begun(topic, BODY_BYTES, value_bytes)

    def batch(self, topic: str, count: int) -> Span:
        """Begins the span of records that are sent as one."""
        return self._begun(topic, BATCH_RECORDS, count)

    def fields(self, span: Span) -> dict[str, str]:
        """The header fields that a record carries: of a span that is recorded, or one of a trace that is the caller's,
        who may want to find it in the record. Empty for what nobody asks about."""
        return fields_of(span) if span.is_recording() or get_current_span().get_span_context().is_valid else {}

    def with_fields(self, records: pa.Table, fields: Mapping[str, str]) -> pa.Table:
        """The records with these header fields in each row."""
        return with_headers(records, [(name, text.encode()) for name, text in fields.items()])

    def arrived(self, span: Span, partition: int | None = None, offset: int | None = None) -> None:
        if partition is not None:
            span.set_attribute(PARTITION, str(partition))
        if offset is not None:
            span.set_attribute(OFFSET, offset)
        span.end()

    def failed(self, span: Span, error: SiltlogError) -> None:
        span.set_attribute(ERROR_TYPE, error.error_code)
        span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _begun(self, topic: str, name: str, value: int) -> Span:
        tracer = self._draw.tracer()
        if tracer is None:
            return spared()
        return tracer.start_span(
            f"send {topic}",
            kind=SpanKind.PRODUCER,
            attributes={
                SYSTEM: SILTLOG,
                TOPIC: topic,
                OPERATION_NAME: "send",
                OPERATION_TYPE: "send",
                name: value,
            },
        )
