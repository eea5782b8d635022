"""Topics of nodes that share a root, published to and read without a pause while nodes are killed, put to sleep, cut
off and started anew: what was acknowledged is there once, in order, and everybody was told of one log."""

import random
import shutil
import statistics
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import count
from pathlib import Path

import pytest
from chaos import CHAOS, only_with_chaos
from cluster_callers import CALL_SECONDS, GroupMember, LibraryPublisher
from cluster_rig import LEASE_MS, Nodes, cluster
from cluster_world import (
    FLUSH_MS,
    HOUR,
    Mishap,
    World,
    all_up,
    cut_from_clients,
    cut_from_peers,
    kill,
    lose_disk,
    mute_to_clients,
    mute_to_peers,
    pause,
    restart,
    silent_to_peers,
)
from failure_rig import refused
from http_rig import Http
from later_release import VERSION, later_release

from siltlog.cli.main import run
from siltlog.infra import names
from siltlog.infra.store.store import open_store
from siltlog.server_process import ServerProcess

LEASE_SECONDS = LEASE_MS / 1000
FAILOVER_SECONDS_MAX = 60.0
"""A busy machine may take so long; where nobody takes over it is never."""
SLEEP_SECONDS = 2 * LEASE_SECONDS
GROUP_SECONDS = 60.0
_worlds = count(1)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with cluster(tmp_path_factory.mktemp("shared") / "cluster", flush_ms=FLUSH_MS) as nodes:
        yield nodes


@pytest.fixture
def world(shared: Nodes, rng: random.Random) -> Iterator[World]:
    """Topics, publishers and readers of this test's own, at nodes that the tests of this file share."""
    shared.heal()
    world = World(shared, open_store(shared.root), rng, f"logs{next(_worlds)}")
    yield world
    world.leave()


@pytest.mark.parametrize("mishap", [kill, lose_disk])
def test_topics_go_on_elsewhere_when_their_owner_is_killed(world: World, mishap: Mishap) -> None:
    owner = world.owner("object")
    mend = mishap(world, owner)
    seconds = world.published()
    print(f"{mishap.__name__}: {seconds:.1f} s")
    assert seconds < FAILOVER_SECONDS_MAX
    assert not world.owns(owner)
    shown = [Http(node.url).metrics() for name, node in world.nodes.items() if name != owner]
    assert any(each['silt_topics_taken_total{rule="shipped"}'] for each in shown)
    mend()
    world.published()
    world.finish()


def test_an_owner_that_sleeps_is_followed_and_wakes_to_what_is_anothers(world: World) -> None:
    _sleep(world, SLEEP_SECONDS, FAILOVER_SECONDS_MAX)
    world.finish()


@pytest.mark.chaos
@only_with_chaos
def test_an_owner_that_sleeps_for_a_minute_is_followed(tmp_path: Path, rng: random.Random) -> None:
    """The settings are those that hold when nobody sets them."""
    with cluster(tmp_path / "cluster", lease_ms=5_000, heartbeat_ms=1_500, flush_ms=1_000) as nodes:
        world = World(nodes, open_store(nodes.root), rng)
        for _ in range(1 + min(CHAOS // 20, 5)):
            _sleep(world, 60.0, 2 * FAILOVER_SECONDS_MAX)
        world.finish()


def _sleep(world: World, seconds: float, seconds_max: float) -> None:
    owner = world.owner()
    mend = pause(world, owner)
    slept = world.published()
    print(f"went on after {slept:.1f} s")
    assert slept < seconds_max + 2 * CALL_SECONDS
    assert not world.owns(owner)
    time.sleep(max(0.0, seconds - slept))
    mend()
    world.nodes.until(lambda: all_up(world.nodes, world.store), "who slept is back")
    world.published()


def test_topics_move_and_nodes_are_drained_under_load_and_no_caller_hears_of_it(world: World) -> None:
    for turn in range(2):
        for topic, level in world.topics.items():
            owner = world.owner(level)
            target = next(name for name in world.nodes if name != owner)
            if turn % 2:
                assert run(["topic", "move", topic, "--to", target, "--url", world.nodes[owner].url]) == 0
            else:
                reply = world.nodes[owner].wire.call("POST", f"/v1/topics/{topic}/move", {"node": target})
                assert reply.status in (200, 202), reply
            world.nodes.until(
                lambda target=target, level=level: world.owner(level) == target,  # type: ignore[misc]
                "it has moved",
                FAILOVER_SECONDS_MAX,
            )
        world.published()
    drained = world.owner()
    other = next(node for name, node in world.nodes.items() if name != drained)
    assert run(["node", "drain", drained, "--url", other.url]) == 0
    world.nodes.until(lambda: not world.owns(drained), "it owns nothing", FAILOVER_SECONDS_MAX)
    world.published()
    waits = world.waits()
    print(f"waits: {_told(waits)}")
    world.finish()
    assert world.errors() == set()
    world.nodes[drained].stop()
    world.nodes[drained].start()


def test_an_owner_that_others_do_not_reach_is_reached_again(world: World) -> None:
    for mishap in (cut_from_peers, silent_to_peers, mute_to_peers):
        mend = mishap(world, world.owner())
        time.sleep(LEASE_SECONDS)
        mend()
        world.published()
    world.finish()


def test_callers_that_are_cut_off_ask_elsewhere_and_lost_answers_are_no_second_record(world: World) -> None:
    for mishap in (cut_from_clients, mute_to_clients):
        for name in world.nodes:
            mend = mishap(world, name)
            time.sleep(0.5)
            mend()
        world.published()
    world.finish()


def test_clocks_jump_forwards_and_back_and_decide_nothing(world: World) -> None:
    owner, *others = sorted(world.nodes, key=lambda name: not world.owns(name))
    for name in (owner, others[0]):
        world.nodes[name].stop()
        world.nodes[name].own_clock()
        world.nodes[name].start()
    # One goes ahead where the other goes back: each level has an owner whose clock does either.
    for topic, name in zip(world.topics, (owner, others[0]), strict=True):
        world.nodes[others[1]].wire.call("POST", f"/v1/topics/{topic}/move", {"node": name})
    owners = (owner, others[0])
    world.nodes.until(lambda: (world.owner("table"), world.owner("object")) == owners, "their clocks are the owners'")
    topic = next(iter(world.topics))
    world.nodes.until(lambda: all_up(world.nodes, world.store), "all are up")
    journals = {name: node.journal for name, node in world.view().nodes.items()}
    for hours in (3, -50):
        world.nodes[owner].clock_off_by(hours * HOUR)
        world.nodes[others[0]].clock_off_by(-hours * HOUR)
        assert abs(_clock(world, topic) - time.time() - hours * HOUR) < HOUR
        time.sleep(LEASE_SECONDS)
        world.published()
    assert {name: node.journal for name, node in world.view().nodes.items()} == journals, "nobody is taken for lost"
    mend = kill(world, owner)
    assert world.published() < FAILOVER_SECONDS_MAX
    world.nodes[owner].clock_off_by(0)
    mend()
    world.nodes[others[0]].clock_off_by(0)
    world.published()
    world.finish()


@pytest.mark.rule("CM2")
def test_a_data_directory_is_served_once_also_where_its_node_only_sleeps(world: World) -> None:
    """A second server on it is refused. A copy on another machine is the node once that one's lease is over; who wakes
    up then stops."""
    node = world.nodes[world.owner("object")]
    settings = {**node.server._settings, "port": 0}
    folder = node.server.data_dir
    copied = folder.with_name("copy")
    assert str(folder) in refused(ServerProcess(folder, settings))
    node.pause()
    shutil.copytree(folder, copied, ignore=lambda *_: [names.SOCKET_FILE])
    copy = ServerProcess(copied, settings, log=folder.with_name("copy.log"))
    try:
        copy.start()
        world.published()
        node.resume()
        world.nodes.until(lambda: not node.server.running, "who slept finds another in its place")
        world.published()
        assert copy.stop() == 0
    finally:
        if copy.running:
            copy.kill()
    node.start()
    world.published()
    world.finish()


@pytest.mark.rule("CR15")
def test_a_producer_and_a_group_hear_nothing_of_an_owner_that_dies_and_of_a_node_that_sleeps(world: World) -> None:
    topic = next(name for name, level in world.topics.items() if level == "object")
    producer = LibraryPublisher(world.nodes, topic, "library", world.rng.getrandbits(32))
    members = [
        GroupMember(world.nodes, topic, f"member{number}", world.rng.getrandbits(32), group=topic)
        for number in range(2)
    ]
    world.join(producer, *members)
    world.nodes.until(lambda: producer.acks and all(member.given for member in members), "both have a part")
    # Consumers talk to the first node of their list.
    for mishap, name in ((kill, world.owner("object")), (pause, next(iter(world.nodes)))):
        mend = mishap(world, name)
        before = len(producer.acks), *(len(member.given) for member in members)
        world.published()
        world.nodes.until(
            lambda before=before: all(
                len(now) > count + 20
                for now, count in zip((producer.acks, *(member.given for member in members)), before, strict=True)
            ),
            "the producer and the group go on",
            GROUP_SECONDS,
        )
        mend()
    print(f"stalls of the producer: {_told([seconds for _, seconds in producer.stalls])}")
    producer.finish()
    ends = world.ends(topic)

    def given() -> set[tuple[int, int]]:
        return {(row.partition, row.offset) for member in members for row in member.given}

    wanted = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    world.nodes.until(lambda: given() >= wanted, "the group has had every record", GROUP_SECONDS)
    # Before they leave one after the other: who cannot commit as it leaves has the last records given to others.
    rows = [row for member in members for row in member.given]
    world.finish()
    assert len(rows) == len(set(rows)), "nothing was given twice, as nobody left"
    assert set(rows) <= set(world.table(topic))


def test_nodes_are_upgraded_one_after_another_and_back_and_nobody_is_refused(world: World, tmp_path: Path) -> None:
    """Each hands over what it owns, and comes back as another release, or as this one with other settings."""
    later = later_release(tmp_path)
    for name, folder in (("n1", later), ("n2", later), ("n2", None)):
        start = restart(world, name)
        assert not world.owns(name)
        world.nodes[name].release(folder)
        start()
        world.published()
    told = world.nodes["n1"].wire.call("GET", "/v1/nodes").document["nodes"]
    versions = {node["id"]: node["version"] for node in told}
    assert versions.pop("n1") == VERSION
    assert len(versions) == 2 and VERSION not in versions.values()
    print(f"waits: {_told(world.waits())}; errors: {world.errors()}")
    world.finish()
    # Who calls a node that is stopping, or has stopped, calls the next.
    assert world.errors() <= {"0 ", "503 shutting_down"}


def _clock(world: World, topic: str) -> float:
    """What time it is at the owner of a topic: records that say nothing of it have it."""
    wire = world.nodes["n1"].wire
    sent = wire.call(
        "POST", f"/v1/topics/{topic}/records?acks=table", {"records": [{"value": f"time {time.monotonic()}"}]}
    )
    [[partition, offset]] = sent.document["records"]
    read = wire.call("GET", f"/v1/topics/{topic}/partitions/{partition}/records?offset={offset}").document["records"]
    return datetime.fromisoformat(read[0]["timestamp"]).timestamp()


def _told(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    return f"{len(seconds)}, p50 {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s"
