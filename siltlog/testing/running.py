"""A real server for tests, as a child process. Needs no Java."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from siltlog.server_process import ServerProcess


@contextmanager
def running_server(**settings: Any) -> Iterator[ServerProcess]:
    """A `silt serve` child on a free port of the loopback, with a data directory of its own.

    `settings` are named as in `silt serve --help` with underscores: `running_server(flush_ms=100)`. With
    `data_dir=` that directory is used and kept, otherwise a temporary one is removed at the end.
    Gives `.url`, `.root`, `.data_dir`, `.pid`, `.kill()`, `.restart()`, `.stop()`. Raises ConfigError with the
    server's own words when it does not start.
    """
    data_dir = settings.pop("data_dir", None)
    with tempfile.TemporaryDirectory(prefix="silt-", ignore_cleanup_errors=True) as scratch:
        server = ServerProcess(Path(data_dir or Path(scratch) / "data"), settings, log=Path(scratch) / "server.log")
        server.start()
        try:
            yield server
        finally:
            server.stop()
