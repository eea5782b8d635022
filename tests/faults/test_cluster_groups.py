"""Groups over real nodes and the death of the one that keeps what they commit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from cluster_rig import Nodes, cluster
from cut_door import CutDoor
from groups_rig import embedded
from http_rig import Http, Reply

from siltlog.infra import names

SNAPSHOT_MS = 200
SESSION_MS = 60_000
LEASE_MS = 8_000
"""Longer than a busy machine lets a node wait: who is killed alone is away."""
BRIEF = ("coordinator_unavailable", "topic_unavailable", "not_owner")


def flush(nodes: Nodes) -> None:
    with redis.Redis.from_url(nodes.redis_url) as client:
        client.flushall()


def patient(nodes: Nodes, call: Callable[[], Reply], what: str) -> Reply:
    """Asks again for as long as it is said that groups, or an owner, come back."""
    replies: list[Reply] = []

    def answered() -> bool:
        replies.append(call())
        if replies[-1].status == 503:
            assert replies[-1].error_code in BRIEF, replies[-1]
            return False
        return True

    nodes.until(answered, what)
    assert replies[-1].status < 300, replies[-1]
    return replies[-1]


def beat(http: Http, group: str, member: str, **body: Any) -> Reply:
    return http.json("PUT", f"/v1/groups/{group}/members/{member}", body)


def offsets(http: Http, group: str) -> dict[int, int]:
    rows = http.get(f"/v1/groups/{group}/offsets").json["offsets"]
    return {row["partition"]: row["offset"] for row in rows}


def saved(http: Http, group: str) -> dict[int, int]:
    """What `_offsets` has, as any reader sees it."""
    found = {}
    for record in http.read(names.OFFSETS_TOPIC, query="values=json"):
        if record["key"].startswith(f"{group}/") and record["value"] is not None:
            found[int(record["key"].rpartition("/")[2])] = record["value"]["offset"]
    return found


@pytest.mark.slow
@pytest.mark.rule("CG2", "CG3", "CG5", "CG6", "CG8")
def test_groups_go_on_when_the_node_that_keeps_them_is_killed(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster", 2, offsets_snapshot_ms=SNAPSHOT_MS, lease_ms=LEASE_MS) as nodes:
        any_http = Http(nodes["n1"].url)
        any_http.create("t", 2)
        nodes.until(lambda: all(nodes.owner("t", name) for name in nodes), "t has an owner")
        any_http.publish("t", *({"value": str(n), "partition": n % 2} for n in range(20)))
        joining = {"generation": 0, "topics": ["t"], "session_timeout_ms": SESSION_MS, "auto_offset_reset": "latest"}
        patient(nodes, lambda: beat(any_http, "g", "m", **joining), "the first member")
        keeper = nodes[nodes.owner(names.OFFSETS_TOPIC)]
        [other] = [node for node in nodes.values() if node is not keeper]
        here, there = Http(keeper.url), Http(other.url)
        told = patient(nodes, lambda: beat(there, "g", "m", generation=1), "its assignment").json
        assert {at["partition"]: at["offset"] for at in told["assignment"]} == {0: 10, 1: 10}
        moved = [{"topic": "t", "partition": 0, "offset": 5}]
        patient(nodes, lambda: there.json("PUT", "/v1/groups/r/offsets", {"offsets": moved}), "an offset set by hand")
        there.publish("t", *({"value": str(n), "partition": n % 2} for n in range(20, 40)))

        keeper.kill()
        # At once, at the other node: nobody is fenced, nothing moves, and commits are taken.
        again = beat(there, "g", "m", generation=told["generation"])
        assert (again.status, again.json["generation"], again.json["assignment"]) == (200, told["generation"], None)
        body = {"member_id": "m", "generation": told["generation"]}
        commit = {**body, "offsets": [{"topic": "t", "partition": 0, "offset": 15}]}
        # Whoever owned the partition may have died with it: its end is known once it is taken over.
        patient(nodes, lambda: there.json("PUT", "/v1/groups/g/offsets", commit), "a commit")
        nodes.until(lambda: nodes.owner(names.OFFSETS_TOPIC) == other.name, "the other node keeps them")
        nodes.until(lambda: saved(there, "g") == {0: 15, 1: 10}, "what was committed meanwhile is saved")
        assert beat(there, "g", "m", generation=told["generation"]).json["assignment"] is None

        flush(nodes)
        patient(nodes, lambda: there.get("/v1/groups/r/offsets"), "groups come back")
        assert offsets(there, "r") == {0: 5}
        back = patient(nodes, lambda: beat(there, "g", "m2", **joining), "a member after the loss").json
        assert {at["partition"]: at["offset"] for at in back["assignment"]} == {0: 15, 1: 10}

        # The one before comes back, asks the other, and brings nothing back.
        assert there.call("DELETE", "/v1/groups/r").status == 204
        keeper.start()
        nodes.until(lambda: here.get("/v1/groups/g").status == 200, "the first node answers")
        assert offsets(here, "g") == {0: 15, 1: 10}
        nodes.until(lambda: here.get("/v1/groups/r").error_code == "unknown_group", "what was deleted is told")
        flush(nodes)
        patient(nodes, lambda: here.get("/v1/groups/g/offsets"), "groups come back at the first node")
        assert offsets(here, "g") == {0: 15, 1: 10}
        nodes.until(lambda: here.get("/v1/groups/r").error_code == "unknown_group", "it stays deleted")


@pytest.mark.slow
@pytest.mark.rule("CG1")
def test_a_node_with_a_redis_of_its_own_serves_no_groups(tmp_path: Path) -> None:
    elsewhere = embedded(tmp_path / "elsewhere")
    try:
        with cluster(tmp_path / "cluster", 2) as nodes:
            nodes["n2"].stop()
            nodes["n2"].server._settings["redis_url"] = elsewhere.start()
            nodes["n2"].start()
            first, second = Http(nodes["n1"].url), Http(nodes["n2"].url)
            nodes.until(lambda: second.get("/v1/groups/g").status == 503, "it has heard of the other Redis")
            assert "SILT_REDIS_URL" in second.get("/v1/groups").json["detail"]
            assert first.get("/v1/groups/g").error_code == "unknown_group"
    finally:
        elsewhere.stop()


@pytest.mark.slow
@pytest.mark.rule("CG9")
def test_groups_go_on_when_the_node_that_keeps_them_alone_has_no_redis(tmp_path: Path) -> None:
    valkey = embedded(tmp_path / "one")
    try:
        url = valkey.start()
        with redis.Redis.from_url(url) as client:
            for name in ("n1", "n2", "n3"):
                client.execute_command("ACL", "SETUSER", name, "on", ">password", "~*", "&*", "+@all")

            def each(name: str, _: CutDoor) -> dict[str, Any]:
                return {"redis_user": name, "redis_password": "password"}

            with cluster(tmp_path / "cluster", 3, each=each, redis_url=url) as nodes:
                https = {name: Http(node.url) for name, node in nodes.items()}
                https["n1"].create("t", 1)
                first = {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}
                patient(nodes, lambda: https["n1"].json("PUT", "/v1/groups/g/offsets", first), "the first group")
                keeper = nodes.owner(names.OFFSETS_TOPIC)
                client.execute_command("ACL", "SETUSER", keeper, "off")
                client.execute_command("CLIENT", "KILL", "USER", keeper)
                other = next(http for name, http in https.items() if name != keeper)
                refused = other.json("PUT", "/v1/groups/new/offsets", first)
                assert (
                    refused.status == 503 and f"node {keeper}, which keeps what groups commit" in refused.json["detail"]
                )
                patient(nodes, lambda: other.json("PUT", "/v1/groups/new/offsets", first), "it is kept by another")
                assert nodes.owner(names.OFFSETS_TOPIC) not in ("", keeper)
    finally:
        valkey.stop()
