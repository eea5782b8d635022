"""Spans of consumers: `process {topic}` around the handler of a record, linked to the span that the record carries.

Linked, not its child: a record may be handled long after, by many groups, and again by a replay.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider

from siltlog.infra.tracing.attributes import (
    BODY_BYTES,
    ERROR_TYPE,
    GROUP,
    OFFSET,
    OPERATION_NAME,
    OPERATION_TYPE,
    PARTITION,
    SILTLOG,
    SYSTEM,
    TOPIC,
)
from siltlog.infra.tracing.context import span_of
from siltlog.infra.tracing.draw import Draw

Headers = tuple[tuple[str, bytes | None], ...]


class Handled(Protocol):
    """A consumer's record."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class Processing:
    def __init__(self, provider: TracerProvider, group: str | None) -> None:
        self._draw = Draw(provider)
        self._of_group = {} if group is None else {GROUP: group}

    def handled(self, handle: Callable[[Any], object]) -> Callable[[Any], object]:
        """The handler, each of whose calls is a span, which is current meanwhile."""

        def traced(record: Handled) -> object:
            with self._span(record):
                return handle(record)

        return traced

    def async_handled(self, handle: Callable[[Any], object]) -> Callable[[Any], Awaitable[object]]:
        """The handler, each of whose calls is a span until what it returns was awaited."""

        async def traced(record: Handled) -> object:
            with self._span(record):
                told = handle(record)
                return await told if inspect.isawaitable(told) else told

        return traced

    @contextmanager
    def _span(self, record: Handled) -> Iterator[None]:
        sent = span_of(record.headers) if record.headers else None
        tracer = self._draw.tracer(linked=sent)
        if tracer is None:
            yield
            return
        with tracer.start_as_current_span(
            f"process {record.topic}",
            kind=SpanKind.CONSUMER,
            links=() if sent is None else (Link(sent),),
            attributes={
                SYSTEM: SILTLOG,
                TOPIC: record.topic,
                PARTITION: str(record.partition),
                OPERATION_NAME: "process",
                OPERATION_TYPE: "process",
                BODY_BYTES: len(record.value or b""),
                OFFSET: record.offset,
                **self._of_group,
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except Exception as error:
                # Its name alone: what it says may quote the record.
                span.set_attribute(ERROR_TYPE, type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR))
                raise
