"""How long removed files are known: what a topic or its server says holds for tables that are there, too."""

import dataclasses
import os
import uuid
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from record_tables import claimed, created, new_id, written

from siltlog.infra import delta_names
from siltlog.infra.clock import SystemClock
from siltlog.infra.settings.topic_config import REMOVED_FILES_MS_MAX, REMOVED_FILES_MS_MIN, TopicConfig
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.store import open_store
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.delta import add_action, commit_actions, remove_action
from siltlog.infra.table.entries import HOUR_MS, RETENTION_MS, checkpoint_path, entry_path, last_checkpoint, log_folder
from siltlog.infra.table.snapshot import interval
from siltlog.infra.table.table import TopicTable

PROPERTY = "delta.deletedFileRetentionDuration"
STEP_MS = HOUR_MS // 4
FILES = 5
DAYS = 3


class Days(SystemClock):
    """Gives the table as it is in the end, but moved by hand."""

    def __init__(self) -> None:
        self.behind_ms = DAYS * 24 * HOUR_MS
        self.seconds = 0.0

    def now_us(self) -> int:
        return super().now_us() - self.behind_ms * 1000

    def monotonic(self) -> float:
        return self.seconds

    def step(self) -> None:
        self.behind_ms -= STEP_MS
        self.seconds += STEP_MS / 1000


def test_a_period_is_written_as_delta_reads_it() -> None:
    assert interval(24 * HOUR_MS) == "interval 24 hours"
    assert interval(REMOVED_FILES_MS_MIN + 1) == "interval 21601 seconds"


def test_it_changes_with_the_settings_and_with_a_claim(tmp_path: Path) -> None:
    table = created(open_store(tmp_path.as_uri()))
    assert table.snapshot.removed_files_ms == REMOVED_FILES_MS_MAX
    table.claim({0: 1, 1: 1}, new_id(), removed_files_ms=7 * HOUR_MS)
    assert table.snapshot.properties[PROPERTY] == "interval 7 hours"
    table.set_config(TopicConfig({"acks": "table"}), new_id())
    assert table.snapshot.removed_files_ms == 7 * HOUR_MS, "what nobody names stays"
    table.set_config(TopicConfig({}), new_id(), removed_files_ms=REMOVED_FILES_MS_MIN + 1)
    assert table.snapshot.removed_files_ms == REMOVED_FILES_MS_MIN + 1_000
    table.grow(3, [0, 0], 1, new_id(), config=TopicConfig({}), removed_files_ms=8 * HOUR_MS)
    assert table.snapshot.removed_files_ms == 8 * HOUR_MS
    before = table.snapshot.version
    table.claim({0: 2}, new_id(), removed_files_ms=8 * HOUR_MS)
    assert table.snapshot.properties[PROPERTY] == "interval 8 hours" and table.snapshot.version == before + 1


class Busy:
    """A topic whose small files are merged each hour; only its log is real."""

    def __init__(self, store: LocalStore, clock: Days, removed_files_ms: int) -> None:
        claimed(store, partitions=1)
        self.store = store
        self.clock = clock
        self.table = TopicTable.open(store, "t", clock)
        self.table.set_config(TopicConfig({}), new_id(), removed_files_ms=removed_files_ms)
        self.model = written(store, "t", 0, 0, 1)
        self.live: list[DataFile] = []
        for version in range(self.table.snapshot.version + 1):
            self.age(version)

    def age(self, version: int) -> None:
        at_s = self.clock.now_us() / 1e6
        os.utime(self.store.path(entry_path("t", version)), (at_s, at_s))

    def file(self) -> DataFile:
        return dataclasses.replace(self.model, path=f"partition=0/{uuid.uuid4()}.parquet")

    def commit(self, added: list[DataFile], removed: list[DataFile]) -> None:
        now_ms = self.clock.now_us() // 1000
        actions = [
            *(add_action(file, data_change=False) for file in added),
            *(remove_action(file, data_change=False, now_ms=now_ms) for file in removed),
        ]
        commit_id = new_id()
        transactions = {delta_names.txn_offset(0): self.table.snapshot.version}
        self.table.commit(commit_id, lambda _: lambda delta: commit_actions(delta, actions, transactions, commit_id))
        self.age(self.table.snapshot.version)
        self.live = [*(file for file in self.live if file not in removed), *added]

    def hour(self) -> None:
        for _ in range(HOUR_MS // STEP_MS):
            self.commit([self.file() for _ in range(FILES)], [])
            self.table.maintain()
            self.clock.step()
        self.commit([self.file()], self.live)

    def removals(self) -> int:
        """Counts the removed files in the newest checkpoint."""
        checkpoint = last_checkpoint(self.store, "t")
        assert checkpoint is not None
        found = pq.ParquetFile(self.store.path(checkpoint_path("t", checkpoint.version))).read(columns=["remove"])
        return len(found) - found.column("remove").null_count

    def entries(self) -> int:
        return len(list(self.store.path(log_folder("t")).glob("*.json")))


@pytest.mark.slow
@pytest.mark.parametrize("removed_files_ms", [REMOVED_FILES_MS_MIN, REMOVED_FILES_MS_MAX])
def test_days_of_a_busy_topic_leave_what_one_period_does(tmp_path: Path, removed_files_ms: int) -> None:
    store, clock = LocalStore(str(tmp_path)), Days()
    topic = Busy(store, clock, removed_files_ms)
    an_hour = FILES * HOUR_MS // STEP_MS + 1
    entries: list[int] = []
    for _ in range(DAYS * 24):
        topic.hour()
        entries.append(topic.entries())
    topic.table.checkpoint()
    hours = removed_files_ms // HOUR_MS
    assert (hours - 1) * an_hour <= topic.removals() <= (hours + 1) * an_hour
    a_day = 24 * (HOUR_MS // STEP_MS + 1)
    assert RETENTION_MS == 24 * HOUR_MS and max(entries[24:]) < 1.5 * a_day
    assert TopicTable.open(store, "t", clock).snapshot == topic.table.snapshot
