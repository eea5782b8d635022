"""Nodes before S3 that they do not reach, that refuses them, that answers late or not at all, under load: what was
acknowledged is there once, in order, and who alone is without the store is followed."""

import random
import time
import uuid
from collections.abc import Iterator
from itertools import count

import pytest
from chaos import CHAOS, only_with_chaos
from cluster_rig import LEASE_MS, Nodes, cluster
from cluster_world import (
    FLUSH_MS,
    World,
    cut_from_store,
    far_store,
    lose_answers,
    mute_store,
    refused_by_store,
    silent_store,
)
from s3_server import S3Server

from siltlog.infra.store.store import open_store

LEASE_SECONDS = LEASE_MS / 1000
STORM_SECONDS = 60.0 if CHAOS > 1 else 2 * LEASE_SECONDS
FOLLOWED_SECONDS_MAX = 60.0
SLOW_SECONDS = 3.0
_worlds = count(1)

pytestmark = [pytest.mark.slow, pytest.mark.s3, pytest.mark.chaos]


@pytest.fixture(scope="module")
def shared(_s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _s3_server.environment().items():
            patch.setenv(name, value)
        with cluster(
            tmp_path_factory.mktemp("stores") / f"stores-{uuid.uuid4().hex[:8]}", s3=_s3_server, flush_ms=FLUSH_MS
        ) as nodes:
            yield nodes


@pytest.fixture
def world(shared: Nodes, s3_server: S3Server, rng: random.Random) -> Iterator[World]:
    """Topics, publishers and readers of this test's own, at nodes that the tests of this file share."""
    shared.heal()
    store = open_store(shared.root, s3_endpoint=s3_server.endpoint)
    shared.storage_options = store.storage_options()
    world = World(shared, store, rng, f"logs{next(_worlds)}")
    yield world
    world.leave()


@only_with_chaos
@pytest.mark.rule("CM4", "CS7")
def test_a_store_that_is_far_loses_answers_and_refuses_everybody_for_a_while_buries_nobody(world: World) -> None:
    nodes = world.nodes
    journals = {name: node.journal for name, node in world.view().nodes.items()}
    mend = far_store(world, "")
    time.sleep(SLOW_SECONDS)
    world.published()
    mend()
    lost = [lose_answers(world, name) for name in nodes]
    time.sleep(SLOW_SECONDS)
    world.published()
    for mend in lost:
        mend()
    nodes.rage()
    time.sleep(STORM_SECONDS)
    nodes.rage(False)
    world.published()
    ended = time.monotonic() + LEASE_SECONDS
    while time.monotonic() < ended:
        assert {node.state for node in world.view().nodes.values()} == {"up"}
        time.sleep(0.2)
    assert {name: node.journal for name, node in world.view().nodes.items()} == journals
    world.finish()


@pytest.mark.rule("CM15")
def test_who_alone_is_without_the_store_is_followed(world: World) -> None:
    mishaps = [mute_store, cut_from_store, silent_store, refused_by_store]
    for mishap in mishaps if CHAOS > 1 else [world.rng.choice(mishaps)]:
        owner = world.owner("object")
        began = time.monotonic()
        mend = mishap(world, owner)
        world.nodes.until(lambda owner=owner: not world.owns(owner), "others own its topics", FOLLOWED_SECONDS_MAX)  # type: ignore[misc]
        seconds = world.published()
        print(f"{mishap.__name__}: {time.monotonic() - began:.1f} s, of which {seconds:.1f} s until callers went on")
        mend()
        world.published()
    world.nodes.until(lambda: {node.state for node in world.view().nodes.values()} == {"up"}, "all are back")
    world.finish()
