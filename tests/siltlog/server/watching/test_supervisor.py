"""What systemd is told of a server: when it is ready, reads its files again, is not stuck, and stops."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from siltlog.infra.clock import SystemClock
from siltlog.infra.telemetry import logger
from siltlog.server.watching.supervisor import Supervisor, supervisor_of


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a supervisor, in `tmp_path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(60)
        yield told


def heard(told: socket.socket) -> str:
    return told.recv(4096).decode()


def supervisor(address: str, watchdog_seconds: float = 0) -> Supervisor:
    return Supervisor(address, watchdog_seconds, SystemClock(), logger("warning", "console"))


def beside_watchdog(told: socket.socket) -> str:
    while (message := heard(told)) == "WATCHDOG=1":
        pass
    return message


def test_a_server_tells_from_its_start_to_its_stop(systemd: socket.socket, tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        # Ten messages wait at a socket, and the server waits for nobody: so seldom that they are read in time.
        "WATCHDOG_USEC": "3000000",
        "SILT_PORT": "0",
        "SILT_DATA_DIR": str(tmp_path / "data"),
        "SILT_REDIS_URL": "redis://127.0.0.1:1",
        "SILT_SCHEDULE_COMPACT": "off",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "siltlog.cli", "serve"], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[2]
            assert heard(systemd) == "READY=1"
            assert urllib3.request("GET", f"{url}/readyz").status == 200
            assert [heard(systemd) for _ in range(2)] == ["WATCHDOG=1"] * 2
            process.send_signal(signal.SIGHUP)
            assert beside_watchdog(systemd).startswith("RELOADING=1\nMONOTONIC_USEC=")
            assert beside_watchdog(systemd) == "READY=1"
            process.send_signal(signal.SIGTERM)
            assert beside_watchdog(systemd) == "STOPPING=1"
        finally:
            process.terminate()
        assert process.wait(60) == 0


def test_it_is_not_ready_before_it_can_acknowledge_nor_after_a_reload_before(systemd: socket.socket) -> None:
    reasons = ["disk"]

    async def scenario() -> None:
        told = supervisor(systemd.getsockname())
        watching = asyncio.create_task(told.watch(lambda: reasons))
        await asyncio.sleep(0.3)
        with told.reloading():
            pass
        systemd.setblocking(False)
        with pytest.raises(BlockingIOError):
            heard(systemd)
        reasons.clear()
        await watching
        assert heard(systemd) == "READY=1"
        with told.reloading():
            assert heard(systemd).startswith("RELOADING=1\n")
            told.stopping()
        assert heard(systemd) == "STOPPING=1"
        with pytest.raises(BlockingIOError):
            heard(systemd)

    asyncio.run(scenario())


def test_a_name_that_is_no_path_is_told_too() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind("")
        told.settimeout(10)
        asyncio.run(supervisor(f"@{told.getsockname()[1:].decode()}").watch(list))
        assert heard(told) == "READY=1"


def test_where_nobody_listens_the_server_goes_on(tmp_path: Path) -> None:
    supervisor(str(tmp_path / "nothing")).stopping()
    supervisor("").stopping()
    asyncio.run(supervisor("", watchdog_seconds=1).watch(list))


@pytest.mark.parametrize(("usec", "pid"), [("1000", "1"), ("often", ""), ("", "")])
def test_a_watchdog_of_another_process_and_one_without_a_number_are_none(
    usec: str, pid: str, systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": usec, "WATCHDOG_PID": pid}.items():
        monkeypatch.setenv(name, value)
    asyncio.run(supervisor_of(SystemClock(), logger("warning", "console")).watch(list))
    assert heard(systemd) == "READY=1"
