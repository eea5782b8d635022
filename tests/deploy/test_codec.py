"""The native codec as a release has it: built twice alike, and installed without Rust or an index."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from release.codec import codec_built_twice

pytestmark = [pytest.mark.deploy, pytest.mark.slow, pytest.mark.timeout(1_500)]

TOP = Path(__file__).parents[2]
LOCK = tomllib.loads((TOP / "native" / "crates.lock").read_text("utf-8"))["package"]
VERSION = tomllib.loads((TOP / "native" / "Cargo.toml").read_text("utf-8"))["package"]["version"]
STEM = f"siltlog_native-{VERSION}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    if shutil.which("cargo") is None or importlib.util.find_spec("maturin") is None:
        pytest.skip("cargo or maturin is not installed: rustup has the one, make setup the other")
    if not (TOP / ".git").exists():
        pytest.skip("a release is made of a commit, and this is no clone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUSTFLAGS", "--cfg of_this_machine")  # what steers builds here is none of a release's
        return codec_built_twice(TOP, tmp_path_factory.mktemp("codec"))


@pytest.fixture(scope="module")
def wheel(made: dict[str, bytes]) -> str:
    [name] = [name for name in made if name.endswith(".whl")]
    return name


def test_a_release_has_source_wheel_and_bill_of_the_codec(made: dict[str, bytes], wheel: str) -> None:
    assert set(made) == {wheel, f"{STEM}.tar.gz", f"{STEM}.cdx.json"}
    assert re.fullmatch(rf"{STEM}-cp311-abi3-(?:many|musl)linux_\d+_\d+_\w+\.whl", wheel)


def test_the_source_has_the_lock_and_the_licence(made: dict[str, bytes]) -> None:
    with tarfile.open(fileobj=BytesIO(made[f"{STEM}.tar.gz"])) as archive:
        members = archive.getmembers()
        lock, licence = (archive.extractfile(f"{STEM}/{name}") for name in ("Cargo.lock", "LICENSE"))
        assert lock is not None
        assert licence is not None
        locked = tomllib.loads(lock.read().decode())["package"]
        assert licence.read() == (TOP / "LICENSE").read_bytes()
    assert {(each.uid, each.gid, each.mode) for each in members} == {(0, 0, 0o644)}
    assert [{key: value for key, value in each.items() if key != "source"} for each in locked] == LOCK
    assert len({each["source"] for each in locked if "checksum" in each}) == 1


def test_the_wheel_names_no_folder_of_the_machine_that_built_it(made: dict[str, bytes], wheel: str) -> None:
    with zipfile.ZipFile(BytesIO(made[wheel])) as archive:
        names = archive.namelist()
        content = b"".join(archive.read(name) for name in names)
    assert sorted(name for name in names if "dist-info" not in name) == [
        "siltlog_native/__init__.py",
        "siltlog_native/siltlog_native.abi3.so",
    ]
    assert f"{STEM}.dist-info/licenses/LICENSE" in names
    home = os.environ.get("CARGO_HOME") or str(Path.home() / ".cargo")
    assert [place for place in (home, str(TOP), "/codec0/", "registry/src") if place.encode() in content] == []
    assert b"/crates/pyo3-" in content  # and so the question was one


def test_the_bill_tells_what_is_in_the_wheel_from_what_builds_it(made: dict[str, bytes]) -> None:
    bill = json.loads(made[f"{STEM}.cdx.json"])
    scopes = {each["name"]: each["scope"] for each in bill["components"]}
    assert {name for name, scope in scopes.items() if scope == "required"} >= {"libc", "pyo3", "pyo3-ffi", "std"}
    assert {scopes[name] for name in ("pyo3-build-config", "pyo3-macros", "syn", "target-lexicon")} == {"excluded"}
    assert scopes.keys() - {"std"} <= {each["name"] for each in LOCK}
    pinned = {each["name"]: each.get("checksum") for each in LOCK}
    told = {each["name"]: each["hashes"][0]["content"] for each in bill["components"] if "hashes" in each}
    assert told == {name: pinned[name] for name in told}


def test_the_wheel_is_installed_by_its_sum_and_at_work(made: dict[str, bytes], wheel: str, tmp_path: Path) -> None:
    (tmp_path / wheel).write_bytes(made[wheel])
    wanted = tmp_path / "wanted.txt"
    digest = hashlib.sha256(made[wheel]).hexdigest()
    wanted.write_text(f"siltlog-native=={VERSION} --hash=sha256:{digest}\n", "utf-8")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
    places = ("--find-links", tmp_path, "--target", tmp_path / "installed", "--require-hashes", "-r", wanted)
    subprocess.run([*pip, *map(str, places)], check=True, cwd=tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", "from siltlog.infra.kafka.native import CODEC; print(CODEC)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path / "installed"), str(TOP)))},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout == f"siltlog-native {VERSION}\n"
