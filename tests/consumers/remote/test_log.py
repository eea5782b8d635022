"""Reading on one node what another owns: a real log and table, real connections, and routes that the test sets."""

import asyncio
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from remote_rig import owner_and_reader, run, settle, until, values

from siltlog.consumers.reading import fetch
from siltlog.consumers.reading.fetch import FetchPosition
from siltlog.consumers.remote import log as remote_log
from siltlog.consumers.remote import messages
from siltlog.consumers.remote.log import AGAIN_SECONDS_MAX, LOOK_SECONDS
from siltlog.infra.cluster.router import Member, Place
from siltlog.infra.errors import OffsetOutOfRange, Unavailable, UnknownTopic, problem
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.commits import TableLog
from siltlog.infra.table.opening import load


@pytest.mark.rule("CR9")
def test_a_head_elsewhere_and_the_table_are_read_without_a_seam(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            expected = []
            for batch in range(6):
                published = [f"{batch}-{number}" for number in range(50)]
                await a.publish("t", *published)
                expected += published
                if batch % 2:
                    await a.flusher.drain()
                    topic.partitions[0].head.evict(1 << 30)
                end = len(expected)
                await until(lambda end=end: b.reads.topic("t").partitions[0].bounds().high_watermark == end)  # type: ignore[misc]
                for offset in (0, 49, 50, end - 1, end):
                    assert values(await b.read("t", offset)) == expected[offset:]
            # The owner's head has let go; what this node knows of the table is older than that.
            assert topic.partitions[0].head.start > 0
            assert b.reads.topics()[0].topic_id == topic.topic_id

    run(test())


@pytest.mark.rule("CR9")
def test_what_is_below_the_head_is_in_the_version_that_the_owner_names(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            await a.publish("t", "x", "y")
            await until(lambda: b.reads.topic("t").partitions[0].bounds().high_watermark == 2)
            b.reads.stop()  # it hears no more of the owner but what it asks
            await a.flusher.drain()
            topic.partitions[0].head.evict(1 << 30)
            assert topic.partitions[0].head.start == 2
            seen = b.reads.topic("t").snapshot.version
            assert values(await b.read("t", 0)) == ["x", "y"]
            assert b.reads.topic("t").snapshot.version > seen

    run(test())


@pytest.mark.rule("CR10")
def test_a_long_poll_hears_of_what_another_node_is_given(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            waiting = asyncio.create_task(b.read("t", 0, wait_ms=30_000))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            started = asyncio.get_running_loop().time()
            await a.publish("t", "x")
            assert values(await waiting) == ["x"]
            assert asyncio.get_running_loop().time() - started < 15
            table = asyncio.create_task(b.read("t", 0, wait_ms=10_000, isolation="table"))
            await asyncio.sleep(0.1)
            assert not table.done()
            await a.flusher.drain()
            assert values(await table) == ["x"]

    run(test())


@pytest.mark.rule("CR11")
def test_an_offset_is_refused_by_the_owner_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            b.reads.stop()  # its knowledge is old
            await a.publish("t", "x", "y", "z")
            assert values(await b.read("t", 1)) == ["y", "z"]
            await a.publish("t", "w")
            assert values(await b.read("t", 4)) == []
            found = await b.read("t", 5)
            assert isinstance(found.error, OffsetOutOfRange)
            assert found.error.members["high_watermark"] == 4
            # Who owned it may have been taken for lost: nobody decides until there is another.
            a.routes.fresh = False
            late = asyncio.create_task(b.read("t", 6))
            await asyncio.sleep(0.2)
            assert not late.done()
            a.routes.fresh = True
            assert isinstance((await late).error, OffsetOutOfRange)
            # Nobody will own it soon: what lies above the table is not known.
            await a.flusher.drain()
            settle(topic, a, (a, b), Place(Member("z", "z-1", "http://127.0.0.1:1"), None, 1))
            await b.reads.refresh(b.reads.topic("t"), topic.snapshot.version)
            b.reads.look()
            for offset in (4, 5, 999):
                assert values(await b.read("t", offset)) == []
            assert values(await b.read("t", 0)) == ["x", "y", "z", "w"]

    run(test())


@pytest.mark.rule("CR2", "CR11")
def test_an_owner_that_may_be_taken_for_gone_reads_on_and_decides_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, _, _t):
            await a.publish("t", "x", "y")
            a.routes.fresh = False
            assert values(await a.read("t", 0)) == ["x", "y"]
            assert values(await a.read("t", 9)) == []
            a.routes.fresh = True
            assert isinstance((await a.read("t", 9)).error, OffsetOutOfRange)

    run(test())


@pytest.mark.rule("CR11")
def test_what_the_table_has_is_not_refused_by_an_owner_that_has_not_heard_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own commit has landed, and the answer is lost; others read the table."""

    def landed(table: TableLog) -> None:
        table.snapshot = replace(table.snapshot, offsets={0: 5}, version=table.snapshot.version + 1)

    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            await a.publish("t", "x", "y")
            with monkeypatch.context() as patched:
                patched.setattr(TableLog, "refresh", landed)
                for node in (a, b):
                    assert values(await node.read("t", 5)) == []
                    assert isinstance((await node.read("t", 6)).error, OffsetOutOfRange)

                def away(_: TableLog) -> None:
                    raise problem("topic_unavailable", "the store does not answer", topic="t")

                patched.setattr(TableLog, "refresh", away)
                assert isinstance((await a.read("t", 6)).error, Unavailable), "whether it is there is not known"

    run(test())


@pytest.mark.rule("CR10")
def test_what_an_owner_told_before_it_was_known_to_be_one_is_taken_once_it_is(tmp_path: Path) -> None:
    """Nothing moves afterwards, so that nobody would tell it again."""

    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            beside = await a.made.create("beside", 1, {"flush.ms": 3_600_000})
            settle(beside, a, (a, b))
            await b.reads.loaded()
            await a.publish("beside", "1")
            await until(lambda: b.reads.topic("beside").partitions[0].bounds().high_watermark == 1)
            b.routes.set("t", Place(Member("z", "z-1", "http://127.0.0.1:1")))
            b.reads.look()
            await a.publish("t", "x", "y")
            await a.publish("beside", "2")
            await until(lambda: b.reads.topic("beside").partitions[0].bounds().high_watermark == 2)
            assert b.reads.topic("t").partitions[0].bounds().high_watermark == 0
            settle(topic, a, (a, b))
            await until(lambda: b.reads.topic("t").partitions[0].bounds().high_watermark == 2)

    run(test())


@pytest.mark.rule("CR11")
def test_a_table_that_is_being_loaded_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may = threading.Event()

    def slow_load(store: ObjectStore, name: str) -> Any:
        may.wait(60)
        return load(store, name)

    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            monkeypatch.setattr(remote_log, "load", slow_load)
            other = await a.made.create("u", 1, {"flush.ms": 3_600_000})
            settle(other, a, (a, b))
            a.reads.look()
            assert a.reads.topic("u").local is not None
            reading = asyncio.create_task(a.read("u", 1))
            await asyncio.sleep(0.05)
            assert not reading.done()
            may.set()
            assert isinstance((await reading).error, OffsetOutOfRange)

    run(test())


@pytest.mark.rule("CR11")
def test_a_topic_whose_next_owner_waits_for_a_disk_is_its_table(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            await a.publish("t", "x")
            await a.flusher.drain()
            await a.publish("t", "y")
            await until(lambda: b.reads.topic("t").partitions[0].bounds().high_watermark == 2)
            # It is told of the table's version first, and sees it a moment later.
            await until(lambda: b.reads.topic("t").snapshot.version == topic.snapshot.version)
            a.routes.set("t", Place(Member("z", "z-1", "http://127.0.0.1:1"), None, 1))
            a.heads.look()
            for each in (a, b):
                for offset in (2, 9):
                    assert values(await each.read("t", offset)) == []
                assert values(await each.read("t", 0)) == ["x"]
            settle(topic, a, (a, b))
            await until(lambda: b.reads.topic("t").partitions[0].bounds().high_watermark == 2)
            assert values(await b.read("t", 0)) == ["x", "y"]

    run(test())


@pytest.mark.rule("CR10")
def test_a_reader_that_waits_does_not_see_its_topic_move(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            await a.publish("t", "x")
            for each in (a, b):
                assert values(await each.read("t", 0, wait_ms=5_000)) == ["x"]
            waiting = [asyncio.create_task(each.read("t", 1, wait_ms=30_000)) for each in (a, b)]
            await asyncio.sleep(0.2)
            # For a moment everybody takes the other one for the owner, whose log knows no such topic.
            settle(topic, b, (a, b))
            await asyncio.sleep(0.3)
            assert not any(task.done() for task in waiting)
            settle(topic, a, (a, b))
            await asyncio.sleep(0.2)
            await a.publish("t", "y")
            assert [values(await task) for task in waiting] == [["y"]] * 2

    run(test())


def test_topics_come_and_go_as_views_say(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, topic):
            assert [found.name for found in b.reads.topics()] == ["t"]
            assert b.reads.topic("t").config["flush.ms"] == 3_600_000
            for each in (a, b):
                del each.routes.ids["t"]
                each.routes.held.clear()
                each.routes.set("u")
                each.reads.look()
            with pytest.raises(UnknownTopic):
                b.reads.topic("t")
            assert b.reads.topics() == []
            assert topic.name == "t"

    run(test())


@pytest.mark.rule("CG7")
def test_what_cannot_be_opened_yet_is_named(tmp_path: Path) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (_, b, _):
            assert b.reads.opening() == set() and b.reads.view == b.routes.view
            b.routes.ids["later"] = "00000000-0000-0000-0000-000000000001"
            assert b.reads.opening() == {"later"}
            assert [topic.name for topic in b.reads.topics()] == ["t"]

    run(test())


def test_a_fetch_that_waits_for_more_does_not_ask_the_owner_at_each_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FAR_REST_SECONDS", "FAR_REST_SECONDS_MAX"):
        monkeypatch.setattr(fetch, name, 3_600.0)

    async def test() -> None:
        async with owner_and_reader(tmp_path) as (a, b, _):
            asked: list[int] = []
            head = b.reads.head

            async def counted(*of: Any) -> Any:
                asked.append(of[2])
                return await head(*of)

            monkeypatch.setattr(b.reads, "head", counted)
            await a.publish("t", "first")
            view = b.reads.topic("t").partitions[0]
            await until(lambda: view.bounds().high_watermark == 1)
            fetching = asyncio.create_task(
                b.fetcher.fetch(
                    [FetchPosition("t", 0, 0)], max_records=1_000, max_bytes=1 << 20, min_bytes=1 << 19, wait_ms=50_000
                )
            )
            await until(lambda: len(b.fetcher.waits.open) == 1)
            for number in range(20):
                await a.publish("t", f"more-{number}")
                await until(lambda number=number: view.bounds().high_watermark == 2 + number)
            assert asked == [0]
            b.fetcher.wake()
            (part,) = (await fetching).partitions
            assert part.count == 21, "what came meanwhile is read once, at the end"
            assert asked == [0, 1]

    run(test())


def test_an_owner_that_does_not_answer_is_asked_less_and_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with owner_and_reader(tmp_path) as (_, b, _):
            rests: list[float] = []
            changed = b.routes.changed

            async def waits(seconds: float) -> None:
                rests.append(seconds)
                await changed(seconds)

            with socket.socket() as nobody:
                nobody.bind(("127.0.0.1", 0))
                gone = Member("gone", "gone-1", f"http://127.0.0.1:{nobody.getsockname()[1]}")
                b.routes.set("t", Place(gone))
                monkeypatch.setattr(b.routes, "changed", waits)
                with pytest.raises(Unavailable):
                    await b.reads.ask_owner("t", messages.BOUNDS, b"", 1.5, harmless=True)
            mine = [each for each in rests if each != LOOK_SECONDS]
            assert mine[:4] == pytest.approx([0.05, 0.1, 0.2, 0.25])
            assert max(mine) == AGAIN_SECONDS_MAX

    run(test())
