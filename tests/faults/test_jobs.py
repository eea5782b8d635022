"""Jobs on disks that fill, and whose answers are lost: each says so in a sentence, and the next run finishes."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from record_tables import CLOCK, records
from s3_server import S3Server
from s3_storm import Storm
from small_disk import SmallDisk
from topic_writer import TopicWriter

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store import s3 as s3_module
from siltlog.infra.store.local import PENDING_PREFIX
from siltlog.infra.store.s3 import S3Store
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import read_data_file
from siltlog.infra.table.entries import RETENTION_MS
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.audit.audit import audit_topics
from siltlog.pipelines.backup.backup import backup_topics
from siltlog.pipelines.backup.restore import find_backup, restore_topics
from siltlog.pipelines.compaction.compact import compact
from siltlog.pipelines.export.export import Asked, export
from siltlog.pipelines.retention.retain import retain_topics
from siltlog.pipelines.retention.vacuum import vacuum

TOPIC = "flights"
START = """
import sys
from siltlog.infra.errors import SiltlogError
from siltlog.infra.store.store import open_store
from siltlog.pipelines.spark.session import spark_session

try:
    with spark_session(open_store(sys.argv[1])):
        pass
except SiltlogError as error:
    print(f"{error.error_code}: {error.detail}")
"""
KIB = 1024
MIB = 1024 * KIB
ROWS = 3_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk", 32 * MIB)
    yield disk
    disk.remove()


def filled(store: ObjectStore, **config: Any) -> TopicWriter:
    topic = TopicWriter(store, TOPIC, **config)
    for commit in range(3):
        first, count = commit * ROWS // 6, ROWS // 6
        topic.append_tables({partition: records(first, count) for partition in range(2)})
    return topic


def settings_of(store: ObjectStore, tmp_path: Path) -> ServerSettings:
    return ServerSettings(root=store.root_uri, data_dir=tmp_path)


def offsets(store: ObjectStore) -> list[tuple[int, int]]:
    snapshot = TopicTable.open(store, TOPIC, CLOCK).snapshot
    return sorted(
        (partition, offset)
        for partition in range(snapshot.partitions)
        for file in snapshot.files_of(partition)
        for offset in read_data_file(store, TOPIC, file, columns=["offset"])["offset"].to_pylist()
    )


def check_clean(store: ObjectStore, tmp_path: Path) -> None:
    assert [report for report in audit_topics(settings_of(store, tmp_path)) if not report.clean] == []


def check_no_debris(store: ObjectStore) -> None:
    """Two days on, a vacuum leaves what the table names."""
    later_ms = CLOCK.now_us() // 1000 + 2 * RETENTION_MS
    vacuum(store, TOPIC, retention_ms=RETENTION_MS, now_ms=later_ms, dry_run=False, clock=CLOCK)
    topic_path = names.topic_path(TOPIC)
    live = {f"{topic_path}/{path}" for path in TopicTable.open(store, TOPIC, CLOCK).snapshot.files}
    left = {info.path for info in store.list(topic_path) if f"/{names.DELTA_LOG_FOLDER}/" not in info.path}
    assert left == live
    assert store.unfinished("") == []
    folders = {path.split("/")[2] for path in live}
    assert {name for name in store.folders(topic_path) if name.startswith(names.REWRITE_PREFIX)} <= folders


@pytest.mark.rule("J3")
@pytest.mark.spark
@pytest.mark.slow
def test_compaction(spark: Any, disk: SmallDisk, tmp_path: Path) -> None:
    store = open_store(disk.path.as_uri())
    topic = filled(store)
    before = offsets(store)
    disk.leave(0)
    report = compact(spark, store, topic.table, CLOCK)
    assert report.error is not None and report.error.error_code == "disk_full", report.error
    assert offsets(store) == before
    check_clean(store, tmp_path)
    disk.change(f"size={32 * MIB}")
    report = compact(spark, store, TopicTable.open(store, TOPIC, CLOCK), CLOCK)
    assert (report.error, report.files_after) == (None, 2)
    assert offsets(store) == before
    check_clean(store, tmp_path)
    check_no_debris(store)


def test_retention(disk: SmallDisk, tmp_path: Path) -> None:
    """Its entry of the log does not fit."""
    store = open_store(disk.path.as_uri())
    filled(store, retention_records=ROWS // 6)
    settings = settings_of(store, tmp_path)
    before = offsets(store)
    disk.leave(0)
    (report,) = retain_topics(settings)
    assert report.error is not None and report.error.error_code == "disk_full", report.error
    assert offsets(store) == before
    disk.change(f"size={32 * MIB}")
    (report,) = retain_topics(settings)
    assert (report.error, report.files) == (None, 4)
    check_clean(store, tmp_path)
    check_no_debris(store)


@pytest.mark.parametrize("free_kib", [4, 12, 20])
def test_backup_and_restore(disk: SmallDisk, tmp_path: Path, free_kib: int) -> None:
    store = open_store((tmp_path / "lake").as_uri())
    filled(store)
    settings = settings_of(store, tmp_path)
    before = offsets(store)

    def failed(run: Callable[[], Any]) -> None:
        disk.leave(free_kib * KIB)
        try:
            errors = [report.error for report in run().topics]
        except SiltlogError as error:
            errors = [error]
        assert [error.error_code for error in errors] == ["disk_full"]
        disk.change(f"size={32 * MIB}")

    place = (disk.path / "backups").as_uri()
    failed(lambda: backup_topics(settings, place))
    report = backup_topics(settings, place)
    assert report.backup_id is not None and report.topics[0].error is None
    assert open_store(place).unfinished("") == []
    target = open_store((disk.path / "restored").as_uri())
    elsewhere = settings_of(target, tmp_path)
    manifest = find_backup(settings, place)
    failed(lambda: restore_topics(elsewhere, place, manifest))
    (restored,) = restore_topics(elsewhere, place, manifest).topics
    assert restored.error is None and restored.audit is not None and restored.audit.clean
    assert offsets(target) == before
    check_no_debris(target)


@pytest.mark.parametrize("where", ["target", "temporary files"])
def test_export(disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    store = open_store((tmp_path / "lake").as_uri())
    filled(store)
    settings = settings_of(store, tmp_path)
    to = disk.path / "out" if where == "target" else tmp_path / "out"
    if where != "target":
        monkeypatch.setattr(tempfile, "tempdir", str(disk.path))
    asked = Asked(TOPIC, str(to), "parquet")
    disk.leave(4 * KIB)
    with pytest.raises(SiltlogError, match=str(disk.path) if where != "target" else "parquet") as caught:
        export(settings, asked, {})
    assert caught.value.error_code == "disk_full"
    disk.change(f"size={32 * MIB}")
    assert export(settings, asked, {}).records == ROWS
    assert open_store(to.as_uri()).unfinished("") == []
    shutil.rmtree(to)
    assert [path for path in disk.path.rglob("*") if path.is_file()] == []


def test_spark_is_not_begun_where_temporary_files_have_no_space(
    disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for ever for a JVM that cannot write down where it listens."""
    command = [sys.executable, "-c", START, tmp_path.as_uri()]
    disk.change(f"size={4 * MIB}")
    monkeypatch.setenv("TMPDIR", str(disk.path))
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout.startswith(f"disk_full: Spark needs 16 MiB for temporary files in {disk.path}"), run
    assert [path for path in disk.path.rglob("*") if path.name != f"silt-spark-{os.getuid()}"] == []


class LostAnswers:
    """A Delta table that is made, or not, and nobody hears of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, lands: bool) -> None:
        real = deltalake.transaction.create_table_with_add_actions

        def create(*args: Any, **kwargs: Any) -> None:
            if lands:
                real(*args, **kwargs)
            monkeypatch.setattr(deltalake.transaction, "create_table_with_add_actions", real)
            raise deltalake.exceptions.CommitFailedError("Generic S3 error\n   \x1b[31m↳\x1b[0m no answer")

        monkeypatch.setattr(deltalake.transaction, "create_table_with_add_actions", create)


@pytest.mark.rule("J4")
@pytest.mark.parametrize("lands", [True, False])
def test_a_delta_copy_of_which_nobody_hears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lands: bool) -> None:
    store = open_store((tmp_path / "lake").as_uri())
    filled(store)
    settings = settings_of(store, tmp_path)
    asked = Asked(TOPIC, str(tmp_path / "out"), "delta")
    LostAnswers(monkeypatch, lands=lands)
    if not lands:
        with pytest.raises(SiltlogError, match="cannot be used now: Generic S3 error no answer") as caught:
            export(settings, asked, {})
        assert caught.value.error_code == "topic_unavailable"
    export(settings, asked, {})
    copy = deltalake.DeltaTable(tmp_path / "out")
    assert (copy.version(), copy.to_pyarrow_table().num_rows) == (0, ROWS)


def test_a_place_with_another_delta_table(tmp_path: Path) -> None:
    store = open_store((tmp_path / "lake").as_uri())
    filled(store)
    deltalake.write_deltalake(tmp_path / "out", pa.table({"a": [1]}))
    with pytest.raises(SiltlogError, match="another Delta table"):
        export(settings_of(store, tmp_path), Asked(TOPIC, str(tmp_path / "out"), "delta"), {})
    assert deltalake.DeltaTable(tmp_path / "out").to_pyarrow_table().num_rows == 1


@pytest.mark.rule("J5")
def test_what_a_killed_export_was_writing_goes_with_the_next(tmp_path: Path) -> None:
    store = open_store((tmp_path / "lake").as_uri())
    filled(store)
    others = tmp_path / "out" / "others"
    others.mkdir(parents=True)
    for folder in (tmp_path / "out", others):
        (folder / f"{PENDING_PREFIX}1").write_bytes(b"half")
    assert export(settings_of(store, tmp_path), Asked(TOPIC, str(tmp_path / "out"), "parquet"), {}).records == ROWS
    assert [info.path for info in open_store((tmp_path / "out").as_uri()).unfinished("")] == ["others/.pending-1"]


@pytest.fixture
def storm(s3_server: S3Server) -> Iterator[Storm]:
    storm = Storm(s3_server.endpoint)
    yield storm
    storm.close()


@pytest.mark.s3
@pytest.mark.slow
def test_s3_answers_503_while_jobs_run(
    storm: Storm, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins between the first thing that each job puts and the next, and is over when the job has given up."""
    monkeypatch.setattr(s3_module, "ATTEMPTS_MAX", 2)
    options = S3Store.storage_options
    monkeypatch.setattr(S3Store, "storage_options", lambda self: {**options(self), "max_retries": "1"})
    base = s3_server.root_uri(f"storms/{tmp_path.name}")

    def settings(name: str) -> ServerSettings:
        return ServerSettings(root=f"{base}/{name}", data_dir=tmp_path, s3_endpoint=storm.endpoint)

    store = open_store(f"{base}/lake", s3_endpoint=storm.endpoint)
    filled(store, retention_records=ROWS // 6)
    before = offsets(store)
    lake, place = settings("lake"), f"{base}/backups"

    def weathered(run: Callable[[], Any], method: str) -> Any:
        real = getattr(S3Store, method)

        def then_the_storm(*arguments: Any) -> Any:
            try:
                return real(*arguments)
            finally:
                storm.raging = True

        with monkeypatch.context() as patched:
            patched.setattr(S3Store, method, then_the_storm)
            try:
                found = run()
                errors = [report.error for report in getattr(found, "topics", found)]
            except SiltlogError as error:
                errors = [error]
            assert [error.error_code for error in errors] == ["topic_unavailable"], errors
            assert "\n" not in str(errors[0])
        storm.raging = False
        assert [report for report in audit_topics(lake) if not report.clean] == []
        return run()

    backup = weathered(lambda: backup_topics(lake, place), "put_if_absent")
    assert backup.topics[0].error is None
    asked = Asked(TOPIC, f"{base}/copy", "delta")
    weathered(lambda: [export(lake, asked, {})], "put_from")
    copy = deltalake.DeltaTable(f"{base}/copy", storage_options=store.storage_options())
    assert copy.to_pyarrow_table().num_rows == ROWS
    assert offsets(store) == before
    (retained,) = weathered(lambda: retain_topics(lake), "list")
    assert (retained.error, retained.files) == (None, 4)
    assert [report for report in audit_topics(lake) if not report.clean] == []
