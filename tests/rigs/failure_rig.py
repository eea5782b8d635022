"""What the failure tests start their servers with, and how they look at what a server refused."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from evidence import Found

from siltlog.cli.records.stranded import StrandedFolder, stranded_files
from siltlog.infra import names
from siltlog.infra.errors import ConfigError
from siltlog.infra.store.store import open_store
from siltlog.server_process import ServerProcess

MIB = 1024 * 1024
SMALL: dict[str, Any] = {
    "flush_ms": 40,
    "flush_bytes": 100_000,
    "flush_files_per_hour": -1,
    "wal_bytes_max": 6 * MIB,
    "head_bytes_max": MIB,
}
"""Budgets so small that flushes, recycling, eviction and checkpoints go on all the time."""
NO_REDIS = {"redis_url": "redis://127.0.0.1:1/0"}
"""Tests without groups take it: nothing answers there, and publishing must not care."""
NEVER_FLUSHED = {"flush_ms": 3_600_000, "flush_bytes": 1 << 30, "wal_bytes_max": 64 * MIB}

StartServer = Callable[..., ServerProcess]


def refused(server: ServerProcess, *arguments: str) -> str:
    """What the server says instead of starting; never a traceback."""
    with pytest.raises(ConfigError) as error:
        server.start(*arguments)
    said = error.value.detail
    assert "Traceback" not in said, said
    return said


def set_aside(server: ServerProcess) -> list[Found]:
    """The records of a data dir that never came into a table."""
    rows: list[Found] = []
    for file in stranded_files(StrandedFolder(open_store(server.data_dir.as_uri()), names.STRANDED_FOLDER)):
        table = file.read()
        columns = [table.column("partition"), table.column("offset"), table.column("value").cast(pa.string())]
        rows += map(Found, *(column.to_pylist() for column in columns))
    return rows
