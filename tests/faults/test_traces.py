"""One trace from the call that sends a record to the handler that has it, over the end of the server in between."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import deltalake
import pytest
from http_rig import NO_REDIS, Http
from trace_sink import TraceSink, attributes, linked, trace_sink

from siltlog.infra.tracing.provider import END_MS_MAX
from siltlog.testing import running_server

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[2]
PRODUCE = """
import sys
from opentelemetry import trace
from siltlog import Producer

with Producer(sys.argv[1], linger_ms=50) as producer:
    with trace.get_tracer("shop").start_as_current_span("checkout") as span:
        first = producer.send("orders", b"one", key="k", headers={"own": "kept"})
        print(f"{span.get_span_context().trace_id:032x}")
    producer.send("orders", b"two", key="k")
    print(first.result(20).offset)
"""


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceSink]:
    with trace_sink() as sink:
        for name, value in sink.environment(OTEL_TRACES_SAMPLER="parentbased_always_on").items():
            if name != "SILT_TRACES":
                monkeypatch.setenv(name, value)
        yield sink


def client(source: str, *arguments: str) -> list[str]:
    """What a program prints that traces as a user's does."""
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments],
        env={**os.environ, "SILT_TRACES": "on"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


CONSUME = """
import sys
from opentelemetry import trace
from siltlog import Consumer

def handle(record):
    print(record.value.decode(), f"{trace.get_current_span().get_span_context().span_id:016x}")

with Consumer(
    sys.argv[1], group="billing", topics=["orders"], auto_offset_reset="earliest", stop_at="latest"
) as consumer:
    consumer.run(handle)
"""


@pytest.mark.rule("V3", "V4", "V5")
def test_one_trace_from_the_send_over_a_kill_to_the_handler(sink: TraceSink) -> None:
    with running_server(traces="on", flush_ms=600_000) as server:
        Http(server.url).create("orders")
        trace_id, offset = client(PRODUCE, server.url)
        assert offset == "0"
        [send] = [span for span in sink.named("send orders") if span.trace_id.hex() == trace_id]
        publish = sink.one("publish", lambda span: span.trace_id.hex() == trace_id)
        assert publish.parent_span_id == send.span_id
        assert send.parent_span_id == sink.one("checkout").span_id
        sink.one("group commit", lambda span: publish.span_id in linked(span))
        server.kill()
        server.start()
        # What was sent before the kill is flushed by who drains; its last spans are out once the process has ended.
        server.stop()
        [flush] = sink.named("flush orders")
        assert send.span_id in linked(flush)
        assert len(linked(flush)) == 2

        rows = {row["value"]: row["headers"] for row in rows_of(server.root, "orders")}
        headers = {pair["key"]: pair["value"] for pair in rows[b"one"]}
        assert headers.keys() == {"own", "traceparent"}
        assert headers["traceparent"].startswith(f"00-{trace_id}-{send.span_id.hex()}-".encode())

        page = (REPOSITORY / "docs" / "tracing.md").read_text("utf-8")
        query = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)[0].replace(
            "0af7651916cd43dd8448eb211c80319c", trace_id
        )
        silt = [sys.executable, "-m", "siltlog.cli", "query", "--data-dir", str(server.data_dir), "--output", "json"]
        found = subprocess.run([*silt, query], capture_output=True, text=True, timeout=60, check=True).stdout
        assert [json.loads(line)["value"] for line in found.splitlines()] == ["one"]

        server.start()
        value, span_id, *_ = client(CONSUME, server.url)
        assert value == "one"
        process = sink.one("process orders", lambda span: span.span_id.hex() == span_id)
        [link] = process.links
        assert (link.trace_id.hex(), link.span_id) == (trace_id, send.span_id)
        assert process.trace_id.hex() != trace_id
        assert attributes(process)["messaging.consumer.group.name"] == "billing"
        assert attributes(process)["siltlog.offset"] == 0


@pytest.mark.rule("V5")
def test_publishers_do_not_notice_a_collector_that_is_away(sink: TraceSink, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with running_server(traces="on", redis_url=NO_REDIS) as server:
            http = Http(server.url)
            http.create("orders")
            slowest = 0.0
            for number in range(200):
                before = monotonic()
                assert http.publish("orders", {"value": str(number)}).status == 200
                slowest = max(slowest, monotonic() - before)
            assert slowest < 8, "as long as the disk takes, and no longer"
            before = monotonic()
            assert server.stop() == 0
            assert monotonic() - before < END_MS_MAX / 1000 + 10


def rows_of(root: str, topic: str) -> list[dict[str, Any]]:
    table = deltalake.DeltaTable(f"{root}/topics/{topic}")
    rows: list[dict[str, Any]] = table.to_pyarrow_table(columns=["value", "headers"]).to_pylist()
    return rows
