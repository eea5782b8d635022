"""Handshakes of TLS: between the acceptance of a connection and its first byte of HTTP.

What shakes hands is no connection yet, so it is bounded by itself. Whoever is honest is done in milliseconds: where
there is no place left, the oldest gives way, and thousands of half-made ones keep nobody out.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from siltlog.infra.http.connection.crowd import Crowd
from siltlog.infra.telemetry import Logger

HANDSHAKES_MAX = 512
HANDSHAKE_SECONDS = 10.0
FAREWELL_SECONDS = 5.0
"""How long a client may take to confirm the end of a connection."""
PAUSE_SECONDS = 0.1
"""Between attempts to accept while there are no descriptors."""
TELL_SECONDS = 10.0


@dataclass(slots=True)
class _Handshake:
    address: str
    connection: asyncio.BaseProtocol | None = None

    @property
    def is_over(self) -> bool:
        """The connection was made, and counts by itself, though the task has not ended yet."""
        return getattr(self.connection, "transport", None) is not None


class Handshakes:
    """Accepts connections and makes TLS of them, each with the context that there is at its start."""

    def __init__(self, context: Callable[[], ssl.SSLContext], crowd: Crowd, logger: Logger) -> None:
        self._context = context
        self._crowd = crowd
        self._logger = logger
        self._under_way: dict[asyncio.Task[None], _Handshake] = {}
        """The oldest first."""
        self._failed = 0
        self._telling: asyncio.TimerHandle | None = None

    async def accept(self, listener: socket.socket, connection: Callable[[], asyncio.BaseProtocol]) -> None:
        """Makes a connection of each that comes; runs until cancelled, which ends the handshakes under way."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    accepted, named = await loop.sock_accept(listener)
                except OSError:
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                self._begin(loop, accepted, str(named[0]), connection)
        finally:
            for task in tuple(self._under_way):
                task.cancel()

    def _begin(
        self,
        loop: asyncio.AbstractEventLoop,
        accepted: socket.socket,
        address: str,
        connection: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        if not self._crowd.has_room_for(address, [one.address for one in self._under_way.values() if not one.is_over]):
            accepted.close()
            return
        if len(self._under_way) >= HANDSHAKES_MAX:
            oldest = next(iter(self._under_way))
            oldest.cancel()
            del self._under_way[oldest]
        handshake = _Handshake(address)

        def made() -> asyncio.BaseProtocol:
            handshake.connection = connection()
            return handshake.connection

        task = loop.create_task(self._shake(loop, accepted, made))
        self._under_way[task] = handshake
        task.add_done_callback(lambda done: self._end(done, accepted))

    async def _shake(
        self, loop: asyncio.AbstractEventLoop, accepted: socket.socket, connection: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                connection,
                accepted,
                ssl=self._context(),
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=FAREWELL_SECONDS,
            )
        except OSError as error:
            # Whoever scans ports does not fill the log: one line for all of a while, with the first reason.
            self._failed += 1
            if self._telling is None:
                self._telling = loop.call_later(TELL_SECONDS, self._tell, str(error))

    def _end(self, task: asyncio.Task[None], accepted: socket.socket) -> None:
        self._under_way.pop(task, None)
        if task.cancelled():
            # It may not have begun; a transport that has it closes it as well.
            accepted.close()
        elif (error := task.exception()) is not None:
            self._logger.error("a handshake failed", exc_info=error)

    def _tell(self, first: str) -> None:
        failed, self._failed, self._telling = self._failed, 0, None
        self._logger.info("handshakes of TLS failed", count=failed, first=first)
