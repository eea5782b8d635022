"""Servers that are killed, and the seed of what happens to them."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from siltlog.server_process import ServerProcess

SMALL: dict[str, Any] = {
    "flush_ms": 40,
    "flush_bytes": 100_000,
    "wal_bytes_max": 6 * 1024 * 1024,
    "head_bytes_max": 1024 * 1024,
    "log_level": "info",
}
"""Budgets so small that flushes, recycling, eviction and checkpoints go on all the time."""
NO_REDIS = {"redis_url": "redis://127.0.0.1:1/0"}
"""For tests without groups: nothing answers there, and publishing must not care."""

StartServer = Callable[..., ServerProcess]


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Seeded; the seed is shown when the test fails, and FAILURES_SEED gives it back."""
    seed = int(os.environ.get("FAILURES_SEED") or int.from_bytes(os.urandom(4)))
    print(f"FAILURES_SEED={seed} ({request.node.name})")
    return random.Random(seed)


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
