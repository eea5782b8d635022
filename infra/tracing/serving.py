"""Spans of a server: `publish` for each request, `group commit` and `flush {topic}` linked to what they keep."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, get_current_span, use_span

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError
from siltlog.infra.tracing.attributes import (
    BATCH_RECORDS,
    COMMIT_BYTES,
    ERROR_TYPE,
    FLUSH_FILES,
    METHOD,
    OPERATION_NAME,
    REQUEST_ID,
    ROUTE,
    SILTLOG,
    STATUS,
    SYSTEM,
    TABLE_VERSION,
    TOPIC,
)
from siltlog.infra.tracing.context import context_of, spans_in
from siltlog.infra.tracing.draw import Draw, spared

LINKS_MAX = 128
"""What a span is linked to at most: a group commit or a flush has thousands of requests and records."""
_ROUTE = "/v1/topics/{topic}/records"
_PUBLISH = {SYSTEM: SILTLOG, OPERATION_NAME: "publish", METHOD: "POST", ROUTE: _ROUTE}
_FIELDS = {name.encode(): name for name in (names.HEADER_TRACEPARENT, names.HEADER_TRACESTATE)}
NANOS_PER_MICRO = 1_000
NANOS_PER_SECOND = 1_000_000_000


class Serving:
    """Used on the log's event loop, but for what a flush sees."""

    def __init__(self, provider: TracerProvider, clock: Clock) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(SILTLOG)
        self._draw = Draw(provider)
        self._clock = clock

    def begin_publish(self, topic: str, headers: Iterable[tuple[bytes, bytes]]) -> Span:
        """Begins the span of a request, below the span that its header fields tell of; one that is not recorded where
        nobody is to see it."""
        context = context_of(_named(headers))
        tracer = self._draw.tracer(context)
        if tracer is None:
            return spared(context)
        return tracer.start_span("publish", context, SpanKind.SERVER, {**_PUBLISH, TOPIC: topic})

    def refused(self, span: Span, error: Exception) -> None:
        """Notes why."""
        span.set_attribute(ERROR_TYPE, _kind(error))

    def end_publish(self, span: Span, request_id: str, status: int) -> None:
        """Ends the span of a request that was answered; what a caller did wrong is no failure of the server."""
        span.set_attribute(REQUEST_ID, request_id)
        span.set_attribute(STATUS, status)
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    @contextmanager
    def during(self, span: Span) -> Iterator[None]:
        """Meanwhile it is current: what a group commit takes is linked to it, and log lines have its trace's id."""
        with use_span(span, record_exception=False, set_status_on_exception=False):
            yield

    def join(self, spans: list[SpanContext]) -> None:
        """Adds what is current to the spans of a group commit."""
        span = get_current_span()
        if span.is_recording() and len(spans) < LINKS_MAX:
            spans.append(span.get_span_context())

    def committed(self, spans: Sequence[SpanContext], seconds: float, nbytes: int) -> None:
        """Tells of a group commit that ended just now."""
        end = self._now_ns()
        self._tracer.start_span(
            "group commit",
            links=[Link(span) for span in spans],
            attributes={COMMIT_BYTES: nbytes},
            start_time=end - int(seconds * NANOS_PER_SECOND),
        ).end(end)

    def flush(self, topic: str) -> "FlushTrace":
        return FlushTrace(self, topic, self._now_ns())

    async def close(self) -> None:
        """Sends what is left, in no more than a moment."""
        await asyncio.to_thread(self._provider.shutdown)

    def _now_ns(self) -> int:
        return self._clock.now_us() * NANOS_PER_MICRO

    def flushed(self, topic: str, start: int, spans: Iterable[SpanContext], attributes: dict[str, int]) -> Span:
        return self._tracer.start_span(
            f"flush {topic}",
            links=[Link(span) for span in spans],
            attributes={SYSTEM: SILTLOG, TOPIC: topic, **attributes},
            start_time=start,
        )


class FlushTrace:
    """One flush. Its span is begun with its end: which spans it is linked to is known once its records are read."""

    def __init__(self, serving: Serving, topic: str, start: int) -> None:
        self._serving = serving
        self._topic = topic
        self._start = start
        self._spans: dict[int, SpanContext] = {}

    def see(self, columns: pa.RecordBatch) -> None:
        """Takes note of the spans that some records carry. On any thread."""
        if len(self._spans) < LINKS_MAX and "headers" in columns.schema.names:
            self._spans |= {span.span_id: span for span in spans_in(columns.column("headers"), LINKS_MAX)}

    def done(self, records: int, files: int, version: int) -> None:
        numbers = {BATCH_RECORDS: records, FLUSH_FILES: files, TABLE_VERSION: version}
        self._serving.flushed(self._topic, self._start, self._linked(), numbers).end()

    def failed(self, error: Exception) -> None:
        span = self._serving.flushed(self._topic, self._start, self._linked(), {})
        span.set_attribute(ERROR_TYPE, _kind(error))
        span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _linked(self) -> list[SpanContext]:
        return [*self._spans.values()][:LINKS_MAX]


def _named(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, bytes | None]]:
    """The fields of a trace among those of a request."""
    return [(_FIELDS[name], value) for name, value in headers if name in _FIELDS]


def _kind(error: Exception) -> str:
    return error.error_code if isinstance(error, SiltlogError) else type(error).__qualname__
