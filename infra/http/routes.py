"""The routes of stated operations: before a handler runs its access is asked, and what it changes recorded."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial, wraps
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope

from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.door import HOP
from siltlog.infra.http.operations import ANYBODY, FILTERED, IN_BODY, Access, Need, Operation, stated_of
from siltlog.infra.http.requests import ASKED, OPERATION
from siltlog.infra.security.access import CLUSTER
from siltlog.infra.security.audit.trail import CHANGE
from siltlog.infra.security.grant import Grant, grant_of
from siltlog.infra.security.guard import METERED, Guard

T = TypeVar("T")
_REFUSED = 400


class ToOwner(Protocol):
    """Has a topic's owner answer where that is another node."""

    async def answered(
        self,
        scope: Scope,
        receive: Receive,
        topic: str,
        here: Callable[[Receive], Awaitable[T]],
        *,
        or_here: bool = False,
    ) -> T | Response: ...

    async def seen(self, topic: str) -> None:
        """Returns once this node knows the topic, or soon: another may have made it just now."""


def routes_of(*parts: object, guard: Guard | None = None, to_owner: ToOwner | None = None) -> list[Route]:
    """The routes of some objects whose methods are handlers; each asks for the access that its operation states.

    `guard` records what they change, and holds their callers to quotas; None where nobody is asked who he is. Without
    `to_owner` this node owns every topic.
    """
    return [
        Route(stated.path, _guarded(stated, getattr(part, name), guard, to_owner), methods=[stated.method])
        for part in parts
        for name, stated in stated_of(type(part))
    ]


def require(access: Access, grant: Grant, path: Mapping[str, str]) -> None:
    """Raises Refused `unauthenticated` or `forbidden`, before anything is looked up or read of the body."""
    if isinstance(access, Need):
        name = CLUSTER if access.kind == "cluster" else path[access.kind]
        for right in access.rights:
            grant.require(right, access.kind, name)
    elif access != ANYBODY:
        grant.check()


def _guarded(
    stated: Operation,
    handler: Callable[[Request], Awaitable[Response]],
    guard: Guard | None,
    to_owner: ToOwner | None = None,
) -> Callable[..., Any]:
    access, operation_id = stated.access, stated.operation_id
    act = handler if guard is None else _watched(stated, handler, guard)
    if to_owner is not None and stated.at_owner != "no":
        act = _at_owner(act, to_owner, guard, or_here=stated.at_owner == "or_here")
    elif to_owner is not None and "{topic}" in stated.path:
        act = _once_seen(act, to_owner)

    @wraps(handler)
    async def guarded(request: Request) -> Response:
        grant = grant_of(request)
        state, ask = request.scope["state"], partial(require, access, grant, request.path_params)
        state[OPERATION], state[ASKED] = operation_id, ask
        try:
            ask()
        except SiltlogError as error:
            if guard is not None:
                guard.denied(stated.operation_id, request.scope, grant, error)
                guard.charge(grant, None, reads=False)
            raise
        try:
            response = await act(request)
        except SiltlogError as error:
            if guard is not None:
                guard.denied(stated.operation_id, request.scope, grant, error)
            raise
        if access in (FILTERED, IN_BODY) and response.status_code < _REFUSED and not grant.asked:
            raise RuntimeError(f"{request.method} {request.url.path} was answered, and nobody asked whether it may be")
        return response

    return guarded


def _at_owner(
    act: Callable[[Request], Awaitable[Response]], to_owner: ToOwner, guard: Guard | None, *, or_here: bool
) -> Callable[[Request], Awaitable[Response]]:
    async def there(request: Request) -> Response:
        async def here(receive: Receive) -> Response:
            return await act(Request(request.scope, receive))

        topic = request.path_params["topic"]
        return await answered_at_owner(to_owner, guard, request.scope, request.receive, topic, here, or_here=or_here)

    return there


def _once_seen(
    act: Callable[[Request], Awaitable[Response]], to_owner: ToOwner
) -> Callable[[Request], Awaitable[Response]]:
    async def seen(request: Request) -> Response:
        await to_owner.seen(request.path_params["topic"])
        return await act(request)

    return seen


async def answered_at_owner(
    to_owner: ToOwner,
    guard: Guard | None,
    scope: Scope,
    receive: Receive,
    topic: str,
    here: Callable[[Receive], Awaitable[T]],
    *,
    or_here: bool = False,
) -> T | Response:
    """Has the topic's owner answer: who answers charges the caller. What nobody answers is charged here, once."""
    begun = False

    async def charged_here(receive: Receive) -> T:
        nonlocal begun
        begun = True
        return await here(receive)

    try:
        return await to_owner.answered(scope, receive, topic, charged_here, or_here=or_here)
    except SiltlogError:
        # Another node that asks has charged, or will, and asks again.
        if guard is not None and not begun and HOP not in scope["state"]:
            guard.charge(grant_of(scope), None, reads=False)
        raise


def _watched(
    stated: Operation, handler: Callable[[Request], Awaitable[Response]], guard: Guard
) -> Callable[[Request], Awaitable[Response]]:
    async def recorded(request: Request) -> Response:
        change = guard.change(stated.operation_id, stated.changes, request.scope, grant_of(request))
        request.scope["state"][CHANGE] = change
        try:
            if stated.changes != "in_body":
                await change.begin()
            response = await handler(request)
        except Exception as error:
            await change.fail(error)
            raise
        if not change.begun and response.status_code < _REFUSED:
            raise RuntimeError(f"{request.method} {request.url.path} was answered, and its change was not recorded")
        await change.end(response.status_code)
        return response

    act = handler if stated.changes == "nothing" else recorded

    async def metered(request: Request) -> Response:
        topic = request.path_params.get("topic")
        request.scope["state"][METERED] = guard.charge(grant_of(request), topic, reads=stated.reads)
        return await act(request)

    return metered
