"""Real nodes over one root: any of them answers any request, and clients do not notice who owns what."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cluster_rig import Nodes, cluster
from cut_door import CutDoor
from http_rig import Http, Reply

from siltlog import Admin, Consumer, Producer
from siltlog.infra import names
from siltlog.infra.errors import ConfigError

TOPICS = ("t0", "t1", "t2")
LEASE_MS = 10_000
"""Longer than a busy machine lets a node wait; one that is killed is lost after it."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with cluster(tmp_path_factory.mktemp("nodes"), 2, lease_ms=LEASE_MS) as nodes:
        with Admin(nodes.urls) as admin:
            for topic in TOPICS:
                admin.create_topic(topic, 2)
        for topic in TOPICS:
            nodes.until(lambda topic=topic: all(nodes.owner(topic, name) for name in nodes), f"{topic} has an owner")
        yield nodes


def records(http: Http, topic: str) -> list[str]:
    found = []
    for partition in (0, 1):
        found += [record["value"] for record in http.read(topic, partition, "values=text")]
    return sorted(found)


def calls(nodes: Nodes) -> list[Http]:
    return [Http(node.url) for node in nodes.values()]


@pytest.mark.rule("CR4", "CR9")
def test_any_node_answers_for_any_topic(nodes: Nodes) -> None:
    assert {nodes.owner(topic) for topic in TOPICS} == set(nodes)
    https = calls(nodes)
    for topic in TOPICS:
        for number, http in enumerate(https):
            assert http.publish(topic, {"key": "k", "value": f"json-{number}"}).status == 200
            path = f"/v1/topics/{topic}/records?partition=1"
            assert http.call("POST", path, b"bytes-%d" % number, Content_Type=names.MEDIA_BYTES).status == 200
        for http in https:
            assert records(http, topic) == ["bytes-0", "bytes-1", "json-0", "json-1"]
            assert http.bounds(topic, 1)["high_watermark"] >= 2
            late = http.get(f"/v1/topics/{topic}/partitions/1/records?offset=99")
            assert (late.status, late.error_code) == (416, "offset_out_of_range")
        proxied = f'silt_requests_proxied_total{{topic="{topic}"}}'.encode()
        shown = [proxied in http.get("/metrics").body for http in https]
        assert sorted(shown) == [False, True]
        for http in https:
            there = http.get(f"/v1/topics/{topic}").json["offsets"]
            assert all("wal_bytes" in bounds for bounds in there), "any node tells what the owner keeps"
        claims = [http.call("POST", f"/v1/topics/{topic}/producers/p").json["producer_epoch"] for http in https]
        assert claims == sorted(set(claims))
        assert https[0].json("PATCH", f"/v1/topics/{topic}", {"config": {"retention.ms": 1_000_000}}).status == 200
        assert https[1].get(f"/v1/topics/{topic}").json["config"]["retention.ms"]["value"] == 1_000_000


def test_any_node_tells_how_the_table_of_any_topic_is_doing(nodes: Nodes) -> None:
    https = calls(nodes)
    for topic in TOPICS:
        https[0].publish(topic, {"key": "k", "value": "v"}, query="?acks=table")
        path = f"/v1/topics/{topic}"
        there = https[0].get(path).json
        for http in https:
            told = http.get(f"{path}/health").json
            offsets = zip(told["partitions"], there["offsets"], strict=True)
            assert all(now["table_offset"] >= then["table_offset"] for now, then in offsets)
            assert told["table"]["files"] >= there["files"] >= 1
            assert told["problems"] == []
            files = http.get(f"{path}/files?limit=1000").json
            assert len(files["files"]) >= told["table"]["files"]
            assert files["version"] >= told["table"]["version"]


def test_metrics_say_who_controls_and_what_came_to_whom(nodes: Nodes) -> None:
    shown: list[dict[str, float]] = []

    def are_in_touch() -> bool:
        shown[:] = [http.metrics() for http in calls(nodes)]
        silent = max(one["silt_cluster_silent_seconds"] for one in shown)
        return {one["silt_cluster_unreachable"] for one in shown} == {0} and silent < LEASE_MS / 1000

    nodes.until(are_in_touch, "each hears of the other")
    assert sorted(one["silt_cluster_controller"] for one in shown) == [0, 1]
    assert all(one["silt_cluster_view"] > 0 for one in shown)
    assert sum(one['silt_topics_taken_total{rule="released"}'] for one in shown) >= len(TOPICS)
    assert all(one['silt_topics_let_go_total{outcome="lost"}'] == 0 for one in shown)


@pytest.mark.slow
def test_a_topic_that_was_made_can_be_used_where_it_was_made(nodes: Nodes) -> None:
    """Whichever of the nodes is to own it."""
    for number in range(4):
        for name, http in zip(nodes, calls(nodes), strict=True):
            topic = f"made-{number}-at-{name}"
            http.create(topic)
            assert http.get(f"/v1/topics/{topic}/partitions/0/records?offset=0").status == 200
            assert http.publish(topic, {"value": "1"}, query="?timeout_ms=25000").status == 200


@pytest.mark.slow
def test_a_topic_that_was_made_can_be_read_at_every_node_at_once(nodes: Nodes) -> None:
    here, there = calls(nodes)
    for number in range(8):
        here.create(f"read-{number}")
        assert there.get(f"/v1/topics/read-{number}/partitions/0/records?offset=0").status == 200
        here, there = there, here


@pytest.mark.rule("CR5")
def test_who_asks_for_the_owner_is_told(nodes: Nodes) -> None:
    owner = nodes.owner("t0")
    for name, node in nodes.items():
        reply: Reply = Http(node.url).publish("t0", {"value": "direct"}, Silt_Route="direct")
        assert int(reply.headers["Silt-View"]) > 0
        if name == owner:
            assert reply.status == 200
        else:
            assert (reply.status, reply.error_code, reply.json["node"]) == (421, "not_owner", owner)
            assert reply.json["url"] == nodes[owner].peers.url


def test_a_hop_of_a_stranger_is_refused(nodes: Nodes) -> None:
    for http in calls(nodes):
        assert http.get("/v1/topics", Silt_Hop="1").status == 400
        assert http.json("POST", "/peers/head", {}).status == 404


@pytest.mark.rule("CR12", "CR13")
def test_clients_and_groups_do_not_notice_that_an_owner_is_killed(nodes: Nodes) -> None:
    urls = nodes.urls
    with Admin(urls) as admin, Producer(urls) as producer, Consumer(urls, group="g", topics=["t1"]) as consumer:
        before = sum(part["high_watermark"] for part in admin.offsets("t1"))
        victim = nodes[nodes.owner("t1")]
        for number in range(10):
            producer.send("t1", f"sent-{number}", key=str(number)).result(60)
        victim.kill()
        began = time.monotonic()
        for number in range(10, 20):
            producer.send("t1", f"sent-{number}", key=str(number)).result(120)
        assert time.monotonic() - began < 60
        seen: list[str] = []
        end = time.monotonic() + 90
        while len(seen) < before + 20 and time.monotonic() < end:
            seen += [(record.value or b"").decode() for record in consumer.poll(timeout_ms=500)]
        assert sorted(value for value in seen if value.startswith("sent-")) == sorted(
            f"sent-{number}" for number in range(20)
        )
        assert len(seen) == before + 20
        [survivor] = [node for node in nodes.values() if node is not victim]
        assert nodes.owner("t1") == survivor.name


@pytest.mark.slow
@pytest.mark.rule("CM5", "CM18", "CR16")
def test_a_node_with_another_secret_does_not_come_or_keeps_no_topics(tmp_path: Path) -> None:
    """The others call it as little as it calls them: what it owns only its own callers reach."""
    own = tmp_path / "own"
    own.write_text("0123456789abcdef" * 4 + "\n")
    own.chmod(0o600)

    def each(name: str, peers: CutDoor) -> Mapping[str, Any]:
        return {"secret_file": str(own)} if name == "n3" else {}

    with cluster(tmp_path / "cluster", 3, each=each) as nodes:
        assert nodes["n3"].stop() == 0
        own.write_text("fedcba9876543210" * 4 + "\n")
        with pytest.raises(ConfigError, match=r"node n3 does not have the secret of node n[12], which is up"):
            nodes["n3"].start()
        # It comes first: nobody can say then that the cluster has another.
        assert [nodes[name].stop() for name in ("n1", "n2")] == [0, 0]
        for name in ("n3", "n1", "n2"):
            nodes[name].start()
        https = {name: Http(node.url) for name, node in nodes.items()}

        def told() -> dict[str, tuple[str, int]]:
            listed = https["n1"].get("/v1/nodes").json["nodes"]
            return {node["id"]: (node["state"], node["topics"]) for node in listed}

        nodes.until(lambda: told().get("n3") == ("draining", 0), "it drains")
        for topic in TOPICS:
            https["n1"].create(topic)
            for name in ("n1", "n2"):
                assert https[name].publish(topic, {"value": "1"}, query="?timeout_ms=25000").status == 200
        assert {state for state, _ in told().values()} == {"up", "draining"}
        warned = "node n3 is not called where the view says: that is not proven by the secret"
        assert warned in https["n1"].get("/readyz").body.decode()
