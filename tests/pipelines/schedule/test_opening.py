"""Schedules as they run: in a server, by themselves, and after one was killed; `silt jobs` and what jobs tell."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from http_rig import NO_REDIS, Http

from siltlog.cli.main import run
from siltlog.infra import names
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.clock import SystemClock
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import read_data_file
from siltlog.infra.table.entries import LAST_CHECKPOINT
from siltlog.infra.table.table import TopicTable
from siltlog.infra.telemetry import logger
from siltlog.pipelines.schedule import opening as schedule
from siltlog.pipelines.schedule.lease import newest_entry
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
WAIT_SECONDS = 120.0
NICENESS_MAX = 19
"""The kernel knows no higher one: nobody gives way further."""
EVERY_SECOND = "* * * * * *"
OFF = dict.fromkeys(("schedule_compact", "schedule_vacuum", "schedule_audit"), "off")
SHORT_LEASE = """
import signal, sys
from siltlog.infra.clock import SystemClock
from siltlog.infra.settings.loading import load
from siltlog.infra.telemetry import logger
from siltlog.pipelines.schedule.opening import ScheduleThread, scheduler
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
log = logger("info", "console")
running = ScheduleThread(scheduler(load().settings, sys.argv[1], SystemClock(), log, lease_ms=10_000))
running.start()
while not told and not running.ended(0.1):
    pass
running.stop()
"""
PARENT = """
import sys, time
from siltlog.infra.settings.loading import environment_with
from siltlog.infra.telemetry import logger
from siltlog.pipelines.schedule.process import JobProcess
command = [sys.executable, "-m", "siltlog.cli.job_process", "7", "consume", "long", "--follow", "--url", sys.argv[1]]
job = JobProcess("long", command, environment_with({}), logger("info", "console"), lambda: None)
print(job._pid, flush=True)
time.sleep(600)
"""


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + WAIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return found


def runs(http: Http, query: str = "job=retain") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get(f"/v1/jobs?{query}").json["jobs"]
    return found


def opened_for(pipe: Path) -> int | None:
    """A descriptor to write to it with, once somebody reads."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def stored_outcomes(store: ObjectStore) -> list[str]:
    """Gives those of the runs that the table of `_jobs` has."""
    snapshot = TopicTable.open(store, names.JOBS_TOPIC, SystemClock()).snapshot
    parts = [read_data_file(store, names.JOBS_TOPIC, file, columns=["value"]) for file in snapshot.files_of(0)]
    values = [value for part in parts for value in part.column("value").to_pylist()]
    return [json.loads(value)["outcome"] for value in values]


def fill(http: Http, topic: str, **config: Any) -> None:
    http.create(topic, **config)
    for _ in range(4):
        assert http.publish(topic, {"value": "a"}, {"value": "b"}, query="?acks=table").status == 200


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Without a schedule of its own."""
    with running_server(
        data_dir=tmp_path_factory.mktemp("schedule") / "data", redis_url=NO_REDIS, flush_ms=20
    ) as server:
        yield server


@pytest.mark.rule("H4")
def test_a_server_runs_its_jobs_and_ends_them_with_itself(
    tmp_path: Path, capsys: Capture, processes_in: Callable[[Path], list[str]]
) -> None:
    settings = {"schedule": "on", "schedule_retain": EVERY_SECOND, **OFF}
    with running_server(data_dir=tmp_path / "data", redis_url=NO_REDIS, flush_ms=20, **settings) as server:
        http = Http(server.url)
        fill(http, "counted")
        # What is to go is there before any run looks, and goes with one.
        assert http.json("PATCH", "/v1/topics/counted", {"config": {"retention.records": 4}}).status == 200
        wait_for(lambda: http.bounds("counted")["log_start_offset"] == 4, "retention never came")
        ran = wait_for(lambda: [each for each in runs(http) if each["done"]], "no run told what it did")
        assert ran[0]["done"]["files"] == 2 and ran[0]["done"]["rows"] == 4 and ran[0]["trigger"] == "schedule"
        assert [each["topic"] for each in ran[0]["results"]] == ["counted"]
        assert run(["jobs", "--url", server.url, "--output", "json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        [job] = shown["schedule"]
        assert (shown["runner"], job["job"], job["cron"]) == ("node-0", "retain", EVERY_SECOND)
        assert job["next_at"] is not None and job["last_success_at"] is not None
        assert {each["outcome"] for each in shown["jobs"]} == {"succeeded"}
        assert run(["jobs", "--url", server.url]) == 0
        text = capsys.readouterr().out
        assert "Schedule, run by node-0" in text and "files 2, rows 4" in text
        stuck = tmp_path / "data" / "lake" / names.topic_path("stuck") / names.DELTA_LOG_FOLDER
        stuck.mkdir(parents=True)
        os.mkfifo(stuck / LAST_CHECKPOINT)
        writer = wait_for(lambda: opened_for(stuck / LAST_CHECKPOINT), "no job came upon what it can never read")
        assert server.stop() == 0
        os.close(writer)
        assert processes_in(tmp_path) == []
        assert "running the schedule" in server.log_path.read_text()
    store = open_store((tmp_path / "data" / "lake").as_uri())
    found = newest_entry(store)
    assert found is not None and found[1].holder == "", "the next start need not wait for the lease"
    outcomes = stored_outcomes(store)
    assert set(outcomes[:-1]) == {"succeeded"} and outcomes[-1] == "interrupted"


def test_a_server_that_was_killed_runs_the_schedule_again_at_once(tmp_path: Path) -> None:
    settings = {"schedule": "on", "schedule_retain": EVERY_SECOND, **OFF}
    with running_server(data_dir=tmp_path / "data", redis_url=NO_REDIS, flush_ms=20, **settings) as server:
        wait_for(lambda: runs(Http(server.url)), "retention never came")
        server.kill()
        server.restart()
        before = len(runs(Http(server.url)))
        wait_for(lambda: len(runs(Http(server.url))) > before, "the lease of the killed process was waited for")


@pytest.mark.slow
def test_the_next_runner_takes_over_from_one_that_was_killed(server: ServerProcess, tmp_path: Path) -> None:
    http = Http(server.url)
    fill(http, "taken-over", retention_records=4)
    store = open_store(server.root)

    def start(node: str) -> "subprocess.Popen[bytes]":
        own = {"ROOT": server.root, "NODE_ID": node, "SCHEDULE_RETAIN": EVERY_SECOND}
        own |= {name.upper(): value for name, value in OFF.items()}
        return subprocess.Popen(
            [sys.executable, "-c", SHORT_LEASE, server.url],
            cwd=tmp_path,
            env={**os.environ, **{names.ENV_PREFIX + name: value for name, value in own.items()}},
            stderr=(tmp_path / f"{node}.log").open("wb"),
        )

    def runner() -> str | None:
        found = newest_entry(store)
        return None if found is None else found[1].runner

    started = [start("a")]
    try:
        wait_for(lambda: runner() == "a", "the first never began")
        started.append(start("b"))
        before = len(wait_for(lambda: runs(http, "limit=1000"), "the first never ran a job"))
        time.sleep(1)
        assert runner() == "a"
        started[0].kill()
        started[0].wait()
        wait_for(lambda: runner() == "b", "the second never took over")
        wait_for(lambda: len(runs(http, "limit=1000")) > before + 2, "the second never ran a job")
        assert b"job begins" in (tmp_path / "b.log").read_bytes()
        started[1].terminate()
        assert started[1].wait(WAIT_SECONDS) == 0
        assert runner() == "", "it gave the right back"
        told = runs(http, "limit=1000")
        assert len({each["run_id"] for each in told}) == len(told)
        outcomes = [each["outcome"] for each in told]
        # At most the run of the one that was killed, and that of the one that was told to end.
        assert set(outcomes) <= {"succeeded", "interrupted"} and outcomes.count("interrupted") <= 2
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_silt_schedule_runs_until_it_is_told_to_stop(server: ServerProcess, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "siltlog.toml").write_text(
        f"node_id = 'cron-1'\n[schedule]\nretain = '{EVERY_SECOND}'\ncompact = ''\nvacuum = ''\naudit = ''\n"
    )
    http = Http(server.url)
    before = len(runs(http, "limit=1000"))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "siltlog.cli", "schedule", "--root", server.root, "--url", server.url],
            cwd=tmp_path,
            stderr=log,
        )
    try:
        wait_for(lambda: len(runs(http, "limit=1000")) > before, "it ran nothing")
        assert http.get("/v1/schedule").json["runner"] == "cron-1"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
        assert http.get("/v1/schedule").json["runner"] is None
    finally:
        process.kill()
        process.wait()
    assert run(["jobs", "--url", server.url, "--job", "retain"]) == 0
    assert "nobody runs it" in capsys.readouterr().out


def test_live_files_are_asked_of_the_server_now_and_then(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = Http(server.url)
    fill(http, "files-asked")
    monkeypatch.setattr(schedule, "ASK_SECONDS", float("inf"))
    asked = schedule.LiveFilesOfServer(server.url, SystemClock())
    assert asked()["files-asked"] == 4
    fill(http, "files-later")
    assert "files-later" not in asked()
    monkeypatch.setattr(schedule, "ASK_SECONDS", 0)
    assert asked()["files-later"] == 4
    assert schedule.LiveFilesOfServer("http://127.0.0.1:1", SystemClock())() == {}


@pytest.mark.rule("H10", "H12")
def test_a_job_gives_way_and_ends_with_who_began_it(server: ServerProcess, tmp_path: Path) -> None:
    Http(server.url).create("long")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, server.url], stdout=subprocess.PIPE, cwd=tmp_path, text=True
    )
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        own = os.getpriority(os.PRIO_PROCESS, 0)
        wait_for(lambda: os.getpriority(os.PRIO_PROCESS, pid) == min(own + 7, NICENESS_MAX), "it never gave way")
        assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "1000"
        parent.kill()
        parent.wait()
        wait_for(lambda: not Path(f"/proc/{pid}").exists(), "it outlived who began it")
    finally:
        parent.kill()
        parent.wait()


def test_a_job_by_hand_is_told_and_without_a_server_it_is_done_all_the_same(
    server: ServerProcess, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = Http(server.url)
    fill(http, "by-hand", retention_records=4)
    command = ["retain", "--root", server.root, "--topic", "by-hand"]
    assert run([*command, "--dry-run", "--url", server.url]) == 0
    assert capsys.readouterr().err == ""
    [told] = runs(http, "limit=1")
    assert (told["dry_run"], told["trigger"], told["topics"], told["done"]["rows"]) == (True, "hand", ["by-hand"], 4)
    monkeypatch.setenv(names.ENV_URL, "http://127.0.0.1:1")
    monkeypatch.setattr("siltlog.cli.job_record.TELL_MS", 1)
    assert run(command) == 0
    said = capsys.readouterr()
    assert said.err.count("http://127.0.0.1:1") == 1 and names.JOBS_TOPIC in said.err and "by-hand" in said.out
    monkeypatch.setenv(names.ENV_URL, server.url)
    assert run(["retain", "--root", server.root, "--topic", "absent"]) == 1
    [failed] = runs(http, "limit=1")
    assert failed["outcome"] == "failed" and "absent" in failed["error"]
    assert run(["jobs", "--failed", "--output", "value"]) == 0
    assert failed["run_id"] in capsys.readouterr().out.split()
    other = (tmp_path / "lake").as_uri()
    (tmp_path / "lake" / "cluster").mkdir(parents=True)
    (tmp_path / "lake" / names.CLUSTER_ID_OBJECT).write_text("another")
    before = len(runs(http, "limit=1000"))
    assert run(["retain", "--root", other]) == 0
    assert "another" in capsys.readouterr().err and len(runs(http, "limit=1000")) == before


def test_a_job_traces_where_whoever_runs_the_schedule_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = (
        "import os, sys; print(os.environ['SILT_TRACES'], os.environ['OTEL_EXPORTER_OTLP_ENDPOINT'], file=sys.stderr)"
    )
    monkeypatch.setattr(schedule, "_command", lambda job, niceness: [sys.executable, "-c", told])
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    monkeypatch.delenv("SILT_TRACES", raising=False)
    settings = ServerSettings(data_dir=tmp_path, traces="on")
    start = schedule._starting(settings, "http://127.0.0.1:1", logger("info", "console"), Credentials())
    job = start("retain", "run", "schedule", 0, lambda: None)
    job.join(30)
    assert (job.status, job.last_line) == (0, "on http://collector:4318")
