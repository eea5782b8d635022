"""What is left beside the topics goes once nobody can come back to it, and by the clock of where it is."""

import os
from pathlib import Path

import boto3
import pytest
from record_tables import CLOCK, append, claimed, new_id, written
from s3_server import S3Server
from schedule_rig import MovedClock

from siltlog.infra import names
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.pipelines.replay.plan import Progress, write_progress
from siltlog.pipelines.retention.leftovers import FINISHED_REPLAY_MS
from siltlog.pipelines.retention.vacuum import BESIDE_TOPICS, vacuum_topics

DAY_MS = 86_400_000


def put(store: ObjectStore, path: str, age_ms: int = 0) -> str:
    store.put(path, b"x")
    aged(store, path, age_ms)
    return path


def aged(store: ObjectStore, path: str, age_ms: int) -> None:
    seconds = (CLOCK.now_us() // 1000 - age_ms) / 1000
    os.utime(store.path(path), (seconds, seconds))  # type: ignore[attr-defined]


def beside(folder: Path, *, dry_run: bool = False) -> set[str]:
    reports = vacuum_topics(ServerSettings(data_dir=folder, root=folder.as_uri()), dry_run=dry_run)
    assert [report.error for report in reports if report.error] == []
    return {path for report in reports if report.topic == BESIDE_TOPICS for path in report.paths}


@pytest.mark.rule("J5")
def test_what_nobody_comes_back_to_goes(store: ObjectStore) -> None:
    claimed(store, "events")
    old = 2 * DAY_MS
    staged = names.STAGING_FOLDER
    gone = {
        put(store, f"{staged}/killed/files/run/1.arrow", old),
        put(store, f"{staged}/idle/files/run/1.arrow", old),
        put(store, f"{staged}/idle/batches/.pending-1f", old),
        put(store, f"{names.REPLAY_FOLDER}/half/.pending-2f", old),
    }
    for path in ("killed/files/run/2.arrow", "idle/.pending-3f"):
        put(store, f"{staged}/{path}", DAY_MS // 2)
    for path in (
        "idle/writer",
        "idle/published/00000000000000000007",
        "waits/files/run/1.arrow",
        "waits/batches/00000000000000000008",
    ):
        put(store, f"{staged}/{path}", old)
    for run, finished, age_ms in (
        ("done", True, FINISHED_REPLAY_MS + DAY_MS),
        ("young", True, FINISHED_REPLAY_MS - DAY_MS),
        ("open", False, 10 * FINISHED_REPLAY_MS),
    ):
        put(store, names.replay_plan_object(run), 20 * FINISHED_REPLAY_MS)
        write_progress(store, run, Progress({0: 5}, finished))
        aged(store, names.replay_progress_object(run), age_ms)
    gone |= {names.replay_plan_object("done"), names.replay_progress_object("done")}
    root = root_of(store)
    before = everything(root)
    assert beside(root, dry_run=True) == gone and everything(root) == before
    assert beside(root) == gone
    assert everything(root) == before - gone
    assert "done" not in store.folders(names.REPLAY_FOLDER) and "killed" in store.folders(staged)
    assert beside(root) == set()


def root_of(store: ObjectStore) -> Path:
    return store.path("")  # type: ignore[attr-defined, no-any-return]


def everything(root: Path) -> set[str]:
    """But for what running processes have for themselves."""
    found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    return {path for path in found if not path.startswith(f"{names.PRIVATE_FOLDER}/")}


def test_a_clock_that_is_fast_deletes_nothing(store: ObjectStore) -> None:
    """Files carry the time of where they are: by a clock that is days ahead all of them would be old."""
    table = claimed(store, "events")
    for _ in range(2):
        append(store, table, {0: 5})
    written(store, "events", 0, 10, 5)
    move_starts(table, table.snapshot.version, {0: start_move(table.snapshot, 0, 5)}, new_id(), now_ms=0)
    root = root_of(store)
    settings = ServerSettings(data_dir=root, root=root.as_uri())
    fast = MovedClock(CLOCK.now_us() + 3 * DAY_MS * 1000)
    slow = MovedClock(CLOCK.now_us() - 3 * DAY_MS * 1000)
    for clock in (fast, slow):
        assert [report.paths for report in vacuum_topics(settings, clock=clock)] == [[]]


@pytest.mark.s3
def test_uploads_that_nobody_ends_go(s3_server: S3Server) -> None:
    store = open_store(s3_server.root_uri("uploads"), s3_endpoint=s3_server.endpoint, s3_region=s3_server.region)
    claimed(store, "events")
    bucket, _, prefix = store.root_uri.removeprefix("s3://").partition("/")
    client = boto3.client("s3", endpoint_url=s3_server.endpoint, region_name=s3_server.region)
    in_topic = f"{names.topic_path('events')}/partition=0/big.parquet"
    for path in (in_topic, f"{names.STAGING_FOLDER}/writer/files/run/1.arrow"):
        begun = client.create_multipart_upload(Bucket=bucket, Key=f"{prefix}/{path}")
        client.upload_part(
            Bucket=bucket, Key=f"{prefix}/{path}", UploadId=begun["UploadId"], PartNumber=1, Body=b"x" * 1000
        )
    store.put(in_topic, b"an object of that name")
    [found] = store.unfinished(names.topic_path("events"))
    assert found.path.startswith(in_topic) and found.size == 0
    assert abs(found.modified_ms - store.clock_ms()) < DAY_MS
    assert store.unfinished("topics/other") == []
    store.delete(found.path)
    store.delete(found.path)
    assert store.unfinished(names.topic_path("events")) == [] and store.size(in_topic) == 22
    assert len(store.unfinished(names.STAGING_FOLDER)) == 1
