"""Producers that trace: records carry the span of their send, whose end is their outcome."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from fake_server import FakeServer, fake_server
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode, use_span
from span_rig import Spans, context_of, traceparent

from siltlog.infra.errors import Refused
from siltlog.infra.tracing.context import span_of
from siltlog.infra.tracing.sending import Sending
from siltlog.ingest.library import outbox
from siltlog.ingest.library.async_producer import AsyncProducer
from siltlog.ingest.library.producer import Producer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as server:
        yield server


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    spans = Spans()
    monkeypatch.setattr(outbox, "open_sending", lambda: Sending(spans.provider))
    return spans


def headers_of(server: FakeServer, topic: str = "t") -> list[dict[str, bytes | None]]:
    return [
        {pair["key"]: pair["value"] for pair in stored.headers or ()}
        for partition in server.topics[topic].partitions
        for stored in partition
    ]


@pytest.mark.rule("V3")
def test_a_record_carries_its_send_which_ends_with_its_acknowledgement(server: FakeServer, spans: Spans) -> None:
    server.topic("t", 4)
    caller = spans.tracer.start_span("checkout")
    # They travel together, however long a busy machine lets the second wait.
    with Producer(server.url, linger_ms=600_000) as producer:
        with use_span(caller):
            first = producer.send("t", b"a", key="UA", headers={"own": "kept"})
        second = producer.send("t", b"bc", key="UA")
        producer.flush()
        where = [first.result(60), second.result(60)]
    sends = [span for span in spans.ended() if span.name == "send t"]
    assert headers_of(server) == [
        {"own": b"kept", "traceparent": traceparent(sends[0])},
        {"traceparent": traceparent(sends[1])},
    ]
    assert sends[0].parent is not None
    assert (sends[0].parent.span_id, sends[1].parent) == (context_of(caller).span_id, None)
    for span, metadata in zip(sends, where, strict=True):
        assert span.attributes is not None
        assert span.attributes["messaging.destination.partition.id"] == str(metadata.partition)
        assert span.attributes["siltlog.offset"] == metadata.offset
    # The request goes on from the first of them.
    assert server.publishes[-1]["traceparent"].encode() == traceparent(sends[0])


def test_offsets_are_told_apart_where_a_batch_lands_in_several_partitions(server: FakeServer, spans: Spans) -> None:
    server.topic("t", 4)
    with Producer(server.url, linger_ms=50) as producer:
        deliveries = [producer.send("t", b"a", key=f"k{number}") for number in range(20)]
        where = [(str(delivery.result(60).partition), delivery.result(60).offset) for delivery in deliveries]
    told: list[Any] = [span.attributes for span in spans.ended()]
    assert [(each["messaging.destination.partition.id"], each["siltlog.offset"]) for each in told] == where


def test_who_says_the_trace_himself_is_not_contradicted(server: FakeServer, spans: Spans) -> None:
    server.topic("t", 1)
    own = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with Producer(server.url) as producer:
        producer.send("t", b"a", headers={"traceparent": own})
        records = pa.table({"value": [b"b"], "headers": pa.array([[{"key": "traceparent", "value": own}]])})
        producer.send_batch("t", records)
    assert headers_of(server) == [{"traceparent": own}] * 2


def test_a_batch_has_one_span_and_every_row_carries_it(server: FakeServer, spans: Spans) -> None:
    server.topic("t", 1)
    with Producer(server.url) as producer:
        producer.send_batch("t", pa.table({"value": [b"a", b"b", b"c"]})).result(60)
    span = spans.one("send t")
    assert headers_of(server) == [{"traceparent": traceparent(span)}] * 3
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 3


@pytest.mark.rule("V6")
def test_what_did_not_arrive_says_why(server: FakeServer, spans: Spans) -> None:
    server.topic("t", 1)
    with Producer(server.url) as producer:
        delivery = producer.send("t", b"a", partition=7)
        assert isinstance(delivery.exception(10), Refused)
        producer.send("t", b"b").result(60)
    failed, fine = spans.ended()
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "unknown_partition"
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, None)
    assert fine.status.status_code is StatusCode.UNSET


def test_what_is_not_sampled_carries_only_what_is_the_callers(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = Spans(ALWAYS_OFF)
    monkeypatch.setattr(outbox, "open_sending", lambda: Sending(spans.provider))
    server.topic("t", 1)
    with Producer(server.url) as producer:
        producer.send("t", b"a")
        with use_span(spans.tracer.start_span("checkout")):
            producer.send("t", b"b")
            producer.send_batch("t", pa.table({"value": [b"c"]}))
    alone, within, batch = headers_of(server)
    assert (alone, batch) == ({}, {})
    told = span_of([*within.items()])
    assert told is not None
    assert not told.trace_flags.sampled
    assert spans.ended() == []


def test_asyncio_does_the_same(server: FakeServer, spans: Spans) -> None:
    server.topic("t", 1)
    caller = spans.tracer.start_span("checkout")

    async def send() -> None:
        async with AsyncProducer(server.url) as producer:
            with use_span(caller):
                await asyncio.gather(producer.send("t", b"a"), producer.send("t", b"b"))

    asyncio.run(send())
    sends = spans.ended()
    assert [span.parent.span_id for span in sends if span.parent] == [context_of(caller).span_id] * 2
    assert headers_of(server) == [{"traceparent": traceparent(span)} for span in sends]
