"""How long it is until a topic that waits is looked at again, by a clock of the test's; its table, by a real one."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from failing_store import VirtualClock

from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.local import LocalStore
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.ownership.rules import Waits
from siltlog.ingest.ownership.waiting import (
    HANDED_SECONDS_MAX,
    POLL_SECONDS_MAX,
    POLL_SECONDS_MIN,
    WaitingTopics,
)

TOPIC_ID = "5f0c2a4e-8a3b-4c1d-9e6f-0a1b2c3d4e5f"


def topics(root: Path, clock: VirtualClock, said: list[Any] | None = None) -> WaitingTopics:
    logger: Any = SimpleNamespace(info=lambda *_, **fields: None if said is None else said.append(fields))
    return WaitingTopics(LocalStore(str(root)), clock, logger)


@pytest.mark.parametrize(("handed", "longest"), [(True, HANDED_SECONDS_MAX), (False, POLL_SECONDS_MAX)])
def test_what_waits_for_longer_is_looked_at_more_seldom(tmp_path: Path, handed: bool, longest: float) -> None:
    clock, said = VirtualClock(), []  # type: ignore[var-annotated]
    waiting = topics(tmp_path, clock, said)
    why, other = Waits("its owner has not let go of it", node="a"), Waits("another", node="b")
    found = []
    for seconds in (0.0, 0.05, 0.2, 5.0):
        clock.advance(seconds)
        found.append(waiting.wait("t", why, handed=handed))
    assert found == [POLL_SECONDS_MIN, POLL_SECONDS_MIN, pytest.approx(0.25), longest]
    assert waiting.wait("t", other, handed=handed) == POLL_SECONDS_MIN, "for another reason it has just begun"
    assert [fields["peer"] for fields in said] == ["a", "b"], "each reason is told once"
    assert (len(waiting), dict(waiting.items()), waiting.get("t")) == (1, {"t": other}, other)
    waiting.forget("t")
    assert (len(waiting), waiting.get("t")) == (0, None)


def test_the_table_is_that_of_the_views_topic_as_it_is_now(tmp_path: Path) -> None:
    async def run() -> None:
        clock = VirtualClock()
        waiting = topics(tmp_path, clock)
        assert await waiting.table("t", TOPIC_ID) is None
        config = TopicConfig({})
        made = TopicTable.create(
            LocalStore(str(tmp_path)), "t", topic_id=TOPIC_ID, partitions=1, config=config, created_us=0, clock=clock
        )
        assert await waiting.table("t", "another") is None
        table = await waiting.table("t", TOPIC_ID)
        assert table is not None
        made.claim({0: 5}, "c1")
        assert await waiting.table("t", TOPIC_ID) is table
        assert table.snapshot.epochs == {0: 5}, "it was looked at again"
        waiting.drop_table("t")
        assert await waiting.table("t", TOPIC_ID) is not table
        made.delete("c2")
        assert await waiting.table("t", "id") is None

    asyncio.run(run())
