"""Folders for temporary files, of processes that end and that are killed."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from siltlog.infra.errors import Unavailable
from siltlog.infra.store.scratch_folder import scratch_folder

HOLDING = """
from siltlog.infra.errors import Unavailable
from siltlog.infra.store.scratch_folder import scratch_folder
with scratch_folder("test") as folder:
    (folder / "spilled").mkdir()
    (folder / "spilled" / "file").write_bytes(b"1")
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def others(temporary: Path) -> Iterator[list[tuple["subprocess.Popen[str]", Path]]]:
    """Two processes, each with the folder that it has filled."""
    started: list[tuple[subprocess.Popen[str], Path]] = []
    try:
        for _ in range(2):
            command = [sys.executable, "-c", HOLDING]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            started.append((process, Path(process.stdout.readline().strip())))
        yield started
    finally:
        for process, _ in started:
            process.kill()
            process.communicate()


def test_a_folder_goes_with_its_block(temporary: Path) -> None:
    with scratch_folder("test") as folder, scratch_folder("test") as other:
        (folder / "file").write_bytes(b"1")
        assert folder != other
        assert folder.parent.stat().st_mode & 0o077 == 0, "others of this machine do not look into it"
    assert list(temporary.iterdir()) == []


def test_of_many_that_come_and_go_each_has_its_folder(temporary: Path) -> None:
    """Whoever leaves last takes the one above away, as another may just have found it."""

    def come_and_go(_: int) -> None:
        for _ in range(500):
            with scratch_folder("test") as folder:
                assert folder.is_dir()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(come_and_go, range(4)))
    assert list(temporary.iterdir()) == []


@pytest.mark.rule("J1")
def test_what_a_killed_process_left_goes_and_what_another_uses_stays(
    others: list[tuple["subprocess.Popen[str]", Path]],
) -> None:
    (killed, its), (_, theirs) = others
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert (its / "spilled" / "file").exists()
    with scratch_folder("other"):
        assert its.exists(), "that is of another kind"
    with scratch_folder("test") as folder:
        assert not its.exists()
        assert (theirs / "spilled" / "file").exists()
    assert not folder.exists()


def test_a_name_that_somebody_else_took_is_not_followed(temporary: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    (target / "important").mkdir(parents=True)
    (temporary / f"silt-test-{os.getuid()}").symlink_to(target)
    with scratch_folder("test") as folder:
        assert folder.parent == temporary
    assert [path.name for path in target.iterdir()] == ["important"]
    assert not folder.exists()
    (temporary / f"silt-other-{os.getuid()}").touch()
    with scratch_folder("other") as folder:
        assert folder.parent == temporary


@pytest.mark.parametrize("foreign", [True, False], ids=["said by a library", "said by the system"])
def test_a_full_disk_is_named(temporary: Path, foreign: bool) -> None:
    full = RuntimeError("Generic error: No space left on device") if foreign else OSError(errno.ENOSPC, "")
    with (
        pytest.raises(Unavailable, match=f"temporary files in {temporary}") as caught,
        scratch_folder("test") as folder,
    ):
        raise full
    assert caught.value.error_code == "disk_full"
    assert not folder.exists()
    with pytest.raises(ValueError, match="another"), scratch_folder("test"):
        raise ValueError("another")
