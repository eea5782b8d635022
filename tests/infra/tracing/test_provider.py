"""Where spans go: as the variables of OpenTelemetry say, and never at the cost of who is traced."""

import logging
import socket
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import ParentBased
from opentelemetry.trace import Link
from span_rig import Spans, context_of
from trace_sink import trace_sink

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError
from siltlog.infra.tracing.provider import END_MS_MAX, LinkedRatio, made, tell_of_exports

TOP = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVICE_NAME", "RESOURCE_ATTRIBUTES", "TRACES_SAMPLER", "TRACES_EXPORTER", "SDK_DISABLED"):
        monkeypatch.delenv(f"OTEL_{name}", raising=False)


@pytest.mark.rule("V4")
def test_what_is_linked_to_something_sampled_is_sampled() -> None:
    everything, nothing = Spans(), Spans(ParentBased(LinkedRatio(0.0)))
    sampled = context_of(everything.tracer.start_span("a"))
    dropped = context_of(nothing.tracer.start_span("b"))
    assert (sampled.trace_flags.sampled, dropped.trace_flags.sampled) == (True, False)
    nothing.tracer.start_span("alone").end()
    nothing.tracer.start_span("linked", links=[Link(dropped)]).end()
    nothing.tracer.start_span("kept", links=[Link(dropped), Link(sampled)]).end()
    assert [span.name for span in nothing.ended()] == ["kept"]


def test_one_in_a_hundred_unless_the_variables_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "root:LinkedRatio{0.01}" in made({"OTEL_TRACES_EXPORTER": "none"}).sampler.get_description()
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    said = {"OTEL_TRACES_EXPORTER": "none", "OTEL_TRACES_SAMPLER": "always_on"}
    assert made(said).sampler.get_description() == "AlwaysOnSampler"
    tenth = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}
    assert "root:LinkedRatio{0.1}" in made(said | tenth).sampler.get_description()


def test_its_name_is_siltlog_unless_it_is_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    own = made({"OTEL_TRACES_EXPORTER": "none"}, "node-7").resource.attributes
    assert (own["service.name"], own["service.instance.id"]) == ("siltlog", "node-7")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "log")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=a")
    given = made({"OTEL_TRACES_EXPORTER": "none"}, "node-7").resource.attributes
    assert (given["service.name"], given["service.instance.id"]) == ("log", "a")


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER is 'zipkin'"),
        (
            {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "a"},
            "as the variables OTEL_.* say",
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc': .* http/protobuf"),
    ],
)
def test_what_it_cannot_do_is_told_at_once(variables: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        made(variables)


@pytest.mark.rule("V5")
def test_a_collector_that_never_answers_costs_a_bounded_queue_and_a_bounded_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
        provider = made({"OTEL_TRACES_SAMPLER": "always_on"})
        tracer = provider.get_tracer("test")
        before = monotonic()
        for _ in range(5_000):
            tracer.start_span("a").end()
        # Nobody waits for it: all of them together take less than one request to it.
        assert monotonic() - before < 30
        told = [record.getMessage() for record in caplog.records]
        # It says so of each that it drops, or of the first of many.
        assert any("Queue full" in each for each in told)
        before = monotonic()
        provider.shutdown()
        assert monotonic() - before < END_MS_MAX / 1000 + 8


def test_the_oldest_release_that_is_taken_is_the_one_that_is_tested() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))
    wanted = [each.split(">=") for each in project["project"]["optional-dependencies"]["otel"]]
    assert {name for name, _ in wanted} == {"opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk"}
    assert all(floor == metadata.version(name) for name, floor in wanted)


def test_what_is_left_is_sent_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with trace_sink() as sink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
        provider = made({"OTEL_TRACES_SAMPLER": "always_on"})
        provider.get_tracer("test").start_span("last").end()
        provider.shutdown()
        assert [span.name for span in sink.spans] == ["last"]


OWN_PROVIDER = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from siltlog.infra.tracing.provider import of_process

if {sets}:
    own = TracerProvider()
    trace.set_tracer_provider(own)
    assert of_process({{}}) is own
else:
    made = of_process({{"OTEL_TRACES_EXPORTER": "none"}})
    assert of_process({{}}) is made is trace.get_tracer_provider()
"""


@pytest.mark.parametrize("sets", [True, False])
def test_a_program_that_has_a_provider_keeps_it(sets: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OWN_PROVIDER.format(sets=sets)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_server_says_in_its_own_log_that_spans_are_lost() -> None:
    told: list[dict[str, Any]] = []

    class Told:
        def warning(self, event: str, **members: Any) -> None:
            told.append({"event": event, **members})

    complaints = logging.getLogger("opentelemetry")
    handlers, propagate = complaints.handlers[:], complaints.propagate
    try:
        tell_of_exports(Told(), SystemClock())
        for _ in range(3):
            logging.getLogger("opentelemetry.trace.span").warning("a stranger's state is wrong")
            logging.getLogger("opentelemetry.exporter").error("away: %s", "refused")
        logging.getLogger("opentelemetry.exporter").info("fine")
    finally:
        complaints.handlers[:], complaints.propagate = handlers, propagate
    sleep(0)
    assert [line["reason"] for line in told] == ["away: refused"]
