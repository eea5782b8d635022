"""Requests for topics of other nodes: real doors and connections, and routes that the tests set."""

import asyncio
import json
import socket
import time
from unittest.mock import patch

import pytest
from forwarding_rig import KEY, MIB, NOTHING, WRITES, nodes, publish, run
from peers_rig import FakeRoutes

from siltlog.infra import names
from siltlog.infra.client.connection import Address
from siltlog.infra.clock import SystemClock
from siltlog.infra.cluster.router import Held, Member, Place
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.memory import LARGE_SHARE, InFlight
from siltlog.infra.peers import forwarding, peers
from siltlog.infra.peers import hop as hops
from siltlog.infra.peers.connection import PeerConnection
from siltlog.infra.peers.forwarding import LEFT_SECONDS, Forwarding
from siltlog.infra.peers.hop import Asked, Hop
from siltlog.infra.peers.peers import Peers


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


@pytest.mark.parametrize("field", [(b"silt-producer-id", b"p\r\n\r\nGET /x HTTP/1.1"), (b"a\nb", b"c"), (b"a", b"\0")])
def test_what_would_be_several_lines_is_sent_to_no_node(field: tuple[bytes, bytes]) -> None:
    async def test() -> None:
        async with nodes("a", "b") as (_, b):
            connection = await PeerConnection.opened(Address.of(b.me.url), None)
            with pytest.raises(SiltlogError, match="line break"):
                await connection.ask("POST", b"/v1/topics/t/records", [field], b"", seconds=5)
            assert b.seen == [] and not connection.is_open

    run(test())


@pytest.mark.rule("CR4")
@pytest.mark.parametrize("key", [KEY, b""])
def test_a_request_makes_one_hop(key: bytes) -> None:
    async def test() -> None:
        async with nodes("a", "b", key=key) as (a, b):
            a.routes.set("t", Place(b.me))
            b.routes.set("t", Place(a.me))
            reply = await publish(a, "?timeout_ms=3000")
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


@pytest.mark.slow
@pytest.mark.rule("CR4")
def test_an_address_that_leads_back_or_to_another_node_is_no_loop() -> None:
    async def test() -> None:
        async with nodes("a", "b", "c") as (a, b, c):
            for url in (a.me.url, c.me.url):
                a.routes.set("t", Place(Member("b", "b-1", url)))
                c.routes.set("t", Place(Member("b", "b-1", a.me.url)))
                began = a.door.metrics.replies.copy()
                reply = await publish(a, "?timeout_ms=3000")
                assert (reply.status, reply.json["error_code"]) == (503, "topic_unavailable")
                assert "b does not own it" in str(reply.json["detail"])
                asked = sum(a.door.metrics.replies.values()) - sum(began.values())
                assert asked < 100, "each is told once, and waited for in between"
            assert a.seen == b.seen == c.seen == []

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
            # More is not kept: who knows nothing of owners sends it again, and others go where it went.
            for headers, status, code in (
                ({}, 503, "topic_unavailable"),
                ({"Silt_Route": "direct"}, 421, "not_owner"),
            ):
                a.routes.set("t", Place(a.me, to=b.me), Held.OPEN)
                reply = await publish(a, body=b"x" * MIB, **headers)
                assert (reply.status, reply.json["error_code"]) == (status, code)
                assert reply.json["retryable"] == "yes"
                assert ("retry-after" in reply.headers) == (status == 503)
                assert a.door.in_flight.used_bytes == 0
            reply = await publish(a, body=b"x" * MIB)
            assert (reply.status, reply.json["at"], reply.json["bytes"]) == (202, "b", MIB)

    run(test())


def test_a_topic_that_another_node_made_just_now_is_looked_for() -> None:
    async def test() -> None:
        async with nodes("a", "b") as (a, b):
            b.routes.set("t", Place(b.me), Held.OPEN)
            with patch.object(forwarding, "UNKNOWN_SECONDS", 60.0):
                waiting = asyncio.create_task(publish(a))
                async with asyncio.timeout(60):
                    while not a.routes.heard:
                        await asyncio.sleep(0.01)
                assert a.routes.heard == [a.routes.view + 1]
                a.routes.set("t", Place(b.me))
                assert (await waiting).json["at"] == "b"
            # Nobody has the other one: this node says so.
            assert (await a.door.call("POST", "/v1/topics/u/records", b"")).json["at"] == "a"

    run(test())


def test_who_reads_a_topic_that_another_node_made_just_now_waits_until_it_is_open_here() -> None:
    async def test() -> None:
        opens, opened = asyncio.Event(), asyncio.Event()

        async def open_it(topic: str) -> None:
            opens.set()
            await opened.wait()

        routes = FakeRoutes("a-1")
        seeing = Forwarding(routes, Peers(b"", SystemClock()), SystemClock(), open_it)
        with patch.multiple(forwarding, UNKNOWN_SECONDS=60.0, OPENED_SECONDS=60.0):
            waiting = asyncio.create_task(seeing.seen("t"))
            async with asyncio.timeout(60):
                while not routes.heard:
                    await asyncio.sleep(0.01)
            assert routes.heard == [routes.view + 1] and not opens.is_set()
            routes.set("t", Place(Member("b", "b-1", "http://h")))
            await opens.wait()
            assert not waiting.done()
            opened.set()
            await waiting
            await seeing.seen("t")
            assert len(routes.heard) == 1, "what is known is not looked for"
        with patch.multiple(forwarding, UNKNOWN_SECONDS=0.01, OPENED_SECONDS=0.01):
            opened.clear()
            await seeing.seen("absent")  # whoever reads it is told

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


@pytest.mark.rule("CR15")
def test_an_owner_that_says_nothing_is_waited_for_until_it_is_no_member() -> None:
    """A node that was stopped, or is cut off, closes no connection."""

    async def test() -> None:
        async with nodes("a", "b", "c") as (a, b, c):
            a.peers.follow({b.me.journal, c.me.journal})
            a.routes.set("t", Place(b.me))
            b.routes.set("t", Place(b.me), Held.OPEN)
            c.routes.set("t", Place(c.me), Held.OPEN)
            released = asyncio.Event()

            async def stops() -> None:
                await released.wait()

            b.before = stops
            waiting = [asyncio.create_task(publish(a, Silt_Producer_Id="p")) for _ in range(3)]
            once = asyncio.create_task(publish(a))
            async with asyncio.timeout(60):
                while len(b.seen) < 4:
                    await asyncio.sleep(0.01)
            a.routes.set("t", Place(c.me))
            await asyncio.sleep(0.1)
            assert not any(task.done() for task in waiting)
            a.peers.follow({c.me.journal})
            assert [(await task).json["at"] for task in waiting] == ["c"] * 3
            # What was decided on before the news came is not sent there either.
            a.routes.set("t", Place(b.me))
            late = asyncio.create_task(publish(a, Silt_Producer_Id="p"))
            await asyncio.sleep(0.2)
            a.routes.set("t", Place(c.me))
            assert (await late).json["at"] == "c"
            assert len(b.seen) == 4
            # What must not be sent twice waits for its answer.
            assert not once.done()
            released.set()
            assert (await once).json["at"] == "b"

    run(test())


@pytest.mark.rule("CR15")
def test_an_owner_that_gave_its_topic_away_and_says_nothing_is_left() -> None:
    """Others do not reach it; it reaches the store, and hands over."""

    async def test() -> None:
        async with nodes("a", "b", "c") as (a, b, c):
            a.routes.set("t", Place(b.me))
            b.routes.set("t", Place(b.me), Held.OPEN)
            c.routes.set("t", Place(c.me), Held.OPEN)
            released = asyncio.Event()

            async def stops() -> None:
                await released.wait()

            b.before = stops
            waiting, once = (asyncio.create_task(publish(a, **said)) for said in ({"Silt_Producer_Id": "p"}, {}))
            async with asyncio.timeout(60):
                while len(b.seen) < 2:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(2 * LEFT_SECONDS)
            assert not waiting.done(), "its owner has it, and may take its time"
            began = time.monotonic()
            a.routes.set("t", Place(c.me))
            assert (await waiting).json["at"] == "c"
            assert time.monotonic() - began < 15
            # What must not be sent twice waits for its answer.
            assert not once.done()
            released.set()
            assert (await once).json["at"] == "b"

    run(test())


@pytest.mark.rule("CR15")
def test_an_owner_that_takes_connections_and_does_not_greet_is_left_once_it_is_no_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "HELLO_SECONDS", 60.0)

    async def test() -> None:
        async with nodes("a", "c") as (a, c):
            with socket.create_server(("127.0.0.1", 0)) as silent:
                gone = Member("b", "b-1", f"http://127.0.0.1:{silent.getsockname()[1]}")
                a.peers.follow({gone.journal, c.me.journal})
                a.routes.set("t", Place(gone))
                c.routes.set("t", Place(c.me), Held.OPEN)
                waiting = asyncio.create_task(publish(a, Silt_Producer_Id="p"))
                await asyncio.sleep(0.2)
                a.routes.set("t", Place(c.me))
                began = time.monotonic()
                a.peers.follow({c.me.journal})
                assert (await waiting).json["at"] == "c"
                assert time.monotonic() - began < 20

    run(test())


@pytest.mark.rule("CR7")
def test_a_reply_has_room_where_what_was_asked_for_is_done_and_else_only_as_much_as_there_is() -> None:
    async def test() -> None:
        memory = InFlight(int((MIB + 50) / LARGE_SHARE) + 1, SystemClock())
        async with nodes("a", "b", in_flight={"a": memory}) as (a, b):
            a.routes.set("t", Place(b.me))
            b.routes.set("t", Place(b.me), Held.OPEN)
            reply = await publish(a, body=b"x" * MIB)
            assert (reply.status, reply.json["bytes"]) == (202, MIB), "it is done: to say that nothing was is a lie"
            b.padding = b"x" * 2 * MIB
            read = await a.door.call("GET", "/v1/topics/t/x")
            assert (read.status, read.json["error_code"]) == (503, "overloaded")
            assert memory.used_bytes == 0
            b.padding = b""
            assert (await a.door.call("GET", "/v1/topics/t/x")).status == 202

    run(test())


def test_an_owner_that_cannot_be_reached_is_waited_for() -> None:
    async def test() -> None:
        async with nodes("a", "b") as (a, b):
            a.routes.set("t", Place(Member("z", "z-1", "http://127.0.0.1:1")))
            b.routes.set("t", Place(b.me), Held.OPEN)
            reply = await publish(a, "?timeout_ms=3000")
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
            reply = await publish(a, "?timeout_ms=3000")
            assert (reply.status, reply.json["error_code"]) == (503, "topic_unavailable")
            assert "does not have the secret of this cluster" in str(reply.json["detail"])
            assert b.seen == []

    run(test())


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
