"""The embedded Valkey: real processes, killed and taken over."""

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError
from siltlog.infra.redis import embedded as valkey
from siltlog.infra.redis.embedded import EmbeddedValkey
from siltlog.infra.socket_path import SOCKET_PATH_BYTES_MAX
from siltlog.infra.telemetry import logger

LOGGER = logger("error", "console")


def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url)


def pid_of(url: str) -> int:
    with client(url) as connection:
        return int(connection.info("server")["process_id"])


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    server = EmbeddedValkey(tmp_path, SystemClock(), LOGGER)
    yield server
    server.stop()


def test_it_keeps_everything_in_the_data_dir_and_to_its_owner(embedded: EmbeddedValkey, tmp_path: Path) -> None:
    url = embedded.start()
    with client(url) as connection:
        assert connection.config_get("appendfsync") == {"appendfsync": "always"}
        assert connection.config_get("appendonly") == {"appendonly": "yes"}
        assert connection.config_get("port") == {"port": "0"}
        connection.set("kept", "yes")
    folder = tmp_path / names.VALKEY_FOLDER
    assert stat.S_IMODE((folder / names.VALKEY_SOCKET).stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "Ready to accept connections" in (folder / names.VALKEY_LOG_FILE).read_text()
    embedded.stop()
    assert not embedded.alive()
    with client(embedded.start()) as connection:
        assert connection.get("kept") == b"yes"


def leave_one_running(folder: Path) -> None:
    """Starts one by a server that is killed."""
    program = (
        "import sys, os, pathlib, signal\n"
        "from siltlog.infra.clock import SystemClock\n"
        "from siltlog.infra.redis.embedded import EmbeddedValkey\n"
        "EmbeddedValkey(pathlib.Path(sys.argv[1]), SystemClock(), None).start()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(folder)], check=False)
    assert killed.returncode == -signal.SIGKILL


def test_it_is_taken_over_from_a_server_that_was_killed(embedded: EmbeddedValkey, tmp_path: Path) -> None:
    leave_one_running(tmp_path)
    assert embedded.alive()
    with redis.Redis(unix_socket_path=str(tmp_path / names.VALKEY_FOLDER / names.VALKEY_SOCKET)) as connection:
        connection.set("written", "before")
        run_id = connection.info("server")["run_id"]
    with client(embedded.start()) as connection:
        assert connection.info("server")["run_id"] == run_id
        assert connection.get("written") == b"before"
    embedded.stop()
    assert not embedded.alive()


def test_one_that_was_taken_over_is_stopped_also_where_it_answers_late(
    embedded: EmbeddedValkey, tmp_path: Path
) -> None:
    leave_one_running(tmp_path)
    pid = pid_of(embedded.start())
    os.kill(pid, signal.SIGSTOP)
    goes_on = threading.Timer(2.5, os.kill, (pid, signal.SIGCONT))
    goes_on.start()
    try:
        embedded.stop()
        assert not embedded.alive()
    finally:
        goes_on.join()


def test_two_servers_never_share_one(embedded: EmbeddedValkey, tmp_path: Path) -> None:
    url = embedded.start()
    pid = pid_of(url)
    second = EmbeddedValkey(tmp_path, SystemClock(), LOGGER)
    with pytest.raises(ConfigError, match="another server uses the embedded Valkey"):
        second.start()
    second.stop()
    assert pid_of(url) == pid


def test_it_starts_again_after_it_was_killed(embedded: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey, "WATCH_S", 0.01)

    async def scenario() -> None:
        url = await asyncio.to_thread(embedded.start)
        pid = pid_of(url)
        with client(url) as connection:
            connection.set("kept", "yes")
        watch = asyncio.create_task(embedded.watch())
        os.kill(pid, signal.SIGKILL)
        while True:
            with suppress(redis.ConnectionError):
                if pid_of(url) != pid:
                    break
            await asyncio.sleep(0.01)
        watch.cancel()
        with client(url) as connection:
            assert connection.get("kept") == b"yes"

    asyncio.run(scenario())


def test_a_data_dir_too_deep_for_a_socket(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 8)
    server = EmbeddedValkey(deep, SystemClock(), LOGGER)
    url = server.start()
    socket = Path(url.removeprefix("unix://"))
    try:
        assert len(os.fsencode(socket)) <= SOCKET_PATH_BYTES_MAX
        assert stat.S_IMODE(socket.parent.parent.stat().st_mode) == 0o700
        with client(url) as connection:
            assert connection.ping()
        assert (deep / names.VALKEY_FOLDER / names.VALKEY_SOCKET).is_socket()
    finally:
        server.stop()
    assert not socket.parent.parent.exists()


def test_damaged_data_is_a_sentence(embedded: EmbeddedValkey, tmp_path: Path) -> None:
    with client(embedded.start()) as connection:
        for number in range(10):
            connection.set(f"key-{number}", "value")
    embedded.stop()
    (written,) = (tmp_path / names.VALKEY_FOLDER / "appendonlydir").glob("*.incr.aof")
    content = bytearray(written.read_bytes())
    content[60:64] = b"????"
    written.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        embedded.start()
    assert "did not start (exit code 1): Bad file format" in caught.value.detail
    assert names.VALKEY_LOG_FILE in caught.value.detail and "SILT_REDIS_URL" in caught.value.detail
    assert not embedded.alive()


def test_no_binary_is_a_sentence(embedded: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"install siltlog\[server\], or set SILT_REDIS_URL"):
        embedded.start()


def test_no_folder_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / names.VALKEY_FOLDER).write_text("a file in its way")
    server = EmbeddedValkey(tmp_path, SystemClock(), LOGGER)
    with pytest.raises(ConfigError, match="has no folder"):
        server.start()
    server.stop()


def test_one_that_hangs_is_named_and_left_alone(
    embedded: EmbeddedValkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = pid_of(embedded.start())
    embedded._release()
    monkeypatch.setattr(valkey, "START_S_MAX", 0.2)
    os.kill(pid, signal.SIGSTOP)
    try:
        successor = EmbeddedValkey(tmp_path, SystemClock(), LOGGER)
        with pytest.raises(ConfigError, match="does not answer"):
            successor.start()
    finally:
        os.kill(pid, signal.SIGCONT)
    embedded.start()
    assert pid_of(f"unix://{embedded._socket}") == pid


def test_a_folder_that_was_taken_away(embedded: EmbeddedValkey) -> None:
    pid = pid_of(embedded.start())
    shutil.rmtree(embedded.folder)
    assert embedded.alive()
    embedded.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
