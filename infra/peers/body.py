"""The body of a request that one node after another may be asked to answer."""

from starlette.types import Message, Receive, Scope

from siltlog.infra.http.memory import SMALL_BYTES, held_of
from siltlog.infra.http.requests import BODIES, BodyReader


class RepeatedBody:
    """The body of a request: from its connection, and again from the beginning where that was little."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._seen: list[Message] | None = []
        self._size = 0
        self._at = 0
        self._whole: bytes | None = None

    async def receive(self) -> Message:
        if self._whole is not None:
            return {"type": "http.request", "body": self._whole, "more_body": False}
        if self._seen is not None and self._at < len(self._seen):
            self._at += 1
            return self._seen[self._at - 1]
        message = await self._receive()
        if self._seen is not None:
            self._size += len(message.get("body", b""))
            # More would be in memory beside what its handler counts.
            self._seen = None if self._size > SMALL_BYTES else [*self._seen, message]
            self._at += 1
        return message

    async def whole(self, scope: Scope) -> bytes:
        """Reads all of it, within the limits of the request that `scope` is; once, however often it is asked."""
        if self._whole is None:
            bodies: BodyReader = scope["state"][BODIES]
            length = dict(scope["headers"]).get(b"content-length", b"").decode("latin-1")
            self._whole = await bodies.read(self.receive, length, held_of(scope))
        return self._whole

    def rewind(self) -> bool:
        """Begins it again; returns False where that cannot be, as what was read is not here any more."""
        self._at = 0
        return self._seen is not None or self._whole is not None
