"""How many files a topic makes: hours of flushes in a moment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra import delta_names, names
from siltlog.infra.settings.topic_config import FLUSH_WAIT_MS_MAX, SETTINGS, UNLIMITED
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.ingest.flush.due import (
    AWAITED_SECONDS,
    EARLY_BYTES,
    UNHURRIED,
    Load,
    active_partitions,
    due,
    due_at,
    held_until,
)
from siltlog.ingest.flush.file_budget import (
    BURST_SECONDS,
    CROWDED_FILES,
    UNMERGED_BYTES_MAX,
    FileBudget,
    patience,
    patience_of,
)

HOUR = 3600.0
PER_HOUR = SETTINGS["flush.files.per.hour"].default
MAX_SECONDS = FLUSH_WAIT_MS_MAX / 1000
FLUSH_BYTES = 16 * EARLY_BYTES
BYTES_PER_SECOND = 7_000
"""Each partition gets so much: 275 records of 100 bytes a second on four of them."""


class Flushes:
    """A topic that gets records all the time, and whose table nobody merges."""

    def __init__(self, partitions: int = 4, per_hour: int = int(PER_HOUR), flush_ms: int = 1_000) -> None:
        self.partitions = partitions
        self.per_hour = per_hour
        self.flush_ms = flush_ms
        self.budget = FileBudget()
        self.now = 0.0
        self.since = dict.fromkeys(range(partitions), 0.0)
        self.files = 0
        self.commits = 0
        self.waits: list[float] = []

    def run(self, hours: float) -> int:
        """How many files came."""
        before, self.waits, end = self.files, [], self.now + hours * HOUR
        while self.now < end:
            self.step()
        return self.files - before

    def step(self) -> None:
        pace = self.budget.pace(self.partitions, self.per_hour, FLUSH_BYTES, self.now)
        loads = []
        for partition, since in self.since.items():
            nbytes = int((self.now - since) * BYTES_PER_SECOND)
            until = 0.0 if pace.ready_seconds <= self.now else held_until(pace, nbytes, since, self.flush_ms)
            load = Load("t", partition, nbytes, since, self.flush_ms, FLUSH_BYTES, pace=pace, held_seconds=until)
            loads.append(load)
        chosen = due(loads, self.now)
        if chosen:
            self.budget.spend(len(chosen), self.per_hour, self.now)
            self.files += len(chosen)
            self.commits += 1
            self.waits += [self.now - load.oldest_seconds for load in chosen]
            self.since.update({load.partition: self.now for load in chosen})
            self.budget.patience = patience(self.files, self.partitions)
            self.now += 0.01
        else:
            active = active_partitions(loads, self.now)
            self.now = max(self.now + 0.01, min(due_at(load, active) for load in loads))


def test_files_that_come_keep_to_the_budget() -> None:
    free = Flushes(per_hour=UNLIMITED, flush_ms=250)
    assert free.run(0.1) > 5 * 0.1 * int(PER_HOUR), "so many flush.ms would make"
    kept = Flushes(flush_ms=250)
    burst = int(PER_HOUR) / HOUR * BURST_SECONDS
    assert kept.run(0.15) <= 0.15 * int(PER_HOUR) + burst
    kept.budget.patience = 1.0
    assert kept.commits == kept.files / 4, "partitions of a topic are flushed together"
    assert sorted(kept.waits)[len(kept.waits) // 4] <= 0.3, "a topic that rested is as fresh as flush.ms says"
    assert 3.9 <= kept.waits[-1] <= 4.1, "four partitions at a file a second"


def test_a_table_that_nobody_merges_stays_bounded() -> None:
    starved = Flushes(flush_ms=250)
    first = starved.run(24)
    assert first < 4_000
    assert starved.run(24) <= 48 * 4 * HOUR / MAX_SECONDS / 2 + 1
    assert max(starved.waits) <= MAX_SECONDS + 0.1


def test_a_topic_of_very_many_partitions_waits_for_five_minutes_at_most() -> None:
    many = Flushes(partitions=2_000)
    many.run(0.5)
    assert max(many.waits) <= MAX_SECONDS + 1
    assert many.files <= 0.5 * HOUR / MAX_SECONDS * 2_000 + 2_000
    assert many.commits < 60


@pytest.mark.rule("F3")
@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 100)), max_size=50), st.integers(1, 100_000))
def test_no_burst_of_who_does_not_wait_keeps_the_rest_back_for_longer(
    spent: list[tuple[int, float]], per_hour: int
) -> None:
    budget, now = FileBudget(), 1_000.0
    for files, later in spent:
        now += later
        budget.spend(files, per_hour, now)
    wait = budget.pace(4, per_hour, FLUSH_BYTES, now).ready_seconds - now
    assert wait <= min(4 * HOUR / per_hour, BURST_SECONDS) + 1e-6


def test_limits_of_the_setting() -> None:
    assert FileBudget().pace(9, UNLIMITED, 1, 0.0) == UNHURRIED
    assert FileBudget().pace(9, 0, FLUSH_BYTES, 5.0).ready_seconds == float("inf")


@pytest.mark.rule("F7")
def test_a_crowded_table_gets_larger_files_and_who_waits_for_it_waits_a_little_longer() -> None:
    budget = FileBudget(patience=4.0)
    pace = budget.pace(4, int(PER_HOUR), FLUSH_BYTES, 0.0)
    assert (pace.early_bytes, pace.awaited_seconds) == (4 * EARLY_BYTES, 4 * AWAITED_SECONDS)
    assert budget.pace(4, int(PER_HOUR), 2 * EARLY_BYTES, 0.0).early_bytes == 2 * EARLY_BYTES
    awaited = Load("t", 0, 1, 0.0, 60_000, FLUSH_BYTES, awaited=True, pace=pace)
    assert due_at(awaited, 1) == 1.0
    assert due_at(awaited._replace(flush_ms=300), 1) == 0.3, "never longer than flush.ms"


@pytest.mark.rule("F7")
@given(st.integers(0, 50_000), st.integers(0, 50_000), st.integers(1, 10_000))
def test_patience_grows_with_the_files(few: int, more: int, partitions: int) -> None:
    low, high = sorted((few, more))
    assert 1.0 <= patience(low, partitions) <= patience(high, partitions)
    assert patience(CROWDED_FILES, partitions) == 1.0
    assert patience(2 * CROWDED_FILES, 1) == 16.0


def snapshot_of(count: int, *, size_bytes: int = 1_000, folder: str = "") -> TableSnapshot:
    files = [
        DataFile(f"{folder}{names.partition_folder(0)}/{at}.parquet", 0, 1, size_bytes, at, at, 0, 0, 0)
        for at in range(count)
    ]
    return TableSnapshot.build(1, {delta_names.PROPERTY_PARTITIONS: "4"}, {}, files)


@pytest.mark.rule("F6")
def test_only_small_files_that_were_never_merged_crowd_a_table() -> None:
    assert patience_of(snapshot_of(CROWDED_FILES)) == 1.0
    assert patience_of(snapshot_of(2 * CROWDED_FILES)) == patience(2 * CROWDED_FILES, 4) > 1.0
    assert patience_of(snapshot_of(2 * CROWDED_FILES, size_bytes=UNMERGED_BYTES_MAX + 1)) == 1.0
    assert patience_of(snapshot_of(2 * CROWDED_FILES, folder=names.rewrite_folder("run") + "/")) == 1.0
