"""A server of one's own: `silt serve` as a child process that can be killed, restarted on its port, and stopped."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
ERROR_LINES_MAX = 20
_LISTENING = re.compile(r"^listening on (\S+)")


class ServerProcess:
    """One data directory and the process that serves it.

    `settings` are named as the fields of `ServerSettings` (`flush_ms=200`). Settings of the surrounding environment
    and of a `siltlog.toml` in the working directory do not reach the child. Without `port` the first start takes a
    free one, and every restart takes the same, so that clients find the server again. Without `schedule` it runs no
    jobs, and without `metrics_history` it makes no topic of its own: what is looked at stays as it is.
    """

    def __init__(self, data_dir: Path, settings: Mapping[str, Any] | None = None, *, log: Path | None = None) -> None:
        self.data_dir = data_dir.absolute()
        self.url = ""
        quiet = {"schedule": "off", "metrics_history": "ring"}
        self._settings: dict[str, Any] = {"host": "127.0.0.1", "port": 0, **quiet, **(settings or {})}
        self._log = log or self.data_dir / names.SERVER_LOG_FILE
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def root(self) -> str:
        """The root URI of its tables."""
        return str(self._settings.get("root") or (self.data_dir / names.LAKE_FOLDER).as_uri())

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ConfigError("the server is not running; call start() first")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_path(self) -> Path:
        """The file with what the server wrote to its standard error, over all its starts."""
        return self._log

    def start(self, *arguments: str) -> None:
        """Returns once the server can acknowledge; `arguments` are flags of `silt serve` such as `--take-over`.

        Raises ConfigError with the server's own words when it does not start.
        """
        assert not self.running, "the server is running"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        log_start = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            process = _run(["serve", *arguments], self.data_dir, self._environment(), log)
        self._process = process
        if not self._await_listening(process):
            process.kill()
            status = process.wait()
            with self._log.open("rb") as log:
                log.seek(log_start)
                said = log.read().decode("utf-8", "replace").strip().splitlines()[-ERROR_LINES_MAX:]
            raise ConfigError(
                f"the server did not start (exit status {status}): " + ("\n".join(said) or f"see {self._log}")
            )

    def kill(self) -> None:
        """SIGKILL, at once, unless it has ended; returns when the process is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self, *arguments: str) -> None:
        """Starts again on the same data directory and port; stops the server first when it runs."""
        if self.running:
            self.stop()
        self.start(*arguments)

    def stop(self) -> int:
        """SIGTERM, so that it drains and flushes; its exit status. Leaves nothing of it running."""
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
        status = process.wait()
        if status != 0:
            self._stop_valkey()
        return status

    def _stop_valkey(self) -> None:
        """The embedded Valkey outlives a server that was killed, for the next one to take over: none comes."""
        if not (self.data_dir / names.VALKEY_FOLDER).exists():
            return
        from siltlog.infra.redis.embedded import EmbeddedValkey
        from siltlog.infra.telemetry import logger

        valkey = EmbeddedValkey(self.data_dir, SystemClock(), logger("error", "console"))
        if valkey.alive():
            valkey.start()
            valkey.stop()

    def _environment(self) -> dict[str, str]:
        inherited = dict(os.environ)  # noqa: TID251
        kept = {name: value for name, value in inherited.items() if not name.startswith(names.ENV_PREFIX)}
        own = {names.ENV_PREFIX + name.upper(): str(value) for name, value in self._settings.items()}
        return {**kept, **own, names.ENV_PREFIX + "DATA_DIR": str(self.data_dir)}

    def _await_listening(self, process: subprocess.Popen[str]) -> bool:
        """Reads the child's output on a thread until it ends; True once it said that it listens."""
        assert process.stdout is not None
        output = process.stdout
        listening = threading.Event()
        settled = threading.Event()

        def read() -> None:
            with output:
                for line in output:
                    found = _LISTENING.match(line)
                    if found and not listening.is_set():
                        self.url = found[1]
                        self._settings["port"] = int(found[1].rpartition(":")[2])
                        listening.set()
                        settled.set()
            settled.set()

        self._reader = threading.Thread(target=read, name="server-output", daemon=True)
        self._reader.start()
        settled.wait(START_TIMEOUT_S)
        return listening.is_set()


def _run(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: IO[bytes]
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "siltlog.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        cwd=folder,
        env=environment,
        start_new_session=True,  # Ctrl-C on a terminal reaches the owner alone, who then stops the server
    )
