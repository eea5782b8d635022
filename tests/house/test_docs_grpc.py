"""What the pages on gRPC say: both clients of the examples print it, and its tables are of what there is."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpc_rig import SERVICE, port_of, served

from siltlog.infra.errors import KINDS, problem
from siltlog.infra.grpc.status import code_of

TOP = Path(__file__).parents[2]
PAGE = (TOP / "examples" / "grpc" / "README.md").read_text("utf-8")
GUIDE = (TOP / "docs" / "grpc.md").read_text("utf-8")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(flush_ms=100) as (_, __, server):
        yield f"127.0.0.1:{port_of(server)}"


def said(language: str) -> tuple[str, str]:
    """The commands of a part of the page, and what they print."""
    part = PAGE.split(f"## {language}\n")[1].split("\n## ")[0]
    commands, printed = re.findall(r"```(?:sh|text)\n(.*?)```", part, re.DOTALL)
    return commands, printed


def run(commands: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"GOTOOLCHAIN": "local"},
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout


@pytest.mark.slow
def test_the_python_client_prints_what_the_page_says(address: str, tmp_path: Path) -> None:
    commands, printed = said("Python")
    for folder in ("examples", "proto"):
        (tmp_path / folder).symlink_to(TOP / folder)
    there = commands.replace("127.0.0.1:7071", address).replace("python ", f"{sys.executable} ")
    assert run(there, tmp_path) == printed


@pytest.mark.client
def test_the_go_client_prints_what_the_page_says(address: str, tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("there is no Go: https://go.dev/dl")
    (tmp_path / "proto").symlink_to(TOP / "proto")
    made = ("siltv1", "bin")
    shutil.copytree(
        TOP / "examples" / "grpc" / "go", tmp_path / "examples/grpc/go", ignore=shutil.ignore_patterns(*made)
    )
    commands, printed = said("Go")
    had = subprocess.run(["go", "mod", "download"], cwd=tmp_path / "examples/grpc/go", capture_output=True, text=True)
    if had.returncode:
        pytest.skip(f"the modules of Go cannot be had here: {had.stderr[-200:]}")
    there = commands.replace("127.0.0.1:7071", address).replace(
        "\nprotoc ", f"\n{sys.executable} -m grpc_tools.protoc "
    )
    assert run(there, tmp_path) == printed


def test_the_guide_names_every_method_and_nothing_else() -> None:
    table = GUIDE.split("## What there is")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(SERVICE.methods_by_name)


def test_the_guide_says_which_status_stands_for_what() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([0-9, ]+) \|", GUIDE, re.MULTILINE)
    told = {(name, int(status)) for name, statuses in rows for status in statuses.split(",")}
    assert told == {(code_of(problem(code, "")).name, kind.status) for code, kind in KINDS.items()}
