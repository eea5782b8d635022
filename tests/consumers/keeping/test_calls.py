"""A server that asks the keeper over real connections: who that is, and what becomes of its answers."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from groups_rig import offsets, refusal, run
from offsets_rig import Server, log_with, server
from peers_rig import Door, FakeRoutes, door
from starlette.responses import Response

from siltlog.consumers.groups.messages import PartitionName
from siltlog.consumers.keeping import calls
from siltlog.consumers.keeping.calls import KeeperCalls, ServedKeeper
from siltlog.consumers.keeping.keeper import KeeperAsked
from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.cluster.router import Held, Place
from siltlog.infra.peers.accepting import AcceptedHops
from siltlog.infra.peers.peers import Peers

KEY = b"k" * 32


@dataclass
class Node:
    routes: FakeRoutes
    server: Server
    door: Door
    made: list[str]


@asynccontextmanager
async def nodes(url: str, folder: Path, *names_: str) -> AsyncIterator[list[Node]]:
    """None of them owns `_offsets` yet."""
    log = log_with(folder, t=1)
    nodes: list[Node] = []
    async with AsyncExitStack() as stack:
        for name in names_:
            routes, made = FakeRoutes(f"{name}-1"), list[str]()
            peers = Peers(KEY, SystemClock())
            stack.callback(peers.close)

            async def make(made: list[str] = made, routes: FakeRoutes = routes) -> None:
                made.append(names.OFFSETS_TOPIC)
                routes.set(names.OFFSETS_TOPIC, Place(nodes[0].door.member))

            elsewhere = KeeperCalls(routes, peers, SystemClock(), make)
            one = await stack.enter_async_context(server(url, log, elsewhere=elsewhere))
            journal: Callable[[], str] = lambda name=name: f"{name}-1"  # type: ignore[misc]  # noqa: E731
            app = ServedKeeper(one.groups.as_keeper, Response(status_code=418))
            served = await stack.enter_async_context(door(name, app, hops=AcceptedHops(KEY, journal)))
            nodes.append(Node(routes, one, served, made))
        yield nodes


def owned_by(nodes: list[Node], owner: int) -> None:
    for number, node in enumerate(nodes):
        place = Place(nodes[owner].door.member)
        node.routes.set(names.OFFSETS_TOPIC, place, Held.OPEN if number == owner else Held.NOT)


@pytest.mark.rule("CG2")
def test_a_node_asks_the_owner_of_offsets(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with nodes(url, tmp_path, "a", "b") as (a, b):
            owned_by([a, b], 0)
            await a.server.keeps(2**32)
            told = await b.server.join("m", "t", auto_offset_reset="latest")
            assert offsets(told) == {0: 100} and a.server.saved() == {0: 100}
            await b.server.groups.members.leave("g", "m")
            await b.server.redis.command("FLUSHALL")
            assert await b.server.committed() == {0: 100}
            await b.server.groups.offsets.forget("g", [PartitionName("t", 0)])
            assert a.server.saved() == {}
            await b.server.groups.delete("g")
            # Both change at once; whoever asks the one that was is sent on.
            a.server.offsets.lost()
            await b.server.keeps(2 * 2**32)
            owned_by([a, b], 1)
            await a.server.commit({0: 9})
            assert b.server.saved() == {0: 9}

    run(scenario())


def test_where_there_are_no_offsets_they_are_made(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with nodes(url, tmp_path, "a", "b") as (a, b):
            await a.server.keeps(2**32)
            await b.server.commit({0: 9})
            assert b.made == [names.OFFSETS_TOPIC] and a.server.saved() == {0: 9}

    run(scenario())


@pytest.mark.rule("CG5")
def test_an_owner_that_is_away_is_waited_for_and_then_said_so(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with nodes(url, tmp_path, "a", "b") as (a, b):
            owned_by([a, b], 0)
            # It is told to come again, as nobody has read them yet.
            assert (await refusal(b.server.join("m", "t"))).error_code == "coordinator_unavailable"
            a.door.cut()
            await a.server.keeps(2**32)
            monkeypatch.setattr(calls, "KEEPER_SECONDS", 0.3)
            nobody = Place(a.door.member._replace(url="http://127.0.0.1:1", journal="gone"))
            b.routes.set(names.OFFSETS_TOPIC, nobody)
            error = await refusal(b.server.join("m2", "t"))
            assert error.error_code == "coordinator_unavailable" and "does not answer (a: " in error.detail
            owned_by([a, b], 0)
            assert offsets(await b.server.join("m3", "t")) == {0: 0}

    run(scenario())


def test_a_deletion_whose_answer_was_lost_is_done(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with nodes(url, tmp_path, "a", "b") as (a, b):
            owned_by([a, b], 0)
            await a.server.keeps(2**32)
            await b.server.commit({0: 9})

            async def lost() -> None:
                a.door.cut()

            a.server.system.between = lost
            await b.server.groups.delete("g")
            assert (await refusal(b.server.groups.delete("g"))).error_code == "unknown_group"

    run(scenario())


def test_nobody_but_a_node_is_answered(url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with nodes(url, tmp_path, "a") as (a,):
            owned_by([a], 0)
            await a.server.keeps(2**32)
            body = calls._encode(KeeperAsked("save"))
            assert (await a.door.call("POST", calls.PATH, body)).status == 418
            assert (await a.door.call("POST", calls.PATH, body, Silt_Hop="x")).status == 400
            assert (await a.door.call("GET", "/other")).status == 418

    run(scenario())
