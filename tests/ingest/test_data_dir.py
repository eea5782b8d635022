"""The data dir: one process, clear sentences."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, Unavailable
from siltlog.ingest.data_dir import DataDir, LockHolder, holder_of

HOLD = """
import pathlib, sys
from siltlog.infra.clock import SystemClock
from siltlog.ingest.data_dir import DataDir
held = DataDir(pathlib.Path(sys.argv[1]), SystemClock())
held.announce("http://127.0.0.1:7070")
print("held", flush=True)
sys.stdin.read()
"""


def test_folders_above_it_are_made_and_the_lock_names_this_process(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    with DataDir(path, SystemClock()) as held:
        assert held.wal_path == path / "wal"
        assert holder_of(path) == LockHolder(os.getpid(), "")
        held.announce("http://127.0.0.1:12345")
        assert holder_of(path) == LockHolder(os.getpid(), "http://127.0.0.1:12345")
        held.announce("http://[::1]:1")
        assert holder_of(path) == LockHolder(os.getpid(), "http://[::1]:1")
    assert holder_of(path) is None


def test_nobody_holds_what_does_not_exist(tmp_path: Path) -> None:
    assert holder_of(tmp_path / "absent") is None


def test_a_second_process_is_refused_with_the_first_ones_pid_and_url(tmp_path: Path) -> None:
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert first.stdout is not None and first.stdout.readline() == "held\n"
        with pytest.raises(ConfigError) as refused:
            DataDir(tmp_path, SystemClock())
        for part in (str(first.pid), str(tmp_path), "http://127.0.0.1:7070", "SILT_DATA_DIR"):
            assert part in refused.value.detail
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert holder_of(tmp_path) is None
        DataDir(tmp_path, SystemClock()).close()
    finally:
        first.kill()
        first.communicate()


def test_the_same_process_cannot_hold_it_twice(tmp_path: Path) -> None:
    with DataDir(tmp_path, SystemClock()), pytest.raises(ConfigError, match=str(os.getpid())):
        DataDir(tmp_path, SystemClock())
    DataDir(tmp_path, SystemClock()).close()


def test_a_damaged_lock_file_does_not_hide_that_it_is_held(tmp_path: Path) -> None:
    with DataDir(tmp_path, SystemClock()):
        (tmp_path / names.LOCK_FILE).write_bytes(b"\xff{")
        with pytest.raises(ConfigError, match="in use by another process"):
            DataDir(tmp_path, SystemClock())


def test_a_file_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        DataDir(path, SystemClock())
    with pytest.raises(ConfigError, match="cannot be made"):
        DataDir(path / "below", SystemClock())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ConfigError, match="cannot be made"):
            DataDir(tmp_path / "data", SystemClock())
        with pytest.raises(ConfigError, match="cannot be written to"):
            DataDir(tmp_path, SystemClock())
    finally:
        tmp_path.chmod(0o700)


def test_a_lock_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / names.LOCK_FILE).mkdir()
    with pytest.raises(ConfigError, match="cannot be written to"):
        DataDir(tmp_path, SystemClock())


def test_no_space(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="MiB left") as refused:
        DataDir(tmp_path, SystemClock(), free_bytes_min=1 << 62)
    assert refused.value.error_code == "disk_full"
    DataDir(tmp_path, SystemClock()).close()
