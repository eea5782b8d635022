"""A collector on the loopback: takes spans by OTLP over HTTP, and keeps them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class TraceSink:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.spans: list[Any] = []
        self.services: set[str] = set()

    def environment(self, **others: str) -> dict[str, str]:
        """The variables by which a process sends everything to it, soon."""
        return {"SILT_TRACES": "on", "OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50", **others}

    def named(self, name: str) -> list[Any]:
        return [span for span in tuple(self.spans) if span.name == name]

    def one(self, name: str, wanted: Callable[[Any], bool] = bool, seconds: float = 20) -> Any:
        """The first span of that name that is wanted, once it is there."""
        end = monotonic() + seconds
        while not (found := [span for span in self.named(name) if wanted(span)]):
            assert monotonic() < end, f"no {name} among {sorted({span.name for span in self.spans})}"
            sleep(0.01)
        return found[0]


def attributes(span: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}


def linked(span: Any) -> set[bytes]:
    """The ids of the spans that it is linked to."""
    return {link.span_id for link in span.links}


@contextmanager
def trace_sink() -> Iterator[TraceSink]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            for resource in request.resource_spans:
                named = {item.key: item.value.string_value for item in resource.resource.attributes}
                sink.services.add(named["service.name"])
                for scope in resource.scope_spans:
                    sink.spans.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        sink = TraceSink(server.server_port)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield sink
        finally:
            server.shutdown()
