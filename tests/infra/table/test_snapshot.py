"""What is kept up to date commit by commit must equal what a fresh handle sees, whatever happened."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_tables import CLOCK, append, claimed, created, new_id, written

from siltlog.infra import delta_names
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.local import LocalStore
from siltlog.infra.table import delta as table_commit
from siltlog.infra.table.table import TopicTable

STEPS = ("append", "append", "append", "rewrite", "remove", "config", "recreate", "checkpoint", "claim", "refresh")
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2), st.integers(1, 3)), max_size=14)


class History:
    """Runs steps on one table through handles of two writers; `watcher` only ever refreshes."""

    def __init__(self, store: LocalStore) -> None:
        self.store = store
        self.table = claimed(store, partitions=3)
        self.watcher = TopicTable.open(store, "t", CLOCK)
        self.epoch = 1

    def run(self, step: str, partition: int, number: int) -> None:
        snapshot = self.table.refresh()
        if step == "append":
            append(self.store, self.table, {partition: number, (partition + 1) % 3: 1}, epoch=self.epoch)
        elif step == "rewrite" and snapshot.files_of(partition):
            removes = list(snapshot.files_of(partition))[:number]
            first, last = removes[0].first_offset, removes[-1].last_offset
            adds = [written(self.store, "t", partition, first, last - first + 1)]
            TopicTable.open(self.store, "t", CLOCK).rewrite(snapshot.version, removes, adds, new_id())
        elif step == "remove" and snapshot.files_of(partition):
            gone = snapshot.files_of(partition)[0]
            remove = table_commit.remove_action(gone, data_change=True, now_ms=CLOCK.now_us() // 1000)
            fences = {
                delta_names.txn_start(partition): gone.last_offset + 1,
                delta_names.txn_rewrite(partition): number,
            }
            table_commit.commit_actions(table_commit.open_handle(self.store, "t"), [remove], fences, new_id())
        elif step == "config":
            self.table.set_config(TopicConfig({"retention.ms": number}), new_id())
        elif step == "recreate":
            self.table.delete(new_id())
            self.table = created(self.store, "t", partitions=3)
            self.claim()
        elif step == "checkpoint":
            self.table.checkpoint()
        elif step == "claim":
            self.claim()

    def claim(self) -> None:
        self.epoch = max(self.table.snapshot.epochs.values()) + 1
        self.table.claim(dict.fromkeys(range(3), self.epoch), new_id())


@pytest.mark.slow
@given(steps)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_incremental_and_fresh_snapshots_are_equal(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, int, int]]
) -> None:
    store = LocalStore(str(tmp_path_factory.mktemp("history")))
    run = History(store)
    for step, partition, number in history:
        run.run(step, partition, number)
        if step == "refresh":
            run.watcher.refresh()
        fresh = TopicTable.open(store, "t", CLOCK).snapshot
        assert run.table.refresh() == fresh
    assert run.watcher.refresh() == run.table.snapshot
    for partition in range(3):
        files = run.table.snapshot.files_of(partition)
        assert (
            sum(file.rows for file in files)
            == run.table.snapshot.offsets[partition] - run.table.snapshot.starts[partition]
        )


def test_a_snapshot_does_not_change(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    table = claimed(store)
    before = table.snapshot
    kept = (dict(before.offsets), dict(before.files), dict(before.transactions), before.version, before.files_of(0))
    append(store, table, {0: 3})
    table.set_config(TopicConfig({"retention.ms": 1}), new_id())
    assert (
        dict(before.offsets),
        dict(before.files),
        dict(before.transactions),
        before.version,
        before.files_of(0),
    ) == kept
