"""Tests of what servers are deployed with: a tool that is lacking skips what needs it, in a sentence.

What is marked `deploy` takes minutes, and runs only where it is asked for, as by `make test-deploy`.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "siltlog" / "deploy"
"""Where `tests/deploy/tools` puts what it builds, and tests keep what takes long to make."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "deploy" in (config.getoption("-m") or ""):
        return
    for item in items:
        if item.get_closest_marker("deploy"):
            item.add_marker(pytest.mark.skip(reason="it takes minutes: make test-deploy"))


def found(name: str) -> str | None:
    """The path of a program: on PATH, in the folders of the administrator, or in the cache."""
    beside = os.pathsep.join(
        [os.environ.get("PATH", ""), "/usr/sbin", str(CACHE / "bin"), str(CACHE / "python" / "bin")]
    )
    return shutil.which(name, path=beside)


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Gives the path of a program, or skips the test that needs it."""

    def look(name: str) -> str:
        path = found(name)
        if path is None:
            pytest.skip(f"{name} is not installed: tests/deploy/tools puts it there where it can be had")
        return path

    return look


@pytest.fixture(scope="session")
def cache() -> Path:
    """A folder that is there for the next run, too."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return CACHE
