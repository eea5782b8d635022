"""Keys found in memory, and by Spark where they do not fit there: it comes to the same."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from prices import DAY_MS, FakeClock, Prices, Record, model, run
from record_tables import new_id

from siltlog.infra.arrow import latest
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.pipelines.compaction import keys, keys_plan
from siltlog.pipelines.compaction.keys_plan import KeyRange
from siltlog.pipelines.compaction.keys_query import query
from siltlog.pipelines.compaction.keys_search import search

pytestmark = pytest.mark.spark


def asked_of_spark(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that are not found in memory, as they come."""
    asked: list[int] = []

    def noted(spark: Any, store: ObjectStore, topic: str, ranges: Sequence[KeyRange]) -> Any:
        asked.extend(found.partition for found in ranges)
        return query(spark, store, topic, ranges)

    monkeypatch.setattr(keys, "query", noted)
    return asked


def some(chooser: random.Random, count: int, *, key_bytes: int = 0) -> list[Record]:
    named = [b"%d" % key + b"." * key_bytes for key in range(40)]
    return [(chooser.choice([None, b"", *named]), chooser.choice([None, b"v"])) for _ in range(count)]


@pytest.mark.slow
def test_what_does_not_fit_in_memory_is_left_to_spark(
    spark: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition has too many records, which the log says; one too long keys, which turns out; one fits."""
    monkeypatch.setattr(keys_plan, "SEARCH_BYTES_MAX", 8_000)
    asked = asked_of_spark(monkeypatch)
    topic = Prices(store, partitions=3)
    chooser = random.Random(8)
    for _ in range(3):
        topic.put(*some(chooser, 30), partition=0)
        topic.put(*some(chooser, 100), partition=1)
        topic.put(*some(chooser, 30, key_bytes=200), partition=2)
    wanted = [model(topic.rows(partition), 10**6) for partition in range(3)]
    run(spark, topic)
    assert [topic.rows(partition) for partition in range(3)] == wanted
    assert sorted(set(asked)) == [1, 2]


@pytest.mark.rule("K8")
@pytest.mark.parametrize("bits", [0, 2])
def test_hashes_that_collide_change_nothing(
    spark: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    hashes_of = latest.hashes_of

    def few(keys: pa.Array) -> npt.NDArray[np.uint64]:
        return hashes_of(keys) & np.uint64(((1 << bits) - 1) << 64 - bits)

    monkeypatch.setattr(latest, "hashes_of", few)
    asked = asked_of_spark(monkeypatch)
    topic = Prices(store)
    chooser = random.Random(9)
    for _ in range(3):
        topic.put(*some(chooser, 60))
    wanted = model(topic.rows(), 10**6)
    run(spark, topic)
    assert topic.rows() == wanted
    assert asked == []


@pytest.mark.slow
def test_in_memory_and_by_spark_the_same_stays(spark: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twins, of which one is compacted each way: tombstones that wait and go, a log start within a file, young records,
    and gaps of the runs before."""
    clock = FakeClock()
    config = {"cleanup_policy": "compact,delete", "min_compaction_lag_ms": 60_000, "delete_retention_ms": DAY_MS}
    twins = Prices(store, partitions=2, **config)
    asked = asked_of_spark(monkeypatch)

    def first_alone(spark: Any, store: ObjectStore, topic: str, ranges: Sequence[KeyRange]) -> Any:
        survivors, rest = search(spark, store, topic, ranges)
        assert rest == []
        return survivors, [found for found in ranges if found.partition == 1]

    monkeypatch.setattr(keys, "search", first_alone)
    chooser = random.Random(10)
    for number in range(3):
        for age_ms in (120_000, 1_000):
            records = some(chooser, 70)
            for partition in range(2):
                twins.put(*records, partition=partition, timestamp_us=(clock.ms - age_ms) * 1000)
        if number == 1:
            snapshot = twins.table.refresh()
            move_starts(
                twins.table, snapshot.version, {p: start_move(snapshot, p, 50) for p in range(2)}, new_id(), now_ms=0
            )
        before = len(twins.rows())
        run(spark, twins, clock)
        assert set(asked) == {1}
        asked.clear()
        assert len(twins.rows()) < before
        assert twins.rows(0) == twins.rows(1)
        assert twins.marks(0) == twins.marks(1)
        clock.ms += DAY_MS + 1
