"""What a release is made of: distributions that are built twice alike, bills that say what the locks do, notes."""

import json
import re
import subprocess
import tarfile
import tomllib
import zipfile
from importlib.metadata import requires
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release import __main__ as command
from release.bill import LOCKS, differences, pins
from release.checklist import missing, notes, sections, version_of
from release.distribution import NotAlike, built_twice, sums
from release.licences import allowed, licences

TOP = Path(__file__).parents[2]
CHANGELOG = """# Changelog

## [Unreleased]

## [1.2.0] - 2030-01-31

### Added

- Something.

## [1.1.0] - 2029-12-01

- Less.
"""


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=A Name", "-c", "user.email=name@example.com", "-c", "core.hooksPath=/dev/null")
    ran = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return ran.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    if not (TOP / ".git").exists():
        pytest.skip("a release is made of a commit, and this is no clone")
    return built_twice(TOP, tmp_path_factory.mktemp("built"))


@pytest.mark.slow
def test_distributions_are_the_same_whoever_builds_them_and_when(made: dict[str, bytes]) -> None:
    version = version_of(TOP)
    assert sorted(made) == [f"siltlog-{version}-py3-none-any.whl", f"siltlog-{version}.tar.gz"]
    wheel, source = (made[name] for name in sorted(made))
    with zipfile.ZipFile(BytesIO(wheel)) as archive:
        infos = archive.infolist()
    assert len({info.date_time for info in infos}) == 1
    assert {info.external_attr >> 16 & 0o777 for info in infos} <= {0o644, 0o755}
    with tarfile.open(fileobj=BytesIO(source)) as unpacked:
        assert {(each.uid, each.gid, each.uname, each.gname) for each in unpacked} == {(0, 0, "", "")}
        names = [each.name for each in unpacked]
    assert [name for name in (*names, *(info.filename for info in infos)) if name.endswith(".pyc")] == []


@pytest.mark.slow
def test_a_build_that_depends_on_its_place_is_told(tmp_path: Path) -> None:
    """A hook writes the folder that it is built in into a module."""
    (tmp_path / "place").mkdir()
    hook = (
        "from hatchling.builders.hooks.plugin.interface import BuildHookInterface\n\nclass Hook(BuildHookInterface):\n"
    )
    hook += "    def initialize(self, version, data):\n        import pathlib\n"
    hook += "        (pathlib.Path(self.root) / 'a' / 'p.py').write_text(repr(self.root))\n"
    files = {
        "pyproject.toml": '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "a"\nversion = "1.0"\n[tool.hatch.build.hooks.custom]\n',
        "hatch_build.py": hook,
        "a/__init__.py": "",
        "siltlog/__init__.py": "",
        "infra/__init__.py": "",
    }
    place = tmp_path / "place"
    for name, content in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(content, "utf-8")
    git(place, "init", "--quiet")
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message", "One")
    with pytest.raises(NotAlike, match=r"two builds of HEAD differ in a-1\.0-.*\.whl, a-1\.0\.tar\.gz"):
        built_twice(place, tmp_path / "scratch")


def test_sums_are_what_sha256sum_checks(tmp_path: Path) -> None:
    parts = {"b.txt": b"2", "a.txt": b"1"}
    for name, content in parts.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "SUMS").write_text(sums(parts), "utf-8")
    ran = subprocess.run(["sha256sum", "--check", "SUMS"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "a.txt: OK\nb.txt: OK\n"


def test_the_locks_of_a_release_pin_what_the_tests_run_with() -> None:
    tested = pins((TOP / "requirements/dev.txt").read_text("utf-8"))
    for name, lock in LOCKS.items():
        pinned = pins((TOP / lock).read_text("utf-8"))
        assert {each: pin for each, pin in pinned.items() if tested.get(each) != pin} == {}, name
        assert all(pinned.values())


@pytest.mark.parametrize(("name", "extra"), [("client", ""), ("server", "server"), ("pipelines", "spark")])
def test_the_locks_of_a_release_are_whole(name: str, extra: str) -> None:
    assert reached(extra) - {package for package, _ in pins((TOP / LOCKS[name]).read_text("utf-8"))} == set()


def reached(extra: str) -> set[str]:
    """The packages that an installation here has: those that are asked for, and those that these ask for."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
    waiting = [Requirement(text) for text in project["dependencies"]]
    waiting += [Requirement(text) for text in project["optional-dependencies"].get(extra, [])]
    seen: set[tuple[str, str]] = set()
    while waiting:
        wanted = waiting.pop()
        for taken in {"", *wanted.extras}:
            found = (canonicalize_name(wanted.name), taken)
            if found in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
                continue
            seen.add(found)
            if found[0] == "siltlog":
                waiting += [Requirement(text) for text in project["optional-dependencies"].get(taken, [])]
            else:
                asked = [Requirement(text) for text in requires(wanted.name) or []]
                for each in asked:
                    if each.marker is None or each.marker.evaluate({"extra": taken}):
                        each.marker = None
                        waiting.append(each)
    return {package for package, _ in seen} - {"siltlog"}


@pytest.mark.parametrize(
    "extra", ["", *tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["optional-dependencies"]]
)
def test_what_comes_along_is_under_a_licence_that_is_allowed(extra: str) -> None:
    found = licences(reached(extra))
    assert len(found) >= 7
    assert {name: licence for name, licence in found.items() if not allowed(licence)} == {}


@pytest.mark.parametrize(
    ("expression", "is_allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("BSD-3-Clause AND (GPL-2.0-only OR MIT)", True),
        ("(GPL-2.0-only AND MIT) OR SSPL-1.0", False),
        ("", False),
    ],
)
def test_alternatives_and_licences_that_hold_together(expression: str, is_allowed: bool) -> None:
    assert allowed(expression) is is_allowed


def billed(name: str, version: str, digest: str) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {"name": name, "version": version, "externalReferences": [{"hashes": hashes}]}


def test_a_bill_that_says_something_else_than_the_lock_is_told() -> None:
    lock = f"a-b==1.0 ; python_version < '3.14' \\\n    --hash=sha256:{'1' * 64}\n"
    lock += f"c[x]==2.0 \\\n    --hash=sha256:{'2' * 64}\n"
    right = {"components": [billed("a-b", "1.0", "1" * 64), billed("c", "2.0", "2" * 64)]}
    assert differences(right, lock) == []
    assert differences({"components": right["components"][:1]}, lock) == ["c 2.0 is in the lock and not in the bill"]
    other = {"components": [*right["components"][:1], billed("c", "2.0", "3" * 64), billed("d", "3", "4" * 64)]}
    assert differences(other, lock) == [
        "c 2.0 has other hashes in the bill than in the lock",
        "d 3 is in the bill and not in the lock",
    ]


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A clone in which version 1.2.0 may go out."""
    top = tmp_path / "clone"
    (top / "docs").mkdir(parents=True)
    (top / "pyproject.toml").write_text('[project]\nname = "siltlog"\nversion = "1.2.0"\n', "utf-8")
    (top / "docs/openapi.json").write_text(json.dumps({"info": {"version": "1.2.0"}}), "utf-8")
    (top / "CHANGELOG.md").write_text(CHANGELOG, "utf-8")
    git(top, "init", "--quiet")
    commit(top, "v1.2.0")
    return top


def commit(top: Path, tag: str = "") -> None:
    git(top, "add", "--all")
    git(top, "commit", "--quiet", "--allow-empty", "--message", "One")
    if tag:
        git(top, "tag", "--force", tag)


def test_a_version_that_has_everything_may_go_out(ready: Path) -> None:
    assert missing(ready) == []


@pytest.mark.parametrize(
    ("path", "old", "new", "said"),
    [
        ("pyproject.toml", "1.2.0", "1.2", "'1.2' is no version"),
        ("docs/openapi.json", "1.2.0", "1.1.0", "docs/openapi.json is of version 1.1.0, pyproject.toml of 1.2.0"),
        ("CHANGELOG.md", "[1.2.0]", "[1.3.0]", "CHANGELOG.md has no part on 1.2.0"),
        (
            "CHANGELOG.md",
            "2030-01-31",
            "unreleased",
            "the part on 1.2.0 has no date (year-month-day), but 'unreleased'",
        ),
        ("CHANGELOG.md", "### Added\n\n- Something.\n", "", "the part on 1.2.0 is empty"),
        (
            "CHANGELOG.md",
            "## [Unreleased]\n",
            "## [Unreleased]\n\n- More.\n",
            "what stands under Unreleased is not told",
        ),
    ],
)
def test_what_is_missing_is_said(ready: Path, path: str, old: str, new: str, said: str) -> None:
    text = (ready / path).read_text("utf-8")
    assert text.count(old) == 1
    (ready / path).write_text(text.replace(old, new), "utf-8")
    commit(ready, "v1.2.0")
    assert any(said in sentence for sentence in missing(ready)), missing(ready)


def test_a_release_is_of_a_commit_with_its_tag(ready: Path) -> None:
    (ready / "CHANGELOG.md").write_text(CHANGELOG.replace("Something", "More"), "utf-8")
    assert missing(ready) == ["there are changes that are not committed: what is built is the last commit"]
    commit(ready)
    assert missing(ready) == ["the commit has no tag v1.2.0: git tag -s v1.2.0"]


def test_the_notes_of_a_version_are_its_part_of_the_changelog() -> None:
    assert notes(CHANGELOG, "1.2.0") == "### Added\n\n- Something."
    assert notes(CHANGELOG, "1.1.0") == "- Less."
    assert notes(CHANGELOG, "9.9.9") == ""
    assert version_of(TOP) in sections((TOP / "CHANGELOG.md").read_text("utf-8"))


def test_what_is_no_release_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ready: Path) -> None:
    git(ready, "tag", "--delete", "v1.2.0")
    monkeypatch.setattr(command, "TOP", ready)
    done = CliRunner().invoke(command.main, ["--folder", str(tmp_path / "dist")])
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.fullmatch(r"missing: the commit has no tag v1\.2\.0: .*\n", done.stderr)
    assert not (tmp_path / "dist").exists()
