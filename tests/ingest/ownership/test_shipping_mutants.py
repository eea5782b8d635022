"""Each rule of what is promised of journals is needed: a mutant of each is noticed, on real WALs and tables."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import wraps
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch as patched

import pytest
from chaos import seeds
from log_rig import body, running_log
from mutants import Mutant, Patch, Play, hold, instead, nothing_awaited, noticed, plays

from siltlog.infra.errors import ConfigError, OutcomeUnknown, Refused, SiltlogError
from siltlog.ingest.journal.seal import seal
from siltlog.ingest.log.group_commit import GroupCommit
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.ownership import plan
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.producers.idempotency import IdempotencyKey, KnownKeys, idempotency_key
from siltlog.ingest.publish import publishing
from siltlog.ingest.publish.publishing import Acks, Published, Publisher, Publishing
from siltlog.ingest.records.body import Body, Rows
from siltlog.ingest.topics import topics as making
from siltlog.ingest.topics.topics import Topics
from siltlog.ingest.wal.disk import Disk

SLOW = {"acks": "object", "flush.ms": 3_600_000}
FolderPlay = Callable[[random.Random, Path], Coroutine[Any, Any, None]]


def on_a_loop(play: FolderPlay) -> Play:
    @wraps(play)
    def run(seed: int, folder: Path) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(30):
                await play(random.Random(seed), folder)

        asyncio.run(bounded())

    return run


@asynccontextmanager
async def node(folder: Path, name: str) -> AsyncIterator[tuple[Log, Topics]]:
    """Takes over what others had, as one that has nothing of theirs but the root."""
    (folder / name).mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        try:
            started = running_log(folder / name, Disk(), lake=folder / "lake", take_over=True)
            running = await stack.enter_async_context(started)
        except ConfigError as error:
            raise AssertionError(f"it does not start: {error.detail}") from error
        yield running


async def publish(
    log: Log, topic: str, value: str, *, acks: Acks | None = None, by: Publisher | None = None, sequence: int = -1
) -> Published:
    content = body(value, first_sequence=None if sequence < 0 else sequence)
    by = by or Publisher(None if sequence < 0 else Producer("p", 0))
    return await Publishing(log, lambda: None, None).publish(log.topic(topic), content, by, acks, 5_000)


async def read(topic: TopicLog) -> list[str]:
    log = topic.partitions[0]
    batches = await log.read_head(log.offsets.table, log.offsets.shown, 10_000, 10_000_000)
    return [value.decode() for batch in batches or () for value in batch.column("value").to_pylist()]


@on_a_loop
async def who_takes_over_has_what_was_acknowledged(chance: random.Random, folder: Path) -> None:
    """CJ7"""
    told = []
    async with node(folder, "a") as (log, topics):
        await topics.create("t", 1, SLOW)
        for number in range(chance.randrange(1, 6)):
            await publish(log, "t", f"v{number}")
            told.append(f"v{number}")
        sealed = chance.random() < 0.5
        if sealed:
            # Somebody takes over: what comes now is in the WAL alone.
            await asyncio.to_thread(seal, log.store, "cluster", log.journal.name, bytes(16))
            try:
                await publish(log, "t", "not told")
            except OutcomeUnknown:
                pass
            else:
                told.append("not told")
    async with node(folder, "a" if sealed else "b") as (log, _):
        assert await read(log.topic("t")) == told, "not what was acknowledged, or more"
        appended = (await publish(log, "t", "next")).appended
        assert appended.acks[0].first_offset == len(told)


LEVELS: tuple[Acks | None, ...] = (None, "none", "wal", "object", "table")


@on_a_loop
async def an_ack_is_what_it_says(chance: random.Random, folder: Path) -> None:
    """CJ8"""
    async with node(folder, "a") as (log, topics):
        own = chance.choice(("object", "object", "wal", "table"))
        asked = chance.choice(LEVELS[:-1])
        await topics.create("t", 1, {**SLOW, "acks": own})
        put, release = log.store.put_if_absent, Event()

        def held(path: str, data: bytes) -> Any:
            release.wait(10)
            return put(path, data)

        with patched.object(log.store, "put_if_absent", held):
            answer = asyncio.create_task(publish(log, "t", "v", acks=asked))
            shipped_first = own == "object" and asked != "none"
            # Who need not wait for the store is answered while it is held; who must is not, however long that is.
            await asyncio.wait({answer}, timeout=5 if own == "object" and not shipped_first else 0.05)
            if own == "object":
                assert answer.done() == (not shipped_first), f"acks={asked} is answered before it is in the store"
            release.set()
            if asked == "object" and own == "wal":
                try:
                    await answer
                except Refused as error:
                    assert error.error_code == "unsupported_acks"
                    return
                raise AssertionError("what is on one disk is said to be in the store")
            if own == "table" and asked in (None, "object"):
                assert not answer.done(), "it is in no table yet"
                answer.cancel()
                return
            if own == "table" and asked == "wal":
                assert (await answer).acks == "wal"
                return
            given = (await answer).acks
        assert given == ("object" if shipped_first else asked or own), f"{asked} of {own} is answered as {given}"


@on_a_loop
async def what_a_producer_hears_has_landed(chance: random.Random, folder: Path) -> None:
    """CJ9"""
    async with node(folder, "a") as (log, topics):
        await topics.create("t", 1, SLOW)
        await publish(log, "t", "v0", sequence=0)
        put, release = log.store.put_if_absent, Event()

        def held(path: str, data: bytes) -> Any:
            release.wait(10)
            return put(path, data)

        claims = chance.random() < 0.5
        with patched.object(log.store, "put_if_absent", held):
            waits: list[asyncio.Task[Any]] = [asyncio.create_task(publish(log, "t", "v1", sequence=1))]
            await asyncio.sleep(0)
            if claims:
                waits.append(asyncio.create_task(log.claim_producer(log.topic("t"), "q")))
            else:
                waits.append(asyncio.create_task(publish(log, "t", "far", sequence=7)))
            await asyncio.sleep(0.06)
            early = [task for task in waits if task.done()]
            release.set()
            found = await asyncio.gather(*waits, return_exceptions=True)
        assert not early, "it is told of what may be cut off"
        told = found[1]
        assert told == 1 if claims else isinstance(told, SiltlogError) and told.members["next_sequence"] == 2
        epoch = await log.claim_producer(log.topic("t"), "fenced")
    async with node(folder, "b") as (log, _):
        assert await log.claim_producer(log.topic("t"), "fenced") == epoch + 1, "a fenced producer comes back"


@on_a_loop
async def a_key_counts_however_many_partitions_there_are(chance: random.Random, folder: Path) -> None:
    """CJ11"""
    count = chance.randrange(4, 12)

    async def publish_once(log: Log) -> Published:
        none = [None] * count
        rows = Rows(none, [b"%d" % n for n in range(count)], [b"v"] * count, [*none], [-1] * count, [*none])
        by = Publisher(idempotency_key("once", b"body"))
        topic = log.topic("t")
        return await Publishing(log, lambda: None, None).publish(topic, Body(count, 80, rows), by, None, 5_000)

    first = chance.randrange(1, 3)
    async with node(folder, "a") as (log, topics):
        await topics.create("t", first, SLOW)
        assert not (await publish_once(log)).appended.acks[0].duplicate
        await topics.alter("t", chance.randrange(first + 1, 6), {})
        if chance.random() < 0.5:
            again = (await publish_once(log)).appended
            assert all(ack.duplicate for ack in again.acks), "after growth a retry lands twice"
    async with node(folder, "b") as (log, _):
        again = (await publish_once(log)).appended
        assert all(ack.duplicate for ack in again.acks), "a retry lands twice"


def _claims_without_shipping(patch: Patch) -> None:
    real = making.claim

    async def mutant(log: Log, *of: Any, **rest: Any) -> None:
        await log.journal.open()
        await real(log, *of, **{**rest, "ships": False})

    patch.setattr(making, "claim", mutant)


def _by_its_wal(patch: Patch) -> None:
    """Its own next start takes what the WAL has for what was acknowledged."""
    journaled = plan._journaled
    patch.setattr(plan, "_journaled", lambda standing, leave: journaled(standing, leave) - standing.own)


def _split_anew(patch: Patch) -> None:
    find = KnownKeys.find

    def mutant(self: KnownKeys, key: IdempotencyKey, partitions: int, before_us: int) -> Any:
        return find(KnownKeys(), key, partitions, before_us)

    patch.setattr(KnownKeys, "find", mutant)


def _ships_no_claims(self: GroupCommit, topic: TopicLog, payload: bytes) -> None:
    self._open.controls.append(payload)


MUTANTS: dict[str, Mutant] = {
    "CJ7 the claim says nothing of journals": Mutant(
        who_takes_over_has_what_was_acknowledged, _claims_without_shipping
    ),
    "CJ7 its own start goes by its WAL": Mutant(who_takes_over_has_what_was_acknowledged, _by_its_wal, 2),
    "CJ8 what is asked for is said": Mutant(
        an_ack_is_what_it_says, instead(publishing, "_reached", lambda topic, asked: asked), 4
    ),
    "CJ9 nobody waits until it has landed": Mutant(
        what_a_producer_hears_has_landed, instead(Log, "landed", nothing_awaited)
    ),
    "CJ9 claims are not journaled": Mutant(
        what_a_producer_hears_has_landed, instead(GroupCommit, "add_shipped_control", _ships_no_claims)
    ),
    "CJ11 a key is split by the partitions there are": Mutant(
        a_key_counts_however_many_partitions_there_are, _split_anew
    ),
}


@pytest.mark.rule("CJ7", "CJ8", "CJ9", "CJ11")
@pytest.mark.chaos
@pytest.mark.parametrize("play", plays(MUTANTS), ids=lambda play: play.__name__)
def test_what_is_shipped_keeps_its_rules(play: Play, tmp_path: Path) -> None:
    hold(play, seeds(2), tmp_path)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str, tmp_path: Path) -> None:
    noticed(MUTANTS[name], tmp_path)
