"""Opens traces where `SILT_TRACES` says so; without that nothing of OpenTelemetry is imported.

The one module that reads the variables of OpenTelemetry, beside itself.
"""

import os
import sys
from typing import TYPE_CHECKING

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError

if TYPE_CHECKING:
    from siltlog.infra.telemetry import Logger
    from siltlog.infra.tracing.processing import Processing
    from siltlog.infra.tracing.sending import Sending
    from siltlog.infra.tracing.serving import Serving

_PACKAGE = "opentelemetry"


def current_trace_id() -> str | None:
    """The id of the trace that is current here, as 32 hexadecimal digits; None where there is none. Costs next to
    nothing where nothing is traced."""
    trace = sys.modules.get(f"{_PACKAGE}.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else None


def open_serving(traces: str, node_id: str, clock: Clock, logger: "Logger") -> "Serving | None":
    """What a server traces with; None where it does not. Raises ConfigError."""
    if traces != "on":
        return None
    _check_installed()
    from siltlog.infra.tracing import provider
    from siltlog.infra.tracing.serving import Serving

    made = provider.made(os.environ, node_id)  # noqa: TID251 (OpenTelemetry's own variables)
    provider.tell_of_exports(logger, clock)
    return Serving(made, clock)


def open_sending() -> "Sending | None":
    """What a producer traces with; None where the environment does not say so. Raises ConfigError."""
    if not _client_traces():
        return None
    from siltlog.infra.tracing import provider
    from siltlog.infra.tracing.sending import Sending

    return Sending(provider.of_process(os.environ))  # noqa: TID251


def open_processing(group: str | None) -> "Processing | None":
    """What a consumer's handlers are traced with; None where the environment does not say so. Raises ConfigError."""
    if not _client_traces():
        return None
    from siltlog.infra.tracing import provider
    from siltlog.infra.tracing.processing import Processing

    return Processing(provider.of_process(os.environ), group)  # noqa: TID251


def _client_traces() -> bool:
    said = os.environ.get(names.ENV_TRACES, "")  # noqa: TID251
    if said not in ("", "on", "off"):
        raise ConfigError(f"{names.ENV_TRACES} is on or off, not {said!r}")
    if said != "on":
        return False
    _check_installed()
    return True


def _check_installed() -> None:
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk.trace  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigError(
            f"{names.ENV_TRACES} is on, and OpenTelemetry is not installed: pip install 'siltlog[otel]'"
        ) from None
