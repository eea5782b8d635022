"""Topics of nodes that share a root, published to and read without a pause while nodes are killed, put to sleep and cut
off: what was acknowledged is there once, in order, and everybody was told of one log."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos import CHAOS, only_with_chaos
from cluster_rig import CALL_SECONDS, LEASE_MS, ClusterPublisher, ClusterReader, Nodes, cluster, rows_of
from evidence import read_table
from history import complaints
from s3_server import S3Server

from siltlog.infra import names
from siltlog.infra.cluster.view import ClusterView, decode_view
from siltlog.infra.store.store import ObjectStore, open_store

LEASE_SECONDS = LEASE_MS / 1000
FAILOVER_SECONDS_MAX = 10.0
TOPIC = "logs"
PARTITIONS = 2


def newest(store: ObjectStore) -> ClusterView:
    path = store.list(names.VIEWS_FOLDER)[-1].path
    return decode_view(store.get(path), int(path.rpartition("/")[2]))


class World:
    """A topic, and who publishes to it and reads it through all nodes."""

    def __init__(self, nodes: Nodes, store: ObjectStore, rng: random.Random) -> None:
        self.nodes = nodes
        self.store = store
        nodes.until(
            lambda: sum(node.state == "up" for node in newest(store).nodes.values()) == len(nodes), "all are up"
        )
        next(iter(nodes.values())).wire.create(TOPIC, PARTITIONS, acks="table")
        nodes.until(
            lambda: all(node.wire.call("GET", f"/v1/topics/{TOPIC}").status == 200 for node in nodes.values()),
            "all nodes know the topic",
        )
        seeds = [rng.getrandbits(32) for _ in range(5)]
        self.publishers = [
            ClusterPublisher(nodes, TOPIC, f"p{number}", seed, partitions=PARTITIONS, once=number == 2)
            for number, seed in enumerate(seeds[:3])
        ]
        self.readers = [
            ClusterReader(nodes, TOPIC, f"r{number}", seed, partitions=PARTITIONS)
            for number, seed in enumerate(seeds[3:])
        ]
        for caller in (*self.publishers, *self.readers):
            caller.start()
        self.published()

    def owner(self) -> str:
        topic = newest(self.store).topics[TOPIC]
        return topic.owner.node

    def acked(self) -> int:
        return sum(len(publisher.acks) for publisher in self.publishers)

    def published(self, seconds: float = 60.0) -> float:
        """The seconds until every publisher has heard of something that it sent from here on."""
        before = [len(publisher.acks) for publisher in self.publishers]

        def all_heard() -> bool:
            assert not [said for publisher in self.publishers for said in publisher.complaints], self.told()
            return all(
                len(publisher.acks) > count + 1 for publisher, count in zip(self.publishers, before, strict=True)
            )

        return self.nodes.until(all_heard, "every publisher goes on", seconds)

    def told(self) -> list[str]:
        """What callers were told that nobody should be."""
        return [said for caller in (*self.publishers, *self.readers) for said in caller.complaints]

    def finish(self) -> None:
        for caller in (*self.publishers, *self.readers):
            caller.finish()
        assert self.told() == []
        for node in self.nodes.values():
            if node.server.running:
                node.resume()
                assert node.stop() == 0
        assert [name for name, node in self.nodes.items() if "Traceback" in node.log()] == []
        found = read_table(self.nodes.root, TOPIC, dict(self.nodes.storage_options or {}) or None)
        wrong = complaints(
            [ack for publisher in self.publishers for ack in publisher.acks],
            [read for reader in self.readers for read in reader.reads],
            rows_of(found),
            refused={value for publisher in self.publishers for value in publisher.refused},
            fresh=False,
        )
        assert wrong == []
        assert self.acked() and all(reader.reads for reader in self.readers)


def kill(world: World, owner: str) -> Callable[[], None]:
    world.nodes[owner].kill()
    return world.nodes[owner].start


def pause(world: World, owner: str) -> Callable[[], None]:
    world.nodes[owner].pause()
    return world.nodes[owner].resume


def cut_from_peers(world: World, owner: str) -> Callable[[], None]:
    world.nodes[owner].peers.cut()
    return world.nodes[owner].peers.open


@pytest.fixture
def world(tmp_path: Path, rng: random.Random) -> Iterator[World]:
    with cluster(tmp_path / "cluster") as nodes:
        yield World(nodes, open_store(nodes.root), rng)


@pytest.mark.slow
def test_a_topic_goes_on_elsewhere_when_its_owner_is_killed_and_when_it_sleeps(world: World) -> None:
    for mishap, seconds_max in ((kill, FAILOVER_SECONDS_MAX), (pause, FAILOVER_SECONDS_MAX + 2 * CALL_SECONDS)):
        owner = world.owner()
        mend = mishap(world, owner)
        seconds = world.published()
        print(f"{mishap.__name__}: {seconds:.1f} s")
        assert seconds < seconds_max
        assert world.owner() != owner
        mend()
        time.sleep(2 * LEASE_SECONDS)
        world.published()
    world.finish()


@pytest.mark.slow
def test_nodes_are_stopped_and_started_one_after_another_and_nobody_is_refused(world: World) -> None:
    """As an upgrade does it: each hands over what it owns before it ends."""
    for name in list(world.nodes):
        assert world.nodes[name].stop() == 0
        assert world.owner() != name
        world.nodes[name].start()
        world.published()
    stalls = sorted(seconds for publisher in world.publishers for _, seconds in publisher.stalls)
    errors = {error for publisher in world.publishers for error in publisher.errors}
    print(f"stalls above a second: {stalls}; errors: {errors}")
    world.finish()
    # Who calls a node that is stopping, or has stopped, calls the next.
    assert errors <= {"0 ", "503 shutting_down"}, errors


@pytest.mark.slow
def test_a_topic_moves_under_load_and_no_caller_hears_of_it(world: World) -> None:
    for _ in range(4):
        owner = world.owner()
        target = next(name for name in world.nodes if name != owner)
        reply = world.nodes[owner].wire.call("POST", f"/v1/topics/{TOPIC}/move", {"node": target})
        assert reply.status in (200, 202), reply
        world.nodes.until(lambda target=target: world.owner() == target, "it has moved", FAILOVER_SECONDS_MAX)  # type: ignore[misc]
        world.published()
    print(f"longest waits: {[round(publisher.longest, 2) for publisher in world.publishers]} s")
    world.finish()
    assert [error for publisher in world.publishers for error in publisher.errors] == []


@pytest.mark.slow
def test_an_owner_that_no_other_node_reaches_is_reached_again(world: World) -> None:
    for _ in range(2):
        owner = world.owner()
        mend = cut_from_peers(world, owner)
        time.sleep(2 * LEASE_SECONDS)
        mend()
        world.published()
    world.finish()


@pytest.mark.s3
@pytest.mark.slow
def test_an_owner_without_the_store_is_followed_and_a_spell_of_503_passes(
    s3_server: S3Server, tmp_path: Path, rng: random.Random
) -> None:
    with cluster(tmp_path / tmp_path.name, s3=s3_server) as nodes:
        store = open_store(nodes.root, s3_endpoint=s3_server.endpoint)
        nodes.storage_options = store.storage_options()
        world = World(nodes, store, rng)
        owner = world.owner()
        nodes[owner].store.cut()
        nodes.until(lambda: world.owner() != owner, "another owns it", 2 * FAILOVER_SECONDS_MAX)
        world.published()
        nodes[owner].store.open()
        nodes.storm.raging = True
        time.sleep(60 if CHAOS > 1 else 2 * LEASE_SECONDS)
        nodes.storm.raging = False
        world.published()
        world.finish()


@only_with_chaos
@pytest.mark.timeout(1_200)
def test_any_node_is_killed_stopped_or_cut_off_again_and_again(world: World, rng: random.Random) -> None:
    ended = time.monotonic() + 60 * min(CHAOS, 10)
    while time.monotonic() < ended:
        name = rng.choice(sorted(world.nodes))
        mend = rng.choice((kill, pause, cut_from_peers))(world, name)
        time.sleep(rng.choice((0.5, 5.0, 30.0)) * rng.random())
        mend()
        world.published(120)
    world.finish()
