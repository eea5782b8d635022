"""`/v1/jobs/{job}/runs`, `silt jobs run` and `silt jobs stop`: a job of the schedule begins now, and ends."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from access_rig import secured_server
from cluster_rig import STEADY_MS, ClusterNode, Nodes, cluster
from http_rig import NO_REDIS, Http, Reply
from secured_cluster_rig import secured_cluster
from stuck_table import stuck_in

from siltlog.cli.main import run
from siltlog.infra import names
from siltlog.infra.client.admin import Admin
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import Refused
from siltlog.infra.security.audit.chain import told
from siltlog.infra.settings.settings import SCHEDULE_PREFIX, ServerSettings
from siltlog.infra.store.store import open_store
from siltlog.pipelines.schedule.lease import JobState, ScheduleLease, newest_entry
from siltlog.pipelines.schedule.runs import SCHEDULED
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
WAIT_SECONDS = 120.0
NEW_YEAR = "0 0 1 1 *"
SELDOM = {"schedule": "on", **dict.fromkeys(("schedule_retain", "schedule_vacuum", "schedule_compact"), NEW_YEAR)}
SELDOM |= {"schedule_audit": "off"}
RUN_ID = "5f0f3f0e-52a5-4f4c-9d5b-1f1f0c1d2e3f"
ABSENT = "0b9f6c1e-6a43-4c62-9a53-0e6f8f7f4c11"


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + WAIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return found


def begin(http: Http, job: str = "retain") -> Reply:
    """Asks again while a server that has just started does not run the schedule yet, as clients do."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        reply = http.call("POST", f"/v1/jobs/{job}/runs")
        if reply.status != 503 or "just now" not in reply.json["detail"] or time.monotonic() > end:
            return reply
        time.sleep(0.05)


def stop(http: Http, run_id: str, job: str = "retain") -> Reply:
    return http.call("DELETE", f"/v1/jobs/{job}/runs/{run_id}")


def listed(http: Http, run_id: str) -> dict[str, Any] | None:
    """A run that has ended."""
    reply = http.get("/v1/jobs?limit=1000")
    if reply.status == 503:
        return None  # in a cluster `_jobs` is made just now
    return next((each for each in reply.json["jobs"] if each["run_id"] == run_id), None)


def ended(http: Http, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = wait_for(lambda: listed(http, run_id), f"{run_id} never ended")
    # It tells what it did just before its process ends.
    wait_for(lambda: run_id not in under_way(http), f"{run_id} is in the way")
    return found


def under_way(http: Http) -> list[str]:
    return [each["run_id"] for each in http.get("/v1/schedule").json["jobs"]]


def scheduled(http: Http, job: str = "retain") -> dict[str, Any]:
    [found] = [each for each in http.get("/v1/schedule").json["jobs"] if each["job"] == job]
    return dict(found)


def runs_it(http: Http) -> str | None:
    said = http.get("/v1/schedule").json
    runner: str | None = said["runner"] if said["jobs"] else None
    return runner


@contextmanager
def seldom(folder: Path, **settings: Any) -> Iterator[tuple[ServerProcess, Http]]:
    """A server whose schedule has no time for years."""
    given = {"redis_url": NO_REDIS, "flush_ms": 20, **SELDOM, **settings}
    with running_server(data_dir=folder / "data", **given) as server:
        http = Http(server.url)
        wait_for(lambda: runs_it(http), "nobody ever ran the schedule")
        yield server, http


def test_what_can_be_asked_for_is_what_a_schedule_may_have() -> None:
    fields = [name for name in ServerSettings.model_fields if name.startswith(SCHEDULE_PREFIX)]
    assert sorted(name.removeprefix(SCHEDULE_PREFIX) for name in fields) == sorted(SCHEDULED)


@pytest.mark.slow
@pytest.mark.rule("H14")
def test_a_job_runs_when_it_is_asked_for_as_at_its_time(tmp_path: Path, capsys: Capture) -> None:
    with seldom(tmp_path) as (server, http):
        http.create("counted", retention_records=4)
        for _ in range(4):
            assert http.publish("counted", {"value": "a"}, {"value": "b"}, query="?acks=table").status == 200
        begun = begin(http)
        assert begun.status == 202
        assert begun.json["job"] == "retain"
        ran = ended(http, begun.json["run_id"])
        assert (ran["outcome"], ran["trigger"], ran["done"]["rows"]) == ("succeeded", "hand", 4)
        wait_for(lambda: http.bounds("counted")["log_start_offset"] == 4, "retention removed nothing")
        log = server.log_path.read_text()
        assert "job begins" in log and begun.json["run_id"] in log
        at = ("--url", server.url, "--output", "json")
        assert run(["jobs", "run", "vacuum", "--wait", *at]) == 0
        vacuumed = json.loads(capsys.readouterr().out)
        assert (vacuumed["job"], vacuumed["outcome"], vacuumed["trigger"]) == ("vacuum", "succeeded", "hand")
        assert run(["jobs", "--job", "retain", *at]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert [each["run_id"] for each in shown["jobs"]] == [begun.json["run_id"]]
        assert shown["schedule"][0]["last_success_at"] == ran["ended_at"]
        assert http.bounds("counted")["high_watermark"] == 8


@pytest.mark.rule("H15")
def test_a_run_that_goes_on_is_in_the_way_until_it_is_stopped(tmp_path: Path, capsys: Capture) -> None:
    with seldom(tmp_path) as (server, http), stuck_in(tmp_path / "data" / "lake") as stuck, Admin(server.url) as admin:
        run_id = admin.begin_job("retain")["run_id"]
        wait_for(stuck.reached, "the job never came to the table")
        running = scheduled(http)
        assert running["run_id"] == run_id and running["running_since"] is not None
        for job in ("retain", "vacuum"):
            refused = begin(http, job)
            assert (refused.status, refused.error_code) == (409, "job_running")
            assert (refused.json["job"], refused.json["run_id"]) == ("retain", run_id)
        assert stop(http, run_id, "vacuum").error_code == "unknown_run", "it is a run of another job"
        unknown = stop(http, ABSENT)
        assert (unknown.status, unknown.error_code) == (404, "unknown_run")
        at = ("--url", server.url, "--output", "value")
        assert run(["jobs", "stop", "retain", *at]) == 0
        assert capsys.readouterr().out.strip() == "interrupted"
        assert run(["jobs", "stop", "retain", *at]) == 1
        assert "no run of retain is under way" in capsys.readouterr().err
        record = listed(http, run_id)
        assert record is not None and (record["outcome"], record["trigger"]) == ("interrupted", "hand")
        again = stop(http, run_id)
        assert (again.status, again.error_code) == (409, "run_ended")
        assert (again.json["outcome"], again.json["ended_at"]) == ("interrupted", record["ended_at"])
        with pytest.raises(Refused, match="ended at"):
            admin.stop_job("retain", run_id)
        assert scheduled(http)["run_id"] is None
        stuck.clear()
        assert run(["jobs", "run", "retain", "--wait", *at]) == 0


@pytest.mark.rule("H14")
def test_who_asks_at_once_begins_one_run(tmp_path: Path) -> None:
    with seldom(tmp_path, schedule_retain="* * * * * *") as (_, http), stuck_in(tmp_path / "data" / "lake") as stuck:
        # A run that began before there was anything to be stuck at may be over by the next look.
        wait_for(stuck.reached, "its time never came")
        wait_for(lambda: scheduled(http)["run_id"], "its run is not told of")
        replies: list[Reply] = []
        asking = [threading.Thread(target=lambda: replies.append(begin(http, "retain"))) for _ in range(4)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert [reply.status for reply in replies] == [409] * 4
        assert {reply.json["run_id"] for reply in replies} == {scheduled(http)["run_id"]}
        stopped = stop(http, replies[0].json["run_id"])
        assert (stopped.status, stopped.json["outcome"]) == (200, "interrupted")
        assert ended(http, stopped.json["run_id"])["trigger"] == "schedule"


@pytest.mark.slow
@pytest.mark.rule("H14")
def test_a_run_that_a_stop_or_a_kill_cuts_short_is_found(
    tmp_path: Path, processes_in: Callable[[Path], list[str]]
) -> None:
    with seldom(tmp_path) as (server, http):
        with stuck_in(tmp_path / "data" / "lake") as stuck:
            drained = begin(http).json["run_id"]
            wait_for(stuck.reached, "the job never came to the table")
            assert server.stop() == 0
        server.start()
        http = Http(server.url)
        assert ended(http, drained)["outcome"] == "interrupted"
        wait_for(lambda: runs_it(http), "nobody ever ran the schedule")
        with stuck_in(tmp_path / "data" / "lake") as stuck:
            begun = begin(http)
            assert begun.status == 202, begun
            killed = begun.json["run_id"]
            wait_for(stuck.reached, "the job never came to the table")
            server.kill()
            wait_for(lambda: not processes_in(tmp_path), "the job outlived its server")
        server.restart()
        http = Http(server.url)
        record = ended(http, killed)
        assert (record["outcome"], record["trigger"]) == ("interrupted", "hand")
        assert stop(http, killed).error_code == "run_ended"


def test_what_cannot_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with seldom(tmp_path) as (server, http):
        for job, words in (("audit", "SILT_SCHEDULE_AUDIT"), ("compact", "Java")):
            refused = begin(http, job)
            assert (refused.status, refused.error_code) == (409, "job_unavailable")
            assert words in refused.json["detail"]
        for call in (begin(http, "dance"), stop(http, ABSENT, "replay")):
            assert (call.status, call.error_code) == (404, "not_found")
            assert "compact, retain, vacuum, audit" in call.json["detail"]
        assert http.call("POST", "/v1/jobs/retain/runs?x=1").status == 400
        assert run(["jobs", "run", "audit", "--url", server.url]) == 1
        assert "off in the schedule" in capsys.readouterr().err


def test_where_this_server_does_not_run_the_schedule_it_says_who_does(tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path / "data", redis_url=NO_REDIS) as server:
        http = Http(server.url)
        nobody = begin(http)
        assert (nobody.status, nobody.error_code) == (503, "schedule_unavailable")
        assert "silt schedule" in nobody.json["detail"]
        assert stop(http, ABSENT).error_code == "unknown_run"
        store = open_store(server.root)
        lease = ScheduleLease(store, "a-process", "cron-1", SystemClock())
        going_on = {"retain": JobState(NEW_YEAR, 0, running_since_us=1, run_id=RUN_ID)}
        assert lease.take() and lease.renew(going_on)
        refused = begin(http)
        assert (refused.status, refused.error_code, refused.json["runner"]) == (409, "job_unavailable", "cron-1")
        assert stop(http, RUN_ID).json["runner"] == "cron-1"
        assert stop(http, ABSENT).error_code == "unknown_run"
        lease.release(going_on)
        assert stop(http, RUN_ID).error_code == "schedule_unavailable", "the next to run it tells what became of it"


def recorded(admin: Http) -> list[tuple[str, str, str]]:
    """The changes that callers made of runs, as the audit log has them."""
    records = [told(base64.b64decode(each["value_base64"])) for each in admin.read(names.AUDIT_TOPIC)]
    changes = [one for one in records if one.operation in ("beginJobRun", "stopJobRun") and one.status != 403]
    return [(one.operation, one.outcome, one.resource) for one in changes]


@pytest.mark.rule("A34")
def test_it_is_for_who_may_alter_the_cluster_and_audited() -> None:
    with secured_server(**SELDOM) as secured:
        _, viewer = secured.key("viewer", ("viewer", ""))
        assert begin(viewer).status == stop(viewer, ABSENT).status == 403
        wait_for(lambda: runs_it(secured.admin), "nobody ever ran the schedule")
        _, operator = secured.key("operator", ("operator", ""))
        run_id = begin(operator).json["run_id"]
        ended(secured.admin, run_id)
        assert stop(operator, run_id).error_code == "run_ended"
        assert recorded(secured.admin) == [
            ("beginJobRun", "begun", "job/retain"),
            ("beginJobRun", "done", "job/retain"),
            ("stopJobRun", "begun", f"job/retain/run_id/{run_id}"),
            ("stopJobRun", "refused", f"job/retain/run_id/{run_id}"),
        ]


def test_a_node_asks_another_for_who_may_and_one_of_them_records_it(tmp_path: Path) -> None:
    with secured_cluster(tmp_path, 2, lease_ms=STEADY_MS, **SELDOM) as secured:
        nodes, admin = list(secured.nodes), secured.admin
        runner = wait_for(lambda: runs_it(admin), "no node ever ran the schedule")
        [asked] = [name for name in nodes if name != runner]
        _, operator = secured.made_key("operator", ("operator", ""))
        _, viewer = secured.made_key("viewer", ("viewer", ""))
        assert begin(secured.at(asked, viewer)).status == 403
        assert secured.at(asked, operator).call("POST", "/peers/jobs/begin", b'{"job":"retain"}').status == 404
        begun = begin(secured.at(asked, operator))
        assert begun.status == 202, begun
        assert ended(admin, begun.json["run_id"])["outcome"] == "succeeded"
        assert recorded(admin) == [("beginJobRun", "begun", "job/retain"), ("beginJobRun", "done", "job/retain")]


def asked_and_runner(nodes: Nodes) -> tuple[ClusterNode, ClusterNode]:
    """A node that does not run the schedule, and the one that does."""
    runner = wait_for(lambda: runs_it(Http(nodes["n1"].url)), "no node ever ran the schedule")
    other = next(name for name in nodes if name != runner)
    return nodes[other], nodes[runner]


@pytest.mark.slow
def test_any_node_is_asked_and_the_one_that_runs_the_schedule_runs_it(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, lease_ms=STEADY_MS, **SELDOM) as nodes:
        asked, runner = asked_and_runner(nodes)
        http = Http(asked.url)
        begun = begin(http)
        assert begun.status == 202, begun
        assert ended(http, begun.json["run_id"])["outcome"] == "succeeded"
        assert begun.json["run_id"] in runner.log() and "job begins" not in asked.log()
        with stuck_in(tmp_path / "lake") as stuck:
            run_id = begin(http).json["run_id"]
            wait_for(stuck.reached, "the job never came to the table")
            assert begin(http).json["run_id"] == run_id
            stopped = stop(http, run_id)
            assert (stopped.status, stopped.json["outcome"]) == (200, "interrupted")
        assert stop(http, run_id).error_code == "run_ended"
        assert stop(http, ABSENT).error_code == "unknown_run"
        assert begin(http, "audit").error_code == "job_unavailable"
        runner.kill()
        away = begin(http)
        assert (away.status, away.error_code) in ((503, "schedule_unavailable"), (504, "ack_timeout")), away
        found = newest_entry(open_store(nodes.root))
        assert found is not None and found[1].jobs["retain"].run_id is None
