"""Spans that are kept in memory, of a provider that samples everything."""

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler


class Spans:
    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def one(self, name: str) -> ReadableSpan:
        [found] = [span for span in self.ended() if span.name == name]
        return found


def context_of(span: Any) -> Any:
    found = span.get_span_context()
    assert found is not None
    return found


def traceparent(span: Any, version: str = "00") -> bytes:
    context = context_of(span)
    return f"{version}-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()
