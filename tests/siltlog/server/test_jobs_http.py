"""`/v1/jobs` and `/v1/schedule`: runs are told, kept once, and listed newest first, also after a restart."""

import uuid
from pathlib import Path
from typing import Any

import pytest
from http_rig import NO_REDIS, Http

from siltlog.infra import names
from siltlog.infra.metrics import catalogue
from siltlog.testing import running_server


def run_of(job: str = "retain", number: int = 0, **members: Any) -> dict[str, Any]:
    return {
        "run_id": str(uuid.uuid4()),
        "job": job,
        "outcome": "succeeded",
        "started_at": f"2026-11-21T07:{number // 60:02d}:{number % 60:02d}Z",
        "ended_at": f"2026-11-21T08:{number // 60:02d}:{number % 60:02d}.5Z",
        **members,
    }


def tell(http: Http, run: dict[str, Any]) -> dict[str, Any]:
    reply = http.json("POST", "/v1/jobs", run)
    assert reply.status == 200, reply
    document: dict[str, Any] = reply.json
    return document


def listed(http: Http, query: str = "") -> list[dict[str, Any]]:
    """Every page."""
    found: list[dict[str, Any]] = []
    after = ""
    for _ in range(1_000):
        reply = http.get(f"/v1/jobs?{query}{after}")
        assert reply.status == 200, reply
        found += reply.json["jobs"]
        if reply.json["next"] is None:
            return found
        after = f"&after={reply.json['next']}"
    raise AssertionError("it has no end")


def test_before_there_was_a_run_there_is_none(tmp_path: Path) -> None:
    with running_server(redis_url=NO_REDIS) as server:
        http = Http(server.url)
        assert http.get("/v1/jobs").json == {"jobs": [], "next": None}
        assert http.get("/v1/schedule").json == {"runner": None, "jobs": []}
        assert http.get(f"/v1/topics/{names.JOBS_TOPIC}").status == 404


def test_runs_are_kept_once_and_listed_newest_first_across_a_kill(tmp_path: Path) -> None:
    done = {"files": 3, "rows": 4, "size_bytes": 5}
    results = [{"topic": "flights", "done": done, "error": None}, {"topic": "lost", "done": {}, "error": "damaged"}]
    first = run_of(
        "compact", 1, outcome="failed", topics=["flights", "lost"], trigger="schedule", done=done, results=results,
        error="lost: damaged",
    )  # fmt: skip
    with running_server(data_dir=tmp_path / "data", redis_url=NO_REDIS) as server:
        http = Http(server.url)
        told = tell(http, first)
        assert told == {"run_id": first["run_id"], "offset": 0, "duplicate": False}
        assert tell(http, first) == {"run_id": first["run_id"], "offset": None, "duplicate": True}
        others = [run_of(("retain", "vacuum")[number % 2], number) for number in range(2, 9)]
        for run in others:
            tell(http, run)
        tell(http, run_of("retain", 59, dry_run=True))
        tell(http, run_of("audit", 10, outcome="found_wrong"))
        assert counted(http) == {
            ("compact", "failed"): 1,
            ("retain", "succeeded"): 4,
            ("vacuum", "succeeded"): 3,
            ("audit", "found_wrong"): 1,
        }
        server.kill()
        server.restart()
        assert tell(http, first)["duplicate"] is True
        found = listed(http)
        assert [run["run_id"] for run in found][-1] == first["run_id"] and len(found) == 10
        assert [run["offset"] for run in found] == list(range(9, -1, -1))
        times = {"started_at": "2026-11-21T07:00:01.000000Z", "ended_at": "2026-11-21T08:00:01.500000Z"}
        assert found[-1] == {**first, **times, "offset": 0, "dry_run": False}
        assert listed(http, "limit=3") == found
        assert listed(http, "limit=1&job=vacuum") == [run for run in found if run["job"] == "vacuum"]
        assert http.get("/v1/jobs?limit=1&after=4").json == {"jobs": [found[6]], "next": "3"}
        lines = http.get("/metrics").body.decode().splitlines()
        [last] = [line for line in lines if line.startswith(f'{catalogue.JOB_SUCCESS.name}{{name="retain"}}')]
        assert float(last.split()[1]) == pytest.approx(1795248008.5, abs=0.1), "a dry run is none, and 8 was the last"
        [took] = [line for line in lines if line.startswith(f'{catalogue.JOB_SECONDS.name}{{name="compact"}}')]
        assert float(took.split()[1]) == 3600.5
        assert http.read(names.JOBS_TOPIC, query="values=json")[0]["key"] == "compact"
        assert http.get(f"/v1/topics/{names.JOBS_TOPIC}").json["partitions"] == 1


def counted(http: Http) -> dict[tuple[str, str], int]:
    lines = [
        line for line in http.get("/metrics").body.decode().splitlines() if line.startswith(catalogue.JOB_RUNS.name)
    ]
    found = {}
    for line in lines:
        labels, value = line.split("{")[1].split("} ")
        job, outcome = (label.split('"')[1] for label in labels.split(","))
        found[job, outcome] = int(float(value))
    return found


@pytest.mark.parametrize(
    ("wrong", "status", "words"),
    [
        ({"job": "dance"}, 422, "job"),
        ({"outcome": "so-so"}, 422, "outcome"),
        ({"run_id": "1"}, 422, "run_id"),
        ({"started_at": "yesterday"}, 422, "yesterday"),
        ({"started_at": "2026-11-22T07:36:00Z"}, 422, "before started_at"),
        ({"done": {"files": -1}}, 422, "done"),
        ({"more": 1}, 422, "more"),
        ({"cluster_id": "another"}, 422, "another"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_is_no_run_is_refused(http: Http, wrong: dict[str, Any], status: int, words: str) -> None:
    before = len(listed(http))
    reply = http.json("POST", "/v1/jobs", {**run_of(), **wrong})
    assert (reply.status, reply.error_code) == (status, "invalid_request")
    assert words in reply.json["detail"]
    assert len(listed(http)) == before


def test_parameters_are_checked(http: Http) -> None:
    for query, parameter in (("job=dance", "job"), ("after=x", "after"), ("limit=0", "limit"), ("no=1", "no")):
        reply = http.get(f"/v1/jobs?{query}")
        assert (reply.status, reply.json["parameter"]) == (400, parameter)
