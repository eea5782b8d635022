"""Members over HTTP and clients of Kafka in one group, under a network that loses, repeats and delays, members that
crash and stall, servers that are killed, a Redis that is away and loses its last second."""

import pytest
from chaos import seeds
from groups_rig import run
from groups_simulation import World


@pytest.mark.chaos
@pytest.mark.rule("KF18")
@pytest.mark.parametrize("seed", seeds(3), ids=lambda seed: f"seed-{seed}")
def test_lives_of_a_group_of_both(valkey_url: str, seed: int) -> None:
    async def scenario() -> None:
        world = World(valkey_url, seed, with_kafkas=True)
        try:
            await world.live(60)
            await world.settle()
        finally:
            await world.close()

    run(scenario())
