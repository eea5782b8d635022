"""Whether anything is traced is asked of the environment alone, and of nothing that OpenTelemetry brings."""

import subprocess
import sys

import pytest
from opentelemetry.trace import use_span
from span_rig import Spans

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError
from siltlog.infra.telemetry import logger
from siltlog.infra.tracing.opening import current_trace_id, open_processing, open_sending, open_serving

OFF = """
import sys
from siltlog import AsyncProducer, Consumer, Producer
from siltlog.infra.tracing.opening import current_trace_id

with Producer("http://127.0.0.1:1"), Consumer("http://127.0.0.1:1", group="g", topics=["t"]):
    assert current_trace_id() is None
assert not [name for name in sys.modules if name.startswith("opentelemetry")]

# redis-py imports some of it for itself where it is installed.
import siltlog.server.wiring
assert not [name for name in sys.modules if name.startswith(("opentelemetry.sdk.trace", "opentelemetry.exporter"))]
assert [name for name in sys.modules if name.startswith("siltlog.infra.tracing.")] == ["siltlog.infra.tracing.opening"]
"""


@pytest.mark.rule("V1")
def test_without_it_nothing_of_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("said", ["", "off"])
def test_off_is_nothing(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILT_TRACES", said)
    assert open_sending() is None
    assert open_processing("g") is None
    assert open_serving("off", "node-0", SystemClock(), logger("error", "console")) is None


def test_what_is_neither_on_nor_off_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILT_TRACES", "yes")
    with pytest.raises(ConfigError, match="SILT_TRACES is on or off, not 'yes'"):
        open_sending()


def test_what_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILT_TRACES", "on")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'siltlog\[otel\]'"):
        open_processing(None)
    with pytest.raises(ConfigError, match=r"pip install 'siltlog\[otel\]'"):
        open_serving("on", "node-0", SystemClock(), logger("error", "console"))


def test_the_trace_that_is_current_is_told() -> None:
    span = Spans().tracer.start_span("a")
    assert current_trace_id() is None
    with use_span(span):
        assert current_trace_id() == f"{span.get_span_context().trace_id:032x}"
    assert current_trace_id() is None
