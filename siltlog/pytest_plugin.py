"""The pytest fixtures `siltlog_memory` and `siltlog_server`, found by pytest through the package's entry point."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from siltlog.server_process import ServerProcess

if TYPE_CHECKING:
    from siltlog.testing import MemoryServer


@pytest.fixture
def siltlog_memory() -> "MemoryServer":
    """A `siltlog.testing.MemoryServer` of the test's own."""
    from siltlog.testing import MemoryServer

    return MemoryServer()


@pytest.fixture
def siltlog_server() -> Iterator[ServerProcess]:
    """A server of the test's own (see `siltlog.testing.running_server`), stopped when the test ends."""
    from siltlog.testing import running_server

    with running_server() as server:
        yield server
