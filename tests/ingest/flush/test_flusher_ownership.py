"""A flusher looks after every commit who owns a partition: what another node's table says is not taken in."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_rig import CLOCK, LOGGER, body, running_log
from record_tables import new_id

from siltlog.infra.errors import Fenced, OutcomeUnknown, problem
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.store.store import open_store
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.flush import refresh
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.wal.disk import Disk

JUMPED = 2**32


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def taken_over_after(folder: Path, table: TopicTable, operation: str) -> None:
    """Another node claims the topic between the table's next `operation` and the look at what came of it."""
    real = getattr(table, operation)

    def overtaken(*arguments: Any, **named: Any) -> Any:
        real(*arguments, **named)
        other = TopicTable.open(open_store((folder / "lake").as_uri()), table.topic, CLOCK)
        other.claim({0: other.snapshot.epochs[0] + 1}, new_id(), offsets={0: JUMPED})
        return table.refresh()

    setattr(table, operation, overtaken)


@pytest.mark.rule("S7", "T19")
def test_a_topic_that_was_claimed_right_after_a_flush_is_fenced(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            topic = await topics.create("t", 1, {"flush.ms": 1})
            taken_over_after(tmp_path, topic.table, "append")
            flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics())
            await log.append(topic, body("a", "b"), None).durable
            await until(lambda: topic.state != "open")
            assert topic.state == "fenced" and "claimed" in topic.availability.reason
            assert topic.partitions[0].offsets.table == 0 == topic.snapshot.offsets[0]
            await flusher.stop(10)

    asyncio.run(run())


@pytest.mark.rule("T19")
def test_settings_that_were_changed_right_before_a_claim_do_not_hide_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (_, topics):
            topic = await topics.create("t", 1, {})
            taken_over_after(tmp_path, topic.table, "set_config")
            with pytest.raises(Fenced, match="another node has claimed partition 0"):
                await topics.alter("t", None, {"flush.ms": 5})
            assert topic.partitions[0].offsets.table == 0

    asyncio.run(run())


def test_a_claim_that_another_followed_at_once_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = TopicTable.claim

    def followed(table: TopicTable, epochs: dict[int, int], *rest: Any, **named: Any) -> TableSnapshot:
        real(table, epochs, *rest, **named)
        return real(table, {0: epochs[0] + 1}, new_id())

    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (_, topics):
            monkeypatch.setattr(TopicTable, "claim", followed)
            with pytest.raises(Fenced, match="another node has claimed partition 0"):
                await topics.create("t", 1, {})

    asyncio.run(run())


def test_a_table_that_cannot_be_read_once_a_flush_has_landed_is_not_anothers(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            topic = await topics.create("t", 1, {"flush.ms": 1})
            table: Any = topic.table
            append, outcome, refresh = table.append, table.outcome, table.refresh

            def unanswered(*arguments: Any, **named: Any) -> Any:
                append(*arguments, **named)
                table.append = append
                raise OutcomeUnknown("the answer was lost")

            def told(*arguments: Any) -> Any:
                found = outcome(*arguments)
                table.outcome, table.refresh = outcome, unreadable
                return found

            def unreadable() -> Any:
                table.refresh = refresh
                raise problem("topic_unavailable", "the store does not answer")

            table.append, table.outcome = unanswered, told
            flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics())
            await log.append(topic, body("a", "b"), None).durable
            await until(lambda: topic.partitions[0].offsets.table == 2 or topic.state != "open")
            await log.append(topic, body("c"), None).durable
            await until(lambda: topic.partitions[0].offsets.table == 3 or topic.state != "open")
            assert topic.state == "open" and topic.counts.flush_failures == 2
            await flusher.stop(10)

    asyncio.run(run())


def test_a_look_at_the_mark_of_claims_that_fails_is_not_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "LOOK_SECONDS", 0.01)
    looks = 0

    def unable(path: str) -> bytes:
        nonlocal looks
        looks += 1
        raise RuntimeError("can't start new thread")

    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            topic = await topics.create("t", 1, {})
            monkeypatch.setattr(log.store, "get", unable)
            flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics())
            await until(lambda: looks > 1)
            monkeypatch.undo()
            other = TopicTable.open(log.store, "t", CLOCK)
            other.claim({0: other.snapshot.epochs[0] + 1}, new_id())
            await until(lambda: topic.state == "fenced")
            await flusher.stop(10)

    asyncio.run(run())
