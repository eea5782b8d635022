"""The pytest fixture `siltlog_server`, found by pytest through the package's entry point."""

from collections.abc import Iterator

import pytest

from siltlog.server_process import ServerProcess


@pytest.fixture
def siltlog_server() -> Iterator[ServerProcess]:
    """A server of the test's own (see `siltlog.testing.running_server`), stopped when the test ends."""
    from siltlog.testing import running_server

    with running_server() as server:
        yield server
