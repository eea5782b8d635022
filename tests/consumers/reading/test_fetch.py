import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from fake_log import FakeLog

from siltlog.consumers.reading.fetch import Fetcher, FetchPosition, FetchResult
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra import names
from siltlog.infra.columns import FETCH_SCHEMA
from siltlog.infra.store.local import LocalStore

FOREVER_MS = 600_000


class Bench:
    def __init__(self, folder: Path) -> None:
        self.log = FakeLog(LocalStore(str(folder)))
        self.topic = self.log.create("flights", 4)
        self.row_groups = RowGroups(self.log.store)
        self.fetcher = Fetcher(self.log, self.row_groups)

    async def fetch(self, *positions: FetchPosition, **options: Any) -> FetchResult:
        given = {"max_records": 500, "max_bytes": 1 << 20, "min_bytes": 1, "wait_ms": 0, **options}
        return await self.fetcher.fetch(positions, **given)

    def put(self, partition: int, count: int, value: bytes = b"v") -> None:
        self.topic.partitions[partition].append([value] * count)

    @property
    def watchers(self) -> int:
        return sum(len(view.callbacks) for topic in self.log.topics() for view in topic.partitions)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.row_groups.close()


def at(partition: int, offset: int = 0, **rest: Any) -> FetchPosition:
    return FetchPosition("flights", partition, offset, **rest)


def counts(result: FetchResult) -> list[int]:
    return [part.count for part in result.partitions]


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def settled() -> None:
    """Everything that can happen without time passing has happened."""
    for _ in range(10):
        await asyncio.sleep(0)


class TestOneAnswer:
    def test_a_head_gives_little_more_than_a_partition_may_take(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        view = bench.topic.partitions[0]
        given: list[int] = []
        read_head = view.read_head

        async def counted(*asked: Any) -> list[pa.RecordBatch] | None:
            found = await read_head(*asked)
            given.append(sum(batch.num_rows for batch in found or ()))
            return found

        monkeypatch.setattr(view, "read_head", counted)

        async def body() -> None:
            for _ in range(200):
                bench.put(0, 10, bytes(80))
            result = await bench.fetch(at(0, max_bytes=10_000), max_records=10_000)
            assert counts(result) == [100]
            assert sum(given) < 150
            assert counts(await bench.fetch(at(0), max_records=10_000)) == [2_000], "without a share it takes all"

        run(body)

    def test_reads_every_partition_within_one_budget(self, bench: Bench) -> None:
        async def body() -> None:
            for partition in range(4):
                bench.put(partition, 10)
            assert counts(await bench.fetch(*map(at, range(4)))) == [10, 10, 10, 10]
            few = await bench.fetch(*map(at, range(4)), max_records=25)
            assert few.count == 25
            assert sorted(counts(few)) == [0, 5, 10, 10]

        run(body)

    def test_the_partition_that_comes_first_rotates(self, bench: Bench) -> None:
        async def body() -> None:
            for partition in range(4):
                bench.put(partition, 10)
            for clients in (1, 2, 3):
                firsts = Counter()
                for turn in range(clients * 200):
                    result = await bench.fetch(*map(at, range(4)), max_records=1)
                    if turn % clients == 0:
                        firsts[counts(result).index(1)] += 1
                assert min(firsts[partition] for partition in range(4)) > 40, "for each of several who take turns"

        run(body)

    def test_a_partition_has_a_limit_of_its_own(self, bench: Bench) -> None:
        async def body() -> None:
            bench.put(0, 10, bytes(100))
            bench.put(1, 10, bytes(100))
            result = await bench.fetch(at(0, max_bytes=250), at(1))
            assert counts(result) == [2, 10]
            assert [part.next_offset for part in result.partitions] == [2, 10]
            assert counts(await bench.fetch(at(0, max_bytes=1), at(1))) == [1, 10], "at least one record"

        run(body)

    def test_a_problem_of_one_partition_is_its_own(self, bench: Bench) -> None:
        async def body() -> None:
            bench.put(0, 3)
            result = await bench.fetch(
                at(0), at(1, 5), at(9), FetchPosition("none", 0, 7), at(2, topic_id="another"), wait_ms=FOREVER_MS
            )
            document = msgspec.json.decode(msgspec.json.encode(result.document()))
            codes = [part["error"] and part["error"]["error_code"] for part in document["partitions"]]
            assert codes == [None, "offset_out_of_range", "unknown_partition", "unknown_topic", "unknown_topic"]
            assert document["partitions"][1]["error"]["high_watermark"] == 0
            assert document["partitions"][3] == {
                "topic": "none",
                "partition": 0,
                "next_offset": 7,
                "log_start_offset": None,
                "table_offset": None,
                "high_watermark": None,
                "error": document["partitions"][3]["error"],
            }
            assert [record["offset"] for record in document["records"]] == [0, 1, 2]

        run(body)

    def test_json_and_arrow_say_the_same(self, bench: Bench) -> None:
        async def body() -> None:
            bench.put(0, 3)
            bench.put(1, 2)
            bench.topic.partitions[1].flush()
            result = await bench.fetch(at(0), at(1, 1))
            document = msgspec.json.decode(result.json_bytes())
            assert document["partitions"][1] == {
                "topic": "flights",
                "partition": 1,
                "next_offset": 2,
                "log_start_offset": 0,
                "table_offset": 2,
                "high_watermark": 2,
                "error": None,
            }
            with pa.ipc.open_stream(b"".join(result.arrow_buffers())) as reader:
                assert reader.schema == FETCH_SCHEMA
                assert (
                    msgspec.json.decode(reader.schema.metadata[names.ARROW_METADATA_KEY.encode()])
                    == (document["partitions"])
                )
                rows = reader.read_all().to_pylist()
            assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
                (record["topic"], record["partition"], record["offset"]) for record in document["records"]
            ]

        run(body)

    def test_partitions_that_it_did_not_come_to_have_their_bounds_or_problem(self, bench: Bench) -> None:
        async def body() -> None:
            for number in range(3):
                bench.put(number, 2)
            result = await bench.fetch(at(0), at(1), at(2), at(99), max_records=1)
            assert sum(counts(result)) == 1
            assert [part.bounds is not None for part in result.partitions] == [True, True, True, False]
            assert [part.error is not None for part in result.partitions] == [False, False, False, True]

        run(body)


class TestLongPoll:
    def test_returns_as_soon_as_one_partition_has_a_record(self, bench: Bench) -> None:
        async def body() -> None:
            poll = asyncio.create_task(bench.fetch(*map(at, range(4)), wait_ms=FOREVER_MS))
            await settled()
            assert not poll.done()
            bench.put(2, 1)
            assert counts(await poll) == [0, 0, 1, 0]
            assert bench.watchers == 0

        run(body)

    def test_time_ends_it_with_nothing(self, bench: Bench) -> None:
        async def body() -> None:
            result = await bench.fetch(at(0), wait_ms=1)
            assert (result.count, result.partitions[0].next_offset) == (0, 0)
            assert result.partitions[0].bounds is not None
            assert bench.watchers == 0

        run(body)

    def test_waits_for_min_bytes_and_reads_on_from_what_it_has(self, bench: Bench) -> None:
        async def body() -> None:
            poll = asyncio.create_task(bench.fetch(at(0), at(1), wait_ms=FOREVER_MS, min_bytes=500))
            for _ in range(2):
                bench.put(0, 1, bytes(100))
                bench.put(1, 1, bytes(100))
                await settled()
                assert not poll.done()
            bench.put(0, 1, bytes(100))
            result = await poll
            assert counts(result) == [3, 2]
            assert [part.next_offset for part in result.partitions] == [3, 2]

        run(body)

    def test_an_empty_record_ends_the_wait(self, bench: Bench) -> None:
        async def body() -> None:
            poll = asyncio.create_task(bench.fetch(at(0), wait_ms=FOREVER_MS))
            await settled()
            bench.put(0, 1, b"")
            assert counts(await poll) == [1]

        run(body)

    def test_a_partition_that_has_taken_its_limit_ends_the_wait(self, bench: Bench) -> None:
        async def body() -> None:
            bench.put(0, 5, bytes(100))
            result = await bench.fetch(at(0, max_bytes=130), wait_ms=FOREVER_MS, min_bytes=10_000)
            assert counts(result) == [1]

        run(body)

    def test_isolation_table_waits_for_the_flush(self, bench: Bench) -> None:
        async def body() -> None:
            poll = asyncio.create_task(bench.fetch(at(0), wait_ms=FOREVER_MS, isolation="table"))
            bench.put(0, 4)
            await settled()
            assert not poll.done()
            bench.topic.partitions[0].flush(3)
            assert counts(await poll) == [3]

        run(body)

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_a_record_that_came_while_others_were_read_is_not_missed(
        self, bench: Bench, order: tuple[int, ...]
    ) -> None:
        async def body() -> None:
            pauses = 0

            async def pause() -> None:
                nonlocal pauses
                pauses += 1
                if pauses == 2:
                    bench.put(0, 1)

            bench.log.pause = pause
            bench.put(1, 1, b"")
            poll = bench.fetch(*map(at, order), wait_ms=FOREVER_MS, min_bytes=40)
            assert counts(await asyncio.wait_for(poll, 5)) == [1, 1]

        run(body)

    def test_a_topic_that_goes_away_ends_the_wait(self, bench: Bench) -> None:
        async def body() -> None:
            poll = asyncio.create_task(bench.fetch(at(0), wait_ms=FOREVER_MS))
            await settled()
            bench.log.delete("flights")
            (part,) = (await poll).partitions
            assert part.error is not None
            assert part.error.error_code == "unknown_topic"

        run(body)

    def test_a_topic_that_came_again_under_its_name_is_another(self, bench: Bench) -> None:
        async def body() -> None:
            poll = asyncio.create_task(bench.fetch(at(0), wait_ms=FOREVER_MS))
            await settled()
            old = bench.topic
            bench.topic = bench.log.create("flights", 4)
            bench.put(0, 3)
            old.partitions[0].moved()
            (part,) = (await poll).partitions
            assert part.count == 0
            assert part.error is not None
            assert part.error.error_code == "unknown_topic"

        run(body)

    def test_a_server_that_drains_gets_its_polls_back(self, bench: Bench) -> None:
        async def body() -> None:
            polls = [asyncio.create_task(bench.fetch(at(0), wait_ms=FOREVER_MS)) for _ in range(5)]
            await settled()
            bench.log.draining = True
            bench.fetcher.wake()
            assert [result.count for result in await asyncio.gather(*polls)] == [0] * 5
            assert (await bench.fetch(at(0), wait_ms=FOREVER_MS)).count == 0, "and takes no new ones"
            assert bench.watchers == 0

        run(body)

    def test_a_cancelled_poll_leaves_nothing_behind(self, bench: Bench) -> None:
        async def body() -> None:
            poll = asyncio.create_task(bench.fetch(at(0), wait_ms=FOREVER_MS))
            await settled()
            assert bench.watchers == 1
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
            assert bench.watchers == 0

        run(body)

    def test_a_thousand_polls_cost_nothing_until_they_are_woken(self, bench: Bench) -> None:
        async def body() -> None:
            polls = [asyncio.create_task(bench.fetch(at(0), at(1), wait_ms=FOREVER_MS)) for _ in range(1_000)]
            await settled()
            looks = 0

            async def pause() -> None:
                nonlocal looks
                looks += 1

            bench.log.pause = pause
            await asyncio.sleep(0.05)
            assert looks == 0
            bench.put(1, 1)
            results = await asyncio.gather(*polls)
            assert all(counts(result) == [0, 1] for result in results)
            assert looks == 2_000, "one look at the one partition that moved, for each"

        run(body)
