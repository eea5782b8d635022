"""What `pip install` of the wheel with an extra comes to: the pip of Python 3.11 finds an answer, like the newest."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from chaos import only_with_chaos
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = [pytest.mark.slow, pytest.mark.chaos, only_with_chaos]

TOP = Path(__file__).parents[2]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = tuple(PROJECT["optional-dependencies"])
PIPS = ("pip==23.2.1", "pip")
"""What Python 3.11 brings, which gives up where newer ones go on, and the newest there is."""
PATIENCE_SECONDS = 250
"""A pip that goes back over hundreds of versions ends neither well nor soon."""


def pip(python: Path | str, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs pip with this machine's own settings: its index, its certificates and its cache."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        [python, "-m", "pip", *arguments, "--quiet", "--no-input", "--disable-pip-version-check"],
        cwd=cwd,
        env=outside,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_SECONDS,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run(build, cwd=TOP, check=True, capture_output=True)
    [built] = folder.glob("siltlog-*.whl")
    return built


@pytest.fixture(scope="module")
def python_with(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The interpreter of an environment that has this pip and nothing else."""

    @cache
    def make(wanted: str) -> Path:
        folder = tmp_path_factory.mktemp("pip")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True)
        python = folder / "bin" / "python"
        got = pip(python, "install", "--retries", "1", "--timeout", "20", "--upgrade", wanted, cwd=folder)
        if got.returncode:
            pytest.skip(f"no index of packages can be reached, or it has no {wanted}: {got.stderr[-300:]}")
        return python

    return make


@pytest.mark.parametrize(("by", "extra"), [(by, extra) for extra in EXTRAS for by in PIPS])
def test_every_extra_can_be_installed(
    by: str, extra: str, wheel: Path, python_with: Callable[[str], Path], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    wanted = f"{wheel}[{extra}]"
    ran = pip(python_with(by), "install", "--dry-run", "--ignore-installed", "--report", report, wanted, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found = {
        canonicalize_name(each["metadata"]["name"]): each["metadata"]["version"]
        for each in json.loads(report.read_text("utf-8"))["install"]
    }
    assert {name: found[name] for name, fits in asked_for(extra).items() if not fits(found[name])} == {}


def asked_for(extra: str) -> dict[str, object]:
    """Tells by name whether a version is one that the extra takes; what the extras in it ask for is among them."""
    asked = {}
    for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]):
        requirement = Requirement(text)
        if requirement.name == "siltlog":
            for inner in requirement.extras:
                asked |= asked_for(inner)
        elif requirement.marker is None or requirement.marker.evaluate():
            asked[canonicalize_name(requirement.name)] = requirement.specifier.contains
    return asked
