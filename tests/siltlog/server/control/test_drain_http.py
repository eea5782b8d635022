"""`/v1/drain` and `silt drain`: a server that takes no publishes, and takes them again; a node that hands over."""

import base64
import json
import threading
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from access_rig import Secured, secured_server
from cluster_rig import STEADY_MS, cluster
from http_rig import Http

from siltlog.cli.main import run
from siltlog.infra import names
from siltlog.infra.http.draining import Draining
from siltlog.infra.security.audit.chain import told
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
PATIENCE_SECONDS = 60


def until(http: Http, done: Any) -> dict[str, Any]:
    end = time.monotonic() + PATIENCE_SECONDS
    while not done(state := http.get("/v1/drain").json):
        assert time.monotonic() < end, state
        time.sleep(0.02)
    found: dict[str, Any] = state
    return found


@pytest.mark.rule("LG5")
def test_a_drained_server_refuses_publishes_alone_until_that_is_taken_back(tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path / "data", flush_ms=3_600_000, auto_create_partitions=1) as server:
        http = Http(server.url)
        http.create("orders")
        assert http.publish("orders", {"value": "a"}).status == 200
        idle = http.get("/v1/drain").json
        assert (idle["draining"], idle["in_flight"], idle["unflushed_bytes"] > 0) == (False, 0, True)
        member = {"generation": 0, "topics": ["orders"], "wait_ms": 0}
        assert http.json("PUT", "/v1/groups/billing/members/m", member).status == 200
        body = {"partitions": [{"topic": "orders", "partition": 0, "offset": 1}], "wait_ms": 60_000}
        waiting = threading.Thread(target=http.json, args=("POST", "/v1/fetch", body))
        waiting.start()
        until(http, lambda state: state["in_flight"] == 1)
        drained = http.call("POST", "/v1/drain")
        assert (drained.status, drained.json["draining"], drained.json["groups"]) == (200, True, 1)
        for path in ("orders", "made-by-this"):
            refused = http.publish(path, {"value": "b"})
            assert (refused.status, refused.error_code) == (503, "shutting_down")
            assert "drained by an operator" in refused.json["detail"]
        ready = http.get("/readyz")
        assert (ready.status, ready.json["reasons"]) == (503, ["draining"])
        assert "silt_draining 1.0" in http.get("/metrics").body.decode()
        # Nothing else is refused, and what a reader waits for may still come.
        assert [record["offset"] for record in http.read("orders")] == [0]
        commit = {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}
        assert http.json("PUT", "/v1/groups/reading/offsets", commit).status == 204
        until(http, lambda state: state["unflushed_bytes"] == 0)
        assert http.get("/v1/topics/orders").json["offsets"][0]["table_offset"] == 1
        assert http.call("POST", "/v1/drain").json["draining"]
        assert http.call("DELETE", "/v1/drain").json["draining"] is False
        assert http.publish("orders", {"value": "b"}).status == 200
        assert http.get("/readyz").status == 200
        waiting.join()
        http.call("POST", "/v1/drain")
        server.stop()
        server.start()
        # The next start takes them again.
        assert Http(server.url).publish("orders", {"value": "c"}).status == 200


@pytest.mark.slow
def test_the_command_waits_until_all_is_in_tables(tmp_path: Path, capsys: Capture) -> None:
    def said() -> Any:
        return json.loads(capsys.readouterr().out)

    with running_server(data_dir=tmp_path / "data", flush_ms=3_600_000) as server:
        http = Http(server.url)
        http.create("orders")
        http.publish("orders", {"value": "a"})
        at = ("--url", server.url, "--output", "json")
        assert run(["drain", "--status", *at]) == 0
        assert said()["draining"] is False
        # Readers go on, but who stops the process then would cut them off.
        body = {"partitions": [{"topic": "orders", "partition": 0, "offset": 1}], "wait_ms": 12_000}
        waiting = threading.Thread(target=http.json, args=("POST", "/v1/fetch", body))
        waiting.start()
        until(http, lambda state: state["in_flight"] == 1)
        assert run(["drain", "--wait", "--timeout", "0.2", *at]) == 3
        assert said()["in_flight"] == 1
        assert run(["drain", "--wait", *at]) == 0
        done = said()
        assert (done["draining"], done["in_flight"], done["unflushed_bytes"]) == (True, 0, 0)
        waiting.join()
        assert run(["drain", "--end", *at]) == 0
        assert said()["draining"] is False
        assert run(["drain", "--end", "--wait", *at]) == 2


def test_who_only_watches_holds_up_no_drain(capsys: Capture) -> None:
    with running_server(flush_ms=200) as server:
        http = Http(server.url)
        http.create("orders")
        with (
            urlopen(f"{server.url}/v1/events?kinds=overview") as watching,
            urlopen(f"{server.url}/v1/topics/orders/tail") as tailing,
        ):
            assert watching.readline() and tailing.readline()
            assert run(["drain", "--wait", "--timeout", "30", "--url", server.url, "--output", "json"]) == 0
            assert json.loads(capsys.readouterr().out)["in_flight"] == 0


@pytest.mark.rule("LG5")
def test_a_drain_is_for_operators_and_audited() -> None:
    with secured_server() as secured:
        _, producer = secured.key("loader", ("producer", ""))
        for method in ("POST", "DELETE"):
            assert producer.call(method, "/v1/drain").status == 403
        assert producer.get("/v1/drain").status == 403
        assert secured.admin.call("POST", "/v1/drain").status == 200
        assert secured.admin.call("DELETE", "/v1/drain").status == 200
        assert changes_of(secured) == [
            ("beginDrain", "begun"),
            ("beginDrain", "done"),
            ("endDrain", "begun"),
            ("endDrain", "done"),
        ]


def changes_of(secured: Secured) -> list[tuple[str, str]]:
    told_of = [told(base64.b64decode(record["value_base64"])) for record in secured.admin.read(names.AUDIT_TOPIC)]
    return [(one.operation, one.outcome) for one in told_of if one.operation in ("beginDrain", "endDrain")]


def test_a_node_of_a_cluster_hands_over_its_topics(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, lease_ms=STEADY_MS) as nodes:
        first, second = nodes["n1"], nodes["n2"]
        http = Http(first.url)
        http.create("orders")
        assert http.publish("orders", {"value": "a"}).status == 200
        nodes.until(lambda: second.wire.call("GET", "/v1/nodes").document["nodes"][1]["state"] == "up", "both are up")
        drained = http.call("POST", "/v1/drain")
        assert (drained.status, drained.json["draining"]) == (200, True)
        until(http, lambda state: state["topics_to_move"] == 0)
        listed = {one["id"]: (one["state"], one["topics"]) for one in http.get("/v1/nodes").json["nodes"]}
        assert listed["n1"] == ("draining", 0)
        # It goes on taking what it is sent, for the other.
        assert http.publish("orders", {"value": "b"}).status == 200
        refused = http.call("DELETE", "/v1/drain")
        assert (refused.status, refused.error_code) == (422, "invalid_request")


def test_what_a_pause_refuses() -> None:
    draining = Draining()
    draining.pause()
    assert draining.stops and not draining.begun
    assert draining.refuses("t")
    system = (names.OFFSETS_TOPIC, names.AUDIT_TOPIC, names.JOBS_TOPIC, f"t{names.DEAD_LETTER_SUFFIX}")
    assert not any(map(draining.refuses, system))
    draining.begin(taking_runs=False)
    draining.resume()
    assert draining.stops and draining.refuses(names.OFFSETS_TOPIC)
