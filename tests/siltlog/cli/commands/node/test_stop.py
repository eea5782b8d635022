"""`silt stop` against real servers of this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from http_rig import Http

from siltlog.cli import running
from siltlog.cli.main import run
from siltlog.cli.running import Running
from siltlog.infra import names
from siltlog.ingest.data_dir import LockHolder, holder_of
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
HOLD = """
import signal, sys
from pathlib import Path
from siltlog.infra.clock import SystemClock
from siltlog.ingest.data_dir import DataDir
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with DataDir(Path(sys.argv[1]), SystemClock(), free_bytes_min=0) as held:
    held.announce("http://127.0.0.1:1")
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, where no settings of this machine reach."""
    for name in [name for name in os.environ if name.startswith("SILT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def holding(data_dir: Path) -> "Iterator[subprocess.Popen[str]]":
    """A process that has a data directory, and takes no notice of SIGTERM."""
    command = [sys.executable, "-c", HOLD, str(data_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def said(capsys: Capture, *arguments: str) -> tuple[int, str]:
    """The exit status, and what is wrong."""
    capsys.readouterr()
    status = run(["stop", *arguments])
    return status, capsys.readouterr().err


def test_it_stops_a_server_by_its_data_directory_or_its_address(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_server(flush_ms=600_000) as server:
        Http(server.url).create("kept")
        Http(server.url).publish("kept", {"value": "1"})
        pid, folder = server.pid, str(server.data_dir)
        assert run(["stop", "--data-dir", folder, "--output", "json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told.pop("seconds") >= 0
        assert told == {"data_dir": folder, "pid": pid, "url": server.url, "stopped": True}
        assert server.stop() == 0, "it ended as after SIGTERM"
        status, error = said(capsys, "--data-dir", folder)
        assert (status, "no server uses the data directory" in error) == (1, True)

        server.start()
        bounds = Http(server.url).bounds("kept")
        assert bounds["table_offset"] == bounds["high_watermark"] == 1, "it flushed before it ended"
        assert run(["stop", "--url", server.url, "--output", "value"]) == 0
        assert capsys.readouterr().out == "stopped\n"
        assert (server.stop(), holder_of(server.data_dir)) == (0, None)

        server.start()
        monkeypatch.setenv("SILT_DATA_DIR", folder)
        assert run(["stop"]) == 0
        assert server.stop() == 0


def test_one_that_ends_by_itself_as_it_is_found_has_stopped(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    monkeypatch.setattr(running, "server_of", lambda data_dir: Running(data_dir, ended.pid, ""))
    assert run(["stop", "--data-dir", str(here / "data"), "--output", "value"]) == 0
    assert capsys.readouterr().out == "stopped\n"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://192.0.2.1:7070", "192.0.2.1 is another machine: run `silt stop` there"),
        ("http://127.0.0.1:1,http://127.0.0.1:2", "several servers"),
        ("http://no-such-host.invalid:7070", "no-such-host.invalid is not found"),
        ("http://127.0.0.1:9", "no server of this machine"),
    ],
)
def test_it_says_why_there_is_none_at_an_address(capsys: Capture, url: str, why: str) -> None:
    status, error = said(capsys, "--url", url)
    assert status == 1
    assert why in error


def test_who_does_not_end_in_time_is_told_of(here: Path, capsys: Capture) -> None:
    with holding(here / "data") as process:
        assert run(["stop", "--url", "http://localhost:1", "--timeout", "0.2", "--output", "json"]) == 3
        told = json.loads(capsys.readouterr().out)
        assert (told["pid"], told["stopped"], process.poll()) == (process.pid, False, None)


def test_a_process_that_has_not_the_data_directory_is_left_alone(here: Path, capsys: Capture) -> None:
    """The number is that of a process of another machine, or of a container, that shares the folder."""
    with holding(here / "data"), subprocess.Popen(["sleep", "60"]) as other:
        try:
            for pid in (other.pid, 2**22 + 1):
                holder = json.dumps({"pid": pid, "url": "http://127.0.0.1:1"}) + "\n"
                (here / "data" / names.LOCK_FILE).write_text(holder)
                assert holder_of(here / "data") == LockHolder(pid, "http://127.0.0.1:1")
                status, error = said(capsys, "--data-dir", str(here / "data"), "--timeout", "1")
                assert status == 1
                assert f"process {pid}" in error
                assert "not of this machine, or in a container" in error
            assert other.poll() is None
        finally:
            other.kill()
