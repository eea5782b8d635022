"""Key compaction against a model in Python, and beside everything else that changes a table."""

import random
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from chaos import more
from prices import DAY_MS, TOPIC, FakeClock, Prices, model, run, table_of
from record_tables import CLOCK, new_id
from s3_server import S3Server

from siltlog.infra import names
from siltlog.infra.columns import FILE_SCHEMA
from siltlog.infra.errors import CorruptData
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.pipelines.compaction import keys as key_compaction
from siltlog.pipelines.compaction import keys_plan as key_compaction_plan
from siltlog.pipelines.compaction import rewriting
from siltlog.pipelines.compaction.compact import compact
from siltlog.pipelines.compaction.keys import compact_keys, keys_plan
from siltlog.pipelines.compaction.plan import Chunk, Limits
from siltlog.pipelines.spark.session import spark_session
from siltlog.pipelines.topics import spark_uri

pytestmark = pytest.mark.spark


@pytest.fixture(params=["in memory", "by Spark"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the last record of each key is found."""
    found_by(request, monkeypatch)


@pytest.fixture(params=["in memory", more("by Spark")])
def more_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What becomes of records once the last of each key is found does not hang on how it was."""
    found_by(request, monkeypatch)


def found_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by Spark":
        monkeypatch.setattr(key_compaction_plan, "SEARCH_BYTES_MAX", 0)


@pytest.mark.usefixtures("more_ways")
def test_the_last_of_each_key_stays_as_it_was(spark: Any, store: ObjectStore) -> None:
    topic = Prices(store, partitions=3)
    chooser = random.Random(5)
    for number in range(12):
        for partition in (0, 2):
            count = chooser.randint(1, 150)
            topic.put(
                *(
                    (
                        chooser.choice([None, b"", b"\xff\x00", *[b"k%d" % key for key in range(60)]]),
                        b"v%d" % number,
                    )
                    for _ in range(count)
                ),
                partition=partition,
            )
    before = {partition: topic.rows(partition) for partition in (0, 2)}
    wanted = {partition: model(rows, 10**6) for partition, rows in before.items()}
    report = run(spark, topic)
    assert {partition: topic.rows(partition) for partition in (0, 2)} == wanted
    assert report.removed_rows == sum(len(rows) - len(wanted[partition]) for partition, rows in before.items())
    assert report.key_partitions == 2
    assert topic.marks(0)[0] == topic.table.snapshot.offsets[0]
    frame = spark.read.format("delta").load(spark_uri(store, names.topic_path(TOPIC)))
    assert frame.count() == sum(map(len, wanted.values()))
    version = topic.table.snapshot.version
    assert run(spark, topic).removed_rows == 0
    assert topic.table.refresh().version == version, "the second run has nothing to do"


def test_small_chunks_come_to_the_same(spark: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Prices(store, partitions=1)
    chooser = random.Random(6)
    for _ in range(9):
        topic.put(*((b"k%d" % chooser.randrange(300), b"v" * 40) for _ in range(130)))
    wanted = model(topic.rows(), 10**6)
    limits = Limits(file_bytes_target=3_000, chunk_bytes_max=9_000, chunk_files_max=4)
    (passes,) = [keys_plan(store, TOPIC, topic.table.refresh(), CLOCK)]
    done = compact_keys(spark, store, topic.opened(), passes, CLOCK, limits)
    assert done.chunks >= 3
    assert topic.rows() == wanted


@pytest.mark.rule("K3")
def test_a_chunk_that_is_overtaken_ends_the_pass(
    spark: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first chunk lands, the second is overtaken, and the third is not begun."""
    topic = Prices(store, partitions=1)
    chooser = random.Random(6)
    for _ in range(9):
        topic.put(*((b"k%d" % chooser.randrange(300), b"v" * 40) for _ in range(130)))
    run_chunk = key_compaction.run_chunk
    ran: list[Chunk] = []

    def raced(*arguments: Any) -> Any:
        ran.append(arguments[3])
        return None if len(ran) == 2 else run_chunk(*arguments)

    monkeypatch.setattr(key_compaction, "run_chunk", raced)
    limits = Limits(file_bytes_target=3_000, chunk_bytes_max=9_000, chunk_files_max=4)
    table = topic.opened()
    done = compact_keys(spark, store, table, keys_plan(store, TOPIC, table.snapshot, CLOCK), CLOCK, limits)
    assert (done.chunks, done.raced_chunks, len(ran)) == (1, 1, 2)
    assert 0 < topic.marks()[0] <= ran[1].files[0].first_offset


@pytest.mark.slow
@pytest.mark.usefixtures("both_ways")
@pytest.mark.rule("K8")
def test_two_keys_with_one_hash_both_stay(spark: Any, store: ObjectStore) -> None:
    one, other = b"carrier/00000001", b"carrier:\x8bm\xc4\xea\xd2\x1bZ\r"
    assert xxhash.xxh64_intdigest(one, 42) == xxhash.xxh64_intdigest(other, 42), "as Spark hashes them"
    topic = Prices(store)
    topic.put((one, b"1"), (other, b"1"), (one, b"2"))
    topic.put((b"end", b"1"))
    run(spark, topic)
    assert topic.kept() == [1, 2, 3]


def test_a_topic_that_only_deletes_loses_no_key(spark: Any, store: ObjectStore) -> None:
    topic = Prices(store, cleanup_policy="delete")
    topic.put((b"a", b"1"), (b"a", b"2"))
    topic.put((b"a", b"3"))
    assert run(spark, topic).removed_rows == 0
    assert topic.kept() == [0, 1, 2]


@pytest.mark.rule("K1")
def test_the_youngest_are_untouched_and_supersede_nothing(spark: Any, store: ObjectStore) -> None:
    clock = FakeClock()
    topic = Prices(store, min_compaction_lag_ms=60_000)
    old, young = (clock.ms - 61_000) * 1000, (clock.ms - 59_000) * 1000
    topic.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), timestamp_us=old)
    topic.put((b"b", b"2"), timestamp_us=young)
    topic.put((b"b", b"3"), timestamp_us=old)
    run(spark, topic, clock)
    assert topic.kept() == [1, 2, 3, 4]
    assert topic.marks()[0] == 3
    clock.ms += 2_000
    run(spark, topic, clock)
    assert topic.kept() == [2, 4]


@pytest.mark.rule("K1")
def test_the_largest_lag_keeps_all_for_ever(store: ObjectStore) -> None:
    clock = FakeClock()
    topic = Prices(store, min_compaction_lag_ms=2**53 - 1)
    topic.put((b"a", b"1"), (b"a", b"2"))
    clock.ms += 10_000 * DAY_MS
    assert keys_plan(store, TOPIC, topic.table.refresh(), clock) == ()


@pytest.mark.usefixtures("more_ways")
@pytest.mark.rule("K4")
def test_tombstones_stay_for_their_time(spark: Any, store: ObjectStore) -> None:
    clock = FakeClock()
    topic = Prices(store, delete_retention_ms=DAY_MS)
    topic.put((b"a", b"1"), (b"b", b"1"))
    topic.put((b"a", None), (b"c", None), (b"b", b"2"))
    run(spark, topic, clock)
    assert topic.kept() == [2, 3, 4]
    clock.ms += DAY_MS - 1
    topic.put((b"d", None), (b"c", b"1"), (b"e", b"1"))
    run(spark, topic, clock)
    assert topic.kept() == [2, 4, 5, 6, 7]
    clock.ms += 1
    run(spark, topic, clock)
    assert topic.kept() == [4, 5, 6, 7], "the tombstone of d was first kept a moment ago"
    clock.ms += DAY_MS
    run(spark, topic, clock)
    assert topic.kept() == [4, 6, 7]
    assert topic.marks() == (8, 0)
    version = topic.table.snapshot.version
    clock.ms += 10 * DAY_MS
    run(spark, topic, clock)
    assert topic.table.refresh().version == version, "no tombstone is left to wait for"


@pytest.mark.usefixtures("more_ways")
@pytest.mark.rule("K7")
def test_the_end_stays_though_it_is_a_tombstone(spark: Any, store: ObjectStore) -> None:
    clock = FakeClock()
    topic = Prices(store, delete_retention_ms=0)
    topic.put((b"a", b"1"))
    topic.put((b"a", None))
    for _ in range(3):
        clock.ms += 1
        run(spark, topic, clock)
        assert topic.kept() == [1]
    topic.put((b"b", b"1"))
    for _ in range(2):
        clock.ms += 1
        run(spark, topic, clock)
    assert topic.kept() == [2]


def test_a_file_of_which_nothing_stays_goes(spark: Any, store: ObjectStore) -> None:
    topic = Prices(store)
    topic.put(*[(b"a", b"v" * 500)] * 300)
    topic.put((b"a", b"end"))
    limits = Limits(file_bytes_target=1_000, chunk_bytes_max=100_000)
    run(spark, topic, limits=limits)
    assert topic.kept() == [300]
    assert len(topic.table.snapshot.files) == 1


@pytest.mark.usefixtures("more_ways")
def test_records_below_the_log_start_go_with_their_file(spark: Any, store: ObjectStore) -> None:
    topic = Prices(store, cleanup_policy="compact,delete")
    topic.put((None, b"1"), (b"a", b"1"), (None, b"2"), (b"a", b"2"))
    topic.put((b"a", b"3"))
    snapshot = topic.table.refresh()
    move_starts(topic.table, snapshot.version, {0: start_move(snapshot, 0, 2)}, new_id(), now_ms=0)
    run(spark, topic)
    assert topic.kept() == [2, 4]


@pytest.mark.rule("K2")
def test_rows_that_alone_tell_of_producers_stay(spark: Any, store: ObjectStore) -> None:
    topic = Prices(store)
    topic.put((b"a", b"1"), (b"a", b"2"))
    first = topic.table.refresh().offsets[0]
    rows = table_of(first, [(b"a", b"3"), (b"a", b"4"), (b"b", b"5")])
    named = rows.set_column(rows.schema.get_field_index("producer_id"), "producer_id", pa.array(["p"] * 3))
    topic.append_tables({0: named.cast(FILE_SCHEMA)})
    table = topic.opened()
    compact_keys(spark, store, table, keys_plan(store, TOPIC, table.snapshot, CLOCK), CLOCK)
    assert topic.kept() == [1, 2, 3, 4]
    state = f"{names.topic_path(TOPIC)}/{names.state_object(table.topic_id, 0, 4)}"
    store.put(state, b"what was known of producers below")
    compact_keys(spark, store, table, keys_plan(store, TOPIC, table.refresh(), CLOCK), CLOCK)
    assert topic.kept() == [3, 4]


def test_appends_and_another_compaction_come_between(
    spark: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Prices(store)
    topic.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    topic.put((b"b", b"2"))
    written = rewriting.write_merged
    plain = topic.opened()
    races = iter(["append", "compaction"])

    def raced(*args: Any) -> None:
        written(*args)
        race = next(races, None)
        if race == "append":
            topic.put((b"b", b"3"))
        elif race == "compaction":
            monkeypatch.setattr(rewriting, "write_merged", written)
            assert compact(spark, store, topic.opened(), CLOCK).raced_chunks == 0

    monkeypatch.setattr(rewriting, "write_merged", raced)
    first = compact_keys(spark, store, plain, keys_plan(store, TOPIC, plain.refresh(), CLOCK), CLOCK)
    assert (first.raced_chunks, first.removed_rows) == (0, 2)
    assert topic.kept() == [2, 3, 4]
    second = compact_keys(spark, store, plain, keys_plan(store, TOPIC, plain.refresh(), CLOCK), CLOCK)
    assert (second.raced_chunks, second.removed_rows) == (1, 0)
    assert topic.kept() == [2, 4]


@pytest.mark.rule("K5")
def test_settings_that_change_meanwhile_keep_the_records(
    spark: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Prices(store)
    topic.put((b"a", b"1"), (b"a", b"2"))
    rewrites = key_compaction_plan.rewrites

    def changed(*args: Any) -> Any:
        topic.table.refresh()
        topic.table.set_config(topic.config.patched({"cleanup.policy": "delete"}), new_id())
        return rewrites(*args)

    monkeypatch.setattr(key_compaction, "rewrites", changed)
    assert run(spark, topic).raced_chunks == 1
    assert topic.kept() == [0, 1]


@pytest.mark.rule("K6")
def test_what_was_written_wrong_is_not_committed(
    spark: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Prices(store)
    topic.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    topic.put((b"a", b"3"))
    written = rewriting.write_merged
    before = topic.kept()

    def wrong(*args: Any) -> None:
        """Keeps another record of the key than the last."""
        *front, choose = args
        written(
            *front,
            lambda records, merge: choose(records, merge).where("offset != 3").union(records.where("offset = 2")),
        )

    monkeypatch.setattr(rewriting, "write_merged", wrong)
    table = topic.opened()
    with pytest.raises(CorruptData, match="would change its records"):
        compact_keys(spark, store, table, keys_plan(store, TOPIC, table.snapshot, CLOCK), CLOCK)
    assert topic.kept() == before


def test_a_successor_of_the_name_begins_uncompacted(spark: Any, store: ObjectStore) -> None:
    topic = Prices(store)
    topic.put((b"a", b"1"), (b"a", b"2"))
    run(spark, topic)
    assert topic.marks() == (2, 2)
    topic.table.delete(new_id())
    again = Prices(store)
    assert again.marks() == (0, 0)
    again.put((b"a", b"1"), (b"a", b"2"))
    run(spark, again)
    assert again.kept() == [1]


@pytest.mark.slow
@pytest.mark.s3
def test_a_bucket_and_more_than_one_merge_of_a_partition(spark: Any, s3_server: S3Server) -> None:
    store = open_store(s3_server.root_uri("keys"), s3_endpoint=s3_server.endpoint, s3_region=s3_server.region)
    topic = Prices(store, partitions=2)
    chooser = random.Random(7)
    for _ in range(4):
        for partition in range(2):
            topic.put(*((b"k%d" % chooser.randrange(90), b"v" * 40) for _ in range(60)), partition=partition)
    wanted = {partition: model(topic.rows(partition), 10**6) for partition in range(2)}
    limits = Limits(file_bytes_target=2_000, chunk_bytes_max=100_000)
    table = topic.opened()
    with spark_session(store):
        done = compact_keys(spark, store, table, keys_plan(store, TOPIC, table.snapshot, CLOCK), CLOCK, limits)
    assert (done.chunks, done.raced_chunks) == (1, 0)
    assert done.written_files > 2
    assert {partition: topic.rows(partition) for partition in range(2)} == wanted
