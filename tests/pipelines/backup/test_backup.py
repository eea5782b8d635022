"""Backup and restore of real tables, on a disk and on S3."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from placed_records import placed
from record_tables import CLOCK, new_id
from s3_server import S3Server
from topic_writer import TopicWriter

from siltlog.infra import names
from siltlog.infra.clock import parse_us
from siltlog.infra.columns import FILE_SCHEMA, TABLE_SCHEMA
from siltlog.infra.errors import ConfigError, CorruptData, Refused, TopicExists, UnknownTopic
from siltlog.infra.records import StoredOffset
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.local import PENDING_PREFIX, LocalStore
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import read_data_file, write_data_file
from siltlog.infra.table.entries import JOB_MS_MAX
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines import backup_names
from siltlog.pipelines.audit.audit import audit_topics
from siltlog.pipelines.backup import backup as backup_module
from siltlog.pipelines.backup.backup import BackupReport, backup_topics
from siltlog.pipelines.backup.format import manifests
from siltlog.pipelines.backup.pruning import prune
from siltlog.pipelines.backup.restore import RestoreReport, find_backup, restore_topics

PARTITIONS = 2


@dataclass
class World:
    """A root, a place for backups, and roots to restore to."""

    base: str
    endpoint: str
    data_dir: Path

    def settings(self, name: str) -> ServerSettings:
        return ServerSettings(data_dir=self.data_dir, root=f"{self.base}/{name}", s3_endpoint=self.endpoint)

    def store(self, name: str) -> ObjectStore:
        return open_store(f"{self.base}/{name}", s3_endpoint=self.endpoint)

    @property
    def place(self) -> str:
        return f"{self.base}/backups"

    def backup(self, *topics: str, **options: Any) -> BackupReport:
        return backup_topics(self.settings("lake"), self.place, topics, **options)

    def restore(self, name: str, *topics: str, at_us: int | None = None, **options: Any) -> RestoreReport:
        manifest = find_backup(self.settings(name), self.place, at_us)
        return restore_topics(self.settings(name), self.place, manifest, topics, **options)


@pytest.fixture
def local(tmp_path: Path) -> World:
    return World((tmp_path / "a place [1]").as_uri(), "", tmp_path)


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def world(request: pytest.FixtureRequest, tmp_path: Path, local: World) -> World:
    if request.param == "local":
        return local
    server: S3Server = request.getfixturevalue("s3_server")
    return World(server.root_uri(f"backup/{tmp_path.name}"), server.endpoint, tmp_path)


def filled(store: ObjectStore, topic: str = "t", files: int = 3, **config: Any) -> TopicWriter:
    writer = TopicWriter(store, topic, PARTITIONS, **config)
    for _ in range(files):
        more(writer)
    return writer


def more(writer: TopicWriter) -> None:
    """Ten records for each partition."""
    offsets = writer.table.refresh().offsets
    writer.append_tables({p: placed(offsets[p], 10, p, PARTITIONS) for p in range(PARTITIONS)})


def rows_of(store: ObjectStore, topic: str = "t") -> list[Any]:
    snapshot = TopicTable.open(store, topic, CLOCK).snapshot
    tables = [
        read_data_file(store, topic, file, columns=TABLE_SCHEMA.names)
        for partition in range(snapshot.partitions)
        for file in snapshot.files_of(partition)
    ]
    rows: list[Any] = pa.concat_tables(tables).to_pylist() if tables else []
    return rows


def commit_offsets(
    store: ObjectStore, entries: dict[str, int | None], writer: TopicWriter | None = None
) -> TopicWriter:
    """`{group}/{topic id}/{partition}` -> offset, or None for a tombstone."""
    writer = writer or TopicWriter(store, names.OFFSETS_TOPIC, 1, cleanup_policy="compact")
    first = writer.table.refresh().offsets[0]
    values = [
        None if offset is None else StoredOffset("t", offset, 5, "note", 1, 2).encode() for offset in entries.values()
    ]
    count = len(entries)
    columns = {
        "offset": pa.array(range(first, first + count), pa.int64()),
        "timestamp": pa.array([CLOCK.now_us()] * count, FILE_SCHEMA.field("timestamp").type),
        "key": pa.array([key.encode() for key in entries], pa.binary()),
        "value": pa.array(values, pa.binary()),
    }
    table = pa.table([columns.get(f.name, pa.nulls(count, f.type)) for f in FILE_SCHEMA], schema=FILE_SCHEMA)
    writer.append_tables({0: table})
    return writer


def newest_offsets(store: ObjectStore) -> dict[str, StoredOffset | None]:
    return {
        row["key"].decode(): None if row["value"] is None else StoredOffset.decode(row["value"])
        for row in rows_of(store, names.OFFSETS_TOPIC)
    }


@pytest.mark.rule("N5", "N7")
def test_what_was_backed_up_comes_back_as_it_was(world: World) -> None:
    store = world.store("lake")
    writer = filled(store, max_record_bytes=77_777)
    snapshot = writer.table.refresh()
    move = start_move(snapshot, 1, 12)
    move_starts(writer.table, snapshot.version, {1: move}, new_id(), now_ms=CLOCK.now_us() // 1000)
    filled(store, "empty", files=0)
    snapshot = writer.table.refresh()
    state = f"{names.topic_path('t')}/{names.state_folder(snapshot.topic_id)}"
    for path in ("0/00000000000000000020", "0/00000000000000000030", "0/00000000000000000099", "claims/7"):
        store.put(f"{state}/{path}", path.encode())
    done = world.backup()
    assert [(one.topic, one.files, one.rows, one.copied_files, one.error) for one in done.topics] == [
        ("empty", 0, 0, 0, None),
        ("t", 5, 50, 5, None),
    ]
    more(writer)
    restored = world.restore("new")
    assert [(one.topic, one.error, one.audit and one.audit.clean) for one in restored.topics] == [
        ("empty", None, True),
        ("t", None, True),
    ]
    there = world.store("new")
    found = TopicTable.open(there, "t", CLOCK).snapshot
    assert found.version == 0 and found.topic_id == snapshot.topic_id
    assert dict(found.properties) == dict(snapshot.properties) and found.config.integer("max.record.bytes") == 77_777
    assert (found.offsets, found.starts, found.epochs) == (snapshot.offsets, snapshot.starts, snapshot.epochs)
    assert found.released == found.epochs, "anybody may claim it"
    assert found.files == snapshot.files
    assert rows_of(there) == [row for row in rows_of(store) if row["offset"] < 30]
    kept = [info.path.removeprefix(f"{state}/") for info in there.list(state)]
    assert kept == ["0/00000000000000000020", "0/00000000000000000030", "claims/7"], "99 is of another table"


def test_only_what_is_new_is_copied_and_each_backup_can_be_restored(local: World) -> None:
    writer = filled(local.store("lake"))
    first = local.backup()
    more(writer)
    said = local.backup(dry_run=True)
    second = local.backup()
    assert [(one.topics[0].files, one.topics[0].copied_files) for one in (first, said, second)] == [
        (6, 6),
        (8, 2),
        (8, 2),
    ]
    assert said.backup_id is None and said.topics[0].copied_bytes == second.topics[0].copied_bytes > 0
    assert local.backup().topics[0].copied_files == 0
    at_us = find_backup(local.settings("lake"), local.place, None).taken_us
    ids = [find_backup(local.settings("lake"), local.place, at).backup_id for at in (at_us, at_us - 1)]
    assert first.backup_id not in ids and ids[1] == second.backup_id
    first_us = parse_us(first.taken_at)
    assert local.restore("then", at_us=first_us).backup_id == first.backup_id
    assert len(rows_of(local.store("then"))) == 60
    local.restore("now")
    assert rows_of(local.store("now")) == rows_of(local.store("lake"))
    with pytest.raises(Refused, match="was taken at"):
        local.restore("earlier", at_us=first_us - 1)


@pytest.mark.slow
def test_of_old_backups_only_what_newer_ones_need_stays(world: World) -> None:
    store = world.store("lake")
    writer = filled(store)
    place = world.store("backups")
    world.backup()
    old = writer.table.refresh().files_of(0)[0]
    move_starts(
        writer.table,
        writer.table.snapshot.version,
        {0: start_move(writer.table.snapshot, 0, 10)},
        new_id(),
        now_ms=CLOCK.now_us() // 1000,
    )
    world.backup()
    more(writer)
    would = world.backup(keep=2, dry_run=True)
    third = world.backup(keep=2)
    assert would.pruned == third.pruned and would.backup_id is None
    assert third.pruned is not None and (third.pruned.backups, third.pruned.files) == (1, 1)
    left = [info.path for info in place.list("files")]
    assert backup_names.data_file(writer.table.topic_id, old.path) not in left and len(left) == 7
    assert len(manifests(place)) == 2
    cut_short = "20260101T000000Z-00000000"
    place.put(backup_names.begun(cut_short), b"")
    place.put(backup_names.table(cut_short, "t"), b"{}")
    fourth = world.backup(keep=1)
    assert "is under way" in str(fourth.not_pruned) and len(manifests(place)) == 3
    pruned = prune(place, 1, now_ms=CLOCK.now_us() // 1000 + JOB_MS_MAX + 60_000)
    assert (pruned.backups, pruned.files) == (2, 0)
    [only] = manifests(place)
    assert {info.path.split("/")[1] for info in place.list(backup_names.BACKUPS_FOLDER)} == {only.backup_id}
    [restored] = world.restore("new").topics
    assert restored.audit is not None and restored.audit.clean
    assert rows_of(world.store("new")) == rows_of(store)


@pytest.mark.rule("J5")
def test_what_killed_backups_left_goes_with_a_later_one(local: World) -> None:
    filled(local.store("lake"))
    place = local.store("backups")
    assert isinstance(place, LocalStore)
    begun = [backup_names.begun(f"20260101T00000{number}Z-00000000") for number in range(2)]
    half = [f"{backup_names.FILES_FOLDER}/id/{PENDING_PREFIX}{number}" for number in range(2)]
    for number in range(2):
        place.put(begun[number], b"")
        place.put(f"{backup_names.FILES_FOLDER}/id/whole", b"x")
        place.path(half[number]).write_bytes(b"half")
    long_ago = CLOCK.now_us() / 1e6 - JOB_MS_MAX / 1000 - 60
    for path in (begun[0], half[0]):
        os.utime(place.path(path), (long_ago, long_ago))
    first = local.backup()
    assert {info.path.split("/")[1] for info in place.list(backup_names.BACKUPS_FOLDER)} == {
        first.backup_id,
        begun[1].split("/")[1],
    }
    assert [info.path for info in place.unfinished("")] == [half[1]], "another backup may be at it"
    assert place.size(f"{backup_names.FILES_FOLDER}/id/whole") == 1, "a later backup would have to copy it again"


def test_a_backup_that_lacks_a_topic_removes_none(local: World) -> None:
    bad = filled(local.store("lake"), "bad")
    filled(local.store("lake"), "good")
    local.backup()
    with pytest.raises(Refused, match="takes the place of none"):
        local.backup("good", keep=1)
    local.store("lake").put(f"{names.topic_path('bad')}/_delta_log/{bad.table.refresh().version:020d}.json", b"{")
    assert local.backup(keep=1).pruned is None
    assert len(manifests(local.store("backups"))) == 2


def test_a_dry_run_writes_nothing(local: World) -> None:
    filled(local.store("lake"))
    said = local.backup(dry_run=True)
    assert said.topics[0].copied_files == 6 and not Path(local.data_dir / "a place [1]" / "backups").exists()
    local.backup()
    before = local.store("backups").list("")
    would = local.restore("new", dry_run=True)
    assert [(one.topic, one.files, one.audit is not None) for one in would.topics] == [("t", 6, True)]
    assert not Path(local.data_dir / "a place [1]" / "new").exists() and local.store("backups").list("") == before


@pytest.mark.rule("N10")
def test_nothing_that_is_there_is_overwritten(local: World) -> None:
    filled(local.store("lake"), "a")
    filled(local.store("lake"), "b")
    local.backup()
    other = filled(local.store("other"), "b", files=1)
    before = local.store("other").list("")
    with pytest.raises(TopicExists, match=r"\bb\b.*nothing of it is overwritten"):
        local.restore("other")
    assert local.store("other").list("") == before
    assert [one.topic for one in local.restore("other", "a").topics] == ["a"]
    other.table.delete(new_id())
    with pytest.raises(TopicExists):
        local.restore("other", "b")
    with pytest.raises(UnknownTopic, match="it has: a, b"):
        local.restore("other", "absent")
    with pytest.raises(TopicExists):
        local.restore("lake")


@pytest.mark.rule("N6")
def test_again_it_is_done_already_also_when_it_went_on_since(local: World) -> None:
    filled(local.store("lake"))
    local.backup()
    local.restore("new")
    table = TopicTable.open(local.store("new"), "t", CLOCK)
    table.claim({0: 99, 1: 99}, new_id())
    again = local.restore("new")
    assert [(one.topic, one.already, one.error) for one in again.topics] == [("t", True, None)]
    assert table.refresh().version == 1
    local.backup()
    with pytest.raises(TopicExists):
        local.restore("new")


@pytest.mark.rule("N9")
def test_groups_go_on_where_they_were_and_not_behind_the_end(world: World) -> None:
    store = world.store("lake")
    topic_id = filled(store).table.topic_id
    offsets = commit_offsets(
        store, {f"g/{topic_id}/0": 12, f"g/{topic_id}/1": 44, f"h/{topic_id}/0": 50, "g/gone/0": 999}
    )
    commit_offsets(store, {f"g/{topic_id}/0": 20, f"h/{topic_id}/0": None, f"i/{topic_id}/0": 31}, offsets)
    world.backup("t")
    done = world.restore("new", "t")
    assert [(one.topic, one.cut_offsets, one.error) for one in done.topics] == [("t", 0, None), ("_offsets", 2, None)]
    assert all(one.audit and one.audit.clean for one in done.topics)
    found = newest_offsets(world.store("new"))
    assert found[f"g/{topic_id}/0"] == StoredOffset("t", 20, 5, "note", 1, 2)
    assert found[f"g/{topic_id}/1"] == StoredOffset("t", 30, 6, "note", 1, 2)
    assert found[f"i/{topic_id}/0"] == StoredOffset("t", 30, 6, "note", 1, 2)
    assert found[f"h/{topic_id}/0"] is None
    assert TopicTable.open(world.store("new"), names.OFFSETS_TOPIC, CLOCK).snapshot.offsets == {0: 9}


def test_groups_of_a_root_that_has_some_are_left_alone(local: World) -> None:
    store = local.store("lake")
    filled(store)
    commit_offsets(store, {"g/x/0": 1})
    local.backup()
    commit_offsets(local.store("new"), {"own/x/0": 1})
    with pytest.raises(TopicExists, match="_offsets"):
        local.restore("new")
    done = local.restore("new", "t")
    assert done.groups_left_out and [one.topic for one in done.topics] == ["t"]
    assert list(newest_offsets(local.store("new"))) == ["own/x/0"]


def test_one_bad_topic_does_not_stop_the_others(local: World) -> None:
    store = local.store("lake")
    bad, good = filled(store, "bad"), filled(store, "good")
    commit_offsets(store, {f"g/{good.table.topic_id}/0": 1})
    store.delete(f"{names.topic_path('bad')}/{next(iter(bad.table.snapshot.files))}")
    TopicWriter(store, "gone").table.delete(new_id())
    done = {one.topic: one for one in local.backup().topics}
    assert list(done) == ["_offsets", "bad", "good"]
    assert isinstance(done["bad"].error, CorruptData) and done["good"].error is None
    assert find_backup(local.settings("lake"), local.place).failed == ["bad"]
    assert [one.topic for one in local.restore("new").topics] == ["good", "_offsets"]
    with pytest.raises(UnknownTopic):
        local.restore("other", "bad")


@pytest.mark.rule("N8")
def test_a_damaged_backup_is_named_and_groups_wait_for_all_topics(local: World) -> None:
    store = local.store("lake")
    filled(store, "a")
    filled(store, "b")
    commit_offsets(store, {"g/x/0": 1})
    done = local.backup()
    assert done.backup_id is not None
    place = local.store("backups")
    document = backup_names.table(done.backup_id, "a")
    whole = place.get(document)
    place.put(document, whole.replace(b'"rows":10', b'"rows":11', 1))
    found = {one.topic: one for one in local.restore("new").topics}
    assert isinstance(found["a"].error, CorruptData) and "checksum" in str(found["a"].error)
    assert found["b"].error is None and "wait until" in str(found["_offsets"].error)
    place.put(document, whole)
    again = {one.topic: one for one in local.restore("new").topics}
    assert all(one.error is None for one in again.values()) and again["b"].already and not again["a"].already


@pytest.mark.rule("N4")
@pytest.mark.parametrize("change", ["gone", "cut"])
def test_a_file_that_a_backup_lacks_is_named(local: World, change: str) -> None:
    writer = filled(local.store("lake"), "a")
    filled(local.store("lake"), "b")
    state = f"{names.topic_path('a')}/{names.state_folder(writer.table.topic_id)}/0/{5:020d}"
    local.store("lake").put(state, b"producers")
    local.backup()
    place = local.store("backups")
    files = [info.path for info in place.list("") if writer.table.topic_id in info.path][:3]
    for index, path in enumerate(files):
        content = place.get(path)
        if change == "gone":
            place.delete(path)
        elif path.endswith(".parquet"):
            place.put(path, content[:-1])
        else:
            continue
        for number, dry_run in enumerate((True, False)):
            found = {one.topic: one for one in local.restore(f"new{index}{number}", dry_run=dry_run).topics}
            assert isinstance(found["a"].error, CorruptData), path
            assert found["b"].error is None
        place.put(path, content)
    assert local.restore("new", dry_run=True).topics[0].error is None
    more(writer)
    filled(local.store("lake"), "c")
    damaged = next(path for path in files if path.endswith(".parquet"))
    place.put(damaged, place.get(damaged)[:-1])
    assert local.backup().topics[0].copied_files == 3, "what is cut short is copied again"
    assert all(one.error is None for one in local.restore("new").topics)


@pytest.mark.s3
def test_from_a_disk_to_s3_and_back(local: World, s3_server: S3Server, tmp_path: Path) -> None:
    writer = filled(local.store("lake"))
    place = s3_server.root_uri(f"place/{tmp_path.name}")
    lake, back = (
        ServerSettings(data_dir=tmp_path, root=f"{local.base}/{name}", s3_endpoint=s3_server.endpoint)
        for name in ("lake", "back")
    )
    backup_topics(lake, place)
    more(writer)
    assert backup_topics(lake, place).topics[0].copied_files == 2
    [report] = restore_topics(back, place, find_backup(back, place)).topics
    assert report.audit is not None and report.audit.clean
    assert rows_of(local.store("back")) == rows_of(local.store("lake"))


def test_a_flipped_bit_in_a_backup_is_found_by_the_audit(local: World) -> None:
    filled(local.store("lake"))
    local.backup()
    place = local.store("backups")
    file = next(info for info in place.list("files") if info.path.endswith(".parquet"))
    content = bytearray(place.get(file.path))
    content[-100] ^= 1
    place.put(file.path, bytes(content))
    [report] = local.restore("new").topics
    assert report.error is None and report.audit is not None
    assert [one.kind for one in report.audit.findings] == ["damaged_file"]


def test_a_dry_run_finds_a_flipped_bit(world: World) -> None:
    lake = world.store("lake")
    writer = filled(lake)
    state = f"{names.state_folder(writer.table.topic_id)}/0/{20:020d}"
    lake.put(f"{names.topic_path('t')}/{state}", b"what producers did")
    world.backup()
    kept = open_store(world.place, s3_endpoint=world.endpoint)
    [whole] = world.restore("back", dry_run=True).topics
    assert whole.error is None and whole.audit is not None and whole.audit.clean and whole.audit.rows == 60
    for info in [*kept.list("files")[:1], *(one for one in kept.list("backups") if "/state/" in one.path)]:
        content = kept.get(info.path)
        kept.put(info.path, bytes([*content[:-9], content[-9] ^ 1, *content[-8:]]))
        [report] = world.restore("back", dry_run=True).topics
        if report.error is None:
            assert report.audit is not None and [one.kind for one in report.audit.findings] == ["damaged_file"]
        else:
            assert "/state/" in info.path and "fails its checksum" in report.error.detail
            [restored] = world.restore("back").topics
            assert isinstance(restored.error, CorruptData)
        kept.put(info.path, content)
    assert world.restore("back").topics[0].error is None


@pytest.mark.rule("N3")
def test_a_damaged_file_is_not_backed_up(world: World) -> None:
    """Another topic is, and so is the damaged one once its file is whole again."""
    lake = world.store("lake")
    filled(lake, "u")
    [file, *_] = filled(lake).table.snapshot.files_of(1)
    path = f"{names.topic_path('t')}/{file.path}"
    content = lake.get(path)
    lake.put(path, bytes([*content[:24], content[24] ^ 1, *content[25:]]))
    reports = {report.topic: report for report in world.backup().topics}
    assert reports["u"].error is None and isinstance(reports["t"].error, CorruptData)
    assert file.path.rpartition("/")[2] in str(reports["t"].error) and "fails its checksum" in str(reports["t"].error)
    kept = open_store(world.place, s3_endpoint=world.endpoint)
    assert not [info for info in kept.list("files") if info.path.endswith(file.path)]
    lake.put(path, content)
    assert all(report.error is None for report in world.backup().topics)
    assert all(report.audit is not None and report.audit.clean for report in world.restore("back").topics)


def test_places_that_are_none(local: World) -> None:
    filled(local.store("lake"))
    with pytest.raises(ConfigError, match="there is no backup at"):
        local.restore("new")
    local.store("backups")
    with pytest.raises(Refused, match="no finished backup"):
        local.restore("new")
    with pytest.raises(Refused, match="is in the root"):
        backup_topics(local.settings("lake"), f"{local.base}/lake/backups")
    with pytest.raises(UnknownTopic):
        local.backup("absent")


@pytest.mark.rule("N1")
def test_tables_are_looked_at_before_any_file_is_copied_and_groups_first(
    local: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other topic's name sorts before that of the groups' offsets."""
    store = local.store("lake")
    filled(store, "A")
    commit_offsets(store, {"g/x/0": 1})
    place = local.store("backups")
    load, looked = backup_module.load, []

    def noted(looked_in: ObjectStore, topic: str) -> Any:
        looked.append((topic, len(place.list(backup_names.FILES_FOLDER))))
        return load(looked_in, topic)

    monkeypatch.setattr(backup_module, "load", noted)
    assert local.backup().backup_id is not None
    assert looked == [(names.OFFSETS_TOPIC, 0), ("A", 0)]
    assert len(place.list(backup_names.FILES_FOLDER)) == 7


@pytest.mark.rule("N2")
def test_state_that_is_replaced_meanwhile(local: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server writes newer objects and retention removes the rows between, just before the table is looked at."""
    store = local.store("lake")
    writer = filled(store)
    folder = f"{names.topic_path('t')}/{names.state_folder(writer.table.topic_id)}/0"
    store.put(f"{folder}/{5:020d}", b"old")
    load, loads = backup_module.load, []

    def late(*arguments: Any) -> Any:
        if not loads:
            store.put(f"{folder}/{25:020d}", b"new")
            store.delete(f"{folder}/{5:020d}")
            snapshot = writer.table.refresh()
            moves = {0: start_move(snapshot, 0, 20)}
            move_starts(writer.table, snapshot.version, moves, new_id(), now_ms=CLOCK.now_us() // 1000)
        loads.append(arguments)
        return load(*arguments)

    monkeypatch.setattr(backup_module, "load", late)
    local.backup()
    assert len(loads) == 2
    local.restore("new")
    there = local.store("new")
    assert [info.path.rpartition("/")[2] for info in there.list(folder)] == [f"{25:020d}"]


KILLED = """
import sys
from siltlog.infra.store.local import LocalStore
from siltlog.infra.settings.settings import ServerSettings
from siltlog.pipelines.backup.backup import backup_topics
from siltlog.pipelines.backup.restore import find_backup, restore_topics
import os, pathlib
step, count, base, data_dir = sys.argv[1], int(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4])
left = [count]
def dying(method):
    def call(self, *arguments, **options):
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)
        return method(self, *arguments, **options)
    return call
for name in ("put", "put_from", "put_if_absent", "sync"):
    setattr(LocalStore, name, dying(getattr(LocalStore, name)))
lake, new = (ServerSettings(data_dir=data_dir, root=f"{base}/{name}") for name in ("lake", "new"))
if step == "backup":
    backup_topics(lake, f"{base}/backups")
else:
    restore_topics(new, f"{base}/backups", find_backup(new, f"{base}/backups"))
"""


@pytest.mark.rule("N4", "N5", "N6")
@pytest.mark.slow
@pytest.mark.parametrize("step", ["backup", "restore"])
def test_killed_anywhere_and_run_again_it_comes_to_the_same(local: World, step: str) -> None:
    store = local.store("lake")
    topic_id = filled(store).table.topic_id
    filled(store, "u", files=1)
    commit_offsets(store, {f"g/{topic_id}/0": 44})
    if step == "restore":
        local.backup()
    died = 0
    for count in range(2, 200, 14 if step == "backup" else 8):
        command = [sys.executable, "-c", KILLED, step, str(count), local.base, str(local.data_dir)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        if ran.returncode == 0:
            break
        assert ran.returncode == 9, ran.stderr
        died += 1
    assert died > 1 and ran.returncode == 0
    if step == "backup":
        assert len(list(local.store("backups").folders(backup_names.BACKUPS_FOLDER))) > 1
        local.restore("new")
    for topic in ("t", "u"):
        assert rows_of(local.store("new"), topic) == rows_of(store, topic)
    found = newest_offsets(local.store("new"))[f"g/{topic_id}/0"]
    assert found is not None and found.offset == 30
    assert all(report.clean for report in audit_topics(local.settings("new")))


def erased(writer: TopicWriter, partition: int = 1) -> None:
    """Does to a file what `silt erase` does: another takes its place, and it is deleted at once."""
    table = writer.table
    [file, *_] = table.refresh().files_of(partition)
    records = read_data_file(writer.store, writer.topic, file, columns=FILE_SCHEMA.names)
    put = write_data_file(writer.store, writer.topic, partition, records, compression="zstd", now_ms=0)
    table.rewrite(table.snapshot.version, [file], [put], new_id())
    writer.store.delete(f"{names.topic_path(writer.topic)}/{file.path}")


@pytest.mark.rule("ER6")
def test_what_was_erased_meanwhile_is_not_missed(local: World, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = filled(local.store("lake"))
    copy_all, left = backup_module.copy_all, [1]

    def copied(*arguments: Any) -> None:
        if left:
            erased(writer, left.pop())
        copy_all(*arguments)

    monkeypatch.setattr(backup_module, "copy_all", copied)
    [report] = local.backup().topics
    assert (report.error, left) == (None, [])
    assert report.version == writer.table.refresh().version
    [restored] = local.restore("new").topics
    assert restored.audit is not None and restored.audit.clean


def test_what_is_missing_is_not_taken_for_erased(local: World) -> None:
    writer = filled(local.store("lake"))
    [file, *_] = writer.table.refresh().files_of(1)
    writer.store.delete(f"{names.topic_path(writer.topic)}/{file.path}")
    [report] = local.backup().topics
    assert isinstance(report.error, CorruptData)
