"""Spans around handlers: linked to what a record carries, current meanwhile, and silent about what went wrong."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode
from span_rig import Spans, context_of, traceparent

from siltlog.infra.tracing.opening import current_trace_id
from siltlog.infra.tracing.processing import Processing


def record(*headers: tuple[str, bytes | None]) -> Any:
    return SimpleNamespace(topic="orders", partition=2, offset=41, value=b"abc", headers=headers)


@pytest.mark.rule("V4")
def test_it_is_linked_to_the_record_and_not_its_child() -> None:
    spans = Spans()
    send = spans.tracer.start_span("send")
    seen: list[str | None] = []

    def handle(record: Any) -> int:
        seen.append(current_trace_id())
        return record.offset

    traced = Processing(spans.provider, "billing").handled(handle)
    assert traced(record(("traceparent", traceparent(send)))) == 41
    assert traced(record()) == 41
    told, alone = spans.ended()
    assert told.kind is SpanKind.CONSUMER
    assert told.parent is None
    assert [link.context.span_id for link in told.links] == [context_of(send).span_id]
    assert not alone.links
    assert seen == [f"{context_of(span).trace_id:032x}" for span in (told, alone)]
    assert told.attributes == {
        "messaging.system": "siltlog",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "2",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.body.size": 3,
        "messaging.consumer.group.name": "billing",
        "siltlog.offset": 41,
    }


@pytest.mark.parametrize("awaits", [True, False])
def test_what_a_coroutine_does_is_within_it(awaits: bool) -> None:
    spans = Spans()
    seen: list[str | None] = []

    async def later(record: Any) -> int:
        await asyncio.sleep(0)
        seen.append(current_trace_id())
        return record.offset

    def plain(record: Any) -> int:
        seen.append(current_trace_id())
        return record.offset

    traced = Processing(spans.provider, None).async_handled(later if awaits else plain)
    assert asyncio.run(traced(record())) == 41  # type: ignore[arg-type]
    assert seen == [f"{context_of(spans.one('process orders')).trace_id:032x}"]


@pytest.mark.rule("V6")
def test_what_a_handler_raises_is_raised_and_its_type_is_told() -> None:
    spans = Spans()

    def fails(record: Any) -> None:
        raise LookupError("the secret of " + repr(record.value))

    with pytest.raises(LookupError):
        Processing(spans.provider, "g").handled(fails)(record())
    told = spans.one("process orders")
    assert told.attributes is not None
    assert told.attributes["error.type"] == "LookupError"
    assert (told.status.status_code, told.status.description, told.events) == (StatusCode.ERROR, None, ())
