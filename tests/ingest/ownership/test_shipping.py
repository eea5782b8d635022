"""Topics with acks=object: what was acknowledged is there for whoever goes on, without this disk."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from siltlog.infra import names
from siltlog.infra.errors import ConfigError, OutcomeUnknown, Refused, SiltlogError
from siltlog.infra.settings.topic_config import LOCAL_LEVELS, TopicConfig
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.ingest.journal.codec import Read
from siltlog.ingest.journal.reader import read
from siltlog.ingest.journal.seal import Sealed, seal
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.ownership import shipping
from siltlog.ingest.ownership.ownership import _ships
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.producers.idempotency import idempotency_key
from siltlog.ingest.publish.publishing import Acks, Published, Publisher, Publishing
from siltlog.ingest.records.body import Body, Rows
from siltlog.ingest.topics.topics import Topics
from siltlog.ingest.wal.disk import Disk
from tests.rigs.log_rig import body, running_log

SLOW = {"acks": "object", "flush.ms": 3_600_000}


def _on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: object) -> None:
        asyncio.run(test(**fixtures))

    return run


@asynccontextmanager
async def _node(folder: Path, name: str, *, take_over: bool = False) -> AsyncIterator[tuple[Log, Topics]]:
    (folder / name).mkdir(exist_ok=True)
    async with running_log(folder / name, Disk(), lake=folder / "lake", take_over=take_over) as node:
        yield node


async def _publish(
    log: Log, topic: str, *values: str, sequence: int | None = None, acks: Acks | None = None, partition: int = 0
) -> Published:
    by = Publisher(Producer("p", 0)) if sequence is not None else Publisher()
    publishing = Publishing(log, lambda: None, None)
    content = body(*values, first_sequence=sequence, partition=partition)
    return await publishing.publish(publishing.topic(topic), content, by, acks, 5_000)


async def _read(topic: TopicLog, partition: int = 0) -> list[str]:
    log = topic.partitions[partition]
    batches = await log.read_head(log.offsets.table, log.offsets.shown, 10_000, 10_000_000)
    assert batches is not None
    return [value.decode() for batch in batches for value in batch.column("value").to_pylist()]


@pytest.mark.rule("CJ8")
@_on_a_loop
async def test_the_level_that_a_request_reaches(tmp_path: Path) -> None:
    async with _node(tmp_path, "a") as (log, topics):
        await topics.create("o", 1, SLOW)
        await topics.create("w", 1, {"flush.ms": 3_600_000})
        for asked, given in (
            (None, "object"),
            ("written", "object"),
            ("wal", "object"),
            ("object", "object"),
            ("none", "none"),
        ):
            assert (await _publish(log, "o", "v", acks=asked)).acks == given  # type: ignore[arg-type]
        for level in ("written", "wal"):
            assert (await _publish(log, "w", "v", acks=level)).acks == level  # type: ignore[arg-type]
        with pytest.raises(Refused, match="ask for acks=table") as refused:
            await _publish(log, "w", "v", acks="object")
        assert refused.value.error_code == "unsupported_acks"
        assert log.topic("w").partitions[0].offsets.synced == 2, "a request that is refused has no effect"
        for name, acks in (("o", "wal"), ("w", "object")):
            with pytest.raises(ConfigError, match="chosen when a topic is made"):
                await topics.alter(name, None, {"acks": acks})
        log.topic("w").ship()
        publishing = Publishing(log, lambda: None, None)
        for level in ("written", "wal"):
            assert publishing.append_now(log.topic("w"), body("v"), Publisher(), level).acks == "table"  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match=f"in a cluster acks={level} is chosen when a topic is made"):
                await topics.alter("w", None, {"acks": level})


@pytest.mark.rule("CJ7", "CJ9", "CJ12")
@_on_a_loop
async def test_another_data_dir_goes_on_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    async with _node(tmp_path, "a") as (log, topics):
        await topics.create("t", 2, SLOW)
        for number in range(20):
            await _publish(log, "t", f"v{number}", sequence=number)
        await _publish(log, "t", "other", partition=1)
        assert await log.claim_producer(log.topic("t"), "fenced") == 1
    with pytest.raises(ConfigError, match="--take-over"):
        async with _node(tmp_path, "b"):
            pass
    async with _node(tmp_path, "b", take_over=True) as (log, _):
        topic = log.topic("t")
        assert await _read(topic) == [f"v{number}" for number in range(20)]
        assert await _read(topic, 1) == ["other"]
        again = await _publish(log, "t", "v19", sequence=19)
        assert again.appended.acks[0].duplicate and again.appended.acks[0].first_offset == 19
        assert (await _publish(log, "t", "v20", sequence=20)).appended.acks[0].first_offset == 20
        assert topic.snapshot.gaps(0) == []
        assert await log.claim_producer(topic, "fenced") == 2
        await _until(lambda: len(topic.snapshot.journals) == 1)
    async with _node(tmp_path, "c", take_over=True) as (log, _):
        assert await _read(log.topic("t")) == [f"v{number}" for number in range(21)]
        assert await log.claim_producer(log.topic("t"), "fenced") == 3


@pytest.mark.rule("CJ12")
@_on_a_loop
async def test_a_successor_that_dies_before_the_chain_is_cut_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping.Shipping, "_settle_later", lambda self, topic: None)
    async with _node(tmp_path, "a") as (log, topics):
        await topics.create("t", 1, SLOW)
        await _publish(log, "t", "v0")
    for number, name in enumerate("bcd", 1):
        async with _node(tmp_path, name, take_over=True) as (log, _):
            assert len(log.topic("t").snapshot.journals) == number + 1
            await _publish(log, "t", f"v{number}")
    async with _node(tmp_path, "e", take_over=True) as (log, _):
        assert await _read(log.topic("t")) == ["v0", "v1", "v2", "v3"]


@pytest.mark.rule("CJ7")
@_on_a_loop
async def test_its_own_restart_goes_by_the_journal(tmp_path: Path) -> None:
    """What only the WAL has was never acknowledged, and a successor may have gone past it."""
    async with _node(tmp_path, "a") as (log, topics):
        await topics.create("t", 1, SLOW)
        await _publish(log, "t", "told")
        store, former = log.store, log.journal.name
        await asyncio.to_thread(seal, store, "cluster", former, bytes(16))
        with pytest.raises(OutcomeUnknown):
            await _publish(log, "t", "not told")
        assert log.topic("t").state == "fenced"
        assert log.topic("t").partitions[0].offsets.shown == 1
    async with _node(tmp_path, "a") as (log, _):
        assert log.journal.name != former
        assert await _read(log.topic("t")) == ["told"]
        assert (await _publish(log, "t", "next")).appended.acks[0].first_offset == 1
    async with _node(tmp_path, "a") as (log, _):
        assert await _read(log.topic("t")) == ["told", "next"]


@pytest.mark.rule("CJ6")
@_on_a_loop
async def test_who_is_taken_over_from_acknowledges_nothing_more(tmp_path: Path) -> None:
    async with _node(tmp_path, "a") as (slept, topics):
        await topics.create("t", 1, SLOW)
        await _publish(slept, "t", "v0")
        async with _node(tmp_path, "b", take_over=True) as (log, _):
            await _publish(log, "t", "v1")
            with pytest.raises(SiltlogError) as unknown:
                await _publish(slept, "t", "zombie")
            assert unknown.value.retryable == "unknown"
            assert slept.topic("t").partitions[0].offsets.shown == 1
            assert await _read(log.topic("t")) == ["v0", "v1"]


@_on_a_loop
async def test_a_table_without_its_journals_is_refused(tmp_path: Path) -> None:
    async with _node(tmp_path, "a") as (log, topics):
        await topics.create("t", 1, SLOW)
        await _publish(log, "t", "v0")
    store = open_store((tmp_path / "lake").as_uri())
    for info in store.list(names.JOURNALS_FOLDER):
        store.delete(info.path)
    with pytest.raises(SiltlogError, match="nothing is found of the journal"):
        async with _node(tmp_path, "b", take_over=True):
            pass


@_on_a_loop
async def test_a_topic_of_another_level_opens_no_journal(tmp_path: Path) -> None:
    async with _node(tmp_path, "a") as (log, topics):
        await topics.create("w", 1, {})
        await _publish(log, "w", "v")
        assert not log.journal.is_open
        assert log.store.list(names.JOURNALS_FOLDER) == []


@_on_a_loop
async def test_partitions_that_come_later_are_shipped_too(tmp_path: Path) -> None:
    async with _node(tmp_path, "a") as (log, topics):
        await topics.create("t", 1, SLOW)
        await topics.alter("t", 2, {})
        await _publish(log, "t", "v", partition=1)
        assert log.topic("t").snapshot.shipped(1) == log.topic("t").epochs[-1]
    async with _node(tmp_path, "b", take_over=True) as (log, _):
        assert await _read(log.topic("t"), 1) == ["v"]


@pytest.mark.rule("CJ11")
@_on_a_loop
async def test_a_key_counts_after_growth_and_for_a_successor(tmp_path: Path) -> None:
    async def publish(log: Log) -> Published:
        publishing = Publishing(log, lambda: None, None)
        rows = Rows([None] * 8, [b"%d" % n for n in range(8)], [b"v"] * 8, [None] * 8, [-1] * 8, [None] * 8)
        by = Publisher(idempotency_key("once", b"body"))
        return await publishing.publish(log.topic("t"), Body(8, 80, rows), by, None, 5_000)

    async with _node(tmp_path, "a") as (log, topics):
        await topics.create("t", 1, SLOW)
        assert not (await publish(log)).appended.acks[0].duplicate
        await topics.alter("t", 4, {})
    async with _node(tmp_path, "b", take_over=True) as (log, _):
        again = (await publish(log)).appended
        assert [(ack.partition, ack.count, ack.duplicate) for ack in again.acks] == [(0, 8, True)]


@pytest.mark.rule("CJ9")
@_on_a_loop
async def test_a_claim_has_landed_before_it_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _node(tmp_path, "a") as (log, topics):
        await topics.create("t", 1, SLOW)
        await _publish(log, "t", "v", sequence=0)
        store, open_gate = log.store, Event()
        put = store.put_if_absent
        monkeypatch.setattr(store, "put_if_absent", lambda path, data: open_gate.wait(20) and put(path, data))
        claim = asyncio.create_task(log.claim_producer(log.topic("t"), "p"))
        ahead = asyncio.create_task(_publish(log, "t", "far", sequence=7))
        await asyncio.sleep(0.2)
        assert not claim.done() and not ahead.done()
        open_gate.set()
        assert await claim == 1
        with pytest.raises(SiltlogError) as refused:
            await ahead
        assert refused.value.members["next_sequence"] == 1


@pytest.mark.rule("CJ12")
@_on_a_loop
async def test_a_journal_of_many_topics_is_ended_and_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _node(tmp_path, "a") as (log, topics):
        for number in range(6):
            await topics.create(f"t{number}", 1, SLOW)
            await _publish(log, f"t{number}", f"v{number}")
    reads: list[Sealed] = []

    def counted(store: ObjectStore, cluster_id: str, sealed: Sealed) -> list[Read]:
        reads.append(sealed)
        return read(store, cluster_id, sealed)

    monkeypatch.setattr(shipping, "read", counted)
    async with _node(tmp_path, "b", take_over=True) as (log, _):
        for number in range(6):
            assert await _read(log.topic(f"t{number}")) == [f"v{number}"]
    assert len(reads) == 1


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.rule("CG8")
def test_topics_of_the_system_ship_whatever_level_they_were_made_with() -> None:
    left = TopicConfig({})
    for level in LOCAL_LEVELS:
        chosen = TopicConfig({"acks": level})
        ships = {name: (_ships(name, chosen), _ships(name, left)) for name in ("t", names.OFFSETS_TOPIC, "t.dlq")}
        assert ships == {"t": (False, True), names.OFFSETS_TOPIC: (True, True), "t.dlq": (True, True)}
