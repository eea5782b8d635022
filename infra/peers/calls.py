"""The calls that nodes make of each other alone: no operations of the API, as nobody else can make them."""

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from siltlog.infra.http.door import HOP
from siltlog.infra.security.grant import grant_of

PeerCall = Callable[[Request], Awaitable[Response]]


def with_calls(app: ASGIApp, calls: Mapping[str, PeerCall]) -> ASGIApp:
    """The application, with the calls of nodes before it, by their paths."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        call = calls.get(scope["path"]) if HOP in scope["state"] else None
        if call is None:
            await app(scope, receive, send)
            return
        # Only what a node asks for itself: a caller's request that it passes on has his rights.
        grant_of(scope).require("admin", "cluster")
        reply = await call(Request(scope, receive))
        await reply(scope, receive, send)

    return served
