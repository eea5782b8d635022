from collections.abc import Iterator
from pathlib import Path

import pytest
from groups_rig import embedded


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One real Valkey for every test of groups; each empties it first."""
    valkey = embedded(Path(tmp_path_factory.mktemp("groups")))
    yield valkey.start()
    valkey.stop()
