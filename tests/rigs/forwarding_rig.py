"""Nodes that pass requests on: real doors and connections, and routes that tests set."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvloop
from peers_rig import Answer, Door, FakeRoutes, door
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from siltlog.infra.clock import SystemClock
from siltlog.infra.cluster.router import Member
from siltlog.infra.http.memory import InFlight
from siltlog.infra.http.requests import body_of
from siltlog.infra.peers.accepting import AcceptedHops
from siltlog.infra.peers.forwarding import Forwarding
from siltlog.infra.peers.peers import Peers
from siltlog.infra.security.access import Entry, Policy, Subject
from siltlog.infra.security.grant import Access, Caller, Identity, grant_of

KEY = b"k" * 32
MIB = 1024 * 1024


class Tokens:
    """Everybody is who he says; `Identification` of a door."""

    def __init__(self, policy: Policy) -> None:
        self.access = Access(SystemClock(), policy)

    def identify(self, caller: Caller) -> Identity:
        assert caller.authorization is not None, "no credential"
        name = caller.authorization.decode().removeprefix("Bearer ")
        return Identity(Subject(f"key:{name}", ("g1", "g2")), "id-of-" + name, None, caller.address)

    def known(self, caller: Caller) -> Identity | None:
        return None


@dataclass
class Node:
    """A node that answers with what it was asked, of the topics that it owns."""

    routes: FakeRoutes
    forwarding: Forwarding
    peers: Peers
    door: Door = field(init=False)
    seen: list[dict[str, Any]] = field(default_factory=list)
    before: Callable[[], Awaitable[None]] | None = None
    padding: bytes = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/healthz":
            await Response()(scope, receive, send)
            return
        topic = scope["path"].split("/")[3]
        grant_of(scope).require("write", "topic", topic)

        async def here(receive: Receive) -> Response:
            request = Request(scope, receive)
            body = await body_of(request, 16 * MIB)
            self.seen.append({"headers": dict(request.headers), "body": body})
            if self.before is not None:
                await self.before()
            return JSONResponse(
                {
                    "at": self.door.member.node,
                    "method": request.method,
                    "target": str(request.url).removeprefix(str(request.base_url)),
                    "bytes": len(body),
                    "principal": grant_of(scope).principal,
                    "padding": self.padding.decode(),
                },
                202,
                {"X-Own": "1"},
            )

        reply = await self.forwarding.answered(scope, receive, topic, here)
        await reply(scope, receive, send)

    @property
    def me(self) -> Member:
        return self.door.member


@asynccontextmanager
async def nodes(
    *node_names: str,
    key: bytes = KEY,
    policies: dict[str, Policy] | None = None,
    in_flight: dict[str, InFlight] | None = None,
    check: Callable[[Identity], None] | None = None,
) -> AsyncIterator[list[Node]]:
    made = []
    async with AsyncExitStack() as stack:
        for name in node_names:
            routes = FakeRoutes(f"{name}-1")
            peers = Peers(key, SystemClock())
            node = Node(routes, Forwarding(routes, peers, SystemClock()), peers)
            tokens = None if policies is None else Tokens(policies[name])
            journal: Callable[[], str] = lambda journal=routes.journal: journal  # type: ignore[misc]  # noqa: E731
            accepted = AcceptedHops(key, journal, tokens and tokens.access, check=check)
            node.door = await stack.enter_async_context(
                door(
                    name,
                    node,
                    hops=accepted,
                    identification=tokens,
                    token="alice" if tokens else "",
                    in_flight=(in_flight or {}).get(name),
                )
            )
            stack.callback(peers.close)
            made.append(node)
        yield made


def run(test: Coroutine[Any, Any, None]) -> None:
    # As servers do.
    uvloop.run(asyncio.wait_for(test, 120))


def publish(node: Node, query: str = "", body: bytes = b"hello", **headers: str) -> Coroutine[Any, Any, Answer]:
    return node.door.call("POST", f"/v1/topics/t/records{query}", body, **headers)


WRITES = Policy({"e": Entry("key:alice", "topic", "t", ("write",))}, {})
NOTHING = Policy({}, {})
