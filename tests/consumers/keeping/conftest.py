"""The Valkeys of these tests: the shared one, emptied, and one of a test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from groups_rig import embedded, emptied

from siltlog.infra.redis.embedded import EmbeddedValkey


@pytest.fixture
def url(valkey_url: str) -> str:
    emptied(valkey_url)
    return valkey_url


@pytest.fixture
def own(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A Redis that a test may kill."""
    valkey = embedded(tmp_path)
    yield valkey
    valkey.stop()
