"""The way from the door to the handler of a request."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.operations import Operation, operations_of
from siltlog.infra.http.pace import Pace
from siltlog.infra.http.requests import OPERATION
from siltlog.infra.http.routes import ToOwner, answered_at_owner, require
from siltlog.infra.security.audit.trail import MAKES
from siltlog.infra.security.grant import grant_of
from siltlog.infra.security.guard import Guard
from siltlog.ingest.publish.http import Publish
from siltlog.ingest.topics.http import TopicsHttp

Endpoint = Callable[[Request], Awaitable[Response]]


def routing(
    publish: Publish,
    routes: Sequence[Route],
    pace: Pace,
    guard: Guard | None = None,
    to_owner: ToOwner | None = None,
) -> ASGIApp:
    """Sends requests to their handlers past the router: to try one route after the other, and what a framework wraps
    around a function, would be a good part of their time. The router tells of what is at no route.

    `guard` holds who publishes to quotas; None where nobody is asked who he is. Without `to_owner` this node owns every
    topic.
    """
    (publishing,) = operations_of(Publish)
    (creating,) = (stated for stated in operations_of(TopicsHttp) if stated.operation_id == "createTopic")
    router = Router(routes, redirect_slashes=False, default=_not_found)
    endpoints: dict[tuple[str, str], Endpoint] = {}
    alike: dict[tuple[str, int], list[Route]] = {}
    for route in routes:
        if not iscoroutinefunction(route.endpoint):
            continue
        for method in route.methods or ():
            if "{" in route.path:
                alike.setdefault((method, route.path.count("/")), []).append(route)
            else:
                endpoints.setdefault((method, route.path), route.endpoint)

    async def anywhere(to_owner: ToOwner, topic: str, scope: Scope, receive: Receive, send: Send) -> None:
        async def here(receive: Receive) -> None:
            if guard is not None:
                receive = guard.charge_publish(grant_of(scope), topic, scope["headers"], receive)
            await publish(scope, receive, send)

        reply = await answered_at_owner(to_owner, guard, scope, receive, topic, here)
        if reply is not None:
            await reply(scope, receive, send)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path.endswith("/records") and path.startswith("/v1/topics/"):
            topic = path[len("/v1/topics/") : -len("/records")]
            if "/" not in topic:
                if scope["method"] != "POST":
                    grant_of(scope).check()
                    if guard is not None:
                        guard.charge(grant_of(scope), None, reads=False)
                    raise HTTPException(405, headers={"Allow": "POST"})
                scope["path_params"] = {"topic": topic}
                scope["state"][OPERATION] = publishing.operation_id
                grant = grant_of(scope)
                try:
                    _let_in(publishing, scope, guard)
                    if guard is not None:
                        scope["state"][MAKES] = partial(guard.change, creating.operation_id, "in_body", scope, grant)
                    if to_owner is not None:
                        await anywhere(to_owner, topic, scope, receive, send)
                        return
                    if guard is not None:
                        receive = guard.charge_publish(grant, topic, scope["headers"], receive)
                    await publish(scope, receive, send)
                except SiltlogError as error:
                    if guard is not None:
                        guard.denied(publishing.operation_id, scope, grant, error)
                    raise
                return
        pace.give(scope)
        method = scope["method"]
        endpoint = endpoints.get((method, path)) or _found(alike.get((method, path.count("/")), ()), scope)
        if endpoint is not None:
            response = await endpoint(Request(scope, receive, send))
            await response(scope, receive, send)
            return
        try:
            await router(scope, receive, send)
        except HTTPException as error:
            # What there is, and how it is called, is told to who says who he is.
            grant_of(scope).check()
            if guard is not None:
                guard.charge(grant_of(scope), None, reads=False)
            if error.status_code != 405:
                raise
            # The router names the methods of the first route of that path only.
            raise HTTPException(405, headers={"Allow": ", ".join(_methods(routes, scope))}) from None

    return app


def _let_in(stated: Operation, scope: Scope, guard: Guard | None) -> None:
    """Raises SiltlogError for who may not; that counts as a request of his."""
    grant = grant_of(scope)
    try:
        require(stated.access, grant, scope["path_params"])
    except SiltlogError:
        if guard is not None:
            guard.charge(grant, None, reads=False)
        raise


def _found(routes: Sequence[Route], scope: Scope) -> Endpoint | None:
    """Finds the handler among `routes`, which have as many segments as the path, and notes the path's parameters."""
    for route in routes:
        match, found = route.matches(scope)
        if match is Match.FULL:
            scope.update(found)
            endpoint: Endpoint = route.endpoint
            return endpoint
    return None


def _methods(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """Lists the methods that are allowed at the path of `scope`."""
    found: set[str] = set()
    for route in routes:
        if isinstance(route, Route) and route.matches(scope)[0] != Match.NONE:
            found |= route.methods or set()
    return sorted(found)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise HTTPException(404)
