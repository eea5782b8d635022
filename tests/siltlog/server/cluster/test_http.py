"""What a node answers about the nodes of its cluster, and what it is told to have them do."""

import json
from pathlib import Path

import pytest
from cluster_rig import cluster
from http_rig import Http

from siltlog import Admin
from siltlog.cli.main import run
from siltlog.infra.errors import Refused, UnknownTopic
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]


@pytest.mark.slow
def test_a_node_tells_of_its_cluster_and_passes_on_what_it_is_asked_for(tmp_path: Path, capsys: Capture) -> None:
    with cluster(tmp_path, 1, lease_ms=10_000) as nodes:
        node = nodes["n1"]
        Http(node.url).create("orders")
        # The tables that are there already are found by the controller when it begins.
        node.stop()
        node.start()
        with Admin(node.url) as admin:
            nodes.until(lambda: admin.nodes()[0]["state"] == "up" and admin.nodes()[0]["topics"] >= 1, "it owns orders")
            [found] = admin.nodes()
            assert (found["id"], found["controller"], found["url"]) == ("n1", True, node.peers.url)
            document = admin.cluster()
            assert (document["controller"], document["nodes"]) == ("n1", [{"id": "n1", "url": node.peers.url}])
            assert document["view"] >= 2
            assert admin.balance(dry_run=True) == admin.balance() == []
            with pytest.raises(UnknownTopic):
                admin.move_topic("absent")
            for refused, words in (
                (lambda: admin.drain_node("n1"), "no other node is up"),
                (lambda: admin.remove_node("n1"), "node n1 is up: stop it first"),
                (lambda: admin.remove_node("n7"), "there is no node n7"),
                (lambda: admin.move_topic("orders", "n7"), "there is no node n7"),
                (lambda: admin.move_topic("orders"), "no other node is up than n1"),
                (lambda: admin.abandon_topic("orders"), "orders waits for no node that is away"),
            ):
                with pytest.raises(Refused, match=words):
                    refused()
        at = ("--url", node.url, "--output", "json")
        assert run(["node", "list", *at]) == 0
        assert [one["id"] for one in json.loads(capsys.readouterr().out)["nodes"]] == ["n1"]
        assert run(["cluster", "status", *at]) == 0
        assert json.loads(capsys.readouterr().out)["controller"] == "n1"
        assert run(["cluster", "balance", "--dry-run", *at]) == 0
        assert json.loads(capsys.readouterr().out) == {"moves": [], "dry_run": True}
        for words, arguments in (
            ("no other node is up", ["node", "drain", "n1"]),
            ("stop it first", ["node", "remove", "n1"]),
            ("there is no topic 'absent'", ["topic", "move", "absent", "--to", "n1"]),
        ):
            assert run([*arguments, *at]) == 1
            assert words in capsys.readouterr().err


def test_a_server_that_is_alone_is_the_only_node(tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path / "data", auto_create_partitions=1) as server:
        http = Http(server.url)
        document = http.get("/v1/nodes").json
        assert document["view"] is None
        assert [(one["id"], one["state"]) for one in document["nodes"]] == [("node-0", "up")]
        assert http.get("/v1/cluster").json["view"] is None
        for method, path in (
            ("POST", "/v1/nodes/node-0/drain"),
            ("DELETE", "/v1/nodes/node-0"),
            ("POST", "/v1/cluster/balance"),
        ):
            assert http.call(method, path).error_code == "cluster_off"
        assert http.json("POST", "/v1/topics/t/move", {}).error_code == "cluster_off"
