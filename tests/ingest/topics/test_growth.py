"""Topics that grow: the epoch of their new partitions, and answers that do not come."""

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from topics_rig import Node

from siltlog.infra.errors import OutcomeUnknown, Unavailable
from siltlog.infra.store.store import open_store


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
