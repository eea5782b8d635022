"""Decides about most spans before OpenTelemetry is asked, which takes ten times as long to say no."""

import random
from collections.abc import Callable

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, Span, SpanContext, Tracer, get_current_span
from opentelemetry.trace import TracerProvider as AnyProvider

from siltlog.infra.tracing.attributes import SILTLOG


class DrawnProvider(TracerProvider):
    """A provider whose sampler goes by the parent, and for what has none by chance: `ratio` of them. Another one beside
    it, with the same processors, takes everything, once it was drawn."""

    def __init__(self, sampler: Sampler, ratio: float, resource: Resource) -> None:
        super().__init__(sampler, resource, shutdown_on_exit=False)
        self.ratio = ratio
        self.drawn = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        super().add_span_processor(span_processor)
        self.drawn.add_span_processor(span_processor)


class Draw:
    def __init__(self, provider: AnyProvider, roll: Callable[[], float] | None = None) -> None:
        """`roll` gives numbers from 0 to 1. A provider of somebody else is always asked."""
        self._usual = provider.get_tracer(SILTLOG)
        self._drawn: Tracer | None = None
        self._ratio = 1.0
        self._roll = roll or random.Random().random  # noqa: S311 (spreads load)
        if isinstance(provider, DrawnProvider):
            self._drawn, self._ratio = provider.drawn.get_tracer(SILTLOG), provider.ratio

    def tracer(self, context: Context | None = None, linked: SpanContext | None = None) -> Tracer | None:
        """What begins a span with this parent (None: what is current) and link; None where it would be for nothing."""
        if self._drawn is None or (linked is not None and linked.trace_flags.sampled):
            return self._usual
        parent = get_current_span(context)
        span = parent.get_span_context()
        if span.is_valid:
            return self._usual if span.trace_flags.sampled or parent.is_recording() else None
        return self._drawn if self._roll() < self._ratio else None


def spared(context: Context | None = None) -> Span:
    """What stands for a span that is not begun: it tells of the trace of its parent, if there is one."""
    span = get_current_span(context).get_span_context()
    return NonRecordingSpan(span) if span.is_valid else INVALID_SPAN
