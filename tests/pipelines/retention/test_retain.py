"""The retention job on real tables; it needs no Spark."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from record_tables import CLOCK, START_US, new_id, records
from s3_server import S3Server
from topic_writer import TopicWriter

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, CorruptData, UnknownTopic
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.compaction.compact import compact_topics
from siltlog.pipelines.retention import retain as retain_module
from siltlog.pipelines.retention.retain import RetentionReport, retain_topics
from siltlog.pipelines.retention.vacuum import vacuum_topics

HOUR_MS = 3_600_000


class LaterClock(SystemClock):
    """Long after what `record_tables` writes was."""

    def now_us(self) -> int:
        return max(CLOCK.now_us(), START_US) + 400 * 24 * HOUR_MS * 1000


LATER = LaterClock()


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ServerSettings, ObjectStore]:
    settings: dict[str, Any] = {"root": (tmp_path / "lake").as_uri()}
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        settings = {"root": server.root_uri(f"retain/{tmp_path.name}"), "s3_endpoint": server.endpoint}
    store = open_store(settings["root"], s3_endpoint=settings.get("s3_endpoint", ""))
    return ServerSettings(data_dir=tmp_path, **settings), store


def filled(store: ObjectStore, topic: str = "t", files: int = 5, *, full: bool = False, **config: Any) -> TopicTable:
    """Files of ten records in each of two partitions."""
    writer = TopicWriter(store, topic, **config)
    for number in range(files):
        writer.append_tables({p: records(10 * number, 10, full=full) for p in range(2)})
    return writer.table


def cover(store: ObjectStore, table: TopicTable, partition: int, offset: int) -> None:
    store.put(f"{names.topic_path(table.topic)}/{names.state_object(table.topic_id, partition, offset)}", b"\x80")


def retained(settings: ServerSettings, *topics: str, dry_run: bool = False) -> dict[str, RetentionReport]:
    return {report.topic: report for report in retain_topics(settings, topics, dry_run=dry_run, clock=LATER)}


def test_what_has_expired_goes_and_again_there_is_nothing_to_do(place: tuple[ServerSettings, ObjectStore]) -> None:
    settings, store = place
    by_rows, kept = filled(store, retention_records=20), filled(store, "kept")
    by_time = filled(store, "old", retention_ms=1_000)
    said = retained(settings, dry_run=True)
    assert by_rows.refresh().starts == by_time.refresh().starts == {0: 0, 1: 0}
    done = retained(settings)
    for reports in (said, done):
        assert {topic: (found.files, found.rows) for topic, found in reports.items()} == {
            "kept": (0, 0),
            "old": (10, 100),
            "t": (6, 60),
        }
        moved = [(one.partition, one.before, one.log_start_offset, one.files) for one in reports["t"].partitions]
        assert moved == [(0, 0, 30, 3), (1, 0, 30, 3)]
    assert said["t"].size_bytes == done["t"].size_bytes > 0
    assert by_rows.refresh().starts == {0: 30, 1: 30} and len(by_rows.snapshot.files) == 4
    assert by_time.refresh().starts == {0: 50, 1: 50} and not by_time.snapshot.files
    assert kept.refresh().starts == {0: 0, 1: 0}
    versions = by_rows.snapshot.version, by_time.snapshot.version
    assert all(found.files == 0 and not found.partitions for found in retained(settings).values())
    assert (by_rows.refresh().version, by_time.refresh().version) == versions


@pytest.mark.rule("L6")
def test_in_many_commits_it_comes_to_the_same(
    place: tuple[ServerSettings, ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, store = place
    table = filled(store, retention_records=10)
    version = table.snapshot.version
    monkeypatch.setattr(retain_module, "COMMIT_FILES_MAX", 3)
    found = retained(settings)["t"]
    assert (found.files, found.rows) == (8, 80)
    assert [(one.partition, one.before, one.log_start_offset, one.files) for one in found.partitions] == [
        (0, 0, 40, 4),
        (1, 0, 40, 4),
    ]
    assert table.refresh().version == version + 3 and table.snapshot.starts == {0: 40, 1: 40}


@pytest.fixture
def local(tmp_path: Path) -> tuple[ServerSettings, ObjectStore]:
    root = (tmp_path / "lake").as_uri()
    return ServerSettings(data_dir=tmp_path, root=root), open_store(root)


def test_one_bad_topic_does_not_stop_the_others(local: tuple[ServerSettings, ObjectStore]) -> None:
    settings, store = local
    damaged, good = filled(store, "a", retention_records=10), filled(store, "b", retention_records=10)
    store.delete(f"{names.topic_path('a')}/{next(iter(damaged.snapshot.files))}")
    found = retained(settings)
    assert isinstance(found["a"].error, CorruptData) and found["b"].error is None
    assert good.refresh().starts == {0: 40, 1: 40}


def test_a_root_without_a_log_is_refused(place: tuple[ServerSettings, ObjectStore]) -> None:
    settings, store = place
    with pytest.raises(ConfigError, match="there are no tables at"):
        retained(settings)
    store.put(names.CLUSTER_ID_OBJECT, b"log")
    assert retained(settings) == {}, "a log without topics is one"


def test_names_of_no_topic(local: tuple[ServerSettings, ObjectStore]) -> None:
    settings, store = local
    table = filled(store, "gone", retention_records=10)
    with pytest.raises(UnknownTopic):
        retained(settings, "absent", "gone")
    table.delete(new_id())
    assert retained(settings) == {}
    assert isinstance(retained(settings, "gone")["gone"].error, UnknownTopic)


def test_a_topic_whose_creation_was_cut_short_is_no_failure(local: tuple[ServerSettings, ObjectStore]) -> None:
    settings, store = local
    store.put(f"{names.topic_path('begun')}/_delta_log/00000000000000000000.json#1", b"half")
    filled(store, retention_records=10)
    assert list(retained(settings)) == ["t"] and retained(settings)["t"].error is None
    assert [report.topic for report in vacuum_topics(settings)] == ["t"]
    assert [report.topic for report in compact_topics(settings, dry_run=True)] == ["t"]
    assert isinstance(retained(settings, "begun")["begun"].error, UnknownTopic)


@pytest.mark.rule("L5")
def test_rows_that_alone_tell_of_a_producer_stay_until_it_would_be_forgotten(
    local: tuple[ServerSettings, ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, store = local
    table = filled(store, full=True, retention_records=10)
    cover(store, table, 0, 25)
    cover(store, table, 0, 999)
    monkeypatch.setattr(LaterClock, "now_us", lambda self: CLOCK.now_us() + HOUR_MS * 1000)
    for dry_run in (True, False):
        found = retained(settings, dry_run=dry_run)["t"]
        assert (found.files, found.waiting_files) == (2, 6)
    assert table.refresh().starts == {0: 20, 1: 0}, "offset 25 is covered in partition 0, nothing in partition 1"
    cover(store, table, 0, 40)
    assert retained(settings)["t"].waiting_files == 4
    assert table.refresh().starts == {0: 40, 1: 0}
    monkeypatch.setattr(LaterClock, "now_us", lambda self: CLOCK.now_us() + 25 * HOUR_MS * 1000)
    assert retained(settings)["t"].waiting_files == 0
    assert table.refresh().starts == {0: 40, 1: 40}


def test_rows_without_producers_wait_for_nothing(
    local: tuple[ServerSettings, ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, store = local
    table = filled(store, retention_records=10)
    cover(store, table, 0, 5)
    monkeypatch.setattr(LaterClock, "now_us", CLOCK.__class__.now_us)
    assert retained(settings)["t"].waiting_files == 0
    assert table.refresh().starts == {0: 40, 1: 40}


class Overtaken:
    """`move_starts` before whose first calls somebody else commits."""

    def __init__(self, table: TopicTable, times: int, change: TopicConfig) -> None:
        self.table, self.times, self.change = table, times, change
        self._real = retain_module.move_starts

    def __call__(self, *args: object, **kwargs: object) -> object:
        if self.times:
            self.times -= 1
            self.table.set_config(self.change, new_id())
        return self._real(*args, **kwargs)  # type: ignore[arg-type]


def test_a_change_that_comes_first_is_planned_by(
    local: tuple[ServerSettings, ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, store = local
    table = filled(store, retention_records=10)
    monkeypatch.setattr(retain_module, "move_starts", Overtaken(table, 1, TopicConfig({"retention.records": 30})))
    found = retained(settings)["t"]
    assert (found.raced, found.files, found.error) == (1, 4, None)
    assert table.refresh().starts == {0: 20, 1: 20}


@pytest.mark.rule("L4")
def test_what_expires_while_it_runs_is_left_for_the_next_run(
    local: tuple[ServerSettings, ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, store = local
    writer = TopicWriter(store, "t", retention_records=10)
    for number in range(5):
        writer.append_tables({0: records(10 * number, 10)})
    real = retain_module.move_starts

    def beside(*args: Any, **kwargs: Any) -> Any:
        writer.append_tables({0: records(writer.table.refresh().offsets[0], 10)})
        return real(*args, **kwargs)

    monkeypatch.setattr(retain_module, "COMMIT_FILES_MAX", 2)
    monkeypatch.setattr(retain_module, "move_starts", beside)
    assert retained(settings)["t"].files == 4
    assert writer.table.refresh().starts[0] == 40 and writer.table.snapshot.offsets[0] == 70
    monkeypatch.undo()
    assert retained(settings)["t"].files == 2


def test_a_topic_that_others_change_all_the_time_is_left_for_the_next_run(
    local: tuple[ServerSettings, ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, store = local
    table = filled(store, retention_records=10)
    change = TopicConfig({"retention.records": 10})
    monkeypatch.setattr(retain_module, "move_starts", Overtaken(table, 99, change))
    found = retained(settings)["t"]
    assert found.error is not None and found.error.error_code == "topic_unavailable"
    assert found.raced == retain_module.RACES_MAX and table.refresh().starts == {0: 0, 1: 0}


KILLED = """
import os, signal, sys
from siltlog.infra.table import commits as table_log
from siltlog.infra.settings.settings import ServerSettings
from siltlog.pipelines.retention import retain
retain.COMMIT_FILES_MAX = 2
real, left, when = table_log.commit_actions, int(sys.argv[2]), sys.argv[3]
def commit(*args, **kwargs):
    global left
    left -= 1
    if left == 0 and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    real(*args, **kwargs)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
table_log.commit_actions = commit
retain.retain_topics(ServerSettings(root=sys.argv[1], data_dir="."))
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("commit", [1, 2])
def test_killed_and_run_again(
    local: tuple[ServerSettings, ObjectStore], tmp_path: Path, commit: int, when: str
) -> None:
    settings, store = local
    table = filled(store, retention_records=10)
    arguments = [sys.executable, "-c", KILLED, settings.root_uri, str(commit), when]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == -9, done.stderr
    removed = 2 * (commit - (when == "before"))
    assert len(TopicTable.open(store, "t", CLOCK).snapshot.files) == 10 - removed
    assert retained(settings)["t"].files == 8 - removed
    assert table.refresh().starts == {0: 40, 1: 40} and len(table.snapshot.files) == 2
