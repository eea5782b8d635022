import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from record_tables import CLOCK, append, claimed, created, new_id, records, written
from s3_server import S3Server

from siltlog.infra import delta_names, names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import (
    ConfigError,
    CorruptData,
    Fenced,
    OutcomeUnknown,
    TopicExists,
    Unavailable,
    UnknownTopic,
)
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table import commits as table_log
from siltlog.infra.table import delta as table_commit
from siltlog.infra.table import table as table_module
from siltlog.infra.table.commits import CLEAN_UP_S, COMMITS_MIN
from siltlog.infra.table.data_file import data_file_from_footer, write_data_file
from siltlog.infra.table.entries import RETENTION_MS, cleaned_below, entry_path, read_entry
from siltlog.infra.table.lifecycle import restore_table
from siltlog.infra.table.table import TopicTable, topic_names


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return open_store(tmp_path.as_uri())
    server: S3Server = request.getfixturevalue("s3_server")
    return open_store(server.root_uri(f"tables/{tmp_path.name}"), s3_endpoint=server.endpoint)


@pytest.fixture
def disk(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path))


def reopened(store: ObjectStore, table: TopicTable) -> TopicTable:
    """A fresh handle on the same table, after asserting that it sees what `table` sees."""
    other = TopicTable.open(store, table.topic, CLOCK)
    assert other.snapshot == table.refresh()
    return other


def rows(store: ObjectStore, topic: str) -> list[dict[str, Any]]:
    """Every row as deltalake's own query engine reads it, ordered."""
    handle = DeltaTable(store.uri(names.topic_path(topic)), storage_options=store.storage_options())
    query = 'select * from t order by partition, "offset"'
    return list(QueryBuilder().register("t", handle).execute(query).read_all().to_struct_array().to_pylist())


def test_a_topic_is_a_table_from_its_first_commit(store: ObjectStore) -> None:
    topic_id = new_id()
    table = TopicTable.create(
        store,
        "orders",
        topic_id=topic_id,
        partitions=3,
        config=TopicConfig({"acks": "table", "retention.ms": 5}),
        created_us=1_795_255_969_361_001,
        clock=CLOCK,
    )
    snapshot = table.snapshot
    assert (snapshot.version, snapshot.topic_id, snapshot.partitions, snapshot.deleted) == (0, topic_id, 3, False)
    assert snapshot.created_us == 1_795_255_969_361_001
    assert snapshot.config.own == {"acks": "table", "retention.ms": 5}
    assert dict(snapshot.offsets) == dict(snapshot.starts) == dict(snapshot.epochs) == {0: 0, 1: 0, 2: 0}
    assert dict(snapshot.released) == {0: -1, 1: -1, 2: -1}
    assert topic_names(store) == ["orders"]
    reopened(store, table)
    with pytest.raises(TopicExists):
        created(store, "orders")
    with pytest.raises(UnknownTopic):
        TopicTable.open(store, "none", CLOCK)


def test_records_are_appended_and_seen_by_others(store: ObjectStore) -> None:
    table = claimed(store)
    other = reopened(store, table)
    append(store, table, {0: 10, 1: 5})
    files = append(store, table, {0: 3})
    assert dict(other.refresh().offsets) == {0: 13, 1: 5}
    assert other.snapshot == table.snapshot
    assert [(file.first_offset, file.last_offset) for file in other.snapshot.files_of(0)] == [(0, 9), (10, 12)]
    assert other.snapshot.files_of(0)[1] == files[0]
    assert other.snapshot.files_of(7) == ()
    reopened(store, table)
    found = rows(store, "t")
    assert [row["offset"] for row in found if row["partition"] == 0] == list(range(13))
    assert [row["offset"] for row in found if row["partition"] == 1] == list(range(5))
    assert found[11]["value"] == b"value-11" and found[11]["headers"] is None and found[11]["sequence"] is None


def test_every_commit_names_itself_and_asks_nothing_new_of_readers(disk: LocalStore, tmp_path: Path) -> None:
    table = claimed(disk)
    commit_id = new_id()
    append(disk, table, {0: 10}, commit_id=commit_id)
    assert read_entry(disk, "t", table.snapshot.version).commit_id == commit_id
    log = tmp_path / "topics" / "t" / "_delta_log"
    assert not list(log.glob("*.parquet"))
    actions = [json.loads(line) for entry in log.glob("*.json") for line in entry.read_text().splitlines()]
    assert all(action["commitInfo"]["siltlog.commit"] for action in actions if "commitInfo" in action)
    assert [action["protocol"] for action in actions if "protocol" in action] == [
        {"minReaderVersion": 1, "minWriterVersion": 2}
    ]
    period = f"interval {RETENTION_MS // 3_600_000} hours"
    assert table.snapshot.properties["delta.logRetentionDuration"] == period
    assert table.snapshot.properties["delta.deletedFileRetentionDuration"] == period


@pytest.mark.rule("T24")
def test_a_claim_has_a_table_of_a_former_release_say_which_columns_have_statistics(disk: LocalStore) -> None:
    name = "delta.dataSkippingStatsColumns"
    new = created(disk).snapshot
    assert new.properties[name] == "offset,timestamp"
    former = {key: value for key, value in new.properties.items() if key != name}
    for topic, said, held in (("u", former, "offset,timestamp"), ("v", former | {name: "offset"}, "offset")):
        restore_table(disk, topic, said, new.transactions, [], new_id())
        table = TopicTable.open(disk, topic, CLOCK)
        assert table.snapshot.properties.get(name) == said.get(name)
        table.claim({partition: epoch + 1 for partition, epoch in table.snapshot.epochs.items()}, new_id())
        assert table.snapshot.properties == {**said, name: held}


@pytest.mark.rule("T1")
def test_only_the_owner_appends_and_only_at_the_table_offset(store: ObjectStore) -> None:
    table = claimed(store)
    append(store, table, {0: 10})
    file = written(store, "t", 0, 10, 5)
    for bounds, epoch in (({0: (10, 15)}, 2), ({0: (10, 15)}, 0)):
        with pytest.raises(Fenced, match="its epoch is 1"):
            table.append([file], bounds, {0: epoch}, new_id())
    late = written(store, "t", 0, 11, 5)
    with pytest.raises(Fenced, match="its table offset is 10, not 11"):
        table.append([late], {0: (11, 16)}, {0: 1}, new_id())
    assert table.refresh().offsets[0] == 10
    table.append([file], {0: (10, 15)}, {0: 1}, new_id())
    with pytest.raises(Fenced, match="its table offset is 15, not 10"):
        table.append([file], {0: (10, 15)}, {0: 1}, new_id())


@pytest.mark.rule("T2")
def test_an_older_epoch_is_fenced_although_its_handle_is_stale(store: ObjectStore) -> None:
    old = claimed(store)
    append(store, old, {0: 4})
    new = TopicTable.open(store, "t", CLOCK)
    assert new.claim({0: 2}, new_id()).offsets[0] == 4
    with pytest.raises(Fenced, match="its epoch is 2, not 1"):
        append(store, old, {0: 4})
    with pytest.raises(Fenced):
        old.release({0: 1}, new_id())
    with pytest.raises(Fenced, match="not below 2"):
        old.claim({0: 2}, new_id())
    append(store, new, {0: 4}, epoch=2)
    append(store, old, {1: 4})
    assert dict(reopened(store, new).snapshot.offsets) == {0: 8, 1: 4}


def test_a_claim_may_jump_and_records_what_it_jumped(disk: LocalStore) -> None:
    table = claimed(disk)
    append(disk, table, {0: 10})
    snapshot = table.claim({0: 2, 1: 2}, new_id(), offsets={0: 2**32, 1: 0})
    assert dict(snapshot.offsets) == {0: 2**32, 1: 0}
    assert (snapshot.gaps(0), snapshot.gaps(1)) == ([(10, 2**32)], [])
    append(disk, table, {0: 1}, epoch=2)
    table.claim({0: 3}, new_id(), offsets={0: 2**33})
    assert reopened(disk, table).snapshot.gaps(0) == [(10, 2**32), (2**32 + 1, 2**33)]
    with pytest.raises(Fenced, match="above 5"):
        table.claim({0: 4}, new_id(), offsets={0: 5})


@pytest.mark.rule("T3")
def test_a_clean_hand_over_is_recorded(disk: LocalStore) -> None:
    table = claimed(disk)
    assert dict(table.release({0: 1, 1: 1}, new_id()).released) == {0: 1, 1: 1}
    reopened(disk, table)


@pytest.mark.rule("T6")
def test_what_was_not_written_as_said_is_not_committed(store: ObjectStore) -> None:
    table = claimed(store)
    file = written(store, "t", 0, 0, 5)
    version = table.snapshot.version
    with pytest.raises(Unavailable, match="has to be written anew"):
        table.append([replace(file, size_bytes=file.size_bytes + 1)], {0: (0, 5)}, {0: 1}, new_id())
    store.delete(f"topics/t/{file.path}")
    with pytest.raises(Unavailable, match="is gone"):
        table.append([file], {0: (0, 5)}, {0: 1}, new_id())
    for bounds in ({0: (0, 6)}, {0: (1, 5)}, {0: (0, 5), 1: (0, 1)}):
        with pytest.raises(ValueError, match=r"end at [05], not|does not hold"):
            table.append([file], bounds, {0: 1, 1: 1}, new_id())
    assert table.refresh().version == version


def test_an_append_behind_a_configuration_change_or_a_removal_lands(store: ObjectStore) -> None:
    table, other = claimed(store), TopicTable.open(store, "t", CLOCK)
    append(store, table, {0: 4})
    other.set_config(TopicConfig({"retention.ms": 1}), new_id())
    append(store, table, {0: 4})
    assert table.snapshot.config.own == {"retention.ms": 1}
    other.refresh()
    remove = table_commit.remove_action(other.snapshot.files_of(0)[0], data_change=True, now_ms=1)
    handle = table_commit.open_handle(store, "t")
    table_commit.commit_actions(
        handle, [remove], {delta_names.txn_start(0): 4, delta_names.txn_rewrite(0): 1}, new_id()
    )
    append(store, table, {0: 4})
    assert (table.snapshot.starts[0], table.snapshot.offsets[0]) == (4, 12)
    assert [file.first_offset for file in reopened(store, table).snapshot.files_of(0)] == [4, 8]


class Failing:
    """Stands for deltalake's commit: fails before or after the real one, the first `times` times."""

    def __init__(self, real: Callable[..., None], *, before: bool, times: int = 1) -> None:
        self.real, self.before, self.times = real, before, times
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.calls += 1
        if self.calls > self.times:
            return self.real(*args, **kwargs)
        if not self.before:
            self.real(*args, **kwargs)
        raise OSError("the connection was lost")


@pytest.mark.rule("T5")
def test_a_commit_whose_answer_is_lost_is_found(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = claimed(store)
    failing = Failing(table._handle.commit, before=False)
    monkeypatch.setattr(table._handle, "commit", failing)
    append(store, table, {0: 4})
    assert failing.calls == 1
    assert reopened(store, table).snapshot.offsets[0] == 4
    failing = Failing(failing.real, before=False)
    monkeypatch.setattr(table._handle, "commit", failing)
    table.claim({0: 2}, new_id())
    assert failing.calls == 1 and table.snapshot.epochs[0] == 2


@pytest.mark.parametrize("before", [True, False], ids=["before it was written", "before it was linked"])
def test_a_commit_that_failed_on_a_disk_did_not_happen(
    disk: LocalStore, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    table = claimed(disk)
    commit_id, version = new_id(), table.snapshot.version
    real = table_module.commit_actions
    monkeypatch.setattr(table_module, "commit_actions", Failing(real, before=before))
    with pytest.raises(Unavailable, match="the connection was lost"):
        append(disk, table, {0: 4}, commit_id=commit_id)
    assert table.outcome(commit_id, version) == "not_landed"
    append(disk, table, {0: 4}, commit_id=commit_id)
    assert table.outcome(commit_id, version) == "landed"


@pytest.mark.rule("T16")
@pytest.mark.s3
def test_a_commit_that_may_be_under_way_to_s3_is_made_again_or_unknown(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(s3_server.root_uri(f"under-way/{tmp_path.name}"), s3_endpoint=s3_server.endpoint)
    table = claimed(store)
    real = table_module.commit_actions
    monkeypatch.setattr(table_module, "commit_actions", Failing(real, before=True))
    append(store, table, {0: 4})
    assert table.snapshot.offsets[0] == 4

    commit_id, version = new_id(), table.snapshot.version
    held: list[Callable[[], None]] = []

    def under_way(_: DeltaTable, *args: Any, **kwargs: Any) -> None:
        handle = table_commit.open_handle(store, "t", version)
        held.append(lambda: real(handle, *args, **kwargs))
        raise OSError("timed out")

    monkeypatch.setattr(table_module, "commit_actions", under_way)
    with pytest.raises(OutcomeUnknown) as caught:
        append(store, table, {0: 4}, commit_id=commit_id)
    assert caught.value.members["commit_id"] == commit_id
    assert caught.value.members["after_version"] == version
    monkeypatch.setattr(table_module, "commit_actions", real)
    assert table.outcome(commit_id, version) == "not_landed"
    for late in held:
        with pytest.raises(Exception, match="Failed to commit"):
            late()
    assert TopicTable.open(store, "t", CLOCK).snapshot.offsets[0] == 4
    append(store, table, {0: 4})


def test_an_outcome_is_unknown_while_entries_cannot_be_read(disk: LocalStore, tmp_path: Path) -> None:
    table = claimed(disk)
    version = table.snapshot.version
    commit_id = new_id()
    append(disk, table, {0: 1}, commit_id=commit_id)
    append(disk, table, {0: 1})
    assert table.outcome(commit_id, version) == "landed"
    assert table.outcome(commit_id, version + 1) == "not_landed"
    assert table.outcome(commit_id, version + 10) == "unknown"
    entry = tmp_path / f"topics/t/_delta_log/{version + 2:020d}.json"
    content = entry.read_bytes()
    entry.write_bytes(b"garbage\n" + content)
    assert table.outcome(commit_id, version) == "landed"
    assert table.outcome(new_id(), version) == "unknown"
    entry.unlink()
    assert table.outcome(new_id(), version) == "unknown"


def test_a_log_that_went_back_is_refused(disk: LocalStore, tmp_path: Path) -> None:
    table = claimed(disk)
    append(disk, table, {0: 1})
    stale = TopicTable.open(disk, "t", CLOCK)
    (tmp_path / f"topics/t/_delta_log/{table.snapshot.version:020d}.json").unlink()
    with pytest.raises(CorruptData, match="below"):
        stale.refresh()


@pytest.mark.rule("T14")
def test_a_deleted_topic_leaves_nothing_to_its_successor(store: ObjectStore) -> None:
    table = claimed(store, partitions=3)
    append(store, table, {0: 10, 2: 10})
    stale = TopicTable.open(store, "t", CLOCK)
    first_id = table.topic_id
    deleted = table.delete(new_id())
    assert deleted.deleted and not deleted.files and deleted.topic_id == first_id
    with pytest.raises(UnknownTopic):
        append(store, stale, {0: 1})
    with pytest.raises(UnknownTopic):
        stale.delete(new_id())
    assert TopicTable.open(store, "t", CLOCK).snapshot == deleted
    assert topic_names(store) == ["t"]

    successor = created(store, "t", partitions=2)
    snapshot = successor.snapshot
    assert not snapshot.deleted and snapshot.topic_id not in ("", first_id)
    assert (snapshot.partitions, snapshot.partitions_ever) == (2, 3)
    assert dict(snapshot.offsets) == dict(snapshot.starts) == {0: 0, 1: 0}
    assert not snapshot.files and rows(store, "t") == []
    assert snapshot.epochs[0] > deleted.epochs[0] > table.snapshot.epochs[0] - 1
    assert snapshot.transactions[delta_names.txn_epoch(2)] > 1
    with pytest.raises(UnknownTopic):
        append(store, stale, {0: 1})
    with pytest.raises(TopicExists):
        created(store, "t")
    assert successor.snapshot == TopicTable.open(store, "t", CLOCK).snapshot
    successor.claim({0: 9}, new_id())
    append(store, successor, {0: 2}, epoch=9)
    assert [row["offset"] for row in rows(store, "t")] == [0, 1]


def test_a_successor_has_its_own_configuration_and_gaps(disk: LocalStore) -> None:
    table = created(disk)
    table.set_config(TopicConfig({"acks": "table", "retention.ms": 1}), new_id())
    table.claim({0: 1}, new_id(), offsets={0: 100})
    table.delete(new_id())
    successor = created(disk)
    assert successor.snapshot.config.own == {} and successor.snapshot.gaps(0) == []
    assert successor.snapshot.offsets[0] == 0


def merged(store: ObjectStore, table: TopicTable, partition: int = 0) -> tuple[list[Any], list[Any]]:
    """Files of a partition, and one new file with the same records."""
    removes = list(table.snapshot.files_of(partition))
    first, end = removes[0].first_offset, removes[-1].last_offset + 1
    return removes, [written(store, table.topic, partition, first, end - first)]


def test_a_rewrite_changes_files_and_no_record(store: ObjectStore) -> None:
    table = claimed(store)
    for _ in range(4):
        append(store, table, {0: 5, 1: 5})
    before = rows(store, "t")
    plan_version = table.snapshot.version
    removes, adds = merged(store, table)
    append(store, table, {0: 5})
    compactor = TopicTable.open(store, "t", CLOCK)
    snapshot = compactor.rewrite(plan_version, removes, adds, new_id())
    assert [(file.first_offset, file.rows) for file in snapshot.files_of(0)] == [(0, 20), (20, 5)]
    after = rows(store, "t")
    assert [row for row in after if row["partition"] == 1 or row["offset"] < 20] == before
    entry = read_entry(store, "t", snapshot.version)
    actions = [json.loads(line) for line in store.get(f"topics/t/_delta_log/{entry.version:020d}.json").splitlines()]
    changes = [action[kind]["dataChange"] for action in actions for kind in ("add", "remove") if kind in action]
    assert changes == [False] * 5
    append(store, table, {0: 5})
    reopened(store, table)


@pytest.mark.rule("T4")
def test_of_two_rewrites_from_one_snapshot_one_lands(store: ObjectStore) -> None:
    table = claimed(store)
    for _ in range(3):
        append(store, table, {0: 5})
    plan_version = table.snapshot.version
    removes, adds = merged(store, table)
    table.rewrite(plan_version, removes, adds, new_id())
    for _ in range(2):
        late = TopicTable.open(store, "t", CLOCK)
        with pytest.raises(Fenced, match="plan it anew"):
            late.rewrite(plan_version, removes, [written(store, "t", 0, 0, 15)], new_id())
    assert [row["offset"] for row in rows(store, "t")] == list(range(15))


def test_a_rewrite_behind_a_configuration_change_or_a_new_topic_is_refused(disk: LocalStore) -> None:
    table = claimed(disk)
    append(disk, table, {0: 5})
    append(disk, table, {0: 5})
    plan_version = table.snapshot.version
    removes, adds = merged(disk, table)
    table.set_config(TopicConfig({"retention.ms": 1}), new_id())
    with pytest.raises(Fenced):
        table.rewrite(plan_version, removes, adds, new_id())
    table.delete(new_id())
    successor = created(disk)
    with pytest.raises(UnknownTopic):
        successor.rewrite(plan_version, removes, adds, new_id())
    with pytest.raises(Fenced):
        table.rewrite(plan_version, removes, adds, new_id())
    assert not successor.refresh().files


def test_a_rewrite_whose_answer_is_lost_is_found(disk: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = claimed(disk)
    append(disk, table, {0: 5})
    removes, adds = merged(disk, table)
    real = table_log.commit_actions
    monkeypatch.setattr(table_log, "commit_actions", Failing(real, before=True))
    with pytest.raises(Unavailable):
        table.rewrite(table.snapshot.version, removes, adds, new_id())
    monkeypatch.setattr(table_log, "commit_actions", Failing(real, before=False))
    assert table.rewrite(table.snapshot.version, removes, adds, new_id()).files_of(0) == (adds[0],)


def test_a_rewrite_that_would_change_records_is_refused(disk: LocalStore) -> None:
    table = claimed(disk)
    append(disk, table, {0: 5, 1: 5})
    append(disk, table, {0: 5})
    removes, _ = merged(disk, table)
    version = table.snapshot.version
    shifted = records(0, 11).filter([n != 4 for n in range(11)])
    outputs = {
        "too few": [written(disk, "t", 0, 0, 9)],
        "too many": [written(disk, "t", 0, 0, 11)],
        "another partition": [written(disk, "t", 1, 0, 10)],
        "twice": [written(disk, "t", 0, 0, 10), written(disk, "t", 0, 0, 10)],
        "none": [],
        "same count": [write_data_file(disk, "t", 0, shifted, compression="zstd", now_ms=0)],
    }
    for adds in outputs.values():
        with pytest.raises(CorruptData, match="would change its records"):
            table.rewrite(version, removes, adds, new_id())
    same_bounds = records(0, 11).take([0, 1, 2, 3, 5, 5, 6, 7, 8, 9])
    lying = write_data_file(disk, "t", 0, same_bounds, compression="zstd", now_ms=0)
    with pytest.raises(CorruptData, match="would change its records"):
        table.rewrite(version, removes, [lying], new_id())
    with pytest.raises(ValueError, match="not in version"):
        table.rewrite(version - 1, removes, [written(disk, "t", 0, 0, 10)], new_id())
    assert table.refresh().version == version


@pytest.mark.rule("T7")
def test_a_damaged_source_is_not_compacted(disk: LocalStore, tmp_path: Path) -> None:
    table = claimed(disk)
    append(disk, table, {0: 2_000})
    removes, adds = merged(disk, table)
    path = tmp_path / "topics/t" / removes[0].path
    content = bytearray(path.read_bytes())
    content[100] ^= 4
    path.write_bytes(content)
    with pytest.raises(CorruptData, match="offsets 0 to 1999, is damaged"):
        table.rewrite(table.snapshot.version, removes, adds, new_id())


def test_files_of_another_writer_are_committed_by_their_footers(disk: LocalStore, tmp_path: Path) -> None:
    table = claimed(disk)
    append(disk, table, {0: 5})
    append(disk, table, {0: 5})
    removes, adds = merged(disk, table)
    folder = f"{names.rewrite_folder('run')}/{names.partition_folder(0)}"
    target = tmp_path / "topics/t" / folder / "part 0.parquet"
    target.parent.mkdir(parents=True)
    (tmp_path / "topics/t" / adds[0].path).rename(target)
    file = data_file_from_footer(disk, "t", f"{folder}/part 0.parquet", 0)
    table.rewrite(table.snapshot.version, removes, [file], new_id())
    assert reopened(disk, table).snapshot.files_of(0) == (file,)
    assert [row["offset"] for row in rows(disk, "t")] == list(range(10))


@pytest.mark.rule("T10")
def test_a_checkpoint_is_made_when_due_and_the_log_cleaned_after(store: ObjectStore) -> None:
    table, other = claimed(store), TopicTable.open(store, "t", CLOCK)

    def checkpoints() -> int:
        return sum(info.path.endswith(".checkpoint.parquet") for info in store.list("topics/t/_delta_log"))

    while table.snapshot.version < COMMITS_MIN + 5:
        before = checkpoints()
        append(store, table, {0: 1})
        assert checkpoints() == before, "no commit makes one"
        table.maintain()
    assert checkpoints() == 1
    assert other.refresh() == table.snapshot
    reopened(store, table)
    append(store, table, {0: 1})
    other.refresh()
    append(store, other, {0: 1})
    reopened(store, table)


@pytest.mark.rule("T12")
def test_the_log_is_cleaned_every_half_hour_at_most(disk: LocalStore) -> None:
    class Tomorrow(SystemClock):
        passed_s = 0.0

        def now_us(self) -> int:
            return super().now_us() + 2 * RETENTION_MS * 1000

        def monotonic(self) -> float:
            return self.passed_s

    claimed(disk)
    clock = Tomorrow()
    table = TopicTable.open(disk, "t", clock)
    marks = []
    for clock.passed_s in (0.0, CLEAN_UP_S - 1, CLEAN_UP_S):
        for _ in range(COMMITS_MIN):
            append(disk, table, {0: 1})
        table.maintain()
        marks.append(cleaned_below(disk, "t"))
    assert 0 < marks[0] == marks[1] < marks[2]


def test_entries_past_their_period_go_and_stale_handles_go_on(disk: LocalStore, tmp_path: Path) -> None:
    table = claimed(disk)
    stale = TopicTable.open(disk, "t", CLOCK)
    log = tmp_path / "topics/t/_delta_log"
    while table.snapshot.version < COMMITS_MIN:
        append(disk, table, {0: 1})
    past_s = CLOCK.now_us() / 1e6 - RETENTION_MS / 1000 - 3_600
    for entry in log.glob("*.json"):
        os.utime(entry, (past_s, past_s))
    table.maintain()
    assert not (log / f"{0:020d}.json").exists()
    reopened(disk, table)
    with pytest.raises(OutcomeUnknown):
        append(disk, stale, {0: 1})
    append(disk, stale, {0: 1})
    assert stale.snapshot == table.refresh()
    assert table.outcome(new_id(), 1) == "past"


def test_another_programs_table_is_refused(disk: LocalStore) -> None:
    table_commit.commit_table(disk, disk.uri("topics/alien"), {}, {}, new_id(), overwrite=False)
    with pytest.raises(ConfigError, match="another program"):
        TopicTable.open(disk, "alien", CLOCK)


@pytest.mark.parametrize("partition_by", [None, ["partition"]])
def test_another_programs_table_is_refused_as_that_whatever_rows_it_has(
    disk: LocalStore, partition_by: list[str] | None
) -> None:
    rows = pa.table({"partition": pa.array([0, 1], pa.int32()), "text": ["a", "b"]})
    write_deltalake(disk.uri("topics/alien"), rows, partition_by=partition_by)
    for _ in range(2):
        with pytest.raises(ConfigError, match="another program, and only topics may lie there"):
            TopicTable.open(disk, "alien", CLOCK)
        DeltaTable(disk.uri("topics/alien")).create_checkpoint()


def test_files_without_statistics_of_offsets_are_named_until_the_table_is_restored(disk: LocalStore) -> None:
    table = claimed(disk)
    append(disk, table, {0: 3})
    before = table.snapshot
    (file,) = before.files.values()
    handle = DeltaTable(disk.uri("topics/t"))
    there = disk.path(f"topics/t/{file.path}")
    other = f"{names.partition_folder(0)}/other.parquet"
    disk.path(f"topics/t/{other}").write_bytes(there.read_bytes())
    add = {"path": other, "partitionValues": {"partition": "0"}, "size": file.size_bytes, "modificationTime": 1}
    actions = [
        {"commitInfo": {"operation": "OPTIMIZE"}},
        {"remove": {"path": file.path, "dataChange": False, "deletionTimestamp": CLOCK.now_us() // 1000}},
        {"add": {**add, "dataChange": False, "stats": '{"numRecords": 3}'}},
    ]
    version = before.version + 1
    disk.put(entry_path("t", version), "\n".join(map(json.dumps, actions)).encode())
    wrong = rf"the file {other} of another program since version {version}, without statistics of the column `offset`"
    for _ in range(2):
        with pytest.raises(CorruptData, match=wrong):
            reopened(disk, table)
        with pytest.raises(CorruptData, match=wrong):
            table.refresh()
        if version == before.version + 1:
            DeltaTable(disk.uri("topics/t")).create_checkpoint()
    handle.update_incremental()
    handle.restore(before.version)
    assert reopened(disk, table).snapshot.files.keys() == before.files.keys()
    assert table.refresh().files.keys() == before.files.keys()
    append(disk, table, {0: 1})


def test_an_id_that_another_program_has_set_is_named(disk: LocalStore) -> None:
    table = claimed(disk)
    handle = DeltaTable(disk.uri("topics/t"))
    handle.alter.set_table_properties({delta_names.PROPERTY_TOPIC_ID: "mine"}, raise_if_not_exists=False)
    with pytest.raises(ConfigError, match=r"the table of topic t at file:.* 'mine', which is no topic's id"):
        TopicTable.open(disk, "t", CLOCK)
    handle.restore(table.snapshot.version)
    assert TopicTable.open(disk, "t", CLOCK).topic_id == table.topic_id


def test_a_topic_that_another_program_replaced_is_told_how_to_come_back(disk: LocalStore) -> None:
    table = claimed(disk)
    append(disk, table, {0: 3})
    uri = disk.uri("topics/t")
    delta = DeltaTable.create(uri, DeltaTable(uri).schema(), mode="overwrite", partition_by=["partition"])
    with pytest.raises(ConfigError, match="restore the table to the version before"):
        TopicTable.open(disk, "t", CLOCK)
    delta.restore(table.snapshot.version)
    assert TopicTable.open(disk, "t", CLOCK).snapshot.offsets == table.snapshot.offsets


def test_a_thousand_partitions(disk: LocalStore) -> None:
    table = claimed(disk, partitions=1_000)
    table.release(dict.fromkeys(range(1_000), 1), new_id())
    other = reopened(disk, table)
    assert other.snapshot.epochs[999] == other.snapshot.released[999] == 1


def test_a_failed_fsync_is_not_forgotten(disk: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:

    table = claimed(disk)
    real = os.fsync
    version = table.snapshot.version

    def failing(descriptor: int) -> None:
        if str(Path(f"/proc/self/fd/{descriptor}").readlink()).endswith(f"{version + 1:020d}.json"):
            monkeypatch.setattr(os, "fsync", real)
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OutcomeUnknown):
        append(disk, table, {0: 1})
    with pytest.raises(Unavailable, match="failed to be synced before"):
        append(disk, table, {0: 1})
