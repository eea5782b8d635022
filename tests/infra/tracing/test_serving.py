"""Spans of a server: below whom a request is, what group commits and flushes are linked to, what errors say."""

import asyncio

import pyarrow as pa
import pytest
from opentelemetry.trace import SpanContext, SpanKind, StatusCode
from span_rig import Spans, context_of, traceparent

from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import HEADERS
from siltlog.infra.errors import problem
from siltlog.infra.tracing.opening import current_trace_id
from siltlog.infra.tracing.serving import LINKS_MAX, Serving


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def serving(spans: Spans) -> Serving:
    return Serving(spans.provider, SystemClock())


def test_a_publish_is_below_the_span_of_its_request(spans: Spans, serving: Serving) -> None:
    send = spans.tracer.start_span("send")
    span = serving.begin_publish("orders", [(b"host", b"x"), (b"traceparent", traceparent(send))])
    with serving.during(span):
        assert current_trace_id() == f"{context_of(send).trace_id:032x}"
    serving.end_publish(span, "r-1", 200)
    told = spans.one("publish")
    assert told.kind is SpanKind.SERVER
    assert told.parent is not None
    assert told.parent.span_id == context_of(send).span_id
    assert told.attributes == {
        "messaging.system": "siltlog",
        "messaging.destination.name": "orders",
        "messaging.operation.name": "publish",
        "http.request.method": "POST",
        "http.route": "/v1/topics/{topic}/records",
        "http.response.status_code": 200,
        "siltlog.request_id": "r-1",
    }


@pytest.mark.rule("V2")
def test_a_malformed_parent_is_none(spans: Spans, serving: Serving) -> None:
    serving.end_publish(serving.begin_publish("t", [(b"traceparent", b"\xff00-1")]), "r", 200)
    assert spans.one("publish").parent is None


@pytest.mark.rule("V6")
@pytest.mark.parametrize(
    ("error", "kind", "status", "failed"),
    [
        (problem("wal_full", "secret"), "wal_full", 503, StatusCode.ERROR),
        (problem("invalid_record", "secret"), "invalid_record", 422, StatusCode.UNSET),
        (KeyError("secret"), "KeyError", 500, StatusCode.ERROR),
    ],
)
def test_of_an_error_its_kind_is_told_and_no_word_of_it(
    error: Exception, kind: str, status: int, failed: StatusCode, spans: Spans, serving: Serving
) -> None:
    span = serving.begin_publish("t", [])
    serving.refused(span, error)
    serving.end_publish(span, "r", status)
    told = spans.one("publish")
    assert told.attributes is not None
    assert told.attributes["error.type"] == kind
    assert (told.status.status_code, told.status.description) == (failed, None)
    serving.flush("t").failed(error)
    assert spans.one("flush t").status.status_code is StatusCode.ERROR
    assert "secret" not in "".join(span.to_json() for span in spans.ended())


@pytest.mark.rule("V4")
def test_a_group_commit_is_linked_to_requests_as_far_as_that_goes(spans: Spans, serving: Serving) -> None:
    joined: list[SpanContext] = []
    serving.join(joined)
    assert joined == [], "nothing was current"
    begun = [serving.begin_publish("t", []) for _ in range(LINKS_MAX + 10)]
    for span in begun:
        with serving.during(span):
            serving.join(joined)
    serving.committed(joined, 0.25, 1_000)
    told = spans.one("group commit")
    assert [link.context.span_id for link in told.links] == [context_of(span).span_id for span in begun[:LINKS_MAX]]
    assert told.start_time is not None
    assert told.end_time == told.start_time + 250_000_000
    assert told.attributes == {"siltlog.commit.bytes": 1_000}


@pytest.mark.rule("V4")
def test_a_flush_is_linked_to_what_its_records_carry(spans: Spans, serving: Serving) -> None:
    sends = [spans.tracer.start_span("send") for _ in range(LINKS_MAX + 10)]
    rows = [[{"key": "traceparent", "value": traceparent(span)}] for span in sends]
    flush = serving.flush("orders")
    flush.see(pa.record_batch({"value": pa.array([b"x"])}))
    for part in (rows[:70], rows[60:]):
        flush.see(pa.record_batch({"value": pa.array([b"x"] * len(part)), "headers": pa.array(part, HEADERS)}))
    flush.done(3, 2, 17)
    told = spans.one("flush orders")
    assert [link.context.span_id for link in told.links] == [context_of(span).span_id for span in sends[:LINKS_MAX]]
    assert told.attributes == {
        "messaging.system": "siltlog",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 3,
        "siltlog.flush.files": 2,
        "siltlog.table.version": 17,
    }


def test_closing_ends_the_provider(spans: Spans, serving: Serving) -> None:
    asyncio.run(serving.close())
    spans.tracer.start_span("late").end()
    assert spans.ended() == []
