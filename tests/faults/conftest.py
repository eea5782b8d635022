"""Servers that are killed, and the seed of what happens to them."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from failure_rig import NO_REDIS, SMALL, StartServer
from s3_server import S3Server, start_s3_server

from siltlog.server_process import ServerProcess


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Seeded; the seed is shown when the test fails, and FAILURES_SEED gives it back."""
    seed = int(os.environ.get("FAILURES_SEED") or int.from_bytes(os.urandom(4)))
    print(f"FAILURES_SEED={seed} ({request.node.name})")
    return random.Random(seed)


@pytest.fixture(scope="module")
def _file_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = start_s3_server(tmp_path_factory.mktemp("own-s3"))
    yield server
    server.stop()


@pytest.fixture
def own_s3(_file_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """One that a test may stop or kill: the tests of its file alone share it, and each finds it running."""
    for name, value in _file_s3.environment().items():
        monkeypatch.setenv(name, value)
    yield _file_s3
    _file_s3.go_on()


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[StartServer]:
    """`make_server(name, **settings)`: a server that does not run yet; each is stopped, with all it started."""
    made: list[ServerProcess] = []

    def make(name: str = "data", *, groups: bool = False, **settings: Any) -> ServerProcess:
        given = {**SMALL, **({} if groups else NO_REDIS), **settings}
        server = ServerProcess(tmp_path / name, given, log=tmp_path / f"{name}.log")
        made.append(server)
        return server

    yield make
    for server in made:
        if server.running:
            server.kill()
        server.stop()
        print(f"--- {server.log_path.name}\n{_last_words(server.log_path)}")


def _last_words(path: Path) -> str:
    return path.read_text("utf-8", "replace")[-4_000:] if path.exists() else ""
