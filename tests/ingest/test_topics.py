"""Claims of two nodes with one root: who loses never takes what the other has for its own."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import Fenced, TopicExists
from siltlog.infra.store import ObjectStore, open_store
from siltlog.infra.table import TopicTable
from siltlog.infra.telemetry import logger
from siltlog.ingest.log import Log
from siltlog.ingest.topics import Topics


class Node:
    """What `Topics` needs of a log; `between` runs when a claim is in the WAL and not yet in the table."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.clock = SystemClock()
        self.server_config: dict[str, Any] = {}
        self.wal = None
        self.known: dict[str, Any] = {}
        self.between: Callable[[], Awaitable[object]] | None = None
        self.group_commit = SimpleNamespace(add_control=lambda payload: None, commit=self._commit)
        self.create = Topics(cast(Log, self), logger("error", "console")).create

    async def _commit(self) -> None:
        between, self.between = self.between, None
        if between is not None:
            await between()

    def topics(self) -> list[Any]:
        return list(self.known.values())

    def add_topic(self, topic: Any) -> None:
        self.known[topic.name] = topic

    def remove_topic(self, topic: Any) -> None:
        del self.known[topic.name]


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
