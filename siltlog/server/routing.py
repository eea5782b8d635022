"""The way from the door to the handler of a request."""

from collections.abc import Sequence
from inspect import iscoroutinefunction

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.operations import operations_of, require
from siltlog.infra.http.pace import Pace
from siltlog.infra.security.grant import grant_of
from siltlog.infra.security.guard import Guard
from siltlog.ingest.publish.http import Publish


def routing(publish: Publish, routes: Sequence[Route], pace: Pace, guard: Guard | None = None) -> ASGIApp:
    """Sends publishes, and what has a path without parameters, past the router: matching, and what a framework wraps
    around a function, would be a good part of their time.

    `guard` holds who publishes to quotas; None where nobody is asked who he is.
    """
    (publishing,) = operations_of(Publish)
    router = Router(routes, redirect_slashes=False, default=_not_found)
    endpoints = {
        (method, route.path): route.endpoint
        for route in reversed(routes)
        if "{" not in route.path and iscoroutinefunction(route.endpoint)
        for method in route.methods or ()
    }

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path.endswith("/records") and path.startswith("/v1/topics/"):
            topic = path[len("/v1/topics/") : -len("/records")]
            if "/" not in topic:
                if scope["method"] != "POST":
                    grant_of(scope).check()
                    raise HTTPException(405, headers={"Allow": "POST"})
                scope["path_params"] = {"topic": topic}
                grant = grant_of(scope)
                try:
                    require(publishing.access, grant, scope["path_params"])
                    if guard is not None:
                        receive = guard.charge_publish(grant, topic, scope["headers"], receive)
                    await publish(scope, receive, send)
                except SiltlogError as error:
                    if guard is not None:
                        guard.denied(publishing.operation_id, scope, grant, error)
                    raise
                return
        pace.give(scope)
        endpoint = endpoints.get((scope["method"], path))
        if endpoint is not None:
            response = await endpoint(Request(scope, receive, send))
            await response(scope, receive, send)
            return
        try:
            await router(scope, receive, send)
        except HTTPException as error:
            # What there is, and how it is called, is told to who says who he is.
            grant_of(scope).check()
            if error.status_code != 405:
                raise
            # The router names the methods of the first route of that path only.
            raise HTTPException(405, headers={"Allow": ", ".join(_methods(routes, scope))}) from None

    return app


def _methods(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """Lists the methods that are allowed at the path of `scope`."""
    found: set[str] = set()
    for route in routes:
        if isinstance(route, Route) and route.matches(scope)[0] != Match.NONE:
            found |= route.methods or set()
    return sorted(found)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise HTTPException(404)
