"""What `pip install` of the wheel with an extra comes to: the pip of Python 3.11 finds an answer, like the newest."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from chaos import only_with_chaos
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

TOP = Path(__file__).parents[2]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = tuple(PROJECT["optional-dependencies"])
PIPS = ("pip==23.2.1", "pip")
"""What Python 3.11 brings, which gives up where newer ones go on, and the newest there is."""
DAILY = {*((PIPS[0], extra) for extra in ("server", "notebook")), (PIPS[1], "notebook")}
"""`notebook` asks for all that `server`, `spark` and `demo` ask for, and `server`, by s3fs, for what `async` does: what
is found for them fits those too."""
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
def pythons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By the pip that it has, the interpreter of an environment with nothing else in it."""
    made = {}
    for number, wanted in enumerate(PIPS):
        folder = tmp_path_factory.mktemp(f"pip{number}")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True)
        made[wanted] = folder / "bin" / "python"
        got = pip(made[wanted], "install", "--retries", "1", "--timeout", "20", "--upgrade", wanted, cwd=folder)
        if got.returncode:
            pytest.skip(f"no index of packages can be reached, or it has no {wanted}: {got.stderr[-300:]}")
    return made


@pytest.mark.parametrize(
    ("by", "extra"),
    [pytest.param(by, extra, marks=() if (by, extra) in DAILY else only_with_chaos) for extra in EXTRAS for by in PIPS],
)
def test_every_extra_can_be_installed(
    by: str, extra: str, wheel: Path, pythons: dict[str, Path], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    wanted = f"{wheel}[{extra}]"
    ran = pip(pythons[by], "install", "--dry-run", "--ignore-installed", "--report", report, wanted, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found = {
        canonicalize_name(each["metadata"]["name"]): each["metadata"]["version"]
        for each in json.loads(report.read_text("utf-8"))["install"]
    }
    assert {name: found[name] for name, fits in asked_for(extra).items() if not fits(found[name])} == {}


def asked_for(extra: str) -> dict[str, object]:
    """By name, whether a version is one that the extra takes; with what the extras in it ask for."""
    asked = {}
    for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]):
        requirement = Requirement(text)
        if requirement.name == "siltlog":
            for inner in requirement.extras:
                asked |= asked_for(inner)
        elif requirement.marker is None or requirement.marker.evaluate():
            asked[canonicalize_name(requirement.name)] = requirement.specifier.contains
    return asked
