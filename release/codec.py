"""The native codec of a commit, built twice: its source distribution, a wheel of that, and the bill of the wheel."""

import importlib.util
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from release.archives import unpack
from release.bill import NoTool, written
from release.crates import cargo, crates_bill, described
from release.distribution import MASKS, alike, copied, time_of

ROOM = "native"
STEERS = ("CARGO_BUILD_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS")
"""Variables by which a build would be another."""


def codec_built_twice(top: Path, scratch: Path, commit: str = "HEAD") -> dict[str, bytes]:
    """The distributions of the native codec by name, and the bill. The wheel is for this system and processor, and says
    which glibc it needs at least; by another Rust or linker it has other bytes.

    Raises NotAlike where two builds differ, NotAllowed, and NoTool.
    """
    if importlib.util.find_spec("maturin") is None:
        raise NoTool("maturin builds the native codec, and is not installed: make setup")
    cargo(top, "--version")  # NoTool, rather than a script that fails
    time_s = time_of(top, commit)
    first, second = (
        _built(copied(top, scratch / str(turn), commit, turn) / ROOM, scratch / f"built-{turn}", time_s, mask)
        for turn, mask in enumerate(MASKS)
    )
    return alike(commit, first, second)


def _built(source: Path, folder: Path, time_s: str, mask: int) -> dict[str, bytes]:
    _run("sh", "lock.sh", cwd=source, umask=mask)
    _maturin(source, "sdist", "--out", folder, time_s=time_s, umask=mask)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as members:
        unpack(members, source.parent / "unpacked")
    [unpacked] = (source.parent / "unpacked").iterdir()
    told = described(unpacked)
    flags = "\x1f".join(f"--remap-path-prefix={place}={name}" for place, name in _places(told, unpacked).items())
    arguments = ("build", "--release", "--locked", "--out", folder)
    _maturin(unpacked, *arguments, time_s=time_s, umask=mask, CARGO_ENCODED_RUSTFLAGS=flags)
    made = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    rust = _run("rustc", "--version", cwd=unpacked).split()[1]
    bill = crates_bill(told, (unpacked / "Cargo.lock").read_text("utf-8"), rust, time_s)
    return made | {f"{unpacked.name}.cdx.json": written(bill)}


def _places(told: dict[str, Any], source: Path) -> dict[Path, str]:
    """What stands in the wheel for the folders of this machine that its messages of errors would name."""
    crates = {Path(package["manifest_path"]).parents[1] for package in told["packages"] if package["source"]}
    return {source: "/native", **dict.fromkeys(sorted(crates), "/crates")}


def _maturin(source: Path, *arguments: str | Path, time_s: str, umask: int, **more: str) -> None:
    target = str(source.parent / "target")
    _run(
        *(sys.executable, "-m", "maturin", *arguments),
        cwd=source,
        umask=umask,
        SOURCE_DATE_EPOCH=time_s,
        CARGO_TARGET_DIR=target,
        **more,
    )


def _run(*command: str | Path, cwd: Path, umask: int = -1, **variables: str) -> str:
    """Standard output. Cargo finds its compiler, crates and certificates by this process's environment."""
    without = [part for name in STEERS for part in ("-u", name)]
    given = [f"{name}={value}" for name, value in variables.items()]
    ran = subprocess.run(
        ["env", *without, *given, *map(str, command)], cwd=cwd, check=True, capture_output=True, text=True, umask=umask
    )
    return ran.stdout
