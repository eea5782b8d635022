"""A topic over a WebSocket: a tail that sends what it is given credit for."""

from siltlog.consumers.fetch import Fetcher
from siltlog.consumers.log_view import LogView
from siltlog.consumers.socket_messages import records_message
from siltlog.consumers.socket_session import Session
from siltlog.consumers.streams import Stream
from siltlog.consumers.tail import Tail, TailRequest
from siltlog.infra.in_flight import InFlight
from siltlog.infra.telemetry import Logger
from siltlog.infra.web_socket import WebSocket


class TopicSocket(Session):
    in_group = False

    def __init__(
        self,
        socket: WebSocket,
        stream: Stream,
        log: LogView,
        fetcher: Fetcher,
        request: TailRequest,
        in_flight: InFlight | None,
        logger: Logger,
    ) -> None:
        super().__init__(socket, stream, request.values, in_flight, logger)
        self._tail = Tail(log, fetcher, request, stream.wake)
        self._told = False
        self.feed = self._tail.feed

    def cursor(self) -> str:
        self._told = True
        return self._tail.cursor()

    def credited(self) -> None:
        # Where it begins: who is cut off before the first record comes back to there.
        if not self._told:
            self._tell()

    def beat(self) -> None:
        self._tail.grow()
        self.farewell()

    def farewell(self) -> None:
        # The filter may have passed over much since the last record.
        if self._told and self._tail.is_ahead:
            self._tell()

    def _tell(self) -> None:
        self.socket.send(records_message((), self._values, cursor=self.cursor()))
