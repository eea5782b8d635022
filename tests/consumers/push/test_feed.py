import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from fake_log import FakeLog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from siltlog.consumers.push.feed import Feed, Found
from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.reader import Isolation
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.consumers.reading.view import Key
from siltlog.infra.arrow.record_filter import RecordFilter
from siltlog.infra.errors import OffsetOutOfRange, Refused, UnknownTopic
from siltlog.infra.store.local import LocalStore

PARTITIONS = 3


class Bench:
    def __init__(self, folder: Path) -> None:
        self.log = FakeLog(LocalStore(str(folder)))
        self.topic = self.log.create("flights", PARTITIONS)
        self.row_groups = RowGroups(self.log.store)
        self.woken = 0

    def feed(self, wanted: RecordFilter | None = None, isolation: Isolation = "wal") -> Feed:
        fetcher = Fetcher(self.log, self.row_groups)
        return Feed(self.log, fetcher, self.wake, wanted=wanted or RecordFilter(), isolation=isolation, held=None)

    def wake(self) -> None:
        self.woken += 1

    def key(self, partition: int) -> Key:
        return Key("flights", self.topic.topic_id, partition)

    @property
    def watchers(self) -> int:
        return sum(len(view.callbacks) for view in self.topic.partitions)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.row_groups.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        await test()

    asyncio.run(all_of_it())


def offsets(found: list[Found]) -> dict[int, list[int]]:
    out: dict[int, list[int]] = defaultdict(list)
    for part in found:
        for batch in part.batches:
            out[part.key.partition] += batch.column("offset").to_pylist()
    return dict(out)


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"), st.integers(0, PARTITIONS - 1), st.lists(st.sampled_from([b"a", b"b"]), max_size=9)
        ),
        st.tuples(st.just("read"), st.integers(1, 7), st.just([])),
        st.tuples(st.just("flush"), st.integers(0, PARTITIONS - 1), st.just([])),
    ),
    max_size=40,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(steps, st.sampled_from([None, b"a"]))
def test_every_wanted_record_comes_once_and_in_order_whatever_is_taken_at_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, list[bytes]]], contains: bytes | None
) -> None:
    bench = Bench(tmp_path_factory.mktemp("feed"))
    published: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    got: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}

    async def test() -> None:
        feed = bench.feed(RecordFilter(contains=contains))
        for partition in range(PARTITIONS):
            feed.put(bench.key(partition), 0)

        async def read(most: int) -> None:
            found = await feed.read(most)
            assert sum(part.records for part in found) <= most
            for partition, numbers in offsets(found).items():
                got[partition] += numbers
                # Nothing that was not given is behind where the feed says it is.
                wanted = [n for n, v in enumerate(published[partition]) if contains is None or v == contains]
                assert [n for n in wanted if n < feed.offsets[bench.key(partition)]] == got[partition]

        for what, number, values in steps:
            if what == "append":
                bench.topic.partitions[number].append(values)
                published[number] += values
            elif what == "flush":
                bench.topic.partitions[number].flush()
            else:
                await read(number)
        for _ in range(1_000):
            if not feed.ready:
                break
            await read(2)
        assert not feed.ready
        for partition, values in published.items():
            assert feed.offsets[bench.key(partition)] == len(values)
            assert got[partition] == [n for n, v in enumerate(values) if contains is None or v == contains]
        feed.close()
        assert bench.watchers == 0

    try:
        run(test)
    finally:
        bench.row_groups.close()


def test_it_is_woken_by_what_comes_and_has_nothing_to_do_until_then(bench: Bench) -> None:
    async def test() -> None:
        feed = bench.feed()
        feed.put(bench.key(0), 0)
        assert await feed.read(10) == []
        assert not feed.ready
        before = bench.woken
        bench.topic.partitions[1].append([b"of another"])
        assert bench.woken == before
        bench.topic.partitions[0].append([b"x"])
        assert bench.woken > before
        assert offsets(await feed.read(10)) == {0: [0]}

    run(test)


def test_it_goes_back_to_where_it_is_put(bench: Bench) -> None:
    async def test() -> None:
        feed = bench.feed()
        bench.topic.partitions[0].append([b"x"] * 5)
        feed.put(bench.key(0), 0)
        assert offsets(await feed.read(10)) == {0: [0, 1, 2, 3, 4]}
        feed.put(bench.key(0), 3)
        assert offsets(await feed.read(10)) == {0: [3, 4]}
        assert bench.watchers == 1

    run(test)


def test_isolation_table_gives_what_is_in_the_table(bench: Bench) -> None:
    async def test() -> None:
        feed = bench.feed(isolation="table")
        feed.put(bench.key(0), 0)
        bench.topic.partitions[0].append([b"x"] * 4)
        assert await feed.read(10) == []
        bench.topic.partitions[0].flush(3)
        bench.topic.partitions[0].moved()
        assert offsets(await feed.read(10)) == {0: [0, 1, 2]}

    run(test)


def test_what_is_wrong_with_one_partition_comes_after_what_the_others_had(bench: Bench) -> None:
    async def test() -> None:
        feed = bench.feed()
        bench.topic.partitions[1].append([b"x"])
        feed.put(bench.key(0), 7)
        feed.put(bench.key(1), 0)
        assert offsets(await feed.read(10)) == {1: [0]}
        with pytest.raises(OffsetOutOfRange):
            await feed.read(10)

    run(test)


def test_a_topic_that_ends_is_a_refusal(bench: Bench) -> None:
    async def test() -> None:
        feed = bench.feed()
        feed.put(bench.key(0), 0)
        assert await feed.read(10) == []
        bench.log.create("flights", 1)
        feed.put(bench.key(0), 0)
        with pytest.raises(UnknownTopic):
            await feed.read(10)
        with pytest.raises(Refused):
            feed.put(Key("flights", "another", 1), 0)

    run(test)
