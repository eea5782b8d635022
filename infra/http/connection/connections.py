"""The connections of the server together: made, looked after, ended."""

import asyncio
from collections.abc import Callable
from typing import Any

from siltlog.infra.clock import Clock
from siltlog.infra.http.connection.connection import Connection, Served
from siltlog.infra.http.connection.crowd import KEEP_ALIVE_SECONDS, Crowd
from siltlog.infra.http.connection.fast_path import FastPath
from siltlog.infra.http.connection.peer import Peers
from siltlog.infra.http.door import Door
from siltlog.infra.http.memory import STALL_SECONDS, InFlight
from siltlog.infra.security.certificates import ClientCertificate
from siltlog.infra.telemetry import Logger

STREAM_END_SECONDS = 1.0
"""How long a client may take to read the end of a stream when the server goes away."""
LOOK_SECONDS = 0.5
END_LOOK_SECONDS = 0.01
LOOK_TURN = 500
"""So many connections are looked at before others get their turn."""


class Connections:
    """One task looks after the time limits of all, so that a request pays nothing for them.

    A client that does not take TAKEN_BYTES of its reply within `stall_seconds` is cut off, as is one whose request
    head takes longer than that.
    """

    def __init__(
        self,
        crowd: Crowd,
        door: Door,
        fast_path: FastPath,
        peers: Peers,
        *,
        stall_seconds: float,
        in_flight: InFlight,
        clock: Clock,
        logger: Logger,
        path_prefix: str = "",
    ) -> None:
        """`fast_path` is offered each request before the application behind `door` is; a proxy may leave `path_prefix`
        before the path of each."""
        self._served = Served(crowd, door, fast_path, peers, path_prefix.encode("ascii"))
        self._crowd = crowd
        self.reconfigure(stall_seconds)
        self._pressed = False
        self._logger = logger
        self._clock = clock
        in_flight.when_full(self._press)

    def reconfigure(self, stall_seconds: float) -> None:
        """Holds from the next look on."""
        self._stall_seconds = stall_seconds

    @property
    def stall_seconds(self) -> float:
        """How long a client may take nothing of what it is sent."""
        return self._stall_seconds

    def protocol(self, **kwargs: Any) -> Connection:
        """Makes the protocol of one connection; uvicorn calls it for each."""
        return Connection(self._served, **kwargs)

    async def watch(self) -> None:
        """Closes what stands still; runs until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except Exception:
                # Whatever it was, the next look must come.
                self._logger.exception("looking after connections failed")

    async def end(self, seconds_max: float) -> None:
        """Closes all: at once where nothing is under way, else when the answer is read, or after `seconds_max`."""
        for connection in tuple(self._crowd.open):
            connection.shutdown()
        end = self._clock.monotonic() + seconds_max
        while self._crowd.open and self._clock.monotonic() < end:  # noqa: ASYNC110 (at the end only)
            await asyncio.sleep(END_LOOK_SECONDS)
        for connection in tuple(self._crowd.open):
            connection.transport.abort()

    def withdraw(self, is_ended: Callable[[ClientCertificate], bool]) -> int:
        """Cuts off the connections whose certificate has ended, whatever is under way on them; how many there were."""
        ended = [one for one in self._crowd.open if one.peer.certificate and is_ended(one.peer.certificate)]
        for connection in ended:
            connection.cut()
        return len(ended)

    def end_streams(self) -> None:
        """Cuts off, in a moment, the clients that do not take even the end of a stream."""
        asyncio.get_running_loop().call_later(STREAM_END_SECONDS, self._cut_streams)

    def _cut_streams(self) -> None:
        for connection in tuple(self._crowd.open):
            if connection.stream is not None and not connection.is_web_socket:
                connection.transport.abort()

    async def _look(self) -> None:
        stall_seconds = min(self._stall_seconds, STALL_SECONDS) if self._pressed else self._stall_seconds
        self._pressed = False
        soonest = KEEP_ALIVE_SECONDS
        for number, connection in enumerate(tuple(self._crowd.open)):
            if number % LOOK_TURN == LOOK_TURN - 1:
                await asyncio.sleep(0)
            left = connection.look(asyncio.get_running_loop().time(), stall_seconds)
            soonest = min(soonest, left)
        self._crowd.looked_at(soonest)

    def _press(self) -> None:
        self._pressed = True
