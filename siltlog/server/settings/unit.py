"""The systemd unit of a server that `silt init` founded: the one of `infra/deploy/systemd`, with its places."""

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from siltlog.infra.errors import ConfigError

PRIVILEGED_PORTS = 1024
_OF_A_USER_OF_ITS_OWN = (
    *("Environment=SILT_DATA_DIR=", "Environment=SILT_SECRET_FILE=", "LoadCredential=", "DynamicUser="),
    *("StateDirectory=", "StateDirectoryMode="),
)
_HOMES = (Path("/home"), Path("/root"), Path("/run/user"))
_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 (places that a unit would not see)


class Places(NamedTuple):
    silt: Path
    """The program."""
    user: str
    """The owner of the files, by name or by numbers."""
    config: Path
    written: Sequence[Path]
    """The folders that the server writes to, its data directory first."""
    read: Sequence[Path]
    """The files that it reads besides."""


def packaged_unit() -> str:
    """The unit of a server under /opt, with a user that systemd makes for it."""
    return files("siltlog.infra.deploy").joinpath("systemd", "siltlog.service").read_text("utf-8")


def unit_of(places: Places, port: int) -> str:
    """The unit for these places. Raises ConfigError where the server could not run under it."""
    if 0 < port < PRIVILEGED_PORTS:
        raise ConfigError(
            f"a server under this unit has no capability, so it cannot take port {port}: choose one from "
            f"{PRIVILEGED_PORTS} on, and have a proxy take the other"
        )
    every = (places.silt, places.config, *places.written, *places.read)
    for path in every:
        if not str(path).isprintable():
            raise ConfigError(f"{str(path)!r} cannot be named in a unit: it has characters that are not printable")
    replaced = {
        "ExecStart": f"{_quoted(places.silt).replace('$', '$$')} serve",
        "WorkingDirectory": str(places.written[0]).replace("%", "%%"),
    }
    lines = [f"# Made by silt init, of {places.config}."]
    for line in _without_comment_at_the_top(packaged_unit()):
        name = line.partition("=")[0]
        if line.startswith(_OF_A_USER_OF_ITS_OWN):
            continue
        if line.startswith("Environment=SILT_CONFIG="):
            lines.append(f"Environment={_quoted(Path(f'SILT_CONFIG={places.config}'))}")
        elif name in replaced:
            lines.append(f"{name}={replaced[name]}")
        elif name == "ProtectHome" and _below(every, _HOMES):
            lines.append("ProtectHome=read-only")
        elif name == "PrivateTmp" and _below(every, _TEMPORARY):
            lines.append("PrivateTmp=no")
        elif name == "ProtectSystem":
            lines += [line, *(f"ReadWritePaths={_quoted(path)}" for path in places.written)]
        else:
            lines.append(line)
        if line == "[Service]":
            lines.append(f"User={places.user}")
    return "\n".join(lines) + "\n"


def _without_comment_at_the_top(text: str) -> list[str]:
    return re.sub(r"\A(#.*\n)+", "", text).splitlines()


def _below(paths: Sequence[Path], folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for path in paths for folder in folders)


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"'
