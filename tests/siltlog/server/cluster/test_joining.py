"""How a server comes to be a node of a cluster, and what keeps one that knows of no cluster from a root of many."""

import os
from pathlib import Path

import pytest
from cluster_rig import cluster
from http_rig import Http
from processes import silt
from publishers import Wire
from record_tables import created

from siltlog.infra import names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.cluster.steps import put_view, taken
from siltlog.infra.cluster.survey import NOTHING_FOUND, Found
from siltlog.infra.cluster.view import TERM_SHIFT, ClusterView, decode_view
from siltlog.infra.errors import ConfigError, Unavailable, problem
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.table import TopicTable
from siltlog.server.cluster.joining import _found_before, _tables, kept_identity, place_of, settings_of
from siltlog.server_process import ServerProcess

TOPICS = 12


def newest(root: str) -> ClusterView:
    store = LocalStore(root.removeprefix("file://"))
    path = store.list(names.VIEWS_FOLDER)[-1].path
    return decode_view(store.get(path), int(path.rpartition("/")[2]))


def refused(folder: Path, *flags: str, **env: str) -> str:
    """What a server says that does not come to listen."""
    ran = silt(["serve", "--port", "0", *flags], folder, {**os.environ, "SILT_DATA_DIR": str(folder / "data"), **env})
    assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr


def test_a_data_directory_is_of_one_node(tmp_path: Path) -> None:
    made = kept_identity(tmp_path)
    assert kept_identity(tmp_path) == made
    assert names.name_problem(made.node) is None
    (tmp_path / names.NODE_FILE).write_bytes(b'{"data_dir":')
    with pytest.raises(ConfigError, match="bring it back from a copy"):
        kept_identity(tmp_path)


def test_a_node_is_named_and_its_topics_outlive_its_disk_unless_settings_say_otherwise(tmp_path: Path) -> None:
    alone = ServerSettings(data_dir=tmp_path)
    assert settings_of(alone, tmp_path) is alone
    shared = {"data_dir": tmp_path, "cluster": "on", "root": "s3://b/p", "advertise_url": "http://n:1"}
    member = settings_of(ServerSettings(**shared, redis_url="redis://r:1"), tmp_path)
    assert (member.node_id, member.acks) == (kept_identity(tmp_path).node, "object")
    told = ServerSettings(**shared, redis_url="redis://r:1", node_id="n1", acks="wal")
    assert (settings_of(told, tmp_path).node_id, settings_of(told, tmp_path).acks) == ("n1", "wal")


def test_a_copy_of_a_data_directory_is_at_another_place(tmp_path: Path) -> None:
    for name in ("one", "copy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / names.LOCK_FILE).touch()
    assert place_of(tmp_path / "one") == place_of(tmp_path / "one") != place_of(tmp_path / "copy")


@pytest.mark.rule("CM9")
def test_a_root_of_a_cluster_is_not_taken_by_a_server_alone(tmp_path: Path) -> None:
    with cluster(tmp_path, 1, lease_ms=10_000) as nodes:
        node = nodes["n1"]
        http = Http(node.url)
        assert http.get("/readyz").status == 200
        up = b'silt_cluster_nodes{state="up"} 1.0'
        nodes.until(lambda: up in http.get("/metrics").body, "it is up")
        first = newest(nodes.root)
        assert (first.controller, list(first.nodes)) == ("n1", ["n1"])
        assert first.nodes["n1"].state == "up"
        assert node.stop() == 0
        said = refused(tmp_path, SILT_ROOT=nodes.root)
        assert "set SILT_CLUSTER=on" in said
        said = refused(
            tmp_path,
            "--take-over",
            SILT_ROOT=nodes.root,
            SILT_CLUSTER="on",
            SILT_ADVERTISE_URL="http://127.0.0.1:1",
            SILT_REDIS_URL="redis://127.0.0.1:1",
        )
        assert "--take-over is for a server that is alone" in said
        node.start()
        again = newest(nodes.root)
        assert again.nodes["n1"].state != "away"
        assert again.nodes["n1"].journal != first.nodes["n1"].journal


@pytest.mark.rule("CM17")
def test_a_server_that_becomes_a_node_has_its_topics_from_the_first_request_on(tmp_path: Path) -> None:
    topics = [f"t{number}" for number in range(TOPICS)]
    alone = ServerProcess(tmp_path / "n1", {"root": (tmp_path / "lake").as_uri()})
    alone.start()
    for topic in topics:
        Wire(alone.url).create(topic, 1)
        assert published(Wire(alone.url), topic, "alone") == 200
    assert alone.stop() == 0
    with cluster(tmp_path, 1) as nodes:
        wire = nodes["n1"].wire
        first = decode_view(LocalStore(str(tmp_path / "lake")).get(names.view_object(1)), 1)
        assert sorted(first.topics) == sorted(topics)
        found = [wire.call("GET", f"/v1/topics/{topic}").status for topic in topics]
        read = [wire.call("GET", f"/v1/topics/{topic}/partitions/0/records?offset=0").status for topic in topics]
        assert [set(found), set(read)] == [{200}, {200}]
        for topic in topics:
            assert published(wire, topic, "as a node") == 200
            said = wire.call("GET", f"/v1/topics/{topic}/partitions/0/records?offset=0").document
            assert [record["value"] for record in said["records"]] == ["alone", "as a node"]


def published(wire: Wire, topic: str, value: str) -> int:
    return wire.call("POST", f"/v1/topics/{topic}/records", {"records": [{"value": value}]}).status


@pytest.mark.rule("CM17")
def test_the_first_view_waits_for_tables_that_the_store_does_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = LocalStore(str(tmp_path)), SystemClock()
    made = {name: created(store, name) for name in ("there", "deleted", "damaged")}
    made["deleted"].delete("one commit")
    (tmp_path / "topics" / "damaged" / "_delta_log" / f"{0:020d}.json").write_bytes(b"{")
    made["there"].claim({0: 7 << TERM_SHIFT | 5}, "claimed")
    found = Found({"there": made["there"].topic_id}, 7)
    assert _found_before(store, clock) == found

    def away(store: ObjectStore, topic: str, clock: Clock) -> TopicTable:
        raise problem("topic_unavailable", "the store answers nothing")

    with monkeypatch.context() as patch:
        patch.setattr(TopicTable, "open", away)
        with pytest.raises(Unavailable):
            _found_before(store, clock)
        assert _tables(clock, [], [])(store) == {}
    put(store, ClusterView(number=1, cluster_id="c", controller="n1", journal="j", nonce=""))
    assert _found_before(store, clock) == NOTHING_FOUND, "its nodes know what there is"
    put(store, ClusterView(number=2, cluster_id="c", controller="", journal="", nonce="", dissolved=True))
    assert _found_before(store, clock) == found


def put(store: ObjectStore, view: ClusterView) -> None:
    assert taken(store, put_view(view))


def test_tables_are_found_and_those_that_are_gone_are_told(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    made = {name: created(store, name) for name in ("known", "again", "deleted", "other", "damaged")}
    made["deleted"].delete("one commit")
    (tmp_path / "topics" / "damaged" / "_delta_log" / f"{0:020d}.json").write_bytes(b"{")
    found = _tables(SystemClock(), ["known", "again", "absent", "deleted"], ["again", "absent", "deleted"])(store)
    assert found == {"again": made["again"].topic_id, "other": made["other"].topic_id, "absent": "", "deleted": ""}
