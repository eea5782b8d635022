"""The connections of gRPC: accepted like those of HTTP, and passed on to its server behind a socket of this process.

gRPC would take a port, and TLS, in ways of its own. So a connection is accepted, shakes hands, counts and is given up
here, by what does it for HTTP; what it says goes on to the server, by a socket whose other end has the number of the
connection for its name. By that a call knows where it came from.
"""

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from siltlog.infra.grpc.arrivals import Arrivals
from siltlog.infra.http.connection.connection import STRANGER_SECONDS
from siltlog.infra.http.connection.crowd import KEEP_ALIVE_SECONDS, Crowd
from siltlog.infra.http.connection.entrance import Entrance
from siltlog.infra.http.connection.handshakes import Handshakes
from siltlog.infra.http.connection.intake import Intake
from siltlog.infra.http.connection.peer import Peer, Peers
from siltlog.infra.http.memory import SMALL_BYTES, InFlight
from siltlog.infra.telemetry import Logger

INNER_FILE = "grpc"
HOP_BYTES = 1024 * 1024
"""So much of a connection may be in the socket to the server. With the system's default a body of 1 MiB made both sides
wait for each other again and again."""
_NUMBER = re.compile(r"/(\d+)\Z")


class Relay:
    """Used on one event loop. `folder` is one that nobody else may enter."""

    def __init__(
        self,
        folder: Path,
        *,
        crowd: Crowd,
        peers: Peers,
        handshakes: Handshakes | None,
        in_flight: InFlight,
        logger: Logger,
    ) -> None:
        """`handshakes` are there where it speaks TLS."""
        self.inner_path = folder / INNER_FILE
        self.crowd = crowd
        self.peers = peers
        self.in_flight = in_flight
        self.logger = logger
        self._folder = folder
        self._entrance = Entrance(handshakes, self._made)
        self._connections: dict[int, Relayed] = {}
        self._last = 0

    async def listen(self, listener: socket.socket) -> None:
        """Accepts connections from now on; the server behind is there."""
        await self._entrance.open(listener)

    def stop_listening(self) -> None:
        self._entrance.close()

    def connection(self, peer: str) -> "Relayed | None":
        """The connection that gRPC knows as `peer`; None where that is none of these."""
        number = _NUMBER.search(peer)
        return None if number is None else self._connections.get(int(number[1]))

    def left(self, number: int) -> None:
        self._connections.pop(number, None)

    async def pass_on(self, number: int, inner: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        """Connects to the server, under the name of the connection."""
        own = self._folder / str(number)
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connecting.setblocking(False)
            connecting.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, HOP_BYTES)
            connecting.bind(str(own))
            loop = asyncio.get_running_loop()
            await loop.sock_connect(connecting, str(self.inner_path))
            transport, _ = await loop.create_unix_connection(inner, sock=connecting)
        except BaseException:
            connecting.close()
            raise
        finally:
            # Whoever is connected keeps the name.
            own.unlink(missing_ok=True)
        return transport

    def _made(self) -> asyncio.Protocol:
        self._last += 1
        self._connections[self._last] = made = Relayed(self, self._last)
        return made


class Relayed(asyncio.Protocol):
    """The client's end of one connection. It is one of the crowd, and looked after with the others."""

    stream = None
    is_web_socket = False

    def __init__(self, relay: Relay, number: int) -> None:
        self.peer = Peer()
        self.excess = False
        self.calls = 0
        """How many are under way on it."""
        self.transport: Any = None
        self._relay = relay
        self._number = number
        self._inner: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        """Came before the server was reached."""
        self._connecting: asyncio.Task[None] | None = None
        self._arrivals = Arrivals()
        self._intake = Intake(relay.in_flight, lambda: self._arrivals.nbytes, self.cut)
        self._loop = asyncio.get_running_loop()
        self._made_at = self._told_at = self._loop.time()
        self._stuck_since = 0.0

    # The crowd's.

    def known(self) -> None:
        """Somebody has said on it who they are."""
        self._relay.crowd.known(self)

    def look(self, now: float, stall_seconds: float) -> float:
        """Gives it up when its time is up: who takes nothing, sends a message for ever, or never says who he is."""
        is_late = self._arrivals.nbytes > SMALL_BYTES and now - self._told_at > stall_seconds
        if is_late or (self._stuck_since and now - self._stuck_since > stall_seconds):
            self.cut()
        elif not self.calls and now - self._made_at > STRANGER_SECONDS and self._relay.crowd.is_stranger(self):
            self.transport.close()
        return KEEP_ALIVE_SECONDS

    def cut(self) -> None:
        """Ends it at once, whatever is under way."""
        self.transport.abort()

    def shutdown(self) -> None:
        self.transport.close()

    # The calls'.

    @contextlib.contextmanager
    def called(self) -> Iterator[None]:
        """Counts a call while it is under way."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1

    def told(self, nbytes: int) -> None:
        """A message, of so many bytes unpacked, has come whole: whoever takes it counts it from here on."""
        self._arrivals.taken(nbytes)
        self._told_at = self._loop.time()
        self._intake.recount()

    # What comes, and what is sent.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._intake.begin(self.transport)
        try:
            self.peer = self._relay.peers.of(transport)
        finally:
            self.excess = self._relay.crowd.joined(self, self.peer.address)
        if self.excess:
            self.transport.close()
            return
        self._connecting = self._loop.create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        before, steps, began = self._arrivals.nbytes, self._arrivals.steps, self._loop.time()
        if not before:
            self._told_at = began
        self._arrivals.came(data)
        more = self._arrivals.nbytes - before
        if more < 0:
            self._intake.recount()
        elif self._arrivals.nbytes > SMALL_BYTES:
            self._intake.count(more)
        if self._inner is None:
            self._waiting.append(data)
        else:
            self._inner.write(data)
        pause, resume = partial(self._intake.pause, "share"), partial(self._intake.resume, "share")
        self._relay.crowd.share.took(self._arrivals.steps - steps, began, pause, resume)

    def pause_writing(self) -> None:
        self._stuck_since = self._loop.time()
        if self._inner is not None:
            self._inner.pause_reading()

    def resume_writing(self) -> None:
        self._stuck_since = 0.0
        if self._inner is not None and not self._inner.is_closing():
            self._inner.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.crowd.left(self, self.peer.address, excess=self.excess)
        self._intake.end()
        self._waiting.clear()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._inner is not None:
            self._inner.close()
        else:
            self._relay.left(self._number)

    async def _connect(self) -> None:
        try:
            self._inner = await self._relay.pass_on(self._number, lambda: _Inner(self))
        except OSError as error:
            self._relay.logger.error("a connection could not be passed on to gRPC", exc_info=error)
            self.transport.abort()
            return
        for data in self._waiting:
            self._inner.write(data)
        self._waiting.clear()

    def pause(self) -> None:
        """Reads nothing while the server takes nothing."""
        self._intake.pause("server")

    def resume(self) -> None:
        self._intake.resume("server")

    def sent(self, data: bytes) -> None:
        """The server says this."""
        if self.transport.is_closing():
            return
        before = self._arrivals.nbytes
        self._arrivals.sent(data)
        if self._arrivals.nbytes < before:
            self._intake.recount()
        self.transport.write(data)

    def inner_lost(self) -> None:
        """The server has ended it, or the client has, and the server knows."""
        self._relay.left(self._number)
        self.transport.close()


class _Inner(asyncio.Protocol):
    """The server's end."""

    def __init__(self, outer: Relayed) -> None:
        self._outer = outer

    def data_received(self, data: bytes) -> None:
        self._outer.sent(data)

    def pause_writing(self) -> None:
        self._outer.pause()

    def resume_writing(self) -> None:
        self._outer.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._outer.inner_lost()
