import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.names import SOCKET_FILE
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.telemetry import logger
from siltlog.pipelines import assembly


def test_jobs_reach_their_server_by_its_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls: list[str] = []
    monkeypatch.setattr(assembly, "scheduler", lambda _, url, *__, **___: urls.append(url) or SimpleNamespace(run=None))
    settings = ServerSettings(data_dir=tmp_path)
    node: Any = SimpleNamespace(settings=settings, clock=SystemClock(), logger=logger("error", "console"))
    assembly.assemble(node, "https://silt.example", dict)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET_FILE))
        assembly.assemble(node, "https://silt.example", dict)
    assert urls == ["https://silt.example", f"unix:{tmp_path}/{SOCKET_FILE}"]
