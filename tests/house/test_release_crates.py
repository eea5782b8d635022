"""What the native codec is built of: crates by their hashes, from wherever cargo has them, and under licences that are
allowed."""

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from release.bill import NoTool, pins
from release.crates import LICENCE_OF_RUST, NotAllowed, cargo, crates_bill

TOP = Path(__file__).parents[2]
NATIVE = TOP / "native"
LOCK = """# Of a test.
version = 4

[[package]]
name = "own"
version = "1.0.0"
dependencies = [
 "linked",
]

[[package]]
name = "linked"
version = "2.0.0"
checksum = "22"
"""
SOURCE = 'source = "registry+https://crates.example/index"\n'


def test_every_crate_is_pinned_by_its_hash_and_the_first_of_them_in_cargo_toml_too() -> None:
    packages = tomllib.loads((NATIVE / "crates.lock").read_text("utf-8"))["package"]
    own = tomllib.loads((NATIVE / "Cargo.toml").read_text("utf-8"))
    assert [each["name"] for each in packages if len(each.get("checksum", "")) != 64] == [own["package"]["name"]]
    assert [each["name"] for each in packages if "source" in each] == []
    [version] = [each["version"] for each in packages if each["name"] == "pyo3"]
    assert own["dependencies"]["pyo3"]["version"] == f"={version}"


def test_what_builds_the_codec_is_pinned_in_a_version_that_it_takes() -> None:
    [wanted] = tomllib.loads((NATIVE / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    for lock in ("build", "dev"):
        pinned = pins((TOP / "requirements" / f"{lock}.txt").read_text("utf-8"))
        [version] = [version for name, version in pinned if name == "maturin"]
        assert version in Requirement(wanted).specifier


def test_the_codec_goes_out_with_the_licence_of_the_whole() -> None:
    assert (NATIVE / "LICENSE").read_bytes() == (TOP / "LICENSE").read_bytes()


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A folder with the script, and with a cargo that tells one place of crates."""
    (tmp_path / "lock.sh").write_bytes((NATIVE / "lock.sh").read_bytes())
    (tmp_path / "crates.lock").write_text(LOCK, "utf-8")
    (tmp_path / "bin").mkdir()
    told(tmp_path, SOURCE)
    return tmp_path


def told(room: Path, sources: str) -> None:
    """Makes a cargo whose own lock has other versions, and whose updates come upon a third crate."""
    newest = LOCK.replace("2.0.0", "2.9.0").replace('checksum = "22"\n', f'{sources}checksum = "29"\n')
    (room / "newest").write_text(newest, "utf-8")
    cargo = room / "bin" / "cargo"
    (room / "third").write_text(f'\n[[package]]\nname = "third"\n{SOURCE}', "utf-8")
    script = '#!/bin/sh\ncase "$1" in\ngenerate-lockfile) cp newest Cargo.lock ;;\n'
    script += 'update) cat third >> Cargo.lock; echo "$*" > asked ;;\nesac\n'
    cargo.write_text(script, "utf-8")
    cargo.chmod(0o755)


def locked(room: Path, *arguments: str, beside: str = ":/usr/bin:/bin") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["/bin/sh", room / "lock.sh", *arguments],
        cwd=room,
        env={"PATH": f"{room / 'bin'}{beside}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_cargo_builds_by_what_is_pinned_from_where_it_has_crates(room: Path) -> None:
    assert locked(room).returncode == 0
    assert (room / "Cargo.lock").read_text("utf-8") == LOCK.replace("checksum", f"{SOURCE}checksum")
    assert (room / "crates.lock").read_text("utf-8") == LOCK


@pytest.mark.parametrize("sources", ["", f"{SOURCE}{SOURCE.replace('crates.', 'other.')}"])
def test_crates_from_several_places_or_none_are_refused(room: Path, sources: str) -> None:
    told(room, sources)
    ran = locked(room)
    assert (ran.returncode, "crates come from one place" in ran.stderr) == (1, True)


@pytest.mark.parametrize(("arguments", "asked"), [((), "--workspace"), (("--upgrade",), "")])
def test_pins_are_kept_but_for_what_is_asked_to_be_newer(room: Path, arguments: tuple[str, ...], asked: str) -> None:
    assert locked(room, "--pin", *arguments).returncode == 0
    pinned = (room / "crates.lock").read_text("utf-8")
    assert "source" not in pinned.replace("# Cargo.lock without", "")
    assert [each["name"] for each in tomllib.loads(pinned)["package"]] == ["own", "linked", "third"]
    assert tomllib.loads(pinned)["package"][1]["version"] == "2.0.0"
    assert (room / "asked").read_text("utf-8").split() == ["update", "--quiet", *asked.split()]


def test_what_the_script_does_not_take_or_lacks_is_said(room: Path) -> None:
    ran = locked(room, "--newest")
    assert (ran.returncode, ran.stderr) == (
        1,
        "lock.sh: it takes nothing, --pin or --pin --upgrade, and not: --newest\n",
    )
    (room / "bin" / "cargo").unlink()
    (room / "bin" / "dirname").symlink_to("/usr/bin/dirname")
    ran = locked(room, beside="")
    assert (ran.returncode, ran.stderr) == (
        1,
        "lock.sh: it needs Rust's cargo, 1.85 or newer, and there is none on PATH\n",
    )


def package(name: str, licence: str | None, kind: str = "lib") -> dict[str, Any]:
    return {"id": name, "name": name, "version": "1", "license": licence, "targets": [{"kind": [kind]}]}


def needs(name: str, **kinds: str | None) -> dict[str, Any]:
    return {"id": name, "deps": [{"pkg": each, "dep_kinds": [{"kind": kind}]} for each, kind in kinds.items()]}


def crates(licence: str | None) -> tuple[dict[str, Any], str]:
    """What cargo tells of a crate that links one crate under a licence, and is built by others; and its lock."""
    packages = [
        package("own", "Apache-2.0", "cdylib"),
        package("linked", licence),
        package("macros", "MIT", "proc-macro"),
        package("parser", "Unicode-3.0"),
        package("config", "GPL-3.0-only"),
    ]
    nodes = [
        needs("own", linked=None, macros=None),
        needs("linked", config="build"),
        needs("macros", parser=None),
        needs("parser"),
        needs("config"),
    ]
    lock = "".join(
        f'[[package]]\nname = "{each["name"]}"\nversion = "1"\nchecksum = "{number}"\n'
        for number, each in enumerate(packages)
    )
    return {"packages": packages, "resolve": {"root": "own", "nodes": nodes}}, lock


def test_a_bill_has_what_is_linked_and_beside_it_what_only_builds() -> None:
    document = crates_bill(*crates("MIT/Apache-2.0"), "1.85.0", "1700000000")
    assert document["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    assert document["metadata"]["component"]["name"] == "own"
    assert {each["name"]: each["scope"] for each in document["components"]} == {
        "linked": "required",
        "std": "required",
        "macros": "excluded",
        "parser": "excluded",
        "config": "excluded",
    }
    found = {each["name"]: each for each in document["components"]}
    assert found["linked"]["licenses"] == [{"expression": "MIT OR Apache-2.0"}]
    assert found["linked"]["hashes"] == [{"alg": "SHA-256", "content": "1"}]
    assert (found["std"]["version"], found["std"]["licenses"]) == ("1.85.0", [{"expression": LICENCE_OF_RUST}])


@pytest.mark.parametrize(("licence", "said"), [("GPL-3.0-only", "GPL-3.0-only"), (None, "no licence")])
def test_a_crate_under_another_licence_does_not_go_out(licence: str | None, said: str) -> None:
    with pytest.raises(NotAllowed, match=f"in the wheel of own, linked is under {said}"):
        crates_bill(*crates(licence), "1.85.0", "1700000000")


def test_a_machine_without_rust_is_told_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoTool, match=r"Rust's cargo, 1\.85 or newer, builds the native codec, and is not on PATH"):
        cargo(tmp_path, "--version")
