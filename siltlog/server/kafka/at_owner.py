"""Changes of topics, each made by the topic's owner: by this node, or by another that is asked over HTTP.

What is asked of another node is the request of HTTP that does the same, so that both nodes go by one door.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Message

from siltlog.consumers.remote.messages import error_of
from siltlog.infra import names
from siltlog.infra.http.requests import BODIES, BodyReader
from siltlog.infra.peers.forwarding import Forwarding
from siltlog.infra.security.grant import GRANT
from siltlog.server.kafka.session import Session

T = TypeVar("T")
_REFUSED = 300


class Change(NamedTuple):
    """A change of a topic, as the operation of HTTP that makes it and answers with `status`."""

    topic: str
    operation: str
    method: str
    status: int
    partition: int | None = None
    """The partition whose records are changed."""
    query: str = ""
    body: Mapping[str, Any] | None = None

    @property
    def resource(self) -> str:
        """What is recorded as changed."""
        of = "" if self.partition is None else f"/partition/{self.partition}"
        return f"topic/{self.topic}{of}"

    @property
    def path(self) -> str:
        of = "" if self.partition is None else f"/partitions/{self.partition}/records"
        return f"/v1/topics/{self.topic}{of}"


class AtOwner:
    """Used on one event loop."""

    def __init__(self, forwarding: Forwarding | None, bodies: BodyReader) -> None:
        """Without `forwarding` this node owns every topic."""
        self._forwarding = forwarding
        self._bodies = bodies

    async def make(self, session: Session, change: Change, here: Callable[[], Awaitable[T]]) -> T | Mapping[str, Any]:
        """Gives what `here` does, or the document that the owner answered with; whoever makes the change records it.

        The caller may make it. Raises what `here` does, and what the owner refuses with; Unavailable where nobody owns
        the topic in time; OutcomeUnknown.
        """

        async def recorded(_: Any = None) -> T:
            async with session.changing(change.operation, change.resource, change.status):
                return await here()

        if self._forwarding is None:
            return await recorded()
        scope, receive = self._request(session, change)
        made = await self._forwarding.answered(scope, receive, change.topic, recorded)
        if not isinstance(made, Response):
            return made
        if made.status_code >= _REFUSED:
            raise error_of(made.status_code, bytes(made.body))
        document: Mapping[str, Any] = msgspec.json.decode(made.body) if made.body else {}
        return document

    def _request(self, session: Session, change: Change) -> tuple[dict[str, Any], Callable[[], Awaitable[Message]]]:
        """The change as a request of HTTP that came here."""
        body = b"" if change.body is None else msgspec.json.encode(change.body)
        headers = [(b"content-length", b"%d" % len(body))]
        if body:
            headers.append((b"content-type", names.MEDIA_JSON.encode()))
        state = session.request({"topic": change.topic})["state"]
        scope = {
            "type": "http",
            "method": change.method,
            "path": change.path,
            "raw_path": change.path.encode(),
            "query_string": change.query.encode(),
            "headers": headers,
            "state": {**state, GRANT: session.granted, BODIES: self._bodies},
        }

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        return scope, receive
