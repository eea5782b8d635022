"""Topics that are made: claims of two nodes on one root, and answers that do not come."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from topics_rig import Node

from siltlog.infra.errors import Fenced, TopicExists
from siltlog.infra.security.grant import EVERYTHING
from siltlog.infra.store.store import open_store
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.topics.topics import AutoCreate


@pytest.mark.rule("T2")
def test_of_two_nodes_that_create_a_topic_at_once_one_has_it(tmp_path: Path) -> None:
    async def run() -> None:
        store = open_store(tmp_path.as_uri())
        loser, winner = Node(store), Node(store)
        loser.between = lambda: winner.create("t", 1, {})
        with pytest.raises(Fenced):
            await loser.create("t", 1, {})
        (lost,) = loser.topics()
        (won,) = winner.topics()
        # A start finds its own epochs in the WAL, and goes on with what the table says is of one of them.
        assert won.table.refresh().epochs[0] in won.epochs
        assert won.snapshot.epochs[0] not in lost.epochs
        # And to create it again must not fence who has it.
        with pytest.raises(TopicExists):
            await loser.create("t", 1, {})
        assert loser.topics() == []
        assert won.table.refresh().epochs[0] in won.epochs

    asyncio.run(run())


def test_a_claim_that_landed_without_an_answer_is_followed_by_another(tmp_path: Path) -> None:
    async def run() -> None:
        node = Node(open_store(tmp_path.as_uri()))

        async def land() -> None:
            (topic,) = node.topics()
            other = TopicTable.open(node.store, "t", node.clock)
            other.claim({0: topic.epochs[-1]}, "00000000-0000-4000-8000-000000000000")

        node.between = land
        with pytest.raises(Fenced):
            await node.create("t", 1, {})
        topic = await node.create("t", 1, {})
        assert topic.state == "open" and topic.table.snapshot.epochs[0] == topic.epochs[-1]

    asyncio.run(run())


def test_a_creation_whose_claim_failed_is_finished_by_the_next(tmp_path: Path) -> None:
    async def run() -> None:
        node = Node(open_store(tmp_path.as_uri()))

        async def fail() -> None:
            raise ConnectionError

        node.between = fail
        with pytest.raises(ConnectionError):
            await node.create("t", 1, {})
        topic = await node.create("t", 1, {})
        assert topic.state == "open" and topic.snapshot.epochs[0] == topic.epochs[-1]

    asyncio.run(run())


def test_publishing_ends_a_creation_as_it_was_begun(tmp_path: Path) -> None:
    async def run() -> None:
        node = Node(open_store(tmp_path.as_uri()))

        async def fail() -> None:
            raise ConnectionError

        node.between = fail
        with pytest.raises(ConnectionError):
            await node.create("t", 3, {"flush.ms": 7})
        auto_create = AutoCreate(node.handled, 1, lambda: cast(Any, node))
        unmade = auto_create.unmade("t")
        assert (len(unmade.partitions), unmade.config.own) == (3, {"flush.ms": 7})
        topic = await auto_create.make("t", EVERYTHING)
        assert (topic.state, len(topic.partitions), topic.config.own) == ("open", 3, {"flush.ms": 7})
        assert (len(auto_create.unmade("u").partitions), auto_create.unmade("u").config.own) == (1, {})

    asyncio.run(run())
