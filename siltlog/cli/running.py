"""The servers that run on this machine: which process has which data directory."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from siltlog.infra import names
from siltlog.infra.client.endpoints import UNIX, Endpoints
from siltlog.infra.errors import ConfigError
from siltlog.ingest.data_dir import holder_of

PROCESSES = Path("/proc")


class Running(NamedTuple):
    """A server's process; `url` is empty until it listens."""

    data_dir: Path
    pid: int
    url: str


def server_of(data_dir: Path) -> Running:
    """The server that uses a data directory. Raises ConfigError where there is none that this user may stop."""
    holder = holder_of(data_dir)
    if holder is None:
        raise ConfigError(f"no server uses the data directory {data_dir}: name that of the one you mean by --data-dir")
    who = f"process {holder.pid}, which uses the data directory {data_dir},"
    elsewhere = f"{who} is not of this machine, or in a container: stop it there"
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        raise ConfigError(elsewhere) from None
    except PermissionError:
        raise ConfigError(f"{who} is another user's: stop it as that user") from None
    if PROCESSES.is_dir() and not _has_open(holder.pid, data_dir / names.LOCK_FILE):
        raise ConfigError(elsewhere)
    return Running(data_dir, holder.pid, holder.url)


def server_at(url: str) -> Running:
    """The server of this machine that listens at `url`. Raises ConfigError where there is none that this user sees."""
    if len(Endpoints(url).urls) > 1:
        raise ConfigError(f"{url} names several servers: say one of them")
    if url.startswith(UNIX):
        return server_of(Path(url.removeprefix(UNIX)).parent)
    parts = urlsplit(url)
    if not _is_here(parts.hostname or ""):
        raise ConfigError(
            f"{parts.hostname} is another machine: run `silt stop` there; `silt drain --url {url}` has its server flush"
        )
    for data_dir in dict.fromkeys(_data_dirs()):
        holder = holder_of(data_dir)
        if holder is not None and holder.url and urlsplit(holder.url).port == parts.port:
            return server_of(data_dir)
    raise ConfigError(
        f"no server of this machine, of those that this user sees, listens at {url}: name its data directory by "
        "--data-dir, or stop it as the user that runs it, or in its container"
    )


def _is_here(host: str) -> bool:
    """Whether an address of this host is one of this machine: nobody else may bind it."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"the host {host} is not found: {error}") from None
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as bound:
                bound.bind(address)
        except OSError:
            continue
        return True
    return False


def _data_dirs() -> Iterator[Path]:
    """The folders of the lock files that processes have open, of those that this user may look at."""
    for process in PROCESSES.glob("[0-9]*"):
        for opened in _opened(process):
            try:
                path = opened.readlink()
            except OSError:
                continue
            if path.name == names.LOCK_FILE:
                yield path.parent


def _has_open(pid: int, file: Path) -> bool:
    wanted = file.stat()
    for opened in _opened(PROCESSES / str(pid)):
        try:
            if os.path.samestat(opened.stat(), wanted):
                return True
        except OSError:
            continue
    return False


def _opened(process: Path) -> list[Path]:
    """The files that a process has open; none where it has ended, or is another user's."""
    try:
        return list((process / "fd").iterdir())
    except OSError:
        return []
