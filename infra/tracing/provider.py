"""Where spans go: OpenTelemetry's SDK as its own `OTEL_*` variables say, with a bounded queue and a bounded end."""

import atexit
import logging
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.util.types import Attributes

from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError
from siltlog.infra.tracing.attributes import SILTLOG
from siltlog.infra.tracing.draw import DrawnProvider

if TYPE_CHECKING:
    from siltlog.infra.telemetry import Logger

RATIO = 0.01
"""Share of what nobody has decided about yet that is sampled, unless OTEL_TRACES_SAMPLER says otherwise."""
END_MS_MAX = 2_000
"""How long the last spans may take to be sent. Past that they are lost, not the process held up."""
TOLD_SECONDS = 60.0
"""How often a server's log says that spans could not be sent."""
_EXPORTERS = {"": True, "otlp": True, "none": False}
_PROTOCOLS = ("", "http/protobuf")
_OF_CONTEXT = "opentelemetry.trace"
_OPENING = threading.Lock()


class LinkedRatio(Sampler):
    """Samples what is linked to something sampled, so that a trace is whole also where a batch has many parents; of
    the rest a share."""

    def __init__(self, ratio: float) -> None:
        self._rest = TraceIdRatioBased(ratio)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: trace.SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[trace.Link] | None = None,
        trace_state: trace.TraceState | None = None,
    ) -> SamplingResult:
        if links and any(link.context.trace_flags.sampled for link in links):
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return self._rest.should_sample(parent_context, trace_id, name, kind, attributes, links)

    def get_description(self) -> str:
        return f"LinkedRatio{{{self._rest.rate}}}"


class BoundedEnd(BatchSpanProcessor):
    """Sends spans from a thread of its own and drops what its queue has no room for."""

    def __init__(self, exporter: SpanExporter) -> None:
        super().__init__(exporter)
        self._sends = exporter

    def shutdown(self) -> None:
        # Its own waits half a minute for a collector that is away.
        ending = threading.Thread(target=super().shutdown, name="traces-end", daemon=True)
        ending.start()
        ending.join(END_MS_MAX / 1000)
        if ending.is_alive():
            # Ends what it still tries; it may be told twice.
            self._sends.shutdown()


def made(environment: Mapping[str, str], node_id: str = "") -> TracerProvider:
    """A provider that exports by OTLP over HTTP. Raises ConfigError for what OTEL_* ask for and is not here."""
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if exporter not in _EXPORTERS:
        raise ConfigError(f"OTEL_TRACES_EXPORTER is {exporter!r}: traces are sent by otlp, or to nobody by none")
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if environment.get(name, "") not in _PROTOCOLS:
            raise ConfigError(f"{name} is {environment[name]!r}: traces are sent by {_PROTOCOLS[-1]}, port 4318")
    try:
        ratio, resource = _ratio(environment), _resource(node_id)
        # Unset is not the SDK's own default: that is everything.
        provider = (
            TracerProvider(None, resource, shutdown_on_exit=False)
            if ratio is None
            else DrawnProvider(ParentBased(LinkedRatio(ratio)), ratio, resource)
        )
        if _EXPORTERS[exporter] and environment.get("OTEL_SDK_DISABLED", "").strip().lower() != "true":
            provider.add_span_processor(BoundedEnd(OTLPSpanExporter()))
    except ValueError as error:
        raise ConfigError(f"traces cannot be sent as the variables OTEL_* say: {error}") from None
    return provider


def of_process(environment: Mapping[str, str]) -> trace.TracerProvider:
    """The provider that the process has set; where it has none, one is made and set, and ended with the process."""
    with _OPENING:
        current = trace.get_tracer_provider()
        if isinstance(current, trace.ProxyTracerProvider):
            current = made(environment)
            trace.set_tracer_provider(current)
            atexit.register(current.shutdown)
    return current


def tell_of_exports(logger: "Logger", clock: Clock) -> None:
    """What OpenTelemetry has to complain of goes into the log of a server, a line in a while."""
    complaints = logging.getLogger("opentelemetry")
    complaints.addHandler(_Told(logger, clock))
    complaints.propagate = False


def _ratio(environment: Mapping[str, str]) -> float | None:
    """The share of what nobody has decided about; None where the SDK is to make of its variables what it does."""
    named = environment.get("OTEL_TRACES_SAMPLER", "").lower()
    if not named:
        return RATIO
    if named == "parentbased_traceidratio":
        return float(environment.get("OTEL_TRACES_SAMPLER_ARG", "") or 1)
    return None


def _resource(node_id: str) -> Resource:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""
    found = Resource.create()
    own = {"service.version": version(SILTLOG)} | ({"service.instance.id": node_id} if node_id else {})
    if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        return found.merge(Resource({**own, "service.name": SILTLOG}))
    return Resource(own).merge(found)


class _Told(logging.Handler):
    def __init__(self, logger: "Logger", clock: Clock) -> None:
        super().__init__(logging.WARNING)
        self._logger = logger
        self._clock = clock
        self._quiet_until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        # What it thinks of strangers' trace context is nobody's concern.
        return not record.name.startswith(_OF_CONTEXT) and bool(super().filter(record))

    def emit(self, record: logging.LogRecord) -> None:
        now = self._clock.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + TOLD_SECONDS
            self._logger.warning("traces could not all be sent; the log is as ever", reason=record.getMessage())
