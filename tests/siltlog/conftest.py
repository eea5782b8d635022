"""What tests of the front door share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from http_rig import NO_REDIS, Http

from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

MIB = 1024 * 1024


@pytest.fixture
def processes_in() -> Callable[[Path], list[str]]:
    """Gives the command lines of the processes whose working directory is in a folder."""

    def look(folder: Path) -> list[str]:
        found = []
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and (process / "cwd").readlink().is_relative_to(folder):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found

    return look


@pytest.fixture(scope="session")
def small_server() -> Iterator[ServerProcess]:
    """A server without groups whose limits are small; its topics are the tests' own by their names."""
    with running_server(
        redis_url=NO_REDIS,
        flush_ms=50,
        request_bytes_max=MIB,
        record_bytes_max=100_000,
        request_timeout_ms=400,
        cors_origins="https://app.example, https://other.example",
        hosts="silt.example, silt2.example",
        log_level="info",
    ) as server:
        yield server


@pytest.fixture(scope="session")
def http(small_server: ServerProcess) -> Http:
    return Http(small_server.url)
