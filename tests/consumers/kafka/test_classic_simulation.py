"""Classic groups in a world where a seed decides what goes wrong."""

import pytest
from chaos import seeds
from classic_simulation import ClassicWorld
from groups_rig import run


@pytest.mark.rule("KF13", "KF14")
@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(2), ids=lambda seed: f"seed-{seed}")
def test_lives_of_a_classic_group(valkey_url: str, seed: int) -> None:
    async def scenario() -> None:
        world = ClassicWorld(valkey_url, seed)
        try:
            await world.live(60)
            await world.settle()
        finally:
            await world.close()

    run(scenario())
