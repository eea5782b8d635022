"""What tests of the front door share."""

from collections.abc import Callable
from pathlib import Path

import pytest


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
