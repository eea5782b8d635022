"""What is published and read at the nodes of a cluster while mishaps befall them, and whether one log can have told it.

world = World(nodes, store, rng)
mend = kill(world, world.owner())
world.published()                # every publisher has been acknowledged something since
mend()
world.finish()                   # the history of each topic is looked at: what was told, and what is in its table
"""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chaos import CHAOS
from cluster_callers import Caller, ClusterPublisher, ClusterReader, rows_of
from cluster_rig import ClusterNode, Nodes
from cut_door import CutDoor
from evidence import read_table
from history import Row, complaints

from siltlog.infra import names
from siltlog.infra.cluster.view import ClusterView, decode_view
from siltlog.infra.store.store import ObjectStore

PARTITIONS = 2
LEVELS = ("table", "object")
PAUSE_SECONDS = 0.02 if CHAOS > 1 else 0.1
"""Between one call and the next; without one, callers would take most of what nodes on the same machine need."""
EASY_SECONDS = 0.02 if CHAOS > 1 else 0.5
"""While nobody waits for callers to go on: nodes start, stop and take over."""
FLUSH_MS = 100 if CHAOS > 1 else 300
"""Flushes are most of what nodes do under callers that rest."""
ACKS = 20 if CHAOS > 1 else 4
"""So many of each publisher show that it goes on."""
SETTLED_SECONDS = 60.0
FAR_STORE = (0.06, 0.25)
"""Seconds that S3 takes: the median, and what one in a hundred requests exceeds."""
HOUR = 3_600


def newest(store: ObjectStore) -> ClusterView:
    path = store.list(names.VIEWS_FOLDER)[-1].path
    return decode_view(store.get(path), int(path.rpartition("/")[2]))


def all_up(nodes: Nodes, store: ObjectStore) -> bool:
    return {name: node.state for name, node in newest(store).nodes.items()} == dict.fromkeys(nodes, "up")


class World:
    """A topic for each level, and who publishes to it and reads it through all nodes."""

    def __init__(self, nodes: Nodes, store: ObjectStore, rng: random.Random, name: str = "logs") -> None:
        self.nodes = nodes
        self.store = store
        self.rng = rng
        self.topics = {f"{name}-{level}": level for level in LEVELS}
        self._logged = {name: len(node.log()) for name, node in nodes.items()}
        nodes.until(lambda: all_up(nodes, store), "all are up")
        for topic, level in self.topics.items():
            next(iter(nodes.values())).wire.create(topic, PARTITIONS, acks=level)
            nodes.until(lambda topic=topic: all(nodes.owner(topic, at) for at in nodes), "all know the topic")  # type: ignore[misc]
        self.publishers = [
            ClusterPublisher(nodes, topic, f"{kind}-{level}", rng.getrandbits(32), acks=level, once=kind == "once")
            for topic, level in self.topics.items()
            for kind in ("again", "once")
        ]
        self.readers = [
            ClusterReader(nodes, topic, f"reader-{level}", rng.getrandbits(32)) for topic, level in self.topics.items()
        ]
        self._guests: list[Caller] = []
        for caller in self.callers:
            caller.pause_seconds = PAUSE_SECONDS
            caller.start()
        self.published()

    @property
    def callers(self) -> list[Caller]:
        return [*self.publishers, *self.readers, *self._guests]

    def join(self, *guests: Caller) -> None:
        """Others that publish to its topics, or read them."""
        for guest in guests:
            self._guests.append(guest)
            guest.pause_seconds = PAUSE_SECONDS
            guest.start()

    def view(self) -> ClusterView:
        return newest(self.store)

    def owner(self, level: str = "table") -> str:
        [topic] = [name for name, its in self.topics.items() if its == level]
        return self.view().topics[topic].owner.node

    def owns(self, name: str) -> bool:
        view = self.view()
        return any(view.topics[topic].owner.node == name for topic in self.topics)

    def published(self, seconds: float = 60.0) -> float:
        """The seconds until every publisher has heard of something that it sent from here on."""
        before = [len(publisher.acks) for publisher in self.publishers]

        def all_heard() -> bool:
            assert not self.told(), self.told()
            return all(
                len(publisher.acks) > count + ACKS for publisher, count in zip(self.publishers, before, strict=True)
            )

        with self.hurried():
            return self.nodes.until(all_heard, "every publisher goes on", seconds)

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Somebody waits for what callers do next: they rest less meanwhile."""
        for caller in self.callers:
            caller.pause_seconds = PAUSE_SECONDS
        yield
        for caller in self.callers:
            caller.pause_seconds = EASY_SECONDS

    def told(self) -> list[str]:
        """What callers were told that nobody should be."""
        return [said for caller in self.callers for said in caller.complaints]

    def errors(self) -> set[str]:
        return {error for publisher in self.publishers for error in publisher.errors}

    def waits(self) -> list[float]:
        return sorted(wait for publisher in self.publishers for wait in publisher.waits)

    def finish(self) -> None:
        """Call it once all is mended."""
        for caller in self.callers:
            caller.finish()
        assert not self.told(), self.told()
        for topic in self.topics:
            self._check(topic)
        for name, node in self.nodes.items():
            _, raised, what = node.log()[self._logged[name] :].partition("Traceback")
            assert not raised, f"{name} raised what nobody expected: {what}"

    def leave(self) -> None:
        """Nobody calls any more, and its topics are gone."""
        for caller in self.callers:
            caller.leave()
        for topic in self.topics:
            self._any().wire.call("DELETE", f"/v1/topics/{topic}")

    def ends(self, topic: str) -> dict[int, int]:
        """Gives by partition the end of what callers know of."""
        callers = self._callers_of(topic)
        seen = [(ack.partition, ack.offset + 1) for caller in callers for ack in caller.acks]
        seen += [(read.partition, read.next_offset) for caller in callers for read in caller.reads]
        ends: dict[int, int] = {}
        for partition, end in seen:
            ends[partition] = max(end, ends.get(partition, 0))
        return ends

    def table(self, topic: str) -> list[Row]:
        return rows_of(read_table(self.nodes.root, topic, dict(self.nodes.storage_options or {}) or None))

    def _callers_of(self, topic: str) -> list[Caller]:
        return [caller for caller in self.callers if caller.topic == topic]

    def _check(self, topic: str) -> None:
        callers = self._callers_of(topic)
        acks = [ack for caller in callers for ack in caller.acks]
        reads = [read for caller in callers for read in caller.reads]
        assert acks and reads
        ends = self.ends(topic)

        def flushed() -> bool:
            bounds = {row["partition"]: row["table_offset"] for row in self._any().wire.offsets(topic)}
            return all(bounds[partition] >= end for partition, end in ends.items())

        self.nodes.until(flushed, "all is in the table", SETTLED_SECONDS)
        wrong = complaints(
            acks,
            reads,
            self.table(topic),
            refused={value for caller in callers for value in caller.refused},
            exactly_once={value for caller in callers for value in caller.landed},
            fresh=False,
        )
        assert not wrong, (topic, wrong)

    def _any(self) -> ClusterNode:
        return self.nodes[self.rng.choice(sorted(self.nodes))]


Mend = Callable[[], None]
Mishap = Callable[[World, str], Mend]
"""What befalls a node, and how it is mended."""


def kill(world: World, name: str) -> Mend:
    world.nodes[name].kill()
    return world.nodes[name].start


def lose_disk(world: World, name: str) -> Mend:
    world.nodes[name].kill()
    shutil.rmtree(world.nodes[name].server.data_dir)
    return world.nodes[name].start


def pause(world: World, name: str) -> Mend:
    world.nodes[name].pause()
    return world.nodes[name].resume


def restart(world: World, name: str) -> Mend:
    """Restarts a node with other settings, as an upgrade does."""
    assert world.nodes[name].stop() == 0
    world.nodes[name].server._settings |= {
        "object_interval_ms": world.rng.choice((0, 20, 100)),
        "flush_ms": world.rng.choice((50, 100, 300)),
        "heartbeat_ms": world.rng.choice((300, 500)),
    }
    return world.nodes[name].start


def _cut(door: CutDoor) -> Mend:
    door.cut()
    return door.open


def _stop_up(door: CutDoor) -> Mend:
    door.stop_up()
    return door.open


def _mute(door: CutDoor) -> Mend:
    door.mute()
    return door.open


def cut_from_peers(world: World, name: str) -> Mend:
    return _cut(world.nodes[name].peers)


def silent_to_peers(world: World, name: str) -> Mend:
    return _stop_up(world.nodes[name].peers)


def mute_to_peers(world: World, name: str) -> Mend:
    """What others ask of it is done, and they do not hear of it."""
    return _mute(world.nodes[name].peers)


def cut_from_clients(world: World, name: str) -> Mend:
    return _cut(world.nodes[name].calls)


def mute_to_clients(world: World, name: str) -> Mend:
    """What was answered meanwhile is lost."""
    calls = world.nodes[name].calls
    calls.mute()

    def mend() -> None:
        calls.cut()
        calls.open()

    return mend


def cut_from_store(world: World, name: str) -> Mend:
    return _cut(world.nodes[name].store)


def silent_store(world: World, name: str) -> Mend:
    return _stop_up(world.nodes[name].store)


def mute_store(world: World, name: str) -> Mend:
    """What it puts is there, and it does not hear of it."""
    return _mute(world.nodes[name].store)


def refused_by_store(world: World, name: str) -> Mend:
    world.nodes[name].storm.raging = True
    return world.nodes[name].storm.calm


def rage(world: World, name: str) -> Mend:
    """S3 refuses everybody."""
    world.nodes.rage()
    return lambda: world.nodes.rage(False)


def far_store(world: World, name: str) -> Mend:
    for node in world.nodes.values():
        node.storm.seconds = FAR_STORE

    def mend() -> None:
        for node in world.nodes.values():
            node.storm.calm()

    return mend


def lose_answers(world: World, name: str) -> Mend:
    storm = world.nodes[name].storm
    storm.chances = {"done": 0.1, "not_done": 0.05, "slow_down": 0.05, "twice": 0.05, "conflict": 0.02}
    return storm.calm


def jump_clock(world: World, name: str) -> Mend:
    world.nodes[name].clock_off_by(world.rng.choice((-1, 1)) * world.rng.choice((30, 3 * HOUR, 50 * HOUR)))
    return lambda: world.nodes[name].clock_off_by(0)


def move(world: World, name: str) -> Mend:
    """Its topics go elsewhere."""
    for topic in world.topics:
        if newest(world.store).topics[topic].owner.node == name:
            world.nodes[name].wire.call("POST", f"/v1/topics/{topic}/move", {})
    return lambda: None


OF_NODES: tuple[Mishap, ...] = (
    kill,
    lose_disk,
    pause,
    restart,
    cut_from_peers,
    silent_to_peers,
    mute_to_peers,
    cut_from_clients,
    mute_to_clients,
    jump_clock,
    move,
)
OF_STORES: tuple[Mishap, ...] = (
    cut_from_store,
    silent_store,
    mute_store,
    refused_by_store,
    rage,
    far_store,
    lose_answers,
)
