"""The wheel and the source distribution of a commit, built twice from copies that differ in all but their text."""

import hashlib
import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

from release.archives import unpack

TIMES_S = (1_000_000_000, 1_600_000_000)
"""When the files of each copy were changed; a build takes its times from the commit."""
MASKS = (0o022, 0o077)
SUMS = "SHA256SUMS"


class NotAlike(Exception):
    """What differs between two builds of one commit."""


def built_twice(top: Path, scratch: Path, commit: str = "HEAD") -> dict[str, bytes]:
    """The distributions of a commit by name. Raises NotAlike where two builds, or a wheel of the source, differ."""
    turns = range(len(MASKS))
    first = alike(
        commit, *(_built(copied(top, scratch / str(turn), commit, turn), scratch, top, commit, turn) for turn in turns)
    )
    [source] = [name for name in first if name.endswith(".tar.gz")]
    [wheel] = [name for name in first if name.endswith(".whl")]
    with tarfile.open(fileobj=BytesIO(first[source])) as archive:
        unpack(archive, scratch / "source")
    [unpacked] = (scratch / "source").iterdir()
    again = _run_build(unpacked, scratch / "of-source", ("wheel",), time_of(top, commit), MASKS[0])
    if again[wheel] != first[wheel]:
        raise NotAlike(f"{wheel} differs where it is built from {source}")
    return first


def alike(commit: str, first: dict[str, bytes], second: dict[str, bytes]) -> dict[str, bytes]:
    """What both builds of a commit made. Raises NotAlike where they differ."""
    differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    if differing:
        raise NotAlike(f"two builds of {commit} differ in {', '.join(differing)}")
    return first


def sums(distributions: dict[str, bytes]) -> str:
    """What `sha256sum --check` reads."""
    return "".join(f"{hashlib.sha256(distributions[name]).hexdigest()}  {name}\n" for name in sorted(distributions))


def time_of(top: Path, commit: str) -> str:
    """When a commit was made, in seconds of Unix."""
    return _git(top, "log", "-1", "--format=%ct", commit).decode().strip()


def _git(top: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=top, check=True, capture_output=True).stdout


def copied(top: Path, folder: Path, commit: str, turn: int) -> Path:
    """A copy of the files of the commit, and beside them what an earlier run of the code leaves."""
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=BytesIO(_git(top, "archive", commit))) as archive:
        unpack(archive, folder)
    if turn:
        for room in ("siltlog", "infra"):
            (folder / room / "__pycache__").mkdir()
            (folder / room / "__pycache__" / "names.cpython-311.pyc").write_bytes(b"stale")
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~MASKS[turn])
            os.utime(path, (TIMES_S[turn], TIMES_S[turn]))
    return folder


def _built(copy: Path, scratch: Path, top: Path, commit: str, turn: int) -> dict[str, bytes]:
    return _run_build(copy, scratch / f"built-{turn}", ("sdist", "wheel"), time_of(top, commit), MASKS[turn])


def _run_build(source: Path, folder: Path, targets: tuple[str, ...], time_s: str, mask: int) -> dict[str, bytes]:
    """Needs no network: the build runs in this environment, where its requirements are pinned."""
    chosen = [argument for target in targets for argument in ("--target", target)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *chosen, "--directory", str(folder)],
        cwd=source,
        check=True,
        capture_output=True,
        umask=mask,
        env={"PATH": os.defpath, "SOURCE_DATE_EPOCH": time_s},
    )
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
