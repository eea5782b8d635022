"""Nothing is shown, answered or promised before it is as durable as was asked for."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from log_rig import CLOCK, LOGGER, MIB, GatedDisk, LaterClock, body, in_thread, running_log

from siltlog.infra import names
from siltlog.infra.errors import Fenced, OutcomeUnknown, Refused, UnknownTopic
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.requests import BodyReader
from siltlog.infra.security.grant import EVERYTHING, GRANT
from siltlog.infra.security.origins import Origins
from siltlog.ingest.flush.refresh import Refresh
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.partition import PartitionLog
from siltlog.ingest.log.producer_objects import StateWriter
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.producers.idempotency import idempotency_key
from siltlog.ingest.producers.sequencer import REQUESTS_REMEMBERED, ProducerState
from siltlog.ingest.publish.acknowledgement import acknowledged
from siltlog.ingest.publish.fast import FastPublishes
from siltlog.ingest.publish.http import Publish
from siltlog.ingest.publish.publishing import Publishing
from siltlog.ingest.records.body import Body


def no_wake() -> None:
    """Nobody flushes here."""


async def some_turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0.001)


async def shown(log: PartitionLog) -> list[bytes]:
    batches = await log.read_head(0, log.offsets.shown, 1_000, 1_000_000) or []
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.mark.rule("E4", "E3")
def test_nothing_is_seen_or_acknowledged_before_it_is_synced(tmp_path: Path) -> None:
    async def run() -> None:
        disk = GatedDisk()
        async with running_log(tmp_path, disk) as (log, topics):
            topic = await topics.create("t", 1, {})
            (partition,) = topic.partitions
            told: list[int] = []
            partition.subscribe(lambda: told.append(partition.offsets.shown))
            disk.gate.clear()
            producer = Producer("p", 0)
            sent = log.append(topic, body("a", "b", first_sequence=0), producer)
            ack = asyncio.ensure_future(acknowledged(topic, sent, "wal", 60, no_wake))
            repeated = log.append(topic, body("a", "b", first_sequence=0), producer)
            assert repeated.acks[0].duplicate
            retry = asyncio.ensure_future(acknowledged(topic, repeated, "wal", 60, no_wake))
            claim = asyncio.ensure_future(log.claim_producer(topic, "p"))
            await some_turns()
            assert (partition.offsets.shown, told, await shown(partition)) == (0, [], [])
            assert not (ack.done() or retry.done() or claim.done())
            ack.add_done_callback(lambda _: told.append(-1))
            disk.gate.set()
            await asyncio.wait_for(asyncio.gather(ack, retry, claim), 60)
            assert (claim.result(), told[:2]) == (1, [2, -1]), "who reads is told first"
            assert await shown(partition) == [b"a", b"b"]

    asyncio.run(run())


@pytest.mark.rule("E4")
def test_a_refusal_says_how_far_a_producer_came_once_that_is_synced(tmp_path: Path) -> None:
    """A producer that goes on from there must not go on behind records that a crash takes away."""

    async def run() -> None:
        disk = GatedDisk()
        async with running_log(tmp_path, disk) as (log, topics):
            topic = await topics.create("t", 1, {})
            door = SimpleNamespace(access_log=None, origins=Origins((), ()))
            long, short = _publish(log), FastPublishes(_publishing(log), door, None, Draining(), MIB)  # type: ignore[arg-type]
            disk.gate.clear()
            log.append(topic, body("a", "b", first_sequence=0), Producer("p", 0))
            gap = b'{"records":[{"value":"d","partition":0,"sequence":3}]}'
            asked = asyncio.ensure_future(posted(long, "t", gap, "p"))
            with pytest.raises(Fenced) as refused:
                short.append(topic, names.MEDIA_JSON, gap, {names.HEADER_PRODUCER_ID.lower(): "p"})
            told = short.publishing.told_once(refused.value)
            assert told is not None
            await some_turns()
            assert not (asked.done() or told.done())
            disk.gate.set()
            with pytest.raises(Fenced) as later:
                await asyncio.wait_for(asked, 60)
            assert later.value.members["next_sequence"] == refused.value.members["next_sequence"] == 2
            await asyncio.wait_for(told, 60)
            # What says nothing of it is told at once.
            with pytest.raises(Refused) as other:
                short.append(topic, names.MEDIA_JSON, b"{}", {})
            assert short.publishing.told_once(other.value) is None

    asyncio.run(run())


def _publish(log: Log) -> Publish:
    return Publish(_publishing(log), BodyReader(MIB), MIB)


def _publishing(log: Log) -> Publishing:
    return Publishing(log, no_wake, None)


async def posted(publish: Publish, topic: str, content: bytes, producer_id: str) -> None:
    headers = {"content-type": names.MEDIA_JSON, names.HEADER_PRODUCER_ID.lower(): producer_id}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": "POST",
        "query_string": b"",
        "headers": raw,
        "path_params": {"topic": topic},
        "state": {GRANT: EVERYTHING},
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        """Nobody reads it."""

    await publish(scope, receive, send)


def test_a_topic_whose_acks_is_the_table_shows_nothing_before(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, GatedDisk()) as (log, topics):
            topic = await topics.create("t", 1, {"acks": "table"})
            (partition,) = topic.partitions
            sent = log.append(topic, body("a", "b"), None)
            await asyncio.wait_for(acknowledged(topic, sent, "wal", 60, no_wake), 60)
            assert (partition.offsets.synced, partition.offsets.shown, await shown(partition)) == (2, 0, [])
            woken: list[None] = []
            ack = asyncio.ensure_future(acknowledged(topic, sent, "table", 60, lambda: woken.append(None)))
            await some_turns()
            assert (ack.done(), partition.awaited, len(woken)) == (False, True, 1)
            partition.moved(1, 0)
            await some_turns()
            assert (ack.done(), await shown(partition)) == (False, [b"a"])
            partition.moved(2, 0)
            await asyncio.wait_for(ack, 60)
            assert (await shown(partition), partition.awaited) == ([b"a", b"b"], False)

    asyncio.run(run())


def test_who_waited_long_enough_is_told_how_far_it_came_and_is_let_go_of(tmp_path: Path) -> None:
    async def run() -> None:
        disk = GatedDisk()
        async with running_log(tmp_path, disk) as (log, topics):
            topic = await topics.create("t", 2, {})
            sent = log.append(topic, body("a"), None)
            other = log.append(topic, body("b", partition=1), None)
            sent.ends.extend(other.ends)
            with pytest.raises(OutcomeUnknown) as late:
                await acknowledged(topic, sent, "table", 0.05, no_wake)
            assert (late.value.error_code, late.value.members) == ("ack_timeout", {"acks": "wal"})
            await some_turns()
            assert [partition.awaited for partition in topic.partitions] == [False, False]
            disk.gate.clear()
            sent = log.append(topic, body("c"), None)
            with pytest.raises(OutcomeUnknown) as late:
                await acknowledged(topic, sent, "table", 0.05, no_wake)
            assert late.value.members == {"acks": "none"}
            # A retry of what is still under way waits for the original, and no longer than it says.
            producer = Producer("p", 0)
            log.append(topic, body("d", first_sequence=0), producer)
            again = log.append(topic, body("d", first_sequence=0), producer)
            with pytest.raises(OutcomeUnknown) as late:
                await acknowledged(topic, again, "wal", 0.05, no_wake)
            assert late.value.members == {"acks": "none"}
            topic.close("fenced", "for the test")

    asyncio.run(run())


def test_who_waits_for_a_topic_that_ends_during_the_sync_learns_of_it(tmp_path: Path) -> None:
    async def run() -> None:
        disk = GatedDisk()
        async with running_log(tmp_path, disk) as (log, topics):
            topic = await topics.create("t", 1, {})
            disk.gate.clear()
            sent = log.append(topic, body("a"), None)
            ack = asyncio.ensure_future(acknowledged(topic, sent, "table", 60, no_wake))
            await some_turns()
            topic.close("deleted", "it was deleted")
            log.topic_logs.remove(topic)
            disk.gate.set()
            with pytest.raises(UnknownTopic):
                await asyncio.wait_for(ack, 30)

    asyncio.run(run())


# --- restarts ---------------------------------------------------------------------------------------------
def test_increasing_sequences_are_known_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        producer = Producer("p", 0, increasing=True)

        def bodies() -> list[Body]:
            rows = body("a", "b", "c", first_sequence=0)
            assert rows.rows is not None
            rows.rows.sequences = [3, 4, 9]
            columns = body("d", "e", first_sequence=0)
            columns.value, columns.rows = pa.array([b"d", b"e"]), None
            columns.partition, columns.sequence = np.zeros(2, np.int32), np.array([9, 20])
            return [rows, columns]

        async with running_log(tmp_path, GatedDisk()) as (log, topics):
            topic = await topics.create("t", 1, {})
            acks = [log.append(topic, one, producer).acks[0] for one in bodies()]
            assert [(ack.first_offset, ack.count, ack.places) for ack in acks] == [
                (0, 3, None),
                (3, 1, ((None, 1), (3, 1))),
            ]
            await log.group_commit.commit()
            known = topic.partitions[0].sequencer.producers["p"].batches

        async with running_log(tmp_path, GatedDisk()) as (log, _):
            topic = log.topic("t")
            assert topic.partitions[0].sequencer.producers["p"].batches == known
            assert await shown(topic.partitions[0]) == [b"a", b"b", b"c", b"e"]
            assert [log.append(topic, one, producer).acks[0].duplicate for one in bodies()] == [True, True]

    asyncio.run(run())


@pytest.mark.rule("E10")
def test_an_outage_makes_no_producer_and_no_key_older(tmp_path: Path) -> None:
    async def run() -> None:
        day = 86_400
        key = idempotency_key("k", b"body")
        async with running_log(tmp_path, GatedDisk()) as (log, topics):
            topic = await topics.create("t", 1, {})
            log.append(topic, body("a", first_sequence=0), Producer("p", 0))
            first = log.append(topic, body("b"), key).acks
            await log.claim_producer(topic, "silent")
        for days in (3, 6):
            # The second time they are known from the state, not from the records.
            async with running_log(tmp_path, GatedDisk(), LaterClock(days * day)) as (log, _):
                topic = log.topic("t")
                topic.expire_producers(log.aging.now_us())
                assert log.append(topic, body("a", first_sequence=0), Producer("p", 0)).acks[0].duplicate
                again = log.append(topic, body("b"), key).acks
                assert [(a.first_offset, a.duplicate) for a in again] == [(first[0].first_offset, True)]
                assert topic.producers.epochs.epoch("silent") == 1
                topic.expire_producers(log.aging.now_us() + 2 * day * 1_000_000)
                assert (len(topic.producers.keys), topic.partitions[0].sequencer.dump(9)) == (0, {})
                assert topic.producers.epochs.epoch("silent") == 0

    asyncio.run(run())


@pytest.mark.rule("E10")
def test_a_clock_that_is_set_makes_no_producer_and_no_key_older_or_younger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("siltlog.ingest.flush.refresh.LOOK_SECONDS", 0.001)
    day = 86_400
    clock = LaterClock(0)
    key = idempotency_key("k", b"body")

    async def run() -> None:
        async with running_log(tmp_path, GatedDisk(), clock) as (log, topics):
            topic = await topics.create("t", 1, {})
            log.append(topic, body("a", first_sequence=0), Producer("p", 0))
            log.append(topic, body("b"), key)
            await log.claim_producer(topic, "silent")
            clock.seconds = 3 * day
            await _refreshed(log)
            assert log.append(topic, body("a", first_sequence=0), Producer("p", 0)).acks[0].duplicate
            assert log.append(topic, body("b"), key).acks[0].duplicate
            assert topic.producers.epochs.epoch("silent") == 1
        for days in (-6, -12):
            # The second time they are known from the state, not from the records.
            clock.seconds = days * day
            async with running_log(tmp_path, GatedDisk(), clock) as (log, _):
                topic = log.topic("t")
                assert log.append(topic, body("b"), key).acks[0].duplicate
                topic.expire_producers(log.aging.now_us() + 2 * day * 1_000_000)
                assert (len(topic.producers.keys), topic.partitions[0].sequencer.dump(9)) == (0, {})
                assert topic.producers.epochs.epoch("silent") == 0

    asyncio.run(run())


async def _refreshed(log: Log) -> None:
    """Returns once every topic was looked after."""
    done = asyncio.Event()

    async def looked(_: TopicLog, changed: bool) -> bool:
        done.set()
        return True

    refreshing = asyncio.create_task(Refresh(log, looked, LOGGER).run())
    await done.wait()
    refreshing.cancel()


# --- state beside the table -------------------------------------------------------------------------------
async def publish(log: Log, topic: TopicLog, producer: str, first: int, requests: int) -> None:
    for number in range(first, first + requests):
        log.append(topic, body("v", first_sequence=number), Producer(producer, 0))
    await log.group_commit.commit()


def stored(log: Log, topic: TopicLog) -> dict[int, dict[str, ProducerState]]:
    """Gives what is in each object, by the offset that it covers."""
    found = log.store.list(f"topics/{topic.name}/_state/{topic.topic_id}/0/")
    decode = msgspec.msgpack.Decoder(dict[str, ProducerState]).decode
    return {int(info.path.rsplit("/", 1)[1]): decode(log.store.get(info.path)) for info in found}


def last_sequences(producers: dict[str, ProducerState]) -> dict[str, int]:
    return {name: state.last_sequence for name, state in producers.items()}


@pytest.mark.rule("E7")
def test_no_producer_is_missing_however_much_it_sends_while_a_flush_goes_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, GatedDisk()) as (log, topics):
            topic = await topics.create("t", 1, {})
            (partition,) = topic.partitions
            states = StateWriter(log.store, CLOCK, LOGGER, in_thread)
            await publish(log, topic, "quiet", 0, 2)
            await publish(log, topic, "busy", 0, 8)
            partition.moved(10, 0)
            await states.write(topic, at_once=True)
            assert {at: last_sequences(known) for at, known in stored(log, topic).items()} == {
                10: {"quiet": 1, "busy": 7}
            }
            many = REQUESTS_REMEMBERED + 50
            await publish(log, topic, "busy", 8, many)
            await states.write(topic, at_once=True)
            partition.moved(10 + many - 20, 0)
            await states.write(topic, at_once=True)
            assert list(stored(log, topic)) == [10], "what lies above is not in the table yet"
            # By now all that is remembered one by one lies above the table offset.
            await publish(log, topic, "busy", 8 + many, many)
            partition.moved(10 + many + 5, 0)
            await states.write(topic)
            found = stored(log, topic)
            assert last_sequences(found[10 + many]) == {"quiet": 1, "busy": 7 + many}
            assert partition.state_offset == 10 + many
            partition.moved(10 + 2 * many, 0)
            await states.write(topic, at_once=True)
            assert last_sequences(stored(log, topic)[10 + 2 * many]) == {"quiet": 1, "busy": 7 + 2 * many}

    asyncio.run(run())


@pytest.mark.rule("E3", "W8")
def test_claims_are_beside_the_table_once_they_are_answered_and_survive_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, GatedDisk()) as (log, topics):
            topic = await topics.create("t", 2, {})
            states = StateWriter(log.store, CLOCK, LOGGER, in_thread)
            for _ in range(3):
                assert await log.claim_producer(topic, "p") == topic.producers.epochs.epoch("p")
                await states.store_epochs(topic)
            (info,) = log.store.list(f"topics/t/_state/{topic.topic_id}/claims/")
            assert msgspec.msgpack.decode(log.store.get(info.path))[1]["p"][0] == 3

        async with running_log(tmp_path, GatedDisk()) as (log, _):
            assert log.topic("t").producers.epochs.epoch("p") == 3

    asyncio.run(run())


@pytest.mark.rule("E3")
def test_a_claim_is_answered_though_the_store_is_away(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, GatedDisk()) as (log, topics):
            topic = await topics.create("t", 1, {})
            fails = True

            async def failing(topic: TopicLog, function: Any, *arguments: Any) -> Any:
                if fails:
                    raise ConnectionError("away")
                return await in_thread(topic, function, *arguments)

            states = StateWriter(log.store, CLOCK, LOGGER, failing)
            await log.claim_producer(topic, "p")
            await states.store_epochs(topic)
            assert not topic.producers.epochs_stored
            fails = False
            await states.write(topic)
            assert topic.producers.epochs_stored
            assert len(log.store.list(f"topics/t/_state/{topic.topic_id}/claims/")) == 1

    asyncio.run(run())
