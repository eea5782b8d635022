import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fake_log import CREATED_US, FakeLog, FakePartition, FakeTopic

from siltlog.consumers.reading.budget import Budget, Share, record_ends
from siltlog.consumers.reading.lookup import Lookup
from siltlog.consumers.reading.reader import Isolation, PartitionRead, Reader
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.errors import CorruptData, OffsetOutOfRange
from siltlog.infra.store.local import LocalStore
from siltlog.infra.table import data_file

WIDE = 1 << 40


class Bench:
    """A topic of one partition and a reader of it."""

    def __init__(self, folder: Path, **cache: int) -> None:
        self.log = FakeLog(LocalStore(str(folder)))
        self.topic: FakeTopic = self.log.create("flights")
        self.view: FakePartition = self.topic.partitions[0]
        self.row_groups = RowGroups(self.log.store, **cache)
        self.reader = Reader(self.row_groups)

    async def read(
        self, offset: int, records: int = WIDE, nbytes: int = WIDE, isolation: Isolation = "wal"
    ) -> PartitionRead:
        return await self.reader.read(self.topic, self.view, offset, Budget(records, nbytes), Share(), isolation)

    def put(self, count: int) -> None:
        start = self.view.high_watermark
        self.view.append([b"value %d" % offset for offset in range(start, start + count)])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.row_groups.close()


def offsets(read: PartitionRead) -> list[int]:
    return [offset for batch in read.batches for offset in batch.column("offset").to_pylist()]


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_reads_the_head(bench: Bench) -> None:
    async def body() -> None:
        bench.put(3)
        bench.put(4)
        read = await bench.read(1)
        assert offsets(read) == [1, 2, 3, 4, 5, 6]
        assert read.next_offset == 7
        assert all(batch.schema == RECORD_SCHEMA for batch in read.batches)

    run(body)


def test_one_reply_joins_several_files_and_the_head(bench: Bench) -> None:
    async def body() -> None:
        for _ in range(3):
            bench.put(5)
            bench.view.flush()
        bench.view.evict()
        bench.put(4)
        read = await bench.read(2)
        assert offsets(read) == list(range(2, 19))
        assert [value for batch in read.batches for value in batch.column("value").to_pylist()] == [
            b"value %d" % offset for offset in range(2, 19)
        ]
        assert all(batch.schema == RECORD_SCHEMA for batch in read.batches)
        assert (await bench.read(19)).batches == []

    run(body)


def test_the_table_alone_is_seen_with_isolation_table(bench: Bench) -> None:
    async def body() -> None:
        bench.put(5)
        bench.view.flush(3)
        read = await bench.read(0, isolation="table")
        assert offsets(read) == [0, 1, 2]
        assert read.next_offset == 3
        beyond = await bench.read(4, isolation="table")
        assert (offsets(beyond), beyond.next_offset) == ([], 4)

    run(body)


def test_outside_of_the_log_names_both_bounds(bench: Bench) -> None:
    async def body() -> None:
        bench.put(10)
        bench.view.flush()
        bench.view.evict()
        bench.view.retain(4)
        for offset in (3, 11):
            with pytest.raises(OffsetOutOfRange) as caught:
                await bench.read(offset)
            assert caught.value.members["log_start_offset"] == 4
            assert caught.value.members["high_watermark"] == 10
        assert (await bench.read(10)).next_offset == 10

    run(body)


def test_rows_below_the_log_start_in_a_straddling_file_are_hidden(bench: Bench) -> None:
    async def body() -> None:
        bench.put(10)
        bench.view.flush()
        bench.view.evict()
        bench.view.retain(4)
        assert offsets(await bench.read(4)) == list(range(4, 10))

    run(body)


def test_next_offset_moves_over_rows_that_compaction_took(bench: Bench) -> None:
    async def body() -> None:
        bench.put(10)
        bench.view.flush()
        bench.put(10)
        bench.view.flush()
        bench.view.evict()
        bench.view.rewrite(bench.topic.snapshot.files_of(0), without=[*range(6), *range(15, 20)])
        read = await bench.read(0)
        assert offsets(read) == list(range(6, 15))
        assert read.next_offset == 20
        empty = await bench.read(15)
        assert (offsets(empty), empty.next_offset) == ([], 20)
        part = await bench.read(0, records=2)
        assert (offsets(part), part.next_offset) == ([6, 7], 8)

    run(body)


def test_a_jump_of_the_offsets_is_covered_by_the_table(bench: Bench) -> None:
    async def body() -> None:
        bench.put(3)
        bench.view.flush()
        bench.view.jump(1 << 32)
        bench.put(2)
        read = await bench.read(0)
        assert offsets(read) == [0, 1, 2, 1 << 32, (1 << 32) + 1]
        assert read.next_offset == (1 << 32) + 2

    run(body)


def test_an_offset_that_no_source_covers_is_an_error(bench: Bench) -> None:
    async def body() -> None:
        bench.put(6)
        bench.view.flush(3)
        bench.view.head_start = 5
        read = await bench.read(0)
        assert offsets(read) == [0, 1, 2], "what is good is given first"
        with pytest.raises(CorruptData, match="offset 3 of topic flights, partition 0"):
            await bench.read(read.next_offset)

    run(body)


def test_a_head_that_does_not_go_on_with_the_offset_is_an_error(bench: Bench) -> None:
    async def body() -> None:
        bench.put(6)
        bench.view.head[0] = bench.view.head[0].slice(2)
        with pytest.raises(CorruptData, match="offset 0"):
            await bench.read(0)

    run(body)


def test_damage_is_named_and_what_lies_before_it_is_given(bench: Bench) -> None:
    async def body() -> None:
        bench.put(5)
        bench.view.flush()
        bench.put(500)
        file = bench.view.flush(compression="none")
        assert file is not None
        bench.view.evict()
        path = f"topics/flights/{file.path}"
        content = bytearray(bench.log.store.get(path))
        content[content.index(b"value 77")] ^= 1
        bench.log.store.put(path, bytes(content))
        assert offsets(await bench.read(0)) == [0, 1, 2, 3, 4]
        with pytest.raises(CorruptData) as caught:
            await bench.read(5)
        assert caught.value.members["path"] == path
        assert (caught.value.members["first_offset"], caught.value.members["last_offset"]) == (5, 504)

    run(body)


def test_files_that_overlap_are_refused(bench: Bench) -> None:
    async def body() -> None:
        bench.put(5)
        file = bench.view.flush()
        assert file is not None
        bench.view.evict()
        bench.topic.commit(adds=[bench.view.rewrite([file], without=[0, 1]) or file, file])
        with pytest.raises(CorruptData, match="both hold offset"):
            await bench.read(0)

    run(body)


def test_max_records_and_max_bytes(bench: Bench) -> None:
    async def body() -> None:
        bench.put(50)
        bench.view.flush()
        bench.view.evict()
        bench.put(50)
        assert offsets(await bench.read(0, records=70)) == list(range(70))
        each = int(record_ends(bench.view.head[0])[0])
        assert offsets(await bench.read(50, nbytes=3 * each)) == [50, 51, 52]
        assert offsets(await bench.read(50, nbytes=3 * each - 1)) == [50, 51]
        for start in (10, 60):
            assert offsets(await bench.read(start, nbytes=1)) == [start], "always one whole record"

    run(body)


def test_a_poll_of_few_records_decodes_a_row_group_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    original = data_file._opened
    monkeypatch.setattr(
        data_file, "_opened", lambda store, topic, file: opened.append(file.path) or original(store, topic, file)
    )

    async def body() -> None:
        bench.put(1000)
        bench.view.flush()
        bench.view.evict()
        offset = 0
        while offset < 1000:
            offset = (await bench.read(offset, records=7)).next_offset
        assert len(opened) == 1
        await asyncio.gather(*(bench.read(offset, records=1) for offset in range(100)))
        assert len(opened) == 1

    run(body)


def test_many_readers_of_a_cold_row_group_share_one_decoding(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    original = data_file._opened
    monkeypatch.setattr(
        data_file, "_opened", lambda store, topic, file: opened.append(file.path) or original(store, topic, file)
    )

    async def body() -> None:
        bench.put(1000)
        bench.view.flush()
        bench.view.evict()
        reads = await asyncio.gather(*(bench.read(offset, records=1) for offset in range(200)))
        assert [offsets(read) for read in reads] == [[offset] for offset in range(200)]
        assert len(opened) == 1

    run(body)


def test_a_reader_past_the_middle_of_a_file_finds_the_next_one_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    original = data_file._opened
    monkeypatch.setattr(
        data_file, "_opened", lambda store, topic, file: opened.append(file.path) or original(store, topic, file)
    )

    async def body() -> None:
        files = []
        for _ in range(3):
            bench.put(100)
            files.append(bench.view.flush())
        bench.view.evict()
        await bench.read(0, records=40)
        assert opened == [files[0].path]
        await bench.read(40, records=40)
        await bench.row_groups.at("flights", files[1], 100)
        assert opened == [files[0].path, files[1].path]
        assert bench.row_groups.ahead("flights", files[1], 150)
        assert offsets(await bench.read(80, records=40)) == list(range(80, 120))
        assert opened == [files[0].path, files[1].path]

    run(body)


def test_the_cache_stays_within_its_bytes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, bytes_max=200_000, reads_max=2)

    async def body() -> None:
        for _ in range(8):
            bench.view.append([bytes(1000)] * 50)
            bench.view.flush()
        bench.view.evict()
        offset, seen = 0, []
        while offset < 400:
            read = await bench.read(offset, records=30)
            seen += offsets(read)
            offset = read.next_offset
            assert bench.row_groups.nbytes <= 200_000
        assert seen == list(range(400))
        bench.view.append([bytes(1000)] * 300)
        bench.view.flush()
        bench.view.evict()
        assert len(offsets(await bench.read(400))) == 300, "a row group larger than the cache is read all the same"

    run(body)
    bench.row_groups.close()


def test_record_ends_count_keys_values_and_headers() -> None:
    from fake_log import record_batch

    batch = record_batch(
        0,
        0,
        [b"v" * 10, None, b""],
        keys=[b"k", b"kk", None],
        headers=[[("a", b"xyz"), ("b", None)], None, [("cc", b"")]],
    )
    assert (record_ends(batch) - [20, 40, 60]).tolist() == [16, 18, 20]
    assert (record_ends(batch.slice(1)) - [20, 40]).tolist() == [2, 4]
    assert record_ends(pa.RecordBatch.from_pylist([], RECORD_SCHEMA)).tolist() == []


class TestTimestampLookup:
    def test_the_lowest_offset_at_or_after_across_files_and_head(self, bench: Bench) -> None:
        async def body() -> None:
            times = [CREATED_US + at for at in (10, 50, 20, 30, 5, 90, 70, 80)]
            bench.view.append([b"x"] * 3, timestamps=times[:3])
            bench.view.flush()
            bench.view.append([b"x"] * 3, timestamps=times[3:6])
            bench.view.flush()
            bench.view.evict()
            bench.view.append([b"x"] * 2, timestamps=times[6:])
            lookup = Lookup(bench.log.store, bench.row_groups)
            for ask in range(100):
                at = CREATED_US + ask
                expected = next((offset for offset, time in enumerate(times) if time >= at), 8)
                assert await lookup.offset_at(bench.topic, bench.view, at) == expected, ask
            bench.view.retain(2)
            assert await lookup.offset_at(bench.topic, bench.view, 0) == 2

        run(body)

    def test_of_an_empty_partition_is_its_high_watermark(self, bench: Bench) -> None:
        async def body() -> None:
            lookup = Lookup(bench.log.store, bench.row_groups)
            assert await lookup.offset_at(bench.topic, bench.view, CREATED_US) == 0

        run(body)
