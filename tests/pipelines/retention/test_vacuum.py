import os
from collections.abc import Callable
from pathlib import Path

import pytest
from record_tables import CLOCK, append, claimed, new_id, records, written
from s3_server import S3Server

from siltlog.infra import names
from siltlog.infra.errors import CorruptData, Refused, UnknownTopic
from siltlog.infra.settings.topic_config import REMOVED_FILES_MS_MIN, TopicConfig
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import DataFile, read_data_file, write_data_file
from siltlog.infra.table.entries import HOUR_MS, JOB_MS_MAX, OUTAGE_MS_MAX, log_folder
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.retention.vacuum import PERIOD_MS_MAX, PERIOD_MS_MIN, vacuum

TOPIC = "t"
TOPIC_PATH = names.topic_path(TOPIC)
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


def now_ms() -> int:
    return CLOCK.now_us() // 1000


def vacuumed(store: ObjectStore, *, later_ms: int = 2 * DAY_MS, dry_run: bool = False) -> set[str]:
    """Paths, relative to the topic's, that a vacuum so much later removes."""
    removed = vacuum(store, TOPIC, retention_ms=DAY_MS, now_ms=now_ms() + later_ms, dry_run=dry_run, clock=CLOCK)
    return {info.path.removeprefix(f"{TOPIC_PATH}/") for info in removed}


def everything(store: ObjectStore) -> set[str]:
    return {info.path.removeprefix(f"{TOPIC_PATH}/") for info in store.list(TOPIC_PATH)}


def rewritten(store: ObjectStore, table: TopicTable, removes: list[DataFile]) -> DataFile:
    """What a file compaction does, with the file that it makes."""
    first, end = removes[0].first_offset, removes[-1].last_offset + 1
    merged = write_data_file(store, TOPIC, 0, records(first, end - first), compression="zstd", now_ms=now_ms())
    table.rewrite(table.snapshot.version, removes, [merged], new_id())
    return merged


def aged(store: ObjectStore, path: str, age_ms: int) -> None:
    modified_s = (now_ms() - age_ms) / 1000
    os.utime(store.path(path), (modified_s, modified_s))  # type: ignore[attr-defined]


def test_only_what_the_log_no_longer_names_goes(store: ObjectStore) -> None:
    table = claimed(store, TOPIC)
    small = [append(store, table, {0: 5, 1: 5})[0] for _ in range(3)]
    merged = rewritten(store, table, small)
    before = everything(store)
    assert vacuumed(store, dry_run=True) == {file.path for file in small}
    assert everything(store) == before
    assert vacuumed(store) == {file.path for file in small}
    assert everything(store) == before - {file.path for file in small}
    assert vacuumed(store) == set()
    reader = TopicTable.open(store, TOPIC, CLOCK)
    assert read_data_file(store, TOPIC, reader.snapshot.files[merged.path], columns=["offset"]).num_rows == 15


def test_what_was_removed_within_the_period_stays_for_readers(store: ObjectStore) -> None:
    table = claimed(store, TOPIC)
    small = [append(store, table, {0: 5})[0] for _ in range(3)]
    for file in small:
        aged(store, f"{TOPIC_PATH}/{file.path}", 10 * DAY_MS)
    old = table.snapshot
    rewritten(store, table, small)
    assert vacuumed(store, later_ms=DAY_MS - HOUR_MS) == set()
    for file in old.files.values():
        assert read_data_file(store, TOPIC, file, columns=["offset"]).num_rows == 5
    assert vacuumed(store, later_ms=DAY_MS + HOUR_MS) == {file.path for file in small}


def test_a_checkpoint_and_a_cleaned_log_change_nothing(store: ObjectStore) -> None:
    table = claimed(store, TOPIC)
    small = [append(store, table, {0: 5})[0] for _ in range(25)]
    for file in small:
        aged(store, f"{TOPIC_PATH}/{file.path}", 10 * DAY_MS)
    rewritten(store, table, small)
    table.maintain()
    assert vacuumed(store, later_ms=0) == set()
    assert vacuumed(store) == {file.path for file in small}


def test_the_log_of_a_topic_that_is_idle_is_cut(store: ObjectStore) -> None:
    table = claimed(store, TOPIC)
    for _ in range(30):
        append(store, table, {0: 5})
        table.maintain()
    table.delete(new_id())
    for info in store.list(log_folder(TOPIC)):
        aged(store, info.path, 2 * DAY_MS)
    entries = {info.path for info in store.list(log_folder(TOPIC)) if info.path.endswith(".json")}
    assert len(entries) == table.snapshot.version + 1
    vacuumed(store, later_ms=0, dry_run=True)
    assert {info.path for info in store.list(log_folder(TOPIC)) if info.path.endswith(".json")} == entries
    vacuumed(store, later_ms=0)
    kept = {info.path for info in store.list(log_folder(TOPIC)) if info.path.endswith(".json")}
    assert 0 < len(kept) < 20 and kept < entries
    assert TopicTable.open(store, TOPIC, CLOCK).snapshot == table.snapshot


def test_orphans_go_by_their_age(store: ObjectStore) -> None:
    claimed(store, TOPIC)
    orphan = written(store, TOPIC, 0, 0, 5)
    run = names.rewrite_folder("run")
    leftovers = [
        f"{run}/partition=0/part-0.parquet",
        f"{run}/partition=0/.part-0.parquet.crc",
        f"{run}/_temporary/0/task/partition=1/part-1.parquet",
    ]
    for path in leftovers:
        store.put(f"{TOPIC_PATH}/{path}", b"x")
    assert vacuumed(store, later_ms=PERIOD_MS_MIN) == set()
    assert vacuumed(store) == {orphan.path, *leftovers}
    assert run not in store.folders(TOPIC_PATH), "the empty folders of a run go as well"


def test_empty_folders_of_a_run_that_was_killed_before_it_wrote_go(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    table = claimed(store, TOPIC)
    live = append(store, table, {0: 5})[0]
    run = tmp_path / TOPIC_PATH / names.rewrite_folder("run")
    (run / "_temporary" / "0").mkdir(parents=True)
    (run / "partition=0").mkdir()
    assert vacuumed(store, later_ms=DAY_MS - HOUR_MS) == set()
    assert (run / "_temporary" / "0").exists(), "a job may be about to write into it"
    assert vacuumed(store) == set()
    assert not run.exists()
    assert store.size(f"{TOPIC_PATH}/{live.path}") == live.size_bytes


def test_a_file_that_is_about_to_be_committed_can_be_committed_after_a_vacuum(store: ObjectStore) -> None:
    table = claimed(store, TOPIC)
    pending = written(store, TOPIC, 0, 0, 5)
    aged(store, f"{TOPIC_PATH}/{pending.path}", JOB_MS_MAX + OUTAGE_MS_MAX)
    assert vacuumed(store, later_ms=0) == set()
    table.append([pending], {0: (0, 5)}, {0: 1}, new_id())
    assert vacuumed(store) == set()


def test_log_and_state_are_never_touched(store: ObjectStore) -> None:
    table = claimed(store, TOPIC)
    state = names.state_object(table.topic_id, 0, 5)
    store.put(f"{TOPIC_PATH}/{state}", b"state")
    store.put(f"{TOPIC_PATH}/{names.SET_ASIDE_FOLDER}/entry", b"half")
    before = everything(store)
    assert vacuumed(store, later_ms=100 * DAY_MS) == set()
    assert everything(store) == before


def test_superseded_producer_state_goes(store: ObjectStore) -> None:
    table = claimed(store, TOPIC)
    append(store, table, {0: 20, 1: 5})

    def put(*paths: str) -> list[str]:
        for path in paths:
            store.put(f"{TOPIC_PATH}/{path}", b"state")
        return list(paths)

    ours = table.topic_id
    kept = put(
        *(names.state_object(ours, 0, offset) for offset in (10, 20, 30, 40)),
        names.state_object(ours, 1, 3),
        names.claims_object(ours, 9),
        f"{names.STATE_FOLDER}/{ours}/0/something else",
    )
    old = put(
        *(names.state_object(ours, 0, offset) for offset in (2, 9)),
        names.claims_object(ours, 8),
        names.state_object("former", 0, 50),
        names.claims_object("former", 3),
    )
    assert vacuumed(store, later_ms=HOUR_MS) == set()
    assert vacuumed(store) == set(old)
    assert everything(store) >= set(kept)
    assert store.folders(f"{TOPIC_PATH}/{names.STATE_FOLDER}") == [ours]
    table.delete(new_id())
    assert vacuumed(store) >= {*kept[:-1]}


@pytest.mark.rule("J5")
def test_what_killed_processes_were_writing_goes(store: ObjectStore) -> None:
    claimed(store, TOPIC)
    paths = [
        "partition=0/.pending-1f",
        "_delta_log/00000000000000000009.json#1",
        "_delta_log/.pending-2f",
        f"{names.STATE_FOLDER}/id/0/.pending-3f",
    ]
    for path in paths:
        store.put(f"{TOPIC_PATH}/{path}", b"half")
    before = everything(store)
    assert vacuumed(store, later_ms=HOUR_MS) == set()
    assert vacuumed(store, dry_run=True) == set(paths)
    assert vacuumed(store) == set(paths)
    assert vacuumed(store) == set()
    assert everything(store) == before - set(paths)
    TopicTable.open(store, TOPIC, CLOCK)


def test_what_retention_removed_stays_for_its_readers_and_then_goes(store: ObjectStore) -> None:
    table = claimed(store, TOPIC)
    files = [append(store, table, {0: 5})[0] for _ in range(3)]
    plan = table.snapshot
    move_starts(table, plan.version, {0: start_move(plan, 0, 12)}, new_id(), now_ms=now_ms())
    assert vacuumed(store, later_ms=DAY_MS - HOUR_MS) == set()
    assert read_data_file(store, TOPIC, files[0], columns=["offset"]).num_rows == 5
    assert vacuumed(store) == {file.path for file in files[:2]}


def test_files_of_a_deleted_topic_go_and_its_successor_stays(store: ObjectStore) -> None:
    table = claimed(store, TOPIC)
    old = append(store, table, {0: 5, 1: 5})
    table.delete(new_id())
    assert vacuumed(store, later_ms=0) == set()
    again = claimed(store, "other")
    kept = append(store, again, {0: 5})
    assert vacuumed(store) == {file.path for file in old}
    assert store.size(f"{names.topic_path('other')}/{kept[0].path}") == kept[0].size_bytes


@pytest.mark.parametrize("retention_ms", [0, PERIOD_MS_MIN - 1, PERIOD_MS_MAX + 1])
def test_an_unsafe_period_is_refused(store: ObjectStore, retention_ms: int) -> None:
    claimed(store, TOPIC)
    written(store, TOPIC, 0, 0, 5)
    before = everything(store)
    with pytest.raises(Refused, match="hours"):
        vacuum(store, TOPIC, retention_ms=retention_ms, now_ms=now_ms() + 9 * DAY_MS, dry_run=False, clock=CLOCK)
    assert everything(store) == before


def test_a_topic_that_is_none_is_told(store: ObjectStore) -> None:
    with pytest.raises(UnknownTopic):
        vacuumed(store)


def damage_by_cutting(store: ObjectStore, path: str) -> None:
    store.put(path, store.get(path)[:20])


def damage_by_losing(store: ObjectStore, path: str) -> None:
    store.delete(path)


@pytest.mark.parametrize("damage", [damage_by_cutting, damage_by_losing])
def test_nothing_is_deleted_beside_a_damaged_table(
    store: ObjectStore, damage: Callable[[ObjectStore, str], None]
) -> None:
    table = claimed(store, TOPIC)
    small = [append(store, table, {0: 5})[0] for _ in range(3)]
    merged = rewritten(store, table, small)
    damage(store, f"{TOPIC_PATH}/{merged.path}")
    before = everything(store)
    with pytest.raises(CorruptData):
        vacuumed(store)
    assert everything(store) == before


@pytest.mark.s3
def test_the_same_on_s3(s3_server: S3Server) -> None:
    store = open_store(s3_server.root_uri("vacuum"), s3_endpoint=s3_server.endpoint, s3_region=s3_server.region)
    table = claimed(store, TOPIC)
    small = [append(store, table, {0: 5})[0] for _ in range(3)]
    merged = rewritten(store, table, small)
    assert vacuumed(store, later_ms=DAY_MS - HOUR_MS) == set()
    assert vacuumed(store) == {file.path for file in small}
    assert read_data_file(store, TOPIC, merged, columns=["offset"]).num_rows == 15


def test_removed_files_go_when_their_topic_says_and_what_was_never_in_the_table_stays(store: ObjectStore) -> None:
    table = claimed(store, TOPIC)
    table.set_config(TopicConfig({}), new_id(), removed_files_ms=REMOVED_FILES_MS_MIN)
    first = append(store, table, {0: 5})[0]
    second = append(store, table, {0: 5})[0]
    merged = written(store, TOPIC, 0, 0, 10)
    pending = written(store, TOPIC, 1, 0, 5)
    table.rewrite(table.snapshot.version, [first, second], [merged], new_id())
    assert vacuumed(store, later_ms=REMOVED_FILES_MS_MIN - HOUR_MS) == set()
    assert vacuumed(store, later_ms=REMOVED_FILES_MS_MIN + HOUR_MS) == {first.path, second.path}
    table.append([pending], {1: (0, 5)}, {1: 1}, new_id())
    assert vacuumed(store) == set()
