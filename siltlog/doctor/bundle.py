"""A file for whoever is asked for help: what this machine, its settings and the server say of themselves.

It has names (of topics, groups, hosts, folders) and numbers; no record, no key of one, no secret.
"""

import json
import os
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from importlib.metadata import distributions
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from siltlog.doctor.finding import Finding
from siltlog.infra import names
from siltlog.infra.client.core import ConnectionFailed, json_request
from siltlog.infra.client.credentials.authorized import open_transport
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.transport import Transport
from siltlog.infra.clock import Clock, format_us
from siltlog.infra.errors import ConfigError, SiltlogError
from siltlog.infra.redaction import Redaction

if TYPE_CHECKING:
    from siltlog.infra.settings.settings import ServerSettings

LOG_BYTES = 256 * 1024
"""How much of the end of a log is taken."""
FILES_MAX = 5_000
ASKED = {
    "readyz.json": "/readyz",
    "cluster.json": "/v1/cluster",
    "schedule.json": "/v1/schedule",
    "jobs.json": "/v1/jobs?limit=100",
    "topics.json": "/v1/topics",
    "groups.json": "/v1/groups",
    "metrics.txt": "/metrics",
}
"""What a server is asked for: state, settings of topics and numbers, nothing of records."""


def write_bundle(
    path: Path,
    findings: Sequence[Finding],
    settings: "ServerSettings | None",
    url: str,
    clock: Clock,
    credentials: Credentials | None = None,
) -> list[str]:
    """Writes the file, for its owner alone, and returns the names of what is in it. Raises ConfigError."""
    hide = Redaction([] if settings is None else settings.secret_values())
    parts = {
        "about.json": _json({"made_at": format_us(clock.now_us()), "packages": dict(_packages())}),
        "findings.json": _json([asdict(finding) for finding in findings]),
        **_of_server(url, clock, credentials),
        **({} if settings is None else _of_machine(settings)),
    }
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists, and is kept as it is; name another by --bundle") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in parts.items():
            bundle.writestr(name, hide(text))
    return list(parts)


def _json(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, default=str)


def _packages() -> Iterable[tuple[str, str]]:
    return sorted((each.name, each.version) for each in distributions())


def _of_server(url: str, clock: Clock, credentials: Credentials | None) -> dict[str, str]:
    """Asks for each part by itself, of the first server that answers; what is not answered says why."""
    found: dict[str, str] = {}
    endpoints = Endpoints(url)
    try:
        with closing(open_transport(endpoints, clock, credentials)) as transport:
            for name, path in ASKED.items():
                found[name] = _answer(transport, endpoints, path)
    except SiltlogError as error:
        return {"server.json": _json({"not_answered": str(error)})}
    return found


def _answer(transport: Transport, endpoints: Endpoints, path: str) -> str:
    request, why = json_request("GET", path, accept="*/*"), ""
    for _ in endpoints.urls:
        url = endpoints.current
        try:
            return transport.send(url, request).body.decode("utf-8", "replace")
        except ConnectionFailed as failed:
            endpoints.failed(url, path)
            why = str(failed)
        except SiltlogError as error:
            return _json({"not_answered": str(error)})
    return _json({"not_answered": why})


def _of_machine(settings: "ServerSettings") -> dict[str, str]:
    from siltlog.infra.settings.loading import shown

    told = {name: shown(name, value) for name, value in settings.model_dump(mode="json").items()}
    parts = {"settings.json": _json(told), "data_dir.json": _json(list(islice(_files(settings.data_dir), FILES_MAX)))}
    logs = {
        names.SERVER_LOG_FILE: settings.data_dir / names.SERVER_LOG_FILE,
        names.VALKEY_LOG_FILE: settings.data_dir / names.VALKEY_FOLDER / names.VALKEY_LOG_FILE,
    }
    for name, path in logs.items():
        with suppress(FileNotFoundError):
            parts[name] = _end(path)
    return parts


def _files(folder: Path) -> Iterator[dict[str, Any]]:
    """Lists what the server keeps beside the tables, by size and time of change."""
    for path in _paths(folder):
        # A server that runs renames its files, and removes them.
        with suppress(FileNotFoundError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                yield {
                    "path": str(path.relative_to(folder)),
                    "bytes": status.st_size,
                    "modified_at": format_us(status.st_mtime_ns // 1000),
                    "mode": oct(status.st_mode & 0o777),
                }


def _paths(folder: Path) -> Iterator[Path]:
    """Lists what is below the folder and is no folder, but for the tables."""
    for place, inner, here in os.walk(folder):
        if Path(place) == folder and names.LAKE_FOLDER in inner:
            inner.remove(names.LAKE_FOLDER)
        yield from (Path(place, name) for name in here)


def _end(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_BYTES))
        return file.read(LOG_BYTES).decode("utf-8", "replace")
