"""The seam for requests that are answered without the application: offered each request first, whole or not at all."""

from typing import Any, Protocol


class Exchange(Protocol):
    """One request that was taken, and its reply. To uvicorn it is the `cycle` of its connection."""

    def suits(self, content: bytes) -> bool:
        """Whether it is taken with this body, too."""

    def begin(self, content: bytes) -> None:
        """The whole request is here: answers it, later. Never raises."""


class FastPath(Protocol):
    @property
    def requests(self) -> int:
        """How many it has taken and not answered yet."""

    def taken(self, connection: Any) -> Exchange | None:
        """The request whose head `connection` has just read; None when it has to go the long way."""

    def reconfigure(self, request_bytes_max: int) -> None:
        """A body may become so large from now on, once it is inflated."""


class NoFastPath:
    """Takes nothing."""

    requests = 0

    def taken(self, connection: Any) -> Exchange | None:
        return None

    def reconfigure(self, request_bytes_max: int) -> None:
        return
