import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from siltlog.infra.socket_path import NAME_BYTES_MAX, SOCKET_PATH_BYTES_MAX, short_folder, short_path


def test_a_short_path_is_itself(tmp_path: Path) -> None:
    with short_path(Path("/run/silt.sock")) as path:
        assert path == Path("/run/silt.sock")


def test_a_long_one_is_reached_all_the_same(tmp_path: Path, temporary: Path) -> None:
    folder = tmp_path / ("d" * SOCKET_PATH_BYTES_MAX)
    folder.mkdir()
    links = set()
    listener, caller = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    with listener, caller:
        with pytest.raises(OSError, match="too long"):
            listener.bind(str(folder / "silt.sock"))
        with short_path(folder / "silt.sock") as path:
            listener.bind(str(path))
            listener.listen()
            assert len(str(path)) <= SOCKET_PATH_BYTES_MAX
            links.add(path.parent.parent)
        assert (folder / "silt.sock").is_socket()
        with short_path(folder / "silt.sock") as path:
            caller.connect(str(path))
            links.add(path.parent.parent)
    assert not any(folder.exists() for folder in links) and not list(temporary.iterdir())


def test_a_folder_for_sockets_is_short_wherever_temporary_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for parent in (tmp_path, tmp_path / ("d" * SOCKET_PATH_BYTES_MAX)):
        parent.mkdir(exist_ok=True)
        monkeypatch.setattr("tempfile.tempdir", str(parent))
        with short_folder("test") as folder, socket.socket(socket.AF_UNIX) as listener:
            assert folder.stat().st_mode & 0o777 == 0o700
            listener.bind(str(folder / ("n" * (NAME_BYTES_MAX - 1))))
        assert not folder.exists()


HOLDER = """
import sys
from siltlog.infra.socket_path import short_folder
with short_folder("test") as folder:
    (folder / "s").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files are, with room for the path of a socket in them."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_what_a_process_left_that_was_killed_goes_with_the_next(short: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(short)}
    with (
        subprocess.Popen([sys.executable, "-c", HOLDER], stdin=-1, stdout=-1, text=True, env=environment) as dies,
        subprocess.Popen([sys.executable, "-c", HOLDER], stdin=-1, stdout=-1, text=True, env=environment) as lives,
    ):
        left, held = (Path(str(holder.stdout and holder.stdout.readline()).strip()) for holder in (dies, lives))
        dies.kill()
        dies.wait()
        assert (left / "s").exists() and (held / "s").exists()
        with short_folder("test") as folder:
            assert set(folder.parent.iterdir()) == {held, folder}
        assert (held / "s").exists()
        lives.communicate()
    assert list(short.iterdir()) == []
