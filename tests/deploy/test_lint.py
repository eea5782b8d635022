"""What linters say of the files that images, units and set-ups are made of."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
DEPLOY = TOP / "infra" / "deploy"


def said(*command: str | Path) -> str:
    ran = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=TOP)
    return f"{ran.stdout}{ran.stderr}" if ran.returncode else ""


def scripts() -> list[Path]:
    """Every shell script of the repository's own, by its first line."""
    rooms = [TOP / ".ci", DEPLOY, TOP / "native", TOP / "terraform", TOP / "tests" / "deploy"]
    files = [
        *TOP.glob("*.sh"),
        *(path for room in rooms for path in room.rglob("*") if path.is_file() and path.suffix != ".tftpl"),
    ]
    return [path for path in files if re.match(rb"#!.*\b(?:ba|da)?sh\n", path.read_bytes()[:40])]


def test_the_dockerfile_is_one_that_a_linter_finds_nothing_in(tool: Callable[[str], str]) -> None:
    assert said(tool("hadolint"), DEPLOY / "Dockerfile") == ""


def test_a_dockerfile_with_a_fault_is_found(tool: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text((DEPLOY / "Dockerfile").read_text("utf-8") + "\nMAINTAINER somebody\n")
    assert "DL4000" in said(tool("hadolint"), tmp_path / "Dockerfile")


@pytest.mark.parametrize("script", scripts(), ids=lambda path: path.relative_to(TOP).as_posix())
def test_scripts_are_ones_that_a_linter_finds_nothing_in(tool: Callable[[str], str], script: Path) -> None:
    assert said(tool("shellcheck"), script) == ""
