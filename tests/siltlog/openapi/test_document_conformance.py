"""The server against its own OpenAPI document: requests that fit it, and requests that do not, by Schemathesis."""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import conformance_hooks
import pytest
from access_rig import make_first_key
from conformance_hooks import (
    ANSWERS,
    EMPTIED_TOPIC,
    MOVED_GROUP,
    OWN_KEY,
    PARTITIONS_MAX,
    SPARE_KEY,
    TOPIC,
    UNUSED_GROUP,
)
from http_rig import Http
from letters_rig import Member

from siltlog.server.api import OPERATIONS
from siltlog.testing import running_server

SEED = 7
EXAMPLES_MAX = 6
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
"""All but that each request which fits the document is taken: it cannot say whether an offset or a member is there."""
ENDLESS = ("tailTopic", "watchServer")
OF_MEMBERS = {"commitOffsets", "countAttempt", "giveUpRecord", "nack"}
OF_CLUSTERS = ("drainNode", "removeNode", "moveTopic", "abandonTopic", "balanceCluster")
OF_OPERATORS = ("beginDrain", "profile", "settle", "stopJobRun")
NEW_YEAR = "0 0 1 1 *"
SELDOM = {"schedule": "on", "schedule_retain": NEW_YEAR, "schedule_vacuum": NEW_YEAR}
SELDOM |= {"schedule_compact": "off", "schedule_audit": "off"}
"""A schedule that runs what it is asked for, and nothing that takes long."""
NEVER_DONE = {"openapi", "pageFile", *OF_MEMBERS, *ENDLESS, *OF_CLUSTERS, *OF_OPERATORS}
NEVER_DONE |= {"openTopicSocket", "openGroupSocket"}
NEVER_DONE |= {"logIn", "beginProviderLogin", "finishProviderLogin", "renewLogin"}
"""Where Schemathesis begins, files whose names only the page knows, what depends on what a group is doing (done once
before), what has no end, what it has no protocol for (tested apart), what a server that is alone refuses, and what has
it refuse all else, takes SILT_DEBUG=on, flushes all topics before it answers, or takes a run that goes on; and logins
of the page, which take no key beside theirs, or an identity provider."""


@pytest.mark.client
@pytest.mark.timeout(660)
def test_the_server_does_what_its_document_says(tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    key = make_first_key(data_dir=tmp_path / "data")
    with running_server(data_dir=tmp_path / "data", flush_ms=50, auth="on", **SELDOM) as server:
        http = Http(server.url, token=key)
        http.create(TOPIC, PARTITIONS_MAX)
        assert http.publish(TOPIC, *({"key": str(n), "value": n} for n in range(200))).status == 200
        http.create("passing")
        http.create(EMPTIED_TOPIC)
        spare = http.json("POST", "/v1/access/keys", {"name": "spare"}).json["id"]
        member = Member(http, "gives-up", TOPIC)
        for offset in (0, 1):
            member.bury(offset)
        member.leave()
        for group in ("reporting", MOVED_GROUP, UNUSED_GROUP):
            assert http.json("PUT", f"/v1/groups/{group}/offsets", _commit(0)).status == 204
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
                *("--seed", str(SEED), "--max-examples", str(EXAMPLES_MAX), "--workers", "1", "--no-color"),
                *(argument for endless in ENDLESS for argument in ("--exclude-operation-id", endless)),
                *("--exclude-operation-id", "beginDrain"),
                *("--exclude-operation-id", "settle"),
                *("--header", f"Authorization: Bearer {key}"),
                *("--phases", "coverage,fuzzing", "--checks", ",".join(CHECKS), "--continue-on-failure"),
            ],
            cwd=tmp_path,
            env={
                **os.environ,
                "SCHEMATHESIS_HOOKS": "conformance_hooks",
                "PYTHONPATH": str(Path(conformance_hooks.__file__).parent),
                ANSWERS: str(answers),
                OWN_KEY: key.split("_")[1],
                SPARE_KEY: spare,
            },
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert server.running
        log = server.log_path.read_text()
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr
    assert "Traceback" not in log
    found: dict[str, set[int]] = defaultdict(set)
    for line in answers.read_text().splitlines():
        operation, status = line.split()
        found[operation].add(int(status))
    done = {operation for operation, statuses in found.items() if any(status < 300 for status in statuses)}
    assert {one.operation_id for one in OPERATIONS} - done <= NEVER_DONE, "what was never done was never checked"


def _commit(offset: int) -> dict[str, object]:
    return {"offsets": [{"topic": TOPIC, "partition": 0, "offset": offset}]}
