"""Publishes on the fast path that have a span each."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from siltlog.ingest.publish.exchange import Exchange

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from siltlog.infra.tracing.serving import Serving


_STATUS = slice(len("HTTP/1.1 "), len("HTTP/1.1 200"))
"""Where the first line of a reply has it."""


class TracedExchange(Exchange):
    """An exchange whose span begins with its content and ends with its answer."""

    __slots__ = ("_serving", "_span")

    def __init__(self, serving: "Serving", *args: Any) -> None:
        super().__init__(*args)
        self._serving = serving
        self._span: Span

    def begin(self, content: bytes) -> None:
        connection = self._connection
        self._span = self._serving.begin_publish(self.topic.name, connection.headers)
        if not self._span.is_recording():
            super().begin(content)
            return
        with self._serving.during(self._span):
            super().begin(content)

    def refuse(self, error: Exception) -> None:
        self._serving.refused(self._span, error)
        super().refuse(error)

    def _end(self, reply: bytes) -> None:
        self._serving.end_publish(self._span, self._request_id, int(reply[_STATUS]))
        super()._end(reply)


def traced(serving: "Serving") -> Callable[..., Exchange]:
    """What makes exchanges that are traced."""

    def make(*args: Any) -> Exchange:
        return TracedExchange(serving, *args)

    return make
