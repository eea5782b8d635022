"""The listener of Kafka's protocol: accepts connections, and ends them."""

import socket

from siltlog.infra.http.connection.entrance import Entrance
from siltlog.infra.http.connection.handshakes import Handshakes
from siltlog.server.kafka.connection import KafkaConnection, Served


class KafkaListener:
    """Used on one event loop."""

    def __init__(self, served: Served, handshakes: Handshakes | None) -> None:
        """`handshakes` are there where it speaks TLS."""
        self._served = served
        self._entrance = Entrance(handshakes, self._made)

    async def listen(self, listener: socket.socket) -> None:
        """Accepts connections from now on."""
        await self._entrance.open(listener)

    def stop_listening(self) -> None:
        self._entrance.close()

    def requests(self) -> int:
        """How many requests are under way."""
        return sum(connection.requests for connection in self._open())

    def end(self) -> None:
        """Takes no more connections, and ends each of those that are open once it has its answers."""
        self.stop_listening()
        for connection in self._open():
            connection.shutdown()

    def _open(self) -> list[KafkaConnection]:
        return [one for one in self._served.crowd.open if isinstance(one, KafkaConnection)]

    def _made(self) -> KafkaConnection:
        return KafkaConnection(self._served)
