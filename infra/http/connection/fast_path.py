"""The seam for requests that are answered without the application: offered each request first, whole or not at all."""

from typing import Any, Protocol


class Exchange(Protocol):
    """One request that was taken, and its reply. To uvicorn it is the `cycle` of its connection."""

    def suits(self, content: bytes) -> bool:
        """Whether it is taken with this body, too."""

    def begin(self, content: bytes) -> None:
        """The whole request is here: answers it, later. Never raises."""


class FastPath(Protocol):
    def taken(self, connection: Any) -> Exchange | None:
        """The request whose head `connection` has just read; None when it has to go the long way."""


class NoFastPath:
    """Takes nothing."""

    def taken(self, connection: Any) -> Exchange | None:
        return None


class Offer:
    """A request as a connection offers it to a fast path; its bytes are kept until it is known who answers it.

    A request that comes in pieces, or whose body does not suit, goes the long way after all: `replay` gives it back.
    """

    def __init__(self, path: FastPath, connection: Any) -> None:
        self._path = path
        self._connection = connection
        self._exchange: Exchange | None = None
        self._content = b""

    def head(self) -> bool:
        """The head of a request is here; whether it was taken."""
        self._exchange = self._path.taken(self._connection)
        return self._exchange is not None

    def body(self, piece: bytes) -> bool:
        """A piece of a body is here; whether it is of what was taken."""
        if self._exchange is None:
            return False
        self._content = self._content + piece if self._content else piece
        return True

    def end(self) -> Exchange | None:
        """A request is here whole; what answers it, None when nothing does."""
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return None
        content = self._content
        if not exchange.suits(content):
            self._connection.take_long_way(self._given_back())
            return None
        self._content = b""
        self._connection.cycle = exchange
        exchange.begin(content)
        return exchange

    def read(self) -> None:
        """All that came at once was read: a request that is still not whole goes the long way."""
        if self._exchange is not None:
            self._exchange = None
            self._connection.take_long_way(self._given_back())

    def _given_back(self) -> bytes:
        content, self._content = self._content, b""
        return content
