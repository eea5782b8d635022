"""`silt export` and `silt import` against a real server: what went out comes back, byte for byte and once."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from http_rig import NO_REDIS, Http
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from s3_server import S3Server

from siltlog import Admin
from siltlog.cli.main import run
from siltlog.cli.records.export_text import texts
from siltlog.cli.records.publish_input import from_file
from siltlog.cli.records.record_shape import RecordShape
from siltlog.infra import names
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.pipelines.export import plan as export_plan
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
FIELDS = ("timestamp", "key_base64", "value_base64", "headers")
RECORDS: list[dict[str, Any]] = [
    {"key": "a", "value": '{"x": 1.0}'},
    {"key": "", "value": ""},
    {"value": 'line\nfeed, "quotes" and \r'},
    {"key": "gone", "value": None},
    {"key_base64": "//8=", "value_base64": "AP/+", "headers": [{"key": "h", "value_base64": "/w=="}]},
    {"value": "null", "headers": [{"key": "h", "value": None}, {"key": "h", "value": "1"}, {"key": "", "value": ""}]},
    {"value": "  blank  ", "timestamp": "2026-11-21T07:36:00.123456Z"},
    {"value": "123", "key": "007"},
]


KILLED = """
import os, signal, sys
from siltlog.cli.main import main
from siltlog.infra.store.local import LocalStore
from siltlog.pipelines.export import plan as export_plan

export_plan.PART_BYTES = 1
put_from, left = LocalStore.put_from, [4]

def put_some(self, path, source):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    put_from(self, path, source)

LocalStore.put_from = put_some
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=50, redis_url=NO_REDIS) as running:
        yield running


@pytest.fixture
def http(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Http:
    monkeypatch.setenv("SILT_URL", server.url)
    monkeypatch.setenv("SILT_DATA_DIR", str(server.data_dir))
    return Http(server.url)


@pytest.fixture
def topic(http: Http) -> str:
    """A topic of two partitions, with RECORDS in each."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    http.create(name, 2)
    for partition in range(2):
        records = [record | {"partition": partition} for record in RECORDS]
        assert http.publish(name, *records, query="?acks=table").status == 200
    return name


def done(capsys: Capture, *arguments: str, status: int = 0) -> dict[str, Any]:
    assert run([*arguments, "--output", "json"]) == status, capsys.readouterr().err
    said = capsys.readouterr()
    found: dict[str, Any] = json.loads(said.out if status == 0 else said.err)
    return found


def stored(http: Http, topic: str, partition: int) -> list[list[Any]]:
    return [[record.get(name) for name in FIELDS] for record in http.read(topic, partition)]


def other(http: Http, partitions: int = 2) -> str:
    name = f"o-{uuid.uuid4().hex[:12]}"
    http.create(name, partitions)
    return name


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("form", ["parquet", "ndjson", "csv"])
def test_what_went_out_comes_back(
    http: Http, topic: str, tmp_path: Path, form: str, compression: str, capsys: Capture
) -> None:
    options = ["--format", form, *(["--compression", compression] if form != "parquet" else [])]
    report = done(capsys, "export", "--topic", topic, "--to", str(tmp_path / "out"), *options)
    assert (report["records"], report["written_files"], report["present_files"]) == (2 * len(RECORDS), 2, 0)
    again = done(capsys, "export", "--topic", topic, "--to", str(tmp_path / "out"), *options)
    assert (again["records"], again["written_files"], again["present_files"]) == (0, 0, 2)
    copy = other(http)
    imported = done(capsys, "import", "--topic", copy, str(tmp_path / "out"))
    assert (imported["count"], len(imported["files"])) == (2 * len(RECORDS), 2)
    for partition in range(2):
        assert stored(http, copy, partition) == stored(http, topic, partition)
    again = done(capsys, "import", "--topic", copy, str(tmp_path / "out"))
    assert (again["count"], again["already_published"]) == (0, 2 * len(RECORDS))
    narrow = other(http, 1)
    (file,) = [name for name in (tmp_path / "out").iterdir() if "-00000-" in name.name]
    assert done(capsys, "import", "--topic", narrow, str(tmp_path / "out"), status=1)["error_code"]
    assert done(capsys, "import", "--topic", narrow, str(file), "--lines", "record", "--by-key")["count"] == 8
    assert stored(http, narrow, 0)[-8:] == stored(http, topic, 0)


@pytest.mark.rule("Y9")
def test_a_plain_delta_copy(http: Http, topic: str, tmp_path: Path, capsys: Capture) -> None:
    to = tmp_path / "a copy [1]"
    for records in (2 * len(RECORDS), 0):
        assert done(capsys, "export", "--topic", topic, "--to", str(to), "--format", "delta")["records"] == records
    table = deltalake.DeltaTable(to)
    assert table.version() == 0
    found = table.to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert found["value"].to_pylist()[:2] == [b'{"x": 1.0}', b""]
    assert found["partition"].to_pylist() == [0] * 8 + [1] * 8
    assert "is a Delta table" in done(capsys, "import", "--topic", topic, str(to), status=1)["detail"]


def test_nothing_is_exported_among_the_topics(http: Http, topic: str, tmp_path: Path, capsys: Capture) -> None:
    table: str = http.get(f"/v1/topics/{topic}").json["table_uri"]
    for place in (f"{table}-copy", table, table.rpartition("/")[0]):
        refused = done(capsys, "export", "--topic", topic, "--to", place, "--format", "delta", status=1)
        assert "only topics may lie" in refused["detail"]
    assert not Path(urlsplit(f"{table}-copy").path).exists()


def test_a_range_and_a_dry_run(http: Http, topic: str, tmp_path: Path, capsys: Capture) -> None:
    to = str(tmp_path / "out")
    command = ("export", "--topic", topic, "--to", to, "--partition", "1", "--from", "2", "--until", "5")
    dry = done(capsys, *command, "--dry-run")
    assert (dry["files"], dry["rows"], dry["records"], list(tmp_path.glob("out/*"))) == (1, 3, 0, [])
    assert done(capsys, *command)["records"] == 3
    (file,) = tmp_path.glob("out/*.parquet")
    assert pq.read_table(file)["offset"].to_pylist() == [2, 3, 4]
    http.publish(topic, {"value": "later", "partition": 1}, query="?acks=table")
    assert done(capsys, *command)["present_files"] == 1, "it goes on with the version it was begun with"
    assert run([*command]) == 0 and "what came since" in capsys.readouterr().err, "who exports every night is told"
    for option in (("--key", "a"), ("--format", "csv"), ("--version", "1")):
        assert "has an export of other records" in done(capsys, *command, *option, status=1)["detail"]
    assert run(["export", "--topic", topic, "--to", to, "--compression", "gzip"]) == 2
    capsys.readouterr()
    assert done(capsys, "export", "--topic", "absent", "--to", to, status=1)["error_code"] == "unknown_topic"


def test_the_last_records_and_those_of_the_last_hours(http: Http, topic: str, tmp_path: Path, capsys: Capture) -> None:
    command = ("export", "--topic", topic, "--to", str(tmp_path / "tail"), "--partition", "1")
    assert done(capsys, *command, "--from", "-3", "--until", "-1")["records"] == 2
    (file,) = tmp_path.glob("tail/*.parquet")
    assert pq.read_table(file)["offset"].to_pylist() == [5, 6]
    assert "other records" in done(capsys, *command, "--from", "-4", "--until", "-1", status=1)["detail"]
    command = ("export", "--topic", topic, "--to", str(tmp_path / "day"), "--until", "1ms", "--from")
    assert done(capsys, *command, "36500d")["present_files"] == 0
    assert done(capsys, *command, "36500d")["present_files"] > 0, "said again it is the same export"
    assert "other records" in done(capsys, *command, "36501d", status=1)["detail"]


@pytest.mark.rule("Y8", "Y10")
def test_killed_in_the_middle_and_run_again(
    http: Http, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file of the table is one of the export; the process ends while it writes the fifth."""
    name = other(http, 1)
    for number in range(12):
        http.publish(name, {"value": f"{number}"}, query="?acks=table")
    to = tmp_path / "out"
    command = ["export", "--topic", name, "--to", str(to), "--format", "ndjson"]
    assert subprocess.run([sys.executable, "-c", KILLED, *command], check=False).returncode == -signal.SIGKILL
    before = {file: file.stat().st_mtime_ns for file in to.glob("*.ndjson")}
    assert "is not whole" in done(capsys, "import", "--topic", name, str(to), status=1)["detail"]
    monkeypatch.setattr(export_plan, "PART_BYTES", 1)
    report = done(capsys, *command)
    assert report["present_files"] == len(before) == 4 and report["written_files"] == 8
    assert {file: file.stat().st_mtime_ns for file in before} == before
    lines = [json.loads(line) for file in sorted(to.glob("*.ndjson")) for line in file.read_text().splitlines()]
    assert [line["value"] for line in lines] == [str(number) for number in range(12)]


def test_what_is_imported_and_what_is_not(http: Http, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / ".hidden" / "in"
    (folder / "deep").mkdir(parents=True)
    (folder / "b.ndjson").write_text('{"n": 2}\n')
    (folder / "deep" / "a.csv").write_text("n\n3\n")
    (folder / "a.jsonl").write_text('{"n": 1}\n')
    (folder / "_SUCCESS").touch()
    (folder / "_b.csv").write_text("n\n9\n")
    (folder / "readme.txt").write_text("no records")
    name = other(http, 1)
    report = done(capsys, "import", "--topic", name, str(folder), str(folder / "*.ndjson"))
    assert [Path(entry["file"]).name for entry in report["files"]] == ["a.jsonl", "b.ndjson", "a.csv", "b.ndjson"]
    assert (report["count"], report["already_published"]) == (3, 1)
    assert [json.loads(record["value"])["n"] for record in http.read(name, 0, "values=text")] == [1, 2, 3]
    assert done(capsys, "import", "--topic", name, str(tmp_path / "*.csv"), status=1)["error_code"] == "not_found"
    assert "no such file" in done(capsys, "import", "--topic", name, str(tmp_path / "absent"), status=2)["detail"]
    (folder / "c.ndjson").write_text("{}\nno json\n")
    failed = done(capsys, "import", "--topic", name, str(folder), status=1)
    assert failed["error_code"] == "invalid_record" and "c.ndjson: line 2" in failed["detail"]


def test_what_vacuum_removed_meanwhile_is_told(
    server: ServerProcess, http: Http, topic: str, tmp_path: Path, capsys: Capture
) -> None:
    """An older version's, of the export and of a replay: each says how to begin once more."""
    version = done(capsys, "export", "--topic", topic, "--to", str(tmp_path / "a"), "--dry-run")["version"]
    files = list((server.data_dir / "lake" / names.topic_path(topic)).glob("partition=0/*.parquet"))
    with Admin(server.url) as admin:
        admin.delete_records(topic, 0, len(RECORDS))
    for file in files:
        file.unlink()
    into = other(http)
    asked = ("--topic", topic, "--version", str(version))
    exported = done(capsys, "export", *asked, "--to", str(tmp_path / "a"), status=1)["detail"]
    replayed = done(capsys, "replay", *asked, "--into", into, "--run", into, status=1)["detail"]
    again = done(capsys, "replay", "--run", into, status=1)["detail"]
    removed = f"vacuum has removed files that version {version} of topic {topic} had"
    assert exported.startswith(removed) and f"another place than {(tmp_path / 'a').as_uri()}" in exported
    assert replayed.startswith(removed) and f"where run {into} ends in {into}" in replayed
    assert again == replayed


@pytest.mark.slow
def test_a_server_that_is_away_between_two_files_is_waited_for(tmp_path: Path) -> None:
    """The second file is a pipe: it can be read once the server is gone."""
    first, second = tmp_path / "1.ndjson", tmp_path / "2.ndjson"
    first.write_text("1\n2\n")
    os.mkfifo(second)
    with running_server(data_dir=tmp_path / "data", redis_url=NO_REDIS) as server:
        http = Http(server.url)
        http.create("back", 1)
        command = [sys.executable, "-m", "siltlog.cli", "import", "--topic", "back", str(first), str(second)]
        with subprocess.Popen([*command, "--url", server.url], stderr=subprocess.PIPE) as importing:
            # It opens the second file when the first is published.
            with second.open("wb") as pipe:
                assert http.end("back") == 2
                server.kill()
                pipe.write(b"3\n4\n")
            turned_away(server.url, importing, times=8)
            server.start()
            _, err = importing.communicate(timeout=240)
            assert importing.returncode == 0, err
        assert [record["value"] for record in http.read("back", 0, "values=text")] == ["1", "2", "3", "4"]


def turned_away(url: str, process: "subprocess.Popen[bytes]", times: int) -> None:
    """Takes the place of its server until the process has asked so often."""
    parts = urlsplit(url)
    with socket.create_server((str(parts.hostname), parts.port or 0)) as listening:
        listening.settimeout(0.1)
        while times:
            assert process.poll() is None, process.communicate()
            with contextlib.suppress(TimeoutError):
                listening.accept()[0].close()
                times -= 1


def test_a_topic_of_other_partitions(http: Http, topic: str, tmp_path: Path, capsys: Capture) -> None:
    to = str(tmp_path / "out")
    done(capsys, "export", "--topic", topic, "--to", to)
    fewer, more = other(http, 1), other(http, 3)
    for dry_run in ([], ["--dry-run"]):
        refused = done(capsys, "import", "--topic", fewer, to, *dry_run, status=1)["detail"]
        assert "--by-key" in refused and http.end(fewer) == 0, "nothing is half done"
    assert done(capsys, "import", "--topic", fewer, to, "--by-key")["count"] == 2 * len(RECORDS)
    assert run(["import", "--topic", more, to]) == 0 and "--by-key" in capsys.readouterr().err


def test_a_dry_run_of_an_import_reads_all_and_publishes_nothing(
    http: Http, topic: str, tmp_path: Path, capsys: Capture
) -> None:
    to = tmp_path / "out"
    done(capsys, "export", "--topic", topic, "--to", str(to), "--format", "csv")
    copy = other(http)
    said = done(capsys, "import", "--topic", copy, str(to), "--dry-run")
    assert (said["rows"], said["count"], said["dry_run"], http.end(copy)) == (2 * len(RECORDS), 0, True, 0)
    assert said["size_bytes"] == sum(file.stat().st_size for file in to.glob("*.csv"))
    assert [entry["rows"] for entry in said["files"]] == [len(RECORDS)] * 2
    bad = tmp_path / "bad.ndjson"
    bad.write_text("{}\n" * 3 + "no json\n")
    failed = done(capsys, "import", "--topic", copy, str(to), str(bad), "--dry-run", status=1)
    assert "bad.ndjson: line 4" in failed["detail"] and http.end(copy) == 0
    failed = done(capsys, "import", "--topic", copy, str(bad), status=1)
    assert f"`silt publish {copy} --file {bad}` and --skip 3" in failed["detail"]
    assert done(capsys, "import", "--topic", copy, str(to))["count"] == 2 * len(RECORDS)


def test_runs_are_kept(http: Http, topic: str, tmp_path: Path, capsys: Capture) -> None:
    to = str(tmp_path / "out")
    copy = other(http)
    export = ("export", "--topic", topic, "--to", to)
    done(capsys, *export, "--dry-run")
    written = done(capsys, *export)
    done(capsys, "import", "--topic", copy, to)
    done(capsys, "import", "--topic", copy, to)
    (tmp_path / "bad.ndjson").write_text("{}\nno json\n")
    done(capsys, "import", "--topic", copy, str(tmp_path / "bad.ndjson"), status=1)
    runs = [run for run in http.get("/v1/jobs").json["jobs"] if run["topics"] in ([topic], [copy])]
    assert [(run["job"], run["outcome"], run["dry_run"], run["done"].get("rows", 0)) for run in reversed(runs)] == [
        ("export", "succeeded", True, 16),
        ("export", "succeeded", False, 16),
        ("import", "succeeded", False, 16),
        ("import", "succeeded", False, 0),
        ("import", "failed", False, 1),
    ]
    assert (runs[3]["done"]["files"], runs[3]["done"]["size_bytes"]) == (2, written["written_bytes"])
    assert "line 2" in runs[0]["error"]
    metrics = http.get("/metrics").body.decode()
    assert 'silt_job_runs_total{name="import",outcome="failed"}' in metrics


@pytest.mark.slow
@pytest.mark.s3
def test_on_s3(s3_server: S3Server, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    root = s3_server.root_uri(f"export-{tmp_path.name}")
    monkeypatch.setenv("SILT_S3_ENDPOINT", s3_server.endpoint)
    monkeypatch.setenv("SILT_ROOT", root)
    with running_server(flush_ms=50, redis_url=NO_REDIS, root=root, s3_endpoint=s3_server.endpoint) as server:
        monkeypatch.setenv("SILT_URL", server.url)
        http = Http(server.url)
        names = [other(http) for _ in range(3)]
        http.publish(names[0], *[record | {"partition": 1} for record in RECORDS], query="?acks=table")
        to = s3_server.root_uri(f"out-{tmp_path.name}")
        for form in ("ndjson", "delta"):
            for records in (len(RECORDS), 0):
                report = done(capsys, "export", "--topic", names[0], "--to", f"{to}/{form}", "--format", form)
                assert report["records"] == records
        assert done(capsys, "import", "--topic", names[1], f"{to}/ndjson")["count"] == len(RECORDS)
        assert done(capsys, "import", "--topic", names[1], f"{to}/ndjson")["count"] == 0
        assert done(capsys, "import", "--topic", names[1], f"{to}/ndjson/*.ndjson", "--lines", "record")["count"] == 0
        assert done(capsys, "replay", "--topic", names[0], "--into", names[2])["records"] == len(RECORDS)
        assert stored(http, names[1], 1) == stored(http, names[0], 1)
        assert [row[:3] for row in stored(http, names[2], 1)] == [row[:3] for row in stored(http, names[0], 1)]
    options = {"AWS_ENDPOINT_URL": s3_server.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": s3_server.region}
    assert deltalake.DeltaTable(f"{to}/delta", storage_options=options).to_pyarrow_table().num_rows == len(RECORDS)


BYTES = st.none() | st.binary(max_size=8) | st.text("a,\"\n\r;'\t\0é", max_size=8).map(str.encode)
HEADER = st.tuples(st.text(max_size=4), BYTES)
ROWS = st.lists(
    st.tuples(BYTES, BYTES, st.lists(HEADER, max_size=2), st.integers(-(10**15), 10**16)).filter(
        lambda row: row[0] is not None or row[1] is not None
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.rule("Y11")
@pytest.mark.parametrize("form", ["ndjson", "csv", "parquet"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS)
def test_any_record_comes_back_from_any_format(tmp_path: Path, form: str, rows: list[tuple[Any, ...]]) -> None:
    keys, values, headers, times = zip(*rows, strict=True)
    table = pa.table(
        {
            "partition": pa.array([3] * len(rows), pa.int32()),
            "offset": pa.array(range(len(rows)), pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([pairs or None for pairs in headers], RECORD_SCHEMA.field("headers").type),
        },
        schema=RECORD_SCHEMA,
    )
    file = tmp_path / f"{uuid.uuid4()}.{form}"
    if form == "parquet":
        pq.write_table(table, file)
    else:
        text = texts()[form]
        file.write_bytes(text.head + text.encode(table))
    back = pa.concat_tables(from_file(str(file), None, RecordShape(lines="record")).runs, promote_options="default")
    for name in ("timestamp", "key", "value", "headers", "partition"):
        found = back[name].to_pylist() if name in back.column_names else [None] * len(rows)
        assert found == table[name].to_pylist(), name
