"""A server that the commands of a file are asked about; a file that wants another has one of its own, of this name."""

from collections.abc import Iterator

import pytest

from siltlog.server_process import ServerProcess
from siltlog.testing import running_server


@pytest.fixture(scope="module")
def running() -> Iterator[ServerProcess]:
    with running_server(flush_ms=100) as server:
        yield server


@pytest.fixture
def server(running: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> ServerProcess:
    """The one that commands ask where they are told no other."""
    monkeypatch.setenv("SILT_URL", running.url)
    return running
