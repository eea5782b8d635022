"""Push: event streams and WebSockets of one server, and what is counted of them."""

from starlette.routing import Route

from siltlog.consumers.fetch import Fetcher
from siltlog.consumers.group_socket import Connected, Nacks
from siltlog.consumers.groups import Groups
from siltlog.consumers.log_view import LogView
from siltlog.consumers.socket_http import Sockets
from siltlog.consumers.streams import Streams
from siltlog.consumers.tail_http import Tails
from siltlog.infra import names
from siltlog.infra.in_flight import InFlight
from siltlog.infra.telemetry import Logger, Metrics


class Push:
    def __init__(
        self,
        log: LogView,
        fetcher: Fetcher,
        groups: Groups,
        nacks: Nacks,
        in_flight: InFlight,
        logger: Logger,
        metrics: Metrics,
    ) -> None:
        self.streams = streams = Streams()
        self._tails = Tails(log, fetcher, streams, in_flight, logger)
        self._sockets = Sockets(log, fetcher, groups, nacks, streams, Connected(), in_flight, logger)
        metrics.gauge(names.METRIC_STREAMS, "Open event streams and WebSockets", lambda: len(streams))
        metrics.totals(
            names.METRIC_STREAM_RECORDS, "Records sent to streams and WebSockets", "kind", streams.records.items
        )
        metrics.totals(
            names.METRIC_STREAMS_TOO_SLOW,
            "Streams and WebSockets whose client did not take what was sent",
            "kind",
            streams.too_slow.items,
        )

    def routes(self) -> list[Route]:
        return [*self._tails.routes(), *self._sockets.routes()]
