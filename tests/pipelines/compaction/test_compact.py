import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from record_tables import CLOCK
from topic_writer import TopicWriter

from siltlog.infra import names
from siltlog.infra.arrow.partitioner import XXHASH64
from siltlog.infra.columns import FILE_SCHEMA, TABLE_SCHEMA
from siltlog.infra.errors import CorruptData
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import (
    DICTIONARY_COLUMNS,
    STATISTICS_COLUMNS,
    DataFile,
    read_data_file,
    write_data_file,
)
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.compaction import compact as job
from siltlog.pipelines.compaction import rewriting
from siltlog.pipelines.compaction.compact import compact, compact_topics, plan_of
from siltlog.pipelines.compaction.plan import Limits
from siltlog.pipelines.compaction.rewriting import run_chunk
from siltlog.pipelines.topics import spark_uri

pytestmark = pytest.mark.spark
TOPIC = "flights"


def stored(store: ObjectStore, table: TopicTable) -> dict[int, pa.Table]:
    """What our reader sees of each partition, every page verified."""
    snapshot = table.refresh()
    return {
        partition: pa.concat_tables(
            read_data_file(store, table.topic, file, columns=TABLE_SCHEMA.names)
            for file in snapshot.files_of(partition)
        ).combine_chunks()
        for partition in range(snapshot.partitions)
        if snapshot.files_of(partition)
    }


@pytest.fixture
def topic(store: ObjectStore) -> TopicWriter:
    """Two partitions with four small files each."""
    topic = TopicWriter(store, TOPIC, partitions=3)
    for _ in range(4):
        topic.append(20, 5)
    return topic


def reopened(topic: TopicWriter) -> TopicTable:
    return TopicTable.open(topic.store, TOPIC, CLOCK)


def test_small_files_become_one_and_no_record_changes(spark: Any, topic: TopicWriter) -> None:
    before = stored(topic.store, topic.table)
    report = compact(spark, topic.store, topic.table, CLOCK)
    assert report.error is None
    assert (report.files_before, report.files_after, report.merged_files, report.written_files) == (8, 2, 8, 2)
    assert (report.chunks, report.raced_chunks) == (1, 0)
    assert report.bytes_after == report.written_bytes
    assert stored(topic.store, topic.table) == before
    assert plan_of(topic.table.refresh(), CLOCK).chunks == ()


@pytest.mark.rule("ER6")
def test_files_that_were_erased_meanwhile_are_planned_anew(
    spark: Any, topic: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`silt erase` deletes a file at once, when another has taken its place."""
    before = stored(topic.store, topic.table)
    write, left = rewriting.write_merged, [1, 0]

    def overtaken(*arguments: Any) -> None:
        if left:
            erased(topic.store, reopened(topic), left.pop())
        write(*arguments)

    monkeypatch.setattr(rewriting, "write_merged", overtaken)
    report = compact(spark, topic.store, topic.table, CLOCK)
    assert (report.error, left) == (None, [])
    assert (report.files_after, report.raced_chunks) == (2, 2)
    assert stored(topic.store, topic.table) == before


def erased(store: ObjectStore, table: TopicTable, partition: int) -> None:
    [file, *_] = table.snapshot.files_of(partition)
    records = read_data_file(store, TOPIC, file, columns=FILE_SCHEMA.names)
    put = write_data_file(store, TOPIC, partition, records, compression="zstd", now_ms=0)
    table.rewrite(table.snapshot.version, [file], [put], str(uuid.uuid4()))
    store.delete(f"{names.topic_path(TOPIC)}/{file.path}")


def test_merges_of_one_partition_are_files_of_their_own(spark: Any, store: ObjectStore) -> None:
    topic = TopicWriter(store, TOPIC, partitions=2)
    for number in range(12):
        topic.append(200, 5 if number < 4 else 0)
    before = stored(store, topic.table)
    table = reopened(topic)
    size = 4 * max(file.size_bytes for file in table.snapshot.files_of(0))
    limits = Limits(file_bytes_target=size, chunk_bytes_max=100 * size)
    (chunk,) = plan_of(table.snapshot, CLOCK, limits).chunks
    assert [merge.partition for merge in chunk.merges] == [0, 1, 0, 0]
    outputs = run_chunk(spark, store, table, chunk, CLOCK)
    assert outputs is not None
    assert [(file.partition, file.rows) for file in outputs] == [(0, 800), (0, 800), (0, 800), (1, 20)]
    assert stored(store, table) == before


def test_every_type_and_extreme_survives(spark: Any, store: ObjectStore) -> None:
    topic = TopicWriter(store, TOPIC, partitions=1, compression="lz4")
    columns: dict[str, list[Any]] = {
        "offset": [0, 1, 2, 3],
        "timestamp": [-62_135_596_800_000_000, -3_000_000_000_000_001, -1, 253_402_300_799_999_999],
        "key": [b"", None, b"\x00\xff", "š".encode()],
        "value": [None, b"", b"\x00" * 100_000, b"x"],
        "headers": [None, [], [{"key": "a", "value": None}, {"key": "a", "value": b""}], [{"key": "", "value": b"x"}]],
        "producer_id": ["p", None, "q", "p"],
        "producer_epoch": [0, None, 2**31 - 1, 1],
        "sequence": [0, None, 2**53, 5],
    }
    topic.append_tables({0: pa.table({field.name: pa.array(columns[field.name], field.type) for field in FILE_SCHEMA})})
    topic.append(3)
    before = stored(store, topic.table)
    assert compact(spark, store, topic.table, CLOCK).files_after == 1
    assert stored(store, topic.table) == before
    (file,) = topic.table.snapshot.files_of(0)
    path = store.path(f"{names.topic_path(TOPIC)}/{file.path}")  # type: ignore[attr-defined]
    assert pq.read_schema(path).equals(FILE_SCHEMA.remove_metadata(), check_metadata=False)


def test_files_are_as_the_server_writes_them(spark: Any, topic: TopicWriter) -> None:
    compact(spark, topic.store, topic.table, CLOCK)
    (file,) = topic.table.snapshot.files_of(0)
    assert file.path.startswith(names.REWRITE_PREFIX)
    folder = topic.store.path(f"{names.topic_path(TOPIC)}/{file.path}").parent.parent  # type: ignore[attr-defined]
    assert [p.name for p in folder.iterdir()] == ["partition=0"]
    assert [p.suffix for p in folder.rglob("*") if p.is_file()] == [".parquet"]
    with topic.store.open(f"{names.topic_path(TOPIC)}/{file.path}") as source:
        parquet = pq.ParquetFile(source)
        group = parquet.metadata.row_group(0)
        chunks = [group.column(index) for index in range(group.num_columns)]
        assert {chunk.path_in_schema for chunk in chunks if chunk.statistics and chunk.statistics.has_min_max} == set(
            STATISTICS_COLUMNS
        )
        encoded = {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}
        assert encoded <= set(DICTIONARY_COLUMNS)
        assert parquet.read().column("offset").to_pylist() == list(range(80))


def test_row_groups_are_bounded(spark: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rewriting.WRITE_OPTIONS, "parquet.block.row.count.limit", "50")
    topic = TopicWriter(store, TOPIC, partitions=1)
    topic.append(70)
    topic.append(70)
    compact(spark, store, topic.table, CLOCK)
    (file,) = topic.table.snapshot.files_of(0)
    with store.open(f"{names.topic_path(TOPIC)}/{file.path}") as source:
        metadata = pq.ParquetFile(source).metadata
        assert [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)] == [50, 50, 40]


def flip(topic: TopicWriter, file: DataFile, value: bytes) -> None:
    """Changes a byte of a page that holds `value` uncompressed."""
    path = topic.store.path(f"{names.topic_path(TOPIC)}/{file.path}")  # type: ignore[attr-defined]
    content = bytearray(path.read_bytes())
    content[content.index(value)] ^= 1
    path.write_bytes(content)


def test_a_damaged_file_is_named_and_nothing_is_merged(spark: Any, store: ObjectStore) -> None:
    topic = TopicWriter(store, TOPIC, partitions=1, compression="none")
    for _ in range(3):
        topic.append(10)
    file = topic.table.snapshot.files_of(0)[1]
    flip(topic, file, b"value-13")
    version = topic.table.snapshot.version
    report = compact(spark, store, topic.table, CLOCK)
    assert isinstance(report.error, CorruptData)
    assert file.path in str(report.error)
    assert report.error.members["first_offset"] == 10
    assert topic.table.refresh().version == version


def test_damage_of_what_was_written_is_found_by_spark_and_by_us(spark: Any, store: ObjectStore) -> None:
    topic = TopicWriter(store, TOPIC, partitions=1, compression="none")
    topic.append(10)
    topic.append(10)
    compact(spark, store, topic.table, CLOCK)
    (file,) = topic.table.snapshot.files_of(0)
    flip(topic, file, b"value-0123")  # of each value what it does not share with the one before
    with pytest.raises(CorruptData):
        read_data_file(store, TOPIC, file, columns=["value"])
    frame = spark.read.format("delta").load(spark_uri(store, names.topic_path(TOPIC)))
    with pytest.raises(Exception, match="CRC checksum verification failed"):
        frame.select("value").collect()


def test_of_two_racing_compactions_one_lands(spark: Any, topic: TopicWriter) -> None:
    before = stored(topic.store, topic.table)
    first, second = reopened(topic), reopened(topic)
    (chunk,) = plan_of(first.snapshot, CLOCK).chunks
    results: dict[int, Any] = {}
    barrier = threading.Barrier(2)

    class Together(TopicTable):
        """Both have read and written before either commits."""

        def rewrite(self, *args: Any, **marks: Any) -> Any:
            barrier.wait()
            return super().rewrite(*args, **marks)

    def race(number: int, table: TopicTable) -> None:
        table.__class__ = Together
        results[number] = run_chunk(spark, topic.store, table, chunk, CLOCK)

    threads = [threading.Thread(target=race, args=pair) for pair in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result is None for result in results.values()) == [False, True]
    assert stored(topic.store, topic.table) == before
    assert len(topic.table.snapshot.files) == 2


def test_a_raced_chunk_is_planned_anew(spark: Any, topic: TopicWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    other = reopened(topic)
    written = rewriting.write_merged

    def raced(*args: Any) -> None:
        written(*args)
        monkeypatch.setattr(rewriting, "write_merged", written)
        (chunk,) = plan_of(other.refresh(), CLOCK, Limits()).chunks
        assert run_chunk(spark, topic.store, other, chunk, CLOCK)
        topic.append(1)
        topic.append(400)

    monkeypatch.setattr(rewriting, "write_merged", raced)
    report = compact(spark, topic.store, topic.table, CLOCK)
    assert report.error is None
    assert report.raced_chunks == 1
    assert len(topic.table.snapshot.files_of(1)) == 1
    assert stored(topic.store, topic.table)[0].num_rows == 4 * 20 + 401


def test_an_append_during_a_compaction_lands(spark: Any, topic: TopicWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    written = rewriting.write_merged

    def appended(*args: Any) -> None:
        written(*args)
        monkeypatch.setattr(rewriting, "write_merged", written)
        topic.append(7, 7, 7)

    monkeypatch.setattr(rewriting, "write_merged", appended)
    table = reopened(topic)
    (chunk,) = plan_of(table.snapshot, CLOCK).chunks
    assert run_chunk(spark, topic.store, table, chunk, CLOCK)
    assert {partition: found.num_rows for partition, found in stored(topic.store, table).items()} == {
        0: 87,
        1: 27,
        2: 7,
    }
    assert {p: len(table.snapshot.files_of(p)) for p in range(3)} == {0: 2, 1: 2, 2: 1}


def test_a_topic_deleted_meanwhile_stays_deleted(
    spark: Any, topic: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = rewriting.write_merged

    def deleted(*args: Any) -> None:
        written(*args)
        topic.table.delete(str(uuid.uuid4()))
        TopicWriter(topic.store, TOPIC, partitions=3)

    monkeypatch.setattr(rewriting, "write_merged", deleted)
    report = compact(spark, topic.store, reopened(topic), CLOCK)
    assert report.raced_chunks or report.error
    assert reopened(topic).snapshot.files == {}


@pytest.mark.slow
def test_readers_and_streams_notice_nothing(spark: Any, topic: TopicWriter, tmp_path: Path) -> None:
    uri = spark_uri(topic.store, names.topic_path(TOPIC))
    old_version = topic.table.snapshot.version
    pinned = spark.read.format("delta").option("versionAsOf", old_version).load(uri)
    seen: list[tuple[int, int]] = []

    def remember(frame: Any, _: int) -> None:
        seen.extend((row.partition, row.offset) for row in frame.select("partition", "offset").collect())

    def stream(**trigger: Any) -> Any:
        reader = spark.readStream.format("delta").load(uri)
        writer = reader.writeStream.foreachBatch(remember).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(**trigger).start()

    running = stream(processingTime="0 seconds")
    try:
        running.processAllAvailable()
        topic.append(3, 3)
        compact(spark, topic.store, topic.table, CLOCK)
        topic.append(3, 3, 3)
        topic.append(1)
        compact(spark, topic.store, topic.table, CLOCK, limits=Limits(file_bytes_target=50_000))
        running.processAllAvailable()
        assert running.isActive
    finally:
        running.stop()
    # A stopped one goes on where it was, over a compaction.
    topic.append(0, 40)
    compact(spark, topic.store, topic.table, CLOCK)
    topic.append(2)
    stream(availableNow=True).awaitTermination()
    everything = {(p, o) for p, found in stored(topic.store, topic.table).items() for o in found["offset"].to_pylist()}
    assert sorted(seen) == sorted(everything)
    assert pinned.count() == 100
    assert spark.read.format("delta").option("versionAsOf", old_version).load(uri).count() == 100


def test_spark_hashes_keys_as_we_do(spark: Any) -> None:
    keys = [uuid.uuid5(uuid.NAMESPACE_OID, str(index)).bytes[: index % 17] for index in range(3_000)] + [b"k" * 300]
    for count in (1, 7, 4_096):
        frame = spark.createDataFrame([(key,) for key in keys], "key binary")
        found = [row[0] for row in frame.selectExpr(f"pmod(xxhash64(key), {count})").collect()]
        assert found == XXHASH64.partitions_of(pa.array(keys, pa.binary()), count, 0).tolist()
    # A record without a key hashes to the seed for Spark and sticks to any partition for us.
    assert spark.sql("select xxhash64(cast(null as binary))").first()[0] == 42


@pytest.mark.rule("H7")
def test_a_dry_run_and_an_empty_run_start_no_spark(
    topic: TopicWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def refused(*_: Any, **__: Any) -> Iterator[Any]:
        raise AssertionError("Spark was started")
        yield

    monkeypatch.setattr(job, "spark_session", refused)
    settings = ServerSettings(root=topic.store.root_uri, data_dir=tmp_path)
    (report,) = compact_topics(settings, dry_run=True)
    assert (report.files_before, report.files_after, report.merged_files, report.chunks) == (8, 2, 8, 1)
    (report,) = compact_topics(settings, files_min=9)
    assert (report.files_before, report.files_after, report.error) == (8, 8, None)
    with pytest.raises(AssertionError, match="Spark was started"):
        compact_topics(settings, files_min=8)
    TopicWriter(topic.store, "empty")
    (report,) = compact_topics(settings, ["empty"])
    assert (report.files_before, report.files_after, report.error) == (0, 0, None)


def test_a_table_that_cannot_be_opened_does_not_stop_the_others(topic: TopicWriter, tmp_path: Path) -> None:
    lost = TopicWriter(topic.store, "a-lost", partitions=1)
    lost.append(3)
    topic.store.delete(f"{names.topic_path('a-lost')}/{lost.table.snapshot.files_of(0)[0].path}")
    reports = compact_topics(ServerSettings(root=topic.store.root_uri, data_dir=tmp_path), dry_run=True)
    assert [(report.topic, type(report.error), report.files_after) for report in reports] == [
        ("a-lost", CorruptData, 0),
        (TOPIC, type(None), 2),
    ]


def test_one_damaged_topic_does_not_stop_the_others(spark: Any, topic: TopicWriter, tmp_path: Path) -> None:
    damaged = TopicWriter(topic.store, "damaged", partitions=1)
    damaged.append(3)
    damaged.append(3)
    file = damaged.table.snapshot.files_of(0)[0]
    path = topic.store.path(f"{names.topic_path('damaged')}/{file.path}")  # type: ignore[attr-defined]
    path.write_bytes(b"PAR1" + b"x" * (file.size_bytes - 4))
    told: list[tuple[str, int, int]] = []
    settings = ServerSettings(root=topic.store.root_uri, data_dir=tmp_path)
    reports = compact_topics(settings, progress=lambda *args: told.append(args))
    assert [(report.topic, bool(report.error), report.files_after) for report in reports] == [
        ("damaged", True, 2),
        (TOPIC, False, 2),
    ]
    assert told and told[-1][0] == TOPIC and told[-1][1] == told[-1][2]
