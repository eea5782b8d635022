"""One blocking connection that sends a request and waits for its answer."""

import socket
from types import TracebackType
from typing import Self

from benchmarks.wires.wire import CONNECTION, IsWhole, Wire

RECEIVE_BYTES = 1024 * 1024
SECONDS_MAX = 30.0


class Caller:
    def __init__(self, port: int, wire: Wire, *, number: int = 0, parts: int = 1) -> None:
        """`number` is told apart from those of others at the same server. Raises OSError, ValueError."""
        self._socket = socket.create_connection(("127.0.0.1", port), SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number = b"%06d" % number
        self._is_whole = wire.replies(parts)
        for said in wire.opening:
            self.ask(said, wire.is_open)

    def call(self, request: bytes) -> bytes:
        """Gives the whole answer. Raises ValueError where it refuses."""
        return self.ask(request, self._is_whole)

    def ask(self, request: bytes, is_whole: IsWhole) -> bytes:
        self._socket.sendall(request.replace(CONNECTION, self._number))
        answer = self.receive()
        while not is_whole(answer):
            answer += self.receive()
        return answer

    def receive(self) -> bytes:
        """Gives what comes next. Raises OSError, TimeoutError."""
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
