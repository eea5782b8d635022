"""Real nodes over one root: they find each other, see who is gone, and nobody is buried who only could not be heard."""

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from chaos import CHAOS, only_with_chaos
from cluster_rig import ClusterNode, Nodes, cluster
from failure_rig import StartServer, refused

from siltlog.infra import names
from siltlog.infra.cluster.view import ClusterView, decode_view
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.server_process import ServerProcess

LEASE_SECONDS = 8.0
"""Longer than a busy machine lets a node wait; who stops is away before that."""
SOON_SECONDS = 10.0 + 2 * LEASE_SECONDS
"""How long others may take to have what a node had."""


def newest(store: ObjectStore) -> ClusterView:
    path = store.list(names.VIEWS_FOLDER)[-1].path
    return decode_view(store.get(path), int(path.rpartition("/")[2]))


def states(store: ObjectStore) -> dict[str, str]:
    return {name: node.state for name, node in newest(store).nodes.items()}


def all_up(store: ObjectStore, count: int = 3) -> bool:
    return states(store) == {f"n{number}": "up" for number in range(1, count + 1)}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with cluster(tmp_path / "cluster", lease_ms=int(LEASE_SECONDS * 1000)) as nodes:
        yield nodes


@pytest.mark.rule("CM2", "CM3", "CM4", "CM5")
@pytest.mark.slow
def test_nodes_find_each_other_and_who_is_gone_comes_back(nodes: Nodes, make_server: StartServer) -> None:
    store = open_store(nodes.root)
    nodes.until(lambda: all_up(store), "all are in the view")
    view = newest(store)
    first = view.controller
    killed, paused = nodes[first], next(node for name, node in nodes.items() if name != first)

    # The controller dies: another one rules, and says so.
    killed.kill()
    seconds = nodes.until(lambda: states(store)[first] == "away", "who was killed is away")
    assert seconds < SOON_SECONDS
    assert newest(store).controller != first
    killed.start()
    nodes.until(lambda: all_up(store), "who was killed is back")
    assert newest(store).nodes[first].journal != view.nodes[first].journal

    # A node sleeps for longer than its lease, and comes back as another start of itself.
    before = newest(store).nodes
    paused.pause()
    nodes.until(lambda: states(store)[paused.name] == "away", "who sleeps is away", SOON_SECONDS)
    paused.resume()
    nodes.until(lambda: all_up(store), "who slept is back")
    after = newest(store).nodes
    assert {name for name in after if after[name].journal != before[name].journal} == {paused.name}

    # Neither a copy of a data directory comes in beside it, nor a server that knows of no others.
    shutil.copytree(
        paused.server.data_dir, paused.server.data_dir.with_name("copy"), ignore=lambda *_: [names.SOCKET_FILE]
    )
    copy = ServerProcess(paused.server.data_dir.with_name("copy"), {**paused.server._settings, "port": 0})
    assert f"node {paused.name}" in refused(copy)
    alone = make_server("alone", root=nodes.root)
    assert "set SILT_CLUSTER=on" in refused(alone)
    assert all_up(store)

    # Who stops says so at once.
    assert paused.stop() == 0
    nodes.until(lambda: states(store)[paused.name] == "away", "who stopped is away", LEASE_SECONDS)


@pytest.mark.rule("CM2")
@pytest.mark.slow
def test_a_cluster_whose_machines_all_were_restarted_comes_up_again(nodes: Nodes) -> None:
    """Nobody was there to say that they are gone, and each data directory is in another place than before."""
    store = open_store(nodes.root)
    nodes.until(lambda: all_up(store), "all are in the view")
    for node in nodes.values():
        node.kill()
    for node in nodes.values():
        shutil.copytree(
            node.server.data_dir, node.server.data_dir.with_name("moved"), ignore=lambda *_: [names.SOCKET_FILE]
        )
        shutil.rmtree(node.server.data_dir)
        node.server.data_dir.with_name("moved").rename(node.server.data_dir)
    before = newest(store).nodes
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(ClusterNode.start, nodes.values()))
    nodes.until(lambda: all_up(store), "all are back")
    after = newest(store).nodes
    assert all(after[name].journal != before[name].journal for name in before)


@pytest.mark.chaos
@only_with_chaos
def test_nodes_come_and_go_for_minutes(nodes: Nodes) -> None:
    store = open_store(nodes.root)
    ended = time.monotonic() + 15 * min(CHAOS, 20)
    seen = newest(store)
    while time.monotonic() < ended:
        for node in nodes.values():
            node.kill()
            node.start()
            nodes.until(lambda: all_up(store), "all are up")
            assert newest(store).number > seen.number
            seen = newest(store)
