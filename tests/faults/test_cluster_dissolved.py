"""A cluster becomes one server, and a cluster again: nothing that was acknowledged is left behind."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from cluster_rig import SETTINGS, Nodes, _node, cluster
from msgspec.structs import replace
from publishers import Wire

from siltlog.cli.main import run
from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.cluster.beat import Report
from siltlog.infra.cluster.identity import Identity, Timing
from siltlog.infra.cluster.member import Member
from siltlog.infra.cluster.steps import put_view, taken
from siltlog.infra.errors import ConfigError
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.store import open_store
from siltlog.server.cluster.joining import check_alone
from siltlog.server_process import ServerProcess

LEVELS = ("wal", "object", "table")


def publish(wire: Wire, topic: str, value: str) -> None:
    said = wire.call("POST", f"/v1/topics/{topic}/records", {"records": [{"value": value}]})
    assert said.status == 200, said


def values(wire: Wire, topic: str) -> list[str]:
    found = wire.call("GET", f"/v1/topics/{topic}/partitions/0/records?offset=0").document
    return [record["value"] for record in found["records"]]


@pytest.mark.slow
@pytest.mark.rule("CM9", "CM10")
def test_one_server_goes_on_with_all_that_a_cluster_had_and_a_cluster_with_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def dissolve(nodes: Nodes, *arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run(["cluster", "dissolve", "--root", nodes.root, "--output", "json", *arguments])
        said = capsys.readouterr()
        return code, said.out + said.err

    with cluster(tmp_path, 2, flush_ms=600_000) as nodes:
        for level in LEVELS:
            nodes["n1"].wire.create(level, 1, acks=level)
            publish(nodes["n2"].wire, level, "of the cluster")
        store = open_store(nodes.root)
        with pytest.raises(ValueError, match="hexadecimal"):  # what a release before clusters makes of it
            uuid.UUID(store.get(names.CLUSTER_ID_OBJECT).decode())
        code, said = dissolve(nodes)
        assert code != 0 and "stop it (SIGTERM)" in said
        last = nodes.owner("wal")
        other = nodes["n2" if last == "n1" else "n1"]
        assert other.stop() == 0
        nodes[last].kill()
        code, said = dissolve(nodes)
        assert code != 0 and f"node {last} " in said and "was killed" in said
        nodes[last].start()
        nodes.until(lambda: all(map(nodes.owner, LEVELS)), "it has its topics again")
        publish(nodes[last].wire, "wal", "again")
        assert nodes[last].stop() == 0
        code, said = dissolve(nodes, "--dry-run")
        assert code == 0 and json.loads(said)["topics"] == len(LEVELS), said
        alone = ServerProcess(tmp_path / "alone", _alone(nodes), log=tmp_path / "alone.log")
        with pytest.raises(Exception, match="exit"):
            alone.start()
        assert "silt cluster dissolve" in (tmp_path / "alone.log").read_text()
        for _ in range(2):
            code, said = dissolve(nodes)
            assert code == 0, said
        assert store.get(names.CLUSTER_ID_OBJECT).decode() == cluster_id(store)
        alone.start()
        try:
            wire = Wire(alone.url)
            assert [values(wire, level) for level in LEVELS] == [
                ["of the cluster", "again"],
                *[["of the cluster"]] * 2,
            ]
            for level in LEVELS:
                publish(wire, level, "alone")
        finally:
            assert alone.stop() == 0
        other.start()
        nodes.until(lambda: nodes.owner("wal") == other.name, "it goes on with what one server handed back")
        for level in LEVELS:
            nodes.until(lambda: publish(other.wire, level, "and again") is None, "it takes records")  # noqa: B023
            assert values(other.wire, level)[-2:] == ["alone", "and again"]
        code, said = dissolve(nodes)
        assert code != 0 and "stop it (SIGTERM)" in said


def _alone(nodes: Nodes) -> dict[str, Any]:
    return {"root": nodes.root, "redis_url": nodes.redis_url, "flush_ms": SETTINGS["flush_ms"]}


@pytest.mark.slow
@pytest.mark.rule("CO5", "CM17")
def test_a_server_that_was_killed_goes_on_as_the_second_node(tmp_path: Path) -> None:
    """Views give its topics to the first: what was acknowledged and is in no table is on its disk alone."""
    topics = [f"t{number}" for number in range(3)]
    alone = ServerProcess(tmp_path / "n2", {"root": (tmp_path / "lake").as_uri(), "flush_ms": 600_000})
    alone.start()
    for topic in topics:
        Wire(alone.url).create(topic, 1)
        publish(Wire(alone.url), topic, "alone")
    alone.kill()
    alone.stop()  # its Valkey outlives it
    with cluster(tmp_path, 1) as nodes:
        nodes["n2"] = _node(tmp_path, "n2", nodes, None, {"redis_url": nodes.redis_url}, None)
        nodes["n2"].start()
        for topic in topics:
            path = f"/v1/topics/{topic}/records"
            sent = {"records": [{"value": "of nodes"}]}
            nodes.until(lambda: nodes["n1"].wire.call("POST", path, sent).status == 200, "it takes records")  # noqa: B023
            nodes.until(lambda: values(nodes["n2"].wire, topic) == ["alone", "of nodes"], "and has all")  # noqa: B023


def test_what_is_no_cluster_id_is_refused_whatever_follows(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    store.put(names.CLUSTER_ID_OBJECT, b"x\n" + cluster_id(open_store((tmp_path / "other").as_uri())).encode())
    with pytest.raises(ConfigError, match="is not a cluster id"):
        cluster_id(store)


@pytest.mark.rule("CM10")
def test_who_slept_stops_and_who_comes_begins_anew(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())

    def member(name: str) -> Member:
        identity = Identity("c", name, name, name, f"http://{name}", "", "")
        return Member(identity, Timing(), SystemClock(), Report, lambda: str(uuid.uuid4()))

    def turns(one: Member) -> None:
        taken(store, one.beat())
        taken(store, one.look())

    slept = member("n1")
    assert taken(store, slept.arrive())
    turns(slept)
    assert slept.in_view
    last = replace(slept.view, number=slept.view.number + 1, controller="", journal="", nodes={}, dissolved=True)
    assert taken(store, put_view(last))
    with pytest.raises(ConfigError, match="this cluster was dissolved"):
        turns(slept)
    for name in ("n1", "n2"):
        come = member(name)
        assert taken(store, come.arrive())
        assert come.view == last or name == "n2"
        turns(come)
        assert not come.view.dissolved and come.view.number > last.number
        with pytest.raises(ConfigError, match="nodes of a cluster share"):
            check_alone(store)
