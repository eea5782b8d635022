"""A server that tests fork is what it would be with an interpreter of its own."""

import os
import re
import signal
import time
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import forked
import pytest
from chaos import CHAOS
from forked import ForkedProcess, ForkServers
from http_rig import NO_REDIS
from processes import stat_of

from siltlog.infra.errors import ConfigError
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

pytestmark = pytest.mark.skipif(CHAOS > 1 or not hasattr(os, "pidfd_open"), reason="nothing is forked")


def test_signals_reach_it_and_its_exit_status_is_known() -> None:
    with running_server(redis_url=NO_REDIS) as server:
        os.kill(server.pid, signal.SIGSTOP)
        process = server._process
        assert process is not None
        process.terminate()
        with pytest.raises(TimeoutExpired):
            process.wait(0.2)
        os.kill(server.pid, signal.SIGCONT)
        assert server.stop() == 0
        server.start()
        os.kill(server.pid, signal.SIGKILL)
        assert server.stop() == -signal.SIGKILL
        assert not server.running


def test_each_has_the_settings_and_the_words_of_its_own(tmp_path: Path) -> None:
    for wrong in ("sooner", "later"):
        with pytest.raises(ConfigError, match=rf"(?s)\(exit status 2\): .*SILT_FLUSH_MS='{wrong}' is not valid"):
            ServerProcess(tmp_path / wrong, {"flush_ms": wrong}).start()


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "PYTHONDEVMODE", "TZ"])
def test_what_only_a_new_interpreter_reads_starts_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    with running_server(redis_url=NO_REDIS) as server:
        assert not isinstance(server._process, ForkedProcess)


def test_what_a_test_has_set_by_its_first_server_counts_for_it_alone(
    tmp_path: Path, forks: ForkServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as changed, (tmp_path / "log").open("wb") as log:
        changed.setenv("TZ", "UTC")
        assert forks.fork(["serve", "--help"], tmp_path, dict(os.environ), log.fileno()) is None
    parent(forks, tmp_path)


def test_neighbours_do_not_share_a_seed_of_hashes(tmp_path: Path, forks: ForkServers) -> None:
    parents = [parent(forks, tmp_path) for _ in range(4)]
    assert parents[0] == parents[2] != parents[1] == parents[3]


def parent(forks: ForkServers, folder: Path) -> int:
    with (folder / "log").open("wb") as log:
        process = forks.fork(["serve", "--help"], folder, dict(os.environ), log.fileno())
    assert process is not None
    found = int(stat_of(process.pid)[1])
    assert process.wait(120) == 0
    assert "--take-over" in process.stdout.read()
    return found


@pytest.fixture
def forks(request: pytest.FixtureRequest) -> ForkServers:
    made = ForkServers()
    request.addfinalizer(made.close)
    return made


def test_nothing_is_forked_while_there_are_threads(
    tmp_path: Path, forks: ForkServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked, "ONE_THREAD", {})
    with pytest.raises(AssertionError, match="threads"):
        parent(forks, tmp_path)


def test_it_has_no_more_than_an_executed_one(request: pytest.FixtureRequest) -> None:
    with running_server(redis_url=NO_REDIS) as server:
        assert isinstance(server._process, ForkedProcess)
        its = settled(server)
    request.getfixturevalue("executed")
    with running_server(redis_url=NO_REDIS) as server:
        assert not isinstance(server._process, ForkedProcess)
        assert settled(server) == its


def settled(server: ServerProcess) -> dict[str, Any]:
    """What is seen twice in a row: threads of a server that has just started open files and close them, and lay out the
    next segment of its log, which takes seconds on a busy disk."""
    last = None
    for _ in range(600):
        try:
            found = seen(server)
        except FileNotFoundError:  # closed between its listing and its look
            found = None
        if found is not None and found == last and "/wal/.spare" not in found["files"]:
            return found
        last = found
        time.sleep(0.1)
    pytest.fail("the server's files never stand still")


def seen(server: ServerProcess) -> dict[str, Any]:
    process = Path("/proc") / str(server.pid)
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
    files = [str(file.readlink()).replace(str(server.data_dir), "") for file in (process / "fd").iterdir()]
    return {
        "files": sorted(re.sub(r"\[\d+\]|[0-9a-f]{20,}|silt-[^/]+", "", file) for file in files),
        "folder": (process / "cwd").readlink() == server.data_dir,
        "session": os.getsid(server.pid) == server.pid,
        "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt", "ShdPnd")},
        "dumps": (process / "coredump_filter").read_text(),
        "limits": (process / "limits").read_text(),
    }
