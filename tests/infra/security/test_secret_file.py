"""A file that holds a secret may be read by nobody else, by every way in which a server reads one."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from siltlog.infra.errors import ConfigError
from siltlog.infra.security import secret
from siltlog.infra.security.secret_file import read_secret

ROOT, SERVER = 0, 1000
READERS = (read_secret, secret.read_secret)


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Says who owns every file."""
    real = os.fstat

    def owned(uid: int) -> None:
        monkeypatch.setattr(os, "fstat", lambda file: os.stat_result((*real(file)[:4], uid, *real(file)[5:])))

    return owned


@pytest.mark.rule("A41")
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("uid", "mode", "told"),
    [
        (ROOT, 0o440, None),
        (ROOT, 0o640, None),
        (SERVER, 0o600, None),
        (SERVER, 0o440, "its group may read it"),
        (ROOT, 0o444, "every user of this machine may read it"),
        (SERVER, 0o604, "every user of this machine may read it"),
    ],
)
def test_a_group_may_read_what_root_owns(
    read: Callable[[Path], Any],
    uid: int,
    mode: int,
    told: str | None,
    owner: Callable[[int], None],
    tmp_path: Path,
) -> None:
    path = tmp_path / "secret"
    path.write_text("x" * secret.SECRET_BYTES_MIN + "\nmore")
    path.chmod(mode)
    owner(uid)
    if told is None:
        read(path)
        return
    with pytest.raises((ConfigError, ValueError), match=f"{told}: chmod 600"):
        read(path)


def test_a_secret_of_a_cluster_that_is_not_there_or_too_short_is_told(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        secret.read_secret(path)
    path.write_text("short")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="too short: it has 5 bytes"):
        secret.read_secret(path)
