"""Members that run: on an event loop, over a store on a disk."""

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from failing_store import VirtualClock
from msgspec.structs import replace

from siltlog.infra.clock import SystemClock
from siltlog.infra.cluster import router
from siltlog.infra.cluster.beat import Report, TopicReport
from siltlog.infra.cluster.identity import Identity, Timing
from siltlog.infra.cluster.member import Member
from siltlog.infra.cluster.membership import Membership
from siltlog.infra.cluster.refusals import Refusals
from siltlog.infra.cluster.reports import Reports
from siltlog.infra.cluster.steps import Steps, put_view
from siltlog.infra.cluster.view import ClusterView
from siltlog.infra.errors import ConfigError, OutcomeUnknown, Refused, Unavailable, problem
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.store import ObjectInfo, ObjectStore
from siltlog.infra.telemetry import logger

TIMING = Timing(lease_ms=60_000, heartbeat_ms=300)
"""A lease that ends in no test of its own accord."""


class Node:
    """It owns whatever a view gives it, and lets go of whatever a view gives to another."""

    def __init__(self, store: ObjectStore, name: str, data_dir: str = "", timing: Timing = TIMING) -> None:
        ids = (f"{name}-{number}" for number in itertools.count())
        data_dir = data_dir or f"data of {name}"
        identity = Identity("c", name, data_dir, f"place of {data_dir}", f"http://{name}", "", "1")
        self.reports = Reports()
        self.reports.add(self._report)
        self.fatal: list[ConfigError] = []
        clock = SystemClock()
        self.refusing: set[str] = set()
        """Names of nodes at whose addresses nobody listens, as far as this one finds."""
        refusals = Refusals(self._knock)
        member = Member(identity, timing, clock, self.reports, lambda: next(ids), refused=refusals.journals)
        self.membership = Membership(
            member, store, timing, clock, lambda: next(ids), logger("error", "json"), self.fatal.append, refusals
        )
        self.views: list[ClusterView] = []
        self.membership.on_view(self.views.append)

    async def _knock(self, member: router.Member) -> bool:
        return member.node in self.refusing

    def _report(self, report: Report) -> Report:
        topics = {}
        for name, topic in self.membership.view.topics.items():
            mine = topic.entitled(self.membership.journal)
            if mine is not None:
                topics[name] = TopicReport(term=mine.term, state="settled")
        return Report(ready=True, topics=topics)


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


async def until(holds: Any, seconds: float = 60.0) -> float:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds
        await asyncio.sleep(0.02)
    return time.monotonic() - began


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return LocalStore(str(tmp_path / "root"))


@pytest.mark.rule("CM4")
def test_who_stands_still_is_lost_as_soon_as_its_lease_has_ended_and_is_looked_at_no_more_often(
    store: ObjectStore,
) -> None:
    clock, timing = VirtualClock(), Timing(lease_ms=5_000, heartbeat_ms=1_500)
    members = []
    for name in ("a", "b"):
        ids = map(f"{name}-{{}}".format, itertools.count())
        identity = Identity("c", name, f"data of {name}", f"place of {name}", f"http://{name}", "", "1")
        members.append(Member(identity, timing, clock, lambda: Report(ready=True), ids.__next__))
    a, b = members

    def run(turn: Steps[Any]) -> None:
        call = next(turn)
        with suppress(StopIteration):
            while True:
                answer = call(store)
                clock.sleep(0.01)
                call = turn.send(answer)

    for joins in members:
        run(joins.arrive())
        run(joins.beat())
        run(a.look())
    run(b.look())
    assert a.controls and b.in_view
    clock.sleep(0.4)
    run(b.beat())
    run(a.look())
    seen_at, looks, beaten_at = clock.monotonic(), 0, clock.monotonic()
    while a.view.nodes["b"].state == "up":
        assert looks < 8
        clock.sleep(a.rest_s)
        if clock.monotonic() - beaten_at >= 1.5:
            beaten_at = clock.monotonic()
            run(a.beat())
        run(a.look())
        looks += 1
        assert a.rest_s <= timing.look_s
    assert clock.monotonic() - seen_at == pytest.approx(timing.lease_s, abs=0.1)
    assert looks <= 7
    assert a.rest_s > 0.1


@pytest.mark.slow
@pytest.mark.rule("CM14")
@on_loop
async def test_one_whose_machine_refuses_connections_is_lost_before_its_lease_has_ended(store: ObjectStore) -> None:
    timing = Timing(lease_ms=60_000, heartbeat_ms=1_500)
    nodes = [Node(store, name, timing=timing) for name in ("a", "b")]
    a, b = nodes
    for node in nodes:
        await node.membership.join()
    a.refusing.add("b")
    await asyncio.sleep(4)
    assert a.membership.view.nodes["b"].state == "up", "it beats"
    await b.membership._stop()
    await until(lambda: a.membership.view.nodes["b"].state == "away", 50)
    await a.membership.end()


@pytest.mark.slow
@on_loop
async def test_nodes_join_and_do_what_they_are_asked_for(store: ObjectStore) -> None:
    nodes = {name: Node(store, name) for name in ("a", "b", "c")}
    a, b, c = (node.membership for node in nodes.values())
    assert a.reasons() == ["cluster: no view lists this start of node a yet; the newest is 0"]
    await asyncio.gather(*(node.join() for node in (a, b, c)))
    await a.ask("adopt", topic="t", topic_id="i")
    assert a.reasons() == a.warnings() == []
    owner = a.view.topics["t"].owner.node
    target = next(name for name in nodes if name != owner)
    # The controller has not heard yet that its first owner has it, and keeps what it is asked for.
    await b.ask("move", topic="t", node=target)
    await until(lambda: {node.membership.view.topics["t"].owner.node for node in nodes.values()} == {target})
    with pytest.raises(Refused, match="there is no node nobody"):
        await c.ask("move", topic="t", node="nobody")
    await c.ask("drain", node=target)
    await until(lambda: c.view.topics["t"].owner.node != target)
    assert c.view.nodes[target].drain == "operator"
    assert set(await c.beats()) == {"a", "b", "c"}
    for node in nodes.values():
        numbers = [view.number for view in node.views]
        assert numbers == sorted(numbers)
        assert await node.membership.end()
    assert [node.fatal for node in nodes.values()] == [[], [], []]


@pytest.mark.slow
@on_loop
async def test_who_leaves_is_waited_for_by_nobody(store: ObjectStore) -> None:
    nodes = {name: Node(store, name) for name in ("a", "b")}
    a, b = (node.membership for node in nodes.values())
    await a.join()
    await b.join()
    await b.ask("adopt", topic="t", topic_id="i")
    await until(lambda: all("t" in each.view.topics and each.view.topics["t"].owner.node for each in (a, b)))
    leaving, staying = (a, b) if b.view.topics["t"].owner.node == "a" else (b, a)
    await leaving.leave(10)
    assert leaving.view.topics["t"].owner.node == staying.node
    assert await leaving.end()
    await until(lambda: staying.view.nodes[leaving.node].state == "away")
    await staying.leave(10)  # nobody else is there
    assert await staying.end()


@on_loop
async def test_a_second_data_directory_under_one_name_is_refused(store: ObjectStore) -> None:
    a, other = Node(store, "a"), Node(store, "a", "another")
    await a.membership.join()
    with pytest.raises(ConfigError, match="set SILT_NODE_ID to another name"):
        await other.membership.join()
    await other.membership.end()
    await a.membership.end()


@on_loop
async def test_a_node_beats_and_looks_on_whatever_its_rooms_and_the_store_do(store: ObjectStore) -> None:
    a = Node(store, "a")
    await a.membership.join()
    broken = [True]

    def part(report: Report) -> Report:
        if broken[0]:
            raise ZeroDivisionError
        return report

    a.reports.add(part)
    await until(lambda: a.membership.warnings())
    broken[0] = False
    await until(lambda: not a.membership.warnings())
    assert await a.membership.end()


@on_loop
async def test_a_store_that_answers_late_keeps_nobody_from_joining(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, away = store.list, [problem("topic_unavailable", "S3 cannot be reached")] * 2

    def late(prefix: str) -> list[ObjectInfo]:
        if away:
            raise away.pop()
        return look(prefix)

    monkeypatch.setattr(store, "list", late)
    a = Node(store, "a")
    await a.membership.join()
    assert a.membership.in_view
    assert await a.membership.end()
    monkeypatch.setattr("siltlog.infra.cluster.membership.JOIN_SECONDS_MIN", 0.0)
    monkeypatch.setattr("siltlog.infra.cluster.membership.JOIN_LEASES", 1 / 60)
    away = [problem("topic_unavailable", "S3 cannot be reached")] * 100
    b = Node(store, "b")
    with pytest.raises(Unavailable, match="S3 cannot be reached"):
        await b.membership.join()
    assert await b.membership.end()


@on_loop
async def test_what_nobody_answers_may_be_done_yet(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siltlog.infra.cluster.membership.WISH_SECONDS", 0.0)
    a = Node(store, "a")
    await a.membership.join()
    with pytest.raises(OutcomeUnknown, match="node a, has not answered"):
        await a.membership.ask("balance")
    await a.membership.end()


@on_loop
async def test_a_node_whose_place_another_has_taken_stops(store: ObjectStore) -> None:
    a = Node(store, "a")
    await a.membership.join()
    member = a.membership._member
    entry = a.membership.view.nodes["a"]
    taken = {**a.membership.view.nodes}
    taken["a"] = replace(entry, journal="of another", data_dir="another")
    turn = put_view(replace(member.view, number=member.view.number + 1, nodes=taken, nonce="x"))
    call = next(turn)
    with pytest.raises(StopIteration):
        while True:
            call = turn.send(call(store))
    await until(lambda: a.fatal)
    assert "another process has come as node a" in a.fatal[0].detail
    await a.membership.end()


@pytest.mark.rule("CG1")
@on_loop
async def test_nodes_hear_in_which_redis_the_controller_is(store: ObjectStore) -> None:
    a, b = Node(store, "a"), Node(store, "b")
    for node in (a, b):
        node.reports.add(lambda report, name=node.membership.node: replace(report, redis=f"redis of {name}"))  # type: ignore[misc]
    await a.membership.join()
    await b.membership.join()
    await until(lambda: b.membership.controllers_redis == "redis of a")
    assert a.membership.controllers_redis == "", "it is the controller"
    # Of the next controller others hear by its own beat.
    assert await a.membership.end()
    await until(lambda: b.membership.controllers_redis == "" and b.membership.view.controller == "b")
    assert await b.membership.end()


@on_loop
async def test_a_journal_that_was_sealed_is_followed_by_another(store: ObjectStore) -> None:
    a = Node(store, "a")
    await a.membership.join()
    former = a.membership.journal
    a.membership.reopen()
    assert a.membership.journal != former
    await until(lambda: a.membership.in_view)
    assert a.views[-1].nodes["a"].journal == a.membership.journal
    assert await a.membership.end()
