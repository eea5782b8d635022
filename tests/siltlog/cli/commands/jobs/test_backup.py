"""`silt audit`, `silt backup` and `silt restore` on the tables of real servers, and a server on what was restored."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from http_rig import NO_REDIS, Http
from record_tables import append, claimed, created
from s3_server import S3Server

from siltlog.cli.main import run
from siltlog.infra import names
from siltlog.infra.arrow.partitioner import partition_of
from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import FILE_SCHEMA
from siltlog.infra.errors import Fenced
from siltlog.infra.store.store import open_store
from siltlog.infra.table.data_file import read_data_file, write_data_file
from siltlog.infra.table.table import TopicTable
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
CLOCK = SystemClock()
KEYS = {number: next(f"k{i}" for i in range(99) if partition_of(b"k%d" % i, 2) == number) for number in (0, 1)}


def silt(capsys: Capture, *arguments: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*arguments, "--output", "json"]) == code, capsys.readouterr().err
    out = capsys.readouterr().out
    return json.loads(out) if out else None


def restore_arguments(place: str, root: str) -> list[str]:
    return ["restore", "--from", place, "--root", root, "--yes"]


def sequenced(first: int, count: int) -> list[dict[str, Any]]:
    return [{"value": n, "key": KEYS[1], "partition": 1, "sequence": n} for n in range(first, first + count)]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["local", pytest.param("s3", marks=pytest.mark.s3)])
def test_a_server_goes_on_over_what_was_restored(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    base, settings = (tmp_path / "places").as_uri(), {}
    if where == "s3":
        s3: S3Server = request.getfixturevalue("s3_server")
        base, settings = s3.root_uri(f"serve/{tmp_path.name}"), {"s3_endpoint": s3.endpoint}
        monkeypatch.setenv("SILT_S3_ENDPOINT", s3.endpoint)
    common = {"flush_ms": 50, "offsets_snapshot_ms": 100, "schedule": "off", **settings}
    own = {"Silt_Producer_Id": "p"}
    with running_server(data_dir=tmp_path / "a", root=f"{base}/lake", **common) as first:
        http = Http(first.url)
        made = http.create("t", 2, retention_records=1_000)
        assert http.publish("t", *sequenced(0, 10), **own).status == 200
        keyless = [{"value": n, "key": KEYS[0]} for n in range(7)]
        assert http.publish("t", *keyless, query="?acks=table").status == 200
        offsets = [{"topic": "t", "partition": 0, "offset": 7}, {"topic": "t", "partition": 1, "offset": 4}]
        assert http.json("PUT", "/v1/groups/g/offsets", {"offsets": offsets}).status == 204
        before = [http.read("t", partition) for partition in (0, 1)]
        monkeypatch.setenv("SILT_URL", first.url)
        assert silt(capsys, "audit", "--root", f"{base}/lake", "--topic", "t")["audited"][0]["verdict"] == "clean"
        silt(capsys, "backup", "--root", f"{base}/lake", "--to", f"{base}/other", "--topic", "t")
        runs = [(run["job"], run["outcome"], run["done"]["rows"]) for run in silt(capsys, "jobs")["jobs"]]
        assert sorted(runs)[0] == ("audit", "succeeded", 17) and [job for job, *_ in sorted(runs)] == [
            "audit",
            "backup",
        ]
        drill = [*restore_arguments(f"{base}/other", f"{base}/drill"), "--url", first.url]
        capsys.readouterr()
        assert run(drill) == 0
        assert "not kept in _jobs: no server has served" in capsys.readouterr().err, "it is no run on these tables"
        assert len(silt(capsys, "jobs")["jobs"]) == 2
        assert first.stop() == 0
    monkeypatch.delenv("SILT_URL")
    assert {one["topic"]: one["verdict"] for one in silt(capsys, "audit", "--root", f"{base}/lake")["audited"]} == {
        "_jobs": "clean",
        "_offsets": "clean",
        "t": "clean",
    }
    place = f"{base}/backups"
    done = silt(capsys, "backup", "--root", f"{base}/lake", "--to", place)
    assert {one["topic"]: (one["rows"], one["error"]) for one in done["backed_up"]}["t"] == (17, None)
    restored = silt(capsys, *restore_arguments(place, f"{base}/new"))
    verdicts = {one["topic"]: one["audit"]["verdict"] for one in restored["restored"]}
    assert verdicts == {"_jobs": "clean", "_offsets": "clean", "t": "clean"}
    with running_server(data_dir=tmp_path / "b", root=f"{base}/new", **common) as second:
        http = Http(second.url)
        monkeypatch.setenv("SILT_URL", second.url)
        late = ["--from", f"{base}/other", "--root", f"{base}/new", "--dry-run", "--topic", "t"]
        silt(capsys, "restore", *late, code=1)
        newest = silt(capsys, "jobs")["jobs"][0]
        assert (newest["job"], newest["outcome"], newest["topics"]) == ("restore", "failed", ["t"])
        assert "nothing of it is overwritten" in newest["error"]
        monkeypatch.delenv("SILT_URL")
        described = http.get("/v1/topics/t").json
        assert described["topic_id"] == made["topic_id"] and described["config"]["retention.records"]["value"] == 1_000
        assert [http.read("t", partition) for partition in (0, 1)] == before
        again = http.publish("t", *sequenced(5, 5), **own).json["partitions"]
        assert [(one["first_offset"], one["last_offset"], one["duplicate"]) for one in again] == [(5, 9, True)]
        more = http.publish("t", *sequenced(10, 1), query="?acks=table", **own).json["partitions"]
        assert [(one["first_offset"], one["duplicate"]) for one in more] == [(10, False)]
        gap = http.publish("t", *sequenced(15, 1), **own)
        assert (gap.status, gap.error_code) == (409, "out_of_order_sequence")
        end = time.monotonic() + 60
        while (reply := http.get("/v1/groups/g/offsets")).status != 200:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert {one["partition"]: one["offset"] for one in reply.json["offsets"]} == {0: 7, 1: 4}
        assert second.stop() == 0
    found = silt(capsys, "audit", "--root", f"{base}/new", "--topic", "t")["audited"]
    assert [(one["verdict"], one["rows"]) for one in found] == [("clean", 18)]


def rewrite(table: TopicTable, partition: int) -> bool:
    """Two neighbouring files become one, as a compaction would have it; False where there are none."""
    store = open_store(table._store.root_uri)
    snapshot = table.refresh()
    files = snapshot.files_of(partition)[-3:-1]
    if len(files) < 2:
        return False
    columns = [field.name for field in FILE_SCHEMA]
    rows = pa.concat_tables([read_data_file(store, table.topic, file, columns=columns) for file in files])
    now_ms = CLOCK.now_us() // 1000
    merged = write_data_file(store, table.topic, partition, rows, compression="zstd", now_ms=now_ms)
    try:
        table.rewrite(snapshot.version, files, [merged], str(now_ms))
    except Fenced:
        return False
    return True


@pytest.mark.slow
def test_a_backup_while_records_come_and_files_are_rewritten(tmp_path: Path, capsys: Capture) -> None:
    stop = threading.Event()
    counts = {"published": 0, "rewritten": 0}
    failures: list[BaseException] = []
    with running_server(data_dir=tmp_path / "a", redis_url=NO_REDIS, flush_ms=20, schedule="off") as server:
        http = Http(server.url)
        http.create("t", 2)

        def publish() -> None:
            while not stop.is_set():
                records = [{"key": KEYS[n % 2], "value": counts["published"] + n} for n in range(20)]
                assert http.publish("t", *records).status == 200
                counts["published"] += 20

        def compact() -> None:
            table = TopicTable.open(open_store(server.root), "t", CLOCK)
            while not stop.is_set():
                counts["rewritten"] += rewrite(table, counts["rewritten"] % 2)

        def guarded(work: Any) -> threading.Thread:
            def body() -> None:
                try:
                    work()
                except BaseException as error:
                    failures.append(error)

            thread = threading.Thread(target=body)
            thread.start()
            return thread

        threads = [guarded(publish), guarded(compact)]
        place = (tmp_path / "backups").as_uri()
        try:
            taken: list[Any] = []
            while len(taken) < 3 or counts["rewritten"] < 4:
                assert not failures and len(taken) < 200
                taken.append(silt(capsys, "backup", "--data-dir", str(server.data_dir), "--to", place))
                found = silt(capsys, "audit", "--data-dir", str(server.data_dir))["audited"]
                assert [one["verdict"] for one in found] == ["clean"], found
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
        assert not failures, failures
        stored = {p: [record["value_base64"] for record in http.read("t", p)] for p in (0, 1)}
    rows = []
    for number, backup in enumerate((taken[0], taken[-1])):
        root = (tmp_path / f"new{number}").as_uri()
        [restored] = silt(capsys, *restore_arguments(place, root), "--at", backup["taken_at"])["restored"]
        assert restored["audit"]["verdict"] == "clean" and restored["rows"] == backup["backed_up"][0]["rows"]
        rows.append(restored["rows"])
    with running_server(data_dir=tmp_path / "d", root=root, redis_url=NO_REDIS, schedule="off") as server:
        http = Http(server.url)
        for p in (0, 1):
            held = [record["value_base64"] for record in http.read("t", p)]
            assert held == stored[p][: len(held)] and held
    assert rows == sorted(rows) and rows[-1] > 0


def test_what_is_wrong_is_said_and_ends_with_3(tmp_path: Path, capsys: Capture) -> None:
    store = open_store((tmp_path / "a" / names.LAKE_FOLDER).as_uri())
    for topic in ("bad", "good"):
        append(store, claimed(store, topic, 1), {0: 10})
    place = ["--data-dir", str(tmp_path / "a")]
    assert run(["audit", *place]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["TOPIC", "VERDICT"],
        ["bad", "clean"],
        ["good", "clean"],
    ]
    [file] = TopicTable.open(store, "bad", CLOCK).snapshot.files
    store.delete(f"{names.topic_path('bad')}/{file}")
    assert run(["audit", *place]) == 3
    out = capsys.readouterr().out
    assert "missing_file" in out and file in out and "wrong" in out and "put the file back" in out
    [bad, good] = silt(capsys, "audit", *place, code=3)["audited"]
    assert (bad["verdict"], good["verdict"]) == ("wrong", "clean")
    assert [(one["kind"], one["path"], one["first_offset"]) for one in bad["findings"]] == [("missing_file", file, 0)]
    assert [one["verdict"] for one in silt(capsys, "audit", *place, "--dry-run")["audited"]] == ["not read"] * 2
    assert silt(capsys, "audit", *place, "--topic", "absent", code=1) is None
    done = silt(capsys, "backup", *place, "--to", str(tmp_path / "backups"), code=1)
    assert [(one["topic"], one["error"] is None) for one in done["backed_up"]] == [("bad", False), ("good", True)]
    lacking = restore_arguments(str(tmp_path / "backups"), (tmp_path / "new").as_uri())
    assert silt(capsys, *lacking, "--dry-run")["lacking"] == ["bad"]
    assert run([*lacking, "--dry-run"]) == 0
    assert "the backup lacks bad" in capsys.readouterr().err
    [copied] = (tmp_path / "backups").rglob("*.parquet")
    copied.write_bytes(bytes([copied.read_bytes()[0] ^ 1, *copied.read_bytes()[1:]]))
    assert run([*lacking, "--dry-run"]) == 3
    assert "damaged_file" in capsys.readouterr().out


def test_topics_whose_publishers_choose_partitions_are_restored_clean(tmp_path: Path, capsys: Capture) -> None:
    with running_server(redis_url=NO_REDIS, data_dir=tmp_path / "a", schedule="off") as server:
        http = Http(server.url)
        http.create("t", 2)
        assert http.publish("t", {"value": "x", "key": KEYS[1], "partition": 0}, query="?acks=table").status == 200
    place, root = str(tmp_path / "backups"), (tmp_path / "new").as_uri()
    silt(capsys, "backup", "--data-dir", str(tmp_path / "a"), "--to", place, "--topic", "t")
    dry = [*restore_arguments(place, root), "--dry-run"]
    silt(capsys, *dry, code=3)
    for restored in (dry, restore_arguments(place, root)):
        [one] = silt(capsys, *restored, "--any-partition", "t")["restored"]
        assert one["audit"]["verdict"] == "clean"
    silt(capsys, *dry, "--any-partition", "absent", code=1)


@pytest.mark.parametrize("place", ["gs://bucket/x", "s3a://bucket/x", "https://host/x", "abfss://x@y/z"])
def test_a_place_that_is_no_folder_is_not_taken_for_one(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    created(open_store((tmp_path / "a" / names.LAKE_FOLDER).as_uri()))
    monkeypatch.chdir(tmp_path)
    here = ["--data-dir", str(tmp_path / "a")]
    for arguments in (["backup", "--to", place], ["export", "--topic", "t", "--to", place]):
        assert run([*arguments, *here]) == 1
        assert "use file:///path or s3://bucket/prefix" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_restore_asks(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    created(open_store((tmp_path / "a" / names.LAKE_FOLDER).as_uri()))
    place = str(tmp_path / "backups")
    done = silt(capsys, "backup", "--data-dir", str(tmp_path / "a"), "--to", place)
    assert run(["restore", "--from", place, "--data-dir", str(tmp_path / "b")]) == 2
    assert "--yes" in capsys.readouterr().err and not (tmp_path / "b").exists()
    monkeypatch.setattr("siltlog.cli.commands.jobs.backup.on_terminal", lambda: True)
    monkeypatch.setattr("click.confirm", lambda text, **_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert run(["restore", "--from", place, "--data-dir", str(tmp_path / "b")]) == 130
    for at, code in (("noon", 2), ("2026-11-21T07:36:00", 2), ("yesterday", 1), ("1h", 1), ("1000", 1)):
        assert run(["restore", "--from", place, "--data-dir", str(tmp_path / "b"), "--yes", "--at", at]) == code, at
    arguments = ["restore", "--from", place, "--data-dir", str(tmp_path / "b"), "--yes"]
    assert silt(capsys, *arguments)["backup_id"] == done["backup_id"]
    assert [one["already"] for one in silt(capsys, *arguments)["restored"]] == [True]
    assert silt(capsys, "restore", "--from", place, "--data-dir", str(tmp_path / "a"), "--yes", code=1) is None
