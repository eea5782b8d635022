"""Nodes over S3, and whatever may befall them, by chance: two mishaps at a time, one after the other, under load.

A run prints what befell whom and when. `FAILURES_SEED=… pytest tests/faults/test_cluster_storm.py` does the same again,
as far as processes can.
"""

import random
import time
from pathlib import Path

import pytest
from chaos import CHAOS, only_with_chaos
from cluster_rig import LEASE_MS, cluster
from cluster_world import OF_NODES, OF_STORES, Mend, World, kill, lose_disk, restart
from s3_server import S3Server

from siltlog.infra.store.store import open_store

LEASE_SECONDS = LEASE_MS / 1000
SECONDS = 10.0 * min(CHAOS, 12)
RUNS = min(1 + CHAOS // 20, 20)
AT_ONCE = 2
RECOVERED_SECONDS = 60.0
ENDINGS = (kill, lose_disk, restart)
"""One node at a time is not there: with two of three gone nobody sees whether a node or a store is away."""


@pytest.mark.chaos
@only_with_chaos
@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("run", range(RUNS))
def test_whatever_befalls_nodes_and_store_one_log_was_told(
    s3_server: S3Server, tmp_path: Path, rng: random.Random, run: int
) -> None:
    with cluster(tmp_path / tmp_path.name, s3=s3_server, clocks=True) as nodes:
        store = open_store(nodes.root, s3_endpoint=s3_server.endpoint)
        nodes.storage_options = store.storage_options()
        world = World(nodes, store, rng)
        for node in nodes.values():
            node.storm.rng = random.Random(rng.getrandbits(32))
        began = time.monotonic()

        def say(what: str) -> None:
            print(f"{time.monotonic() - began:6.1f} s  {what}")

        while time.monotonic() < began + SECONDS:
            mends: list[tuple[bool, str, Mend]] = []
            names = rng.sample(sorted(nodes), AT_ONCE)
            gone = False
            for name in names:
                mishap = rng.choice([one for one in (*OF_NODES, *OF_STORES) if not (gone and one in ENDINGS)])
                gone = gone or mishap in ENDINGS
                say(f"{mishap.__name__} {name}")
                mends.append((mishap in ENDINGS, name, mishap(world, name)))
                time.sleep(rng.choice((0.0, 0.2, 1.0)))
            time.sleep(rng.choice((0.3, 1.0, LEASE_SECONDS, 3 * LEASE_SECONDS)) * rng.random() * 2)
            rng.shuffle(mends)
            # A node starts only where it reaches the store.
            for _, name, mend in sorted(mends, key=lambda one: one[0]):
                mend()
                say(f"mended {name}")
                time.sleep(rng.choice((0.0, 0.5)))
            if rng.random() < 0.7:
                say(f"went on after {world.published(RECOVERED_SECONDS):.1f} s")
        nodes.heal()
        say(f"went on after {world.published(RECOVERED_SECONDS):.1f} s")
        world.finish()
