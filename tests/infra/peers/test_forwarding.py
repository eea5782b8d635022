"""Requests for topics of other nodes: real doors and connections, and routes that the tests set."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop
from peers_rig import Answer, Door, FakeRoutes, door
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from siltlog.infra import names
from siltlog.infra.client.connection import Address
from siltlog.infra.clock import SystemClock
from siltlog.infra.cluster.router import Held, Member, Place
from siltlog.infra.errors import problem
from siltlog.infra.http.requests import body_of
from siltlog.infra.peers import hop as hops
from siltlog.infra.peers.accepting import AcceptedHops
from siltlog.infra.peers.connection import PeerConnection
from siltlog.infra.peers.forwarding import Forwarding
from siltlog.infra.peers.hop import Asked, Hop
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
    *node_names: str, key: bytes = KEY, policies: dict[str, Policy] | None = None
) -> AsyncIterator[list[Node]]:
    made = []
    async with AsyncExitStack() as stack:
        for name in node_names:
            routes = FakeRoutes(f"{name}-1")
            peers = Peers(key, SystemClock())
            node = Node(routes, Forwarding(routes, peers, SystemClock()), peers)
            tokens = None if policies is None else Tokens(policies[name])
            accepted = AcceptedHops(key, lambda journal=routes.journal: journal, tokens and tokens.access)  # type: ignore[misc]
            node.door = await stack.enter_async_context(
                door(name, node, hops=accepted, identification=tokens, token="alice" if tokens else "")
            )
            stack.callback(peers.close)
            made.append(node)
        yield made


def run(test: Coroutine[Any, Any, None]) -> None:
    # As servers do.
    uvloop.run(asyncio.wait_for(test, 30))


def publish(node: Node, query: str = "", body: bytes = b"hello", **headers: str) -> Coroutine[Any, Any, Answer]:
    return node.door.call("POST", f"/v1/topics/t/records{query}", body, **headers)


@pytest.mark.rule("CR4")
@pytest.mark.parametrize("key", [KEY, b""])
def test_a_request_goes_to_the_owner_as_it_came(key: bytes) -> None:
    async def test() -> None:
        async with nodes("a", "b", key=key) as (a, b):
            a.routes.set("t", Place(b.me))
            b.routes.set("t", Place(b.me), Held.OPEN)
            for size in (0, 5, 200_000, 5 * MIB):
                body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
                reply = await publish(
                    a, "?acks=wal&x=%20y", body, Silt_Producer_Id="p é".encode().decode("latin-1"),
                    Authorization="Bearer x", Cookie="c=1", Silt_Request_Id="r-1",
                )  # fmt: skip
                assert reply.status == 202, reply
                assert reply.json["at"] == "b"
                assert reply.json["target"] == "v1/topics/t/records?acks=wal&x=%20y"
                assert reply.headers["x-own"] == "1"
                assert reply.headers["silt-request-id"] == "r-1"
                seen = b.seen.pop()
                assert seen["body"] == body
                assert seen["headers"]["silt-producer-id"] == "p é".encode().decode("latin-1")
                assert seen["headers"]["silt-request-id"] == "r-1"
                assert {"authorization", "cookie"}.isdisjoint(seen["headers"])
            assert a.seen == []
            assert (a.forwarding.proxied, b.forwarding.proxied) == ({"t": 4}, {})
            assert (await a.door.call("DELETE", "/v1/topics/t/x")).json["method"] == "DELETE"
            assert a.door.in_flight.used_bytes == b.door.in_flight.used_bytes == 0

    run(test())


@pytest.mark.rule("CR4")
@pytest.mark.parametrize("key", [KEY, b""])
def test_a_request_makes_one_hop(key: bytes) -> None:
    async def test() -> None:
        async with nodes("a", "b", key=key) as (a, b):
            a.routes.set("t", Place(b.me))
            b.routes.set("t", Place(a.me))
            reply = await publish(a, "?timeout_ms=500")
            assert (reply.status, reply.json["error_code"]) == (503, "topic_unavailable")
            assert "b does not own it" in str(reply.json["detail"])
            assert a.seen == b.seen == []
            assert (a.forwarding.proxied, b.forwarding.proxied) == ({}, {})
            assert a.routes.heard, "who was asked says which view it knows"
            # It is found once the views agree.
            waiting = asyncio.create_task(publish(a))
            await asyncio.sleep(0.2)
            b.routes.set("t", Place(b.me), Held.OPEN)
            assert (await waiting).json["at"] == "b"

    run(test())


@pytest.mark.rule("CR5")
def test_who_goes_to_owners_by_himself_is_told_who_that_is() -> None:
    async def test() -> None:
        async with nodes("a", "b") as (a, b):
            a.routes.set("t", Place(b.me))
            reply = await publish(a, Silt_Route="direct")
            assert (reply.status, reply.json["error_code"]) == (421, "not_owner")
            told = {name: reply.json[name] for name in ("node", "url", "view", "retryable")}
            assert told == {"node": "b", "url": b.me.url, "view": a.routes.view, "retryable": "yes"}
            assert b.seen == []

    run(test())


@pytest.mark.rule("CR6")
def test_a_request_waits_for_an_owner_and_is_told_when_there_is_none() -> None:
    async def test() -> None:
        async with nodes("a", "b") as (a, b):
            a.routes.set("t", Place(None))
            reply = await publish(a, "?timeout_ms=100")
            assert (reply.status, reply.json["error_code"]) == (503, "topic_unavailable")
            for held in (Held.TAKING, Held.HOLDING):
                a.routes.set("t", Place(a.me), held)
                waiting = asyncio.create_task(publish(a))
                await asyncio.sleep(0.1)
                a.routes.set("t", Place(a.me), Held.OPEN)
                assert (await waiting).json["at"] == "a"
            a.routes.set("t", Place(b.me, None, 1_000_000))
            reply = await publish(a)
            assert (reply.status, reply.json["error_code"]) == (503, "owner_away")
            assert (reply.json["node"], reply.json["since"]) == ("b", "1970-01-01T00:00:01.000000Z")

    run(test())


@pytest.mark.rule("CR6")
def test_what_waits_at_a_hand_over_goes_on_to_the_next_owner() -> None:
    async def test() -> None:
        async with nodes("a", "b", "c") as (a, b, c):
            moving = Place(a.me, to=b.me)
            a.routes.set("t", moving, Held.HOLDING)
            b.routes.set("t", moving)
            c.routes.set("t", moving)
            waiting = [asyncio.create_task(publish(node)) for node in (a, b, c)]
            await asyncio.sleep(0.2)
            assert not any(task.done() for task in waiting)
            a.routes.set("t", moving, Held.RELEASED)
            b.routes.set("t", moving, Held.TAKING)
            await asyncio.sleep(0.1)
            b.routes.set("t", moving, Held.OPEN)
            assert [(await task).json["at"] for task in waiting] == ["b"] * 3
            assert a.seen == c.seen == []

    run(test())


@pytest.mark.rule("CR6")
def test_what_an_owner_had_begun_and_not_done_goes_on_to_the_next_owner() -> None:
    async def test() -> None:
        async with nodes("a", "b") as (a, b):
            a.routes.set("t", Place(a.me, to=b.me), Held.OPEN)
            b.routes.set("t", Place(b.me), Held.OPEN)

            async def let_go() -> None:
                a.routes.set("t", held=Held.RELEASED)
                raise problem("not_owner", "it was released")

            a.before = let_go
            reply = await publish(a, body=b"x" * 1000)
            assert (reply.status, reply.json["at"], reply.json["bytes"]) == (202, "b", 1000)
            assert a.door.in_flight.used_bytes == 0

    run(test())


def test_a_topic_that_another_node_made_just_now_is_looked_for() -> None:
    async def test() -> None:
        async with nodes("a", "b") as (a, b):
            b.routes.set("t", Place(b.me), Held.OPEN)
            waiting = asyncio.create_task(publish(a))
            await asyncio.sleep(0.1)
            assert a.routes.heard == [a.routes.view + 1]
            a.routes.set("t", Place(b.me))
            assert (await waiting).json["at"] == "b"
            # Nobody has the other one: this node says so.
            assert (await a.door.call("POST", "/v1/topics/u/records", b"")).json["at"] == "a"

    run(test())


@pytest.mark.rule("CR7")
def test_what_may_have_been_done_is_not_sent_again_unless_that_is_harmless() -> None:
    async def test() -> None:
        async with nodes("a", "b") as (a, b):
            a.routes.set("t", Place(b.me))
            b.routes.set("t", Place(b.me), Held.OPEN)

            async def cut_once() -> None:
                b.before = None
                b.door.cut()

            b.before = cut_once
            reply = await publish(a)
            assert (reply.status, reply.json["error_code"], reply.json["retryable"]) == (504, "ack_timeout", "unknown")
            assert len(b.seen) == 1
            b.before = cut_once
            assert (await publish(a, Silt_Producer_Id="p")).json["at"] == "b"
            assert len(b.seen) == 3
            b.before = cut_once
            assert (await publish(a, Idempotency_Key="k")).json["at"] == "b"
            assert len(b.seen) == 5

    run(test())


def test_an_owner_that_cannot_be_reached_is_waited_for() -> None:
    async def test() -> None:
        async with nodes("a", "b") as (a, b):
            a.routes.set("t", Place(Member("z", "z-1", "http://127.0.0.1:1")))
            b.routes.set("t", Place(b.me), Held.OPEN)
            reply = await publish(a, "?timeout_ms=200")
            assert (reply.status, reply.json["error_code"]) == (503, "topic_unavailable")
            assert ": z (" in str(reply.json["detail"])
            waiting = asyncio.create_task(publish(a))
            await asyncio.sleep(0.1)
            a.routes.set("t", Place(b.me))
            assert (await waiting).json["at"] == "b"

    run(test())


@pytest.mark.rule("CR3")
def test_a_hop_of_anybody_else_is_refused() -> None:
    async def test() -> None:
        async with nodes("b") as (b,):
            b.routes.set("t", Place(b.me), Held.OPEN)
            for said in ("1", "x y z", hops.hello(b"short")):
                reply = await publish(b, Silt_Hop=said)
                assert (reply.status, reply.json["error_code"], reply.json["parameter"]) == (
                    400,
                    "invalid_parameter",
                    "Silt-Hop",
                )
            asked = Asked.of("POST", b"/v1/topics/t/records", [])
            connection = await PeerConnection.opened(Address.of(b.me.url), None)
            greeted = await connection.ask(
                "GET", b"/x", [(b"silt-hop", hops.hello(b"a" * 32).encode())], b"", seconds=5
            )
            theirs = hops.welcomed(KEY, b"a" * 32, greeted.field(names.HEADER_HOP))
            said = hops.signed(KEY, b"a" * 32, theirs, Hop("b-1", 1), asked, hops.digest(b"body")).encode()

            async def ask(field: bytes, body: bytes) -> int:
                target = b"/v1/topics/t/records"
                return (await connection.ask("POST", target, [(b"silt-hop", field)], body, seconds=5)).status

            assert await ask(said, b"body") == 202
            assert await ask(said, b"body") == 400, "overheard, and sent again"
            said = hops.signed(KEY, b"a" * 32, theirs, Hop("b-1", 2), asked, hops.digest(b"body")).encode()
            assert await ask(said, b"bodY") == 400, "another body"
            said = hops.signed(b"o" * 32, b"a" * 32, theirs, Hop("b-1", 3), asked, hops.digest(b"body")).encode()
            assert await ask(said, b"body") == 400, "another secret"
            assert [seen["body"] for seen in b.seen] == [b"body"]
            connection.close()
            # Another connection has other challenges.
            elsewhere = await PeerConnection.opened(Address.of(b.me.url), None)
            said = hops.signed(KEY, b"a" * 32, theirs, Hop("b-1", 9), asked, hops.digest(b"")).encode()
            assert (await elsewhere.ask("POST", asked.target, [(b"silt-hop", said)], b"", seconds=5)).status == 400
            elsewhere.close()

    run(test())


@pytest.mark.rule("CR3")
def test_a_node_with_another_secret_is_asked_nothing() -> None:
    async def test() -> None:
        async with nodes("a") as (a,), nodes("b", key=b"o" * 32) as (b,):
            a.routes.set("t", Place(b.me))
            b.routes.set("t", Place(b.me), Held.OPEN)
            reply = await publish(a, "?timeout_ms=200")
            assert (reply.status, reply.json["error_code"]) == (503, "topic_unavailable")
            assert "does not have the secret of this cluster" in str(reply.json["detail"])
            assert b.seen == []

    run(test())


WRITES = Policy({"e": Entry("key:alice", "topic", "t", ("write",))}, {})
NOTHING = Policy({}, {})


@pytest.mark.rule("CR8")
def test_the_entry_decides_who_may_and_the_owner_trusts_whom_it_names() -> None:
    async def test() -> None:
        async with nodes("a", "b", policies={"a": WRITES, "b": WRITES}) as (a, b):
            a.routes.set("t", Place(b.me))
            b.routes.set("t", Place(b.me), Held.OPEN)
            reply = await publish(a)
            assert (reply.status, reply.json["principal"]) == (202, "key:alice")
            assert "authorization" not in b.seen[0]["headers"]

    run(test())


@pytest.mark.rule("CR8")
def test_access_is_decided_before_anything_is_told_and_anew_at_the_owner() -> None:
    async def test() -> None:
        async with nodes("a", "b", policies={"a": NOTHING, "b": WRITES}) as (a, b):
            a.routes.set("t", Place(b.me))
            b.routes.set("t", Place(b.me), Held.OPEN)
            for headers in ({}, {"Silt_Route": "direct"}):
                assert (await publish(a, **headers)).status == 403
            assert b.seen == []
        async with nodes("a", "b", policies={"a": WRITES, "b": NOTHING}) as (a, b):
            a.routes.set("t", Place(b.me))
            b.routes.set("t", Place(b.me), Held.OPEN)
            reply = await publish(a)
            assert (reply.status, reply.json["error_code"]) == (403, "forbidden")
            assert json.dumps(b.seen) == "[]"

    run(test())
