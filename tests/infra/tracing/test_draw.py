"""A request that is not sampled is told so before a span is made; one that is, is sampled as the SDK would do it."""

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import INVALID_SPAN, Span, set_span_in_context, use_span
from span_rig import Spans, context_of

from siltlog.infra.tracing.draw import Draw, DrawnProvider, spared
from siltlog.infra.tracing.provider import LinkedRatio


@pytest.fixture
def kept() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(kept: InMemorySpanExporter) -> DrawnProvider:
    made = DrawnProvider(ParentBased(LinkedRatio(0.25)), 0.25, Resource({}))
    made.add_span_processor(SimpleSpanProcessor(kept))
    return made


def of_another(sampled: bool) -> Span:
    return (Spans() if sampled else Spans(ALWAYS_OFF)).tracer.start_span("another")


def test_what_has_no_parent_is_drawn_once(provider: DrawnProvider, kept: InMemorySpanExporter) -> None:
    rolls = iter([0.1, 0.25, 0.9, 0.249])
    draw = Draw(provider, lambda: next(rolls))
    tracers = [draw.tracer() for _ in range(4)]
    assert [tracer is not None for tracer in tracers] == [True, False, False, True]
    for tracer in tracers:
        if tracer is not None:
            tracer.start_span("a").end()
    # What was drawn is not asked about again.
    assert len(kept.get_finished_spans()) == 2
    assert spared() is INVALID_SPAN


@pytest.mark.parametrize("sampled", [True, False])
def test_a_parent_decides(sampled: bool, provider: DrawnProvider, kept: InMemorySpanExporter) -> None:
    draw = Draw(provider, lambda: 0.0 if not sampled else 1.0)
    parent = of_another(sampled)
    context = set_span_in_context(parent)
    tracer = draw.tracer(context)
    assert (tracer is not None) is sampled
    with use_span(parent):
        assert (draw.tracer() is not None) is sampled
    assert spared(context).get_span_context() == context_of(parent)
    assert not spared(context).is_recording()
    if tracer is not None:
        tracer.start_span("a", context).end()
        [span] = kept.get_finished_spans()
        assert context_of(span).trace_id == context_of(parent).trace_id


@pytest.mark.rule("V4")
def test_a_link_decides_for_it_and_never_against(provider: DrawnProvider) -> None:
    sampled, unsampled = context_of(of_another(True)), context_of(of_another(False))
    assert Draw(provider, lambda: 1.0).tracer(linked=sampled) is not None
    assert Draw(provider, lambda: 1.0).tracer(linked=unsampled) is None
    assert Draw(provider, lambda: 0.0).tracer(linked=unsampled) is not None


def test_a_provider_of_somebody_else_is_always_asked() -> None:
    assert Draw(TracerProvider(ALWAYS_OFF, shutdown_on_exit=False), lambda: 1.0).tracer() is not None


def test_the_share_is_about_what_was_asked_for(provider: DrawnProvider) -> None:
    draw = Draw(provider)
    drawn = sum(draw.tracer() is not None for _ in range(10_000))
    assert 2_200 < drawn < 2_800
