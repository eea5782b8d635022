"""Each rule of reading what another node owns is needed: a mutant of each is noticed, on real logs and tables."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch as patched

import pytest
import remote_rig
from chaos import seeds
from mutants import Mutant, Patch, Play, hold, instead, nothing_awaited, noticed, plays
from remote_rig import Node, settle, until, values

from siltlog.consumers.remote import messages
from siltlog.consumers.remote.log import ClusterLog
from siltlog.consumers.remote.system import ClusterSystem
from siltlog.consumers.remote.topic import ClusterPartition
from siltlog.consumers.remote.watching import Watching
from siltlog.infra.client.core import ConnectionFailed
from siltlog.infra.cluster.router import Member, Place
from siltlog.infra.errors import OffsetOutOfRange, SiltlogError
from siltlog.infra.peers.peers import Peers
from siltlog.infra.records import NewRecord
from siltlog.ingest.log.topic import TopicLog

RemotePlay = Callable[[random.Random, Node, Node, TopicLog], Coroutine[Any, Any, None]]
GONE = Member("z", "z-1", "http://127.0.0.1:1")


def of_two_nodes(play: RemotePlay) -> Play:
    """The topic `t` is the first one's."""

    @wraps(play)
    def run(seed: int, folder: Path) -> None:
        async def both() -> None:
            async with remote_rig.owner_and_reader(folder) as (a, b, topic):
                async with asyncio.timeout(30):
                    await play(random.Random(seed), a, b, topic)

        asyncio.run(both())

    return run


@of_two_nodes
async def what_is_read_has_no_seam(chance: random.Random, a: Node, b: Node, topic: TopicLog) -> None:
    """CR9"""
    expected: list[str] = []
    for batch in range(3):
        published = [f"{batch}-{number}" for number in range(chance.randrange(1, 20))]
        await a.publish("t", *published)
        expected += published
        if batch == 1:
            bounds, end = b.reads.topic("t").partitions[0].bounds, len(expected)
            await until(lambda bounds=bounds, end=end: bounds().high_watermark == end)  # type: ignore[misc]
            # It hears no more of the owner but what it asks, and what it knows of the table is old.
            b.reads.stop()
        if batch and chance.random() < 0.8:
            await a.flusher.drain()
            topic.partitions[0].head.evict(1 << 30)
    for offset in sorted(chance.sample(range(len(expected)), min(4, len(expected)))):
        found: list[str] = []
        # What it has not heard of yet it does not show.
        while (at := offset + len(found)) < b.reads.topic("t").partitions[0].bounds().high_watermark:
            part = await b.read("t", at)
            assert part.error is None and part.count, f"{at} is in neither source: {part.error}"
            found += values(part)
        assert found == expected[offset : offset + len(found)], "what is read has a hole"


@of_two_nodes
async def who_waits_is_told_wherever_the_topic_is(chance: random.Random, a: Node, b: Node, topic: TopicLog) -> None:
    """CR10"""
    waiting = [asyncio.create_task(each.read("t", 0, wait_ms=20_000)) for each in (a, b)]
    await asyncio.sleep(0.03)
    if chance.random() < 0.5:
        # For a moment everybody takes the other for the owner.
        settle(topic, b, (a, b))
        await asyncio.sleep(0.03)
        settle(topic, a, (a, b))
        await asyncio.sleep(0.03)
    assert not any(task.done() for task in waiting)
    await a.publish("t", "x")
    try:
        async with asyncio.timeout(TOLD_SECONDS):
            for task in waiting:
                assert values(await task) == ["x"]
    finally:
        for task in waiting:
            task.cancel()


TOLD_SECONDS = 5.0


@of_two_nodes
async def what_was_told_too_early_is_taken_later(chance: random.Random, a: Node, b: Node, topic: TopicLog) -> None:
    """CR10"""
    beside = await a.made.create("beside", 1, {"flush.ms": 3_600_000})
    settle(beside, a, (a, b))
    await b.reads.loaded()
    b.routes.set("t", Place(GONE))
    b.reads.look()
    await a.publish("t", *(["x"] * (count := chance.randrange(1, 4))))
    # This comes after it, and is taken at once.
    await a.publish("beside", "1")
    await until(lambda: b.reads.topic("beside").partitions[0].bounds().high_watermark == 1)
    settle(topic, a, (a, b))
    async with asyncio.timeout(TOLD_SECONDS):
        while b.reads.topic("t").partitions[0].bounds().high_watermark != count:
            await asyncio.sleep(0.01)


@of_two_nodes
async def an_offset_is_refused_by_who_knows(chance: random.Random, a: Node, b: Node, topic: TopicLog) -> None:
    """CR11"""
    b.reads.stop()
    await a.publish("t", *(["x"] * (count := chance.randrange(1, 5))))
    at = chance.choice((0, count, count + 1, count + 50))
    fate = chance.choice(("owned", "owned", "not fresh", "away"))
    if fate == "not fresh":
        a.routes.fresh = False
        part = await a.read("t", at)
        assert part.error is None, "an owner that may be taken for gone decides"
        return
    if fate == "away":
        await a.flusher.drain()
        settle(topic, a, (a, b), Place(GONE, None, 1))
        a.routes.set("t", Place(GONE, None, 1))
        a.heads.look()
        b.reads.look()
    part = await b.read("t", at)
    if fate == "away" or at <= count:
        assert part.error is None, f"{at} of {count} is refused: a reader that is ahead loses its place"
    else:
        assert isinstance(part.error, OffsetOutOfRange), f"{at} is above {count}"
        assert part.error.members["high_watermark"] == count


RECORD = NewRecord(b"k", b"v", (), 1_763_710_560_000_000)


@of_two_nodes
async def what_a_node_appends_is_there_once(chance: random.Random, a: Node, b: Node, topic: TopicLog) -> None:
    """CR13"""
    ask, cuts = Peers.ask, [chance.random() < 0.7]

    async def cut(self: Peers, *of: Any, **rest: Any) -> Any:
        """The answer of the first is lost."""
        reply = await ask(self, *of, **rest)
        if of[2] == messages.SYSTEM.encode() and cuts.pop() if cuts else False:
            raise ConnectionFailed("it was closed before a reply came", sent=True)
        return reply

    once: dict[str, Any] = chance.choice(({}, {"producer_id": "p/1", "sequences": [7]}))
    by = chance.choice((a, b, b))
    with patched.object(Peers, "ask", cut), suppress(SiltlogError):
        await by.system.append("t", 0, [RECORD], **once)
    there = topic.partitions[0].sequencer.next_offset
    assert there == 1, f"a record of a node is there {there} times"
    assert not [one for one in b.log.topics() if one.name == "t"], "it is written at two nodes"


def _knows_its_own_table(patch: Patch) -> None:
    """Below the owner's head it reads what it knows of the table."""
    patch.setattr(ClusterLog, "refresh", nothing_awaited)


def _reads_the_table_alone(patch: Patch) -> None:
    async def mutant(self: ClusterLog, *_: Any) -> Any:
        return [], 0

    patch.setattr(ClusterLog, "head", mutant)


def _forgets_what_came_early(patch: Patch) -> None:
    told = ClusterLog._told

    def mutant(self: ClusterLog, *news: Any) -> None:
        told(self, *news)
        self._untold.clear()

    patch.setattr(ClusterLog, "_told", mutant)


def _keeps_no_subscribers(patch: Patch) -> None:
    patch.setattr(ClusterPartition, "follow", lambda self: None)


def _decides_by_what_it_was_told(patch: Patch) -> None:
    async def decided(self: ClusterPartition) -> Any:
        return self.bounds()

    patch.setattr(ClusterPartition, "decided", decided)
    patch.setattr(ClusterPartition, "reaches", _nowhere)


async def _nowhere(self: ClusterPartition, offset: int) -> bool:
    return False


def _always_fresh(patch: Patch) -> None:
    made = ClusterLog.__init__

    def mutant(self: ClusterLog, *of: Any) -> None:
        made(self, *of)
        self.fresh = lambda: True

    patch.setattr(ClusterLog, "__init__", mutant)


def _appends_here(patch: Patch) -> None:
    async def mutant(self: ClusterLog, *_: Any, **__: Any) -> None:
        """Whoever owns it."""

    patch.setattr(ClusterLog, "ask_owner", mutant)


def _sends_all_again(patch: Patch) -> None:
    ask = ClusterSystem._ask

    async def mutant(self: ClusterSystem, topic: str, asked: Any, *, harmless: bool = True) -> Any:
        return await ask(self, topic, asked, harmless=True)

    patch.setattr(ClusterSystem, "_ask", mutant)


MUTANTS: dict[str, Mutant] = {
    "CR9 the head is not asked for": Mutant(what_is_read_has_no_seam, _reads_the_table_alone),
    "CR9 what it knows of the table is enough": Mutant(what_is_read_has_no_seam, _knows_its_own_table),
    "CR10 nobody watches": Mutant(
        who_waits_is_told_wherever_the_topic_is, instead(Watching, "watch", lambda self, members: None)
    ),
    "CR10 a reader stays with whom it began": Mutant(who_waits_is_told_wherever_the_topic_is, _keeps_no_subscribers),
    "CR10 what came early is forgotten": Mutant(what_was_told_too_early_is_taken_later, _forgets_what_came_early),
    "CR11 what it was told decides": Mutant(an_offset_is_refused_by_who_knows, _decides_by_what_it_was_told),
    "CR11 who may be taken for gone decides": Mutant(an_offset_is_refused_by_who_knows, _always_fresh, 6),
    "CR13 it is appended where it comes up": Mutant(what_a_node_appends_is_there_once, _appends_here),
    "CR13 it is sent again": Mutant(what_a_node_appends_is_there_once, _sends_all_again, 1),
}


@pytest.mark.rule("CR9", "CR10", "CR11", "CR13")
@pytest.mark.chaos
@pytest.mark.parametrize("play", plays(MUTANTS), ids=lambda play: play.__name__)
def test_reading_what_another_owns_keeps_its_rules(play: Play, tmp_path: Path) -> None:
    hold(play, seeds(2), tmp_path)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TOLD_SECONDS", 0.7)
    noticed(MUTANTS[name], tmp_path)
