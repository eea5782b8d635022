"""Topics that are made and grow: claims of two nodes on one root, and answers that do not come."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import Fenced, OutcomeUnknown, TopicExists, Unavailable
from siltlog.infra.security.grant import EVERYTHING
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.table import TopicTable
from siltlog.infra.telemetry import logger
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic_logs import TopicLogs
from siltlog.ingest.topics.topics import AutoCreate, Topics


class Node:
    """What `Topics` needs of a log; `between` runs when a claim is in the WAL and not yet in the table."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.clock = SystemClock()
        self.server_config: dict[str, Any] = {}
        self.wal = None
        self.topic_logs = TopicLogs()
        self.between: Callable[[], Awaitable[object]] | None = None
        self.group_commit = SimpleNamespace(add_control=lambda payload: None, commit=self._commit)
        self.handled = Topics(cast(Log, self), logger("error", "console"))
        self.create = self.handled.create

    async def landed(self, topic: Any) -> None:
        pass

    async def _commit(self) -> None:
        between, self.between = self.between, None
        if between is not None:
            await between()

    def topics(self) -> list[Any]:
        return list(self.topic_logs.all())

    def topic(self, name: str) -> Any:
        return self.topic_logs.find(name)

    def see_table(self, topic: Any, snapshot: Any) -> None:
        topic.check_owned(snapshot)
        topic.moved_by(snapshot)


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


@pytest.mark.rule("C2")
def test_however_often_a_topic_grows_its_owner_knows_its_epoch(tmp_path: Path) -> None:
    """Only so many epochs are remembered: growing takes none."""

    async def run() -> None:
        node = Node(open_store(tmp_path.as_uri()))
        topic = await node.create("t", 1, {})
        for count in range(2, 70):
            await node.handled.alter("t", count, {})
        assert len(topic.partitions) == len(topic.snapshot.partition_history) == 69
        assert set(topic.table.refresh().epochs.values()) == set(topic.epochs) == {topic.epochs[-1]}

    asyncio.run(run())


@pytest.mark.rule("C3")
def test_a_growth_without_an_answer_holds_publishes_back_until_it_is_known(tmp_path: Path) -> None:
    async def run() -> None:
        node = Node(open_store(tmp_path.as_uri()))
        topic = await node.create("t", 1, {})
        table, grow, outcome = topic.table, topic.table.grow, topic.table.outcome
        asked: list[str] = []

        def lost(*arguments: Any, **named: Any) -> None:
            grow(*arguments, **named)
            raise OutcomeUnknown("the connection was lost")

        def unknown_at_first(commit_id: str, version: int) -> str:
            assert topic.paused is not None
            with pytest.raises(Unavailable):
                topic.check_open()
            asked.append(commit_id)
            return outcome(commit_id, version) if len(asked) > 1 else "unknown"

        with patch.object(table, "grow", lost), patch.object(table, "outcome", unknown_at_first):
            await node.handled.alter("t", 4, {})
        assert len(asked) == 2 and len(topic.partitions) == 4 and topic.paused is None
        topic.check_open()

        def never(*_: Any, **__: Any) -> None:
            raise OutcomeUnknown("the connection was lost")

        with patch.object(table, "grow", never), pytest.raises(Unavailable):
            await node.handled.alter("t", 5, {})
        assert len(topic.partitions) == 4 and topic.paused is None

    asyncio.run(run())
