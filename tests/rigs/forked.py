"""Servers that are forked from a process that has imported all they need: most of a start is its imports.

They are processes as those that `subprocess` starts: with a pid, a session, an exit status and streams of their own,
and an environment that is exactly what was given. Where something is given that Python or a library reads before `silt`
begins, a server is started as it is elsewhere, and so are all of `make test-chaos` and of tests that use `executed`.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from fork_server import LENGTH_BYTES
from ports import with_port

from siltlog import server_process
from siltlog.infra import names

PROGRAM = Path(__file__).with_name("fork_server.py")
NODE_SITE = Path(__file__).with_name("node_site")
"""What a `sitecustomize` says of a process can be said to a fork as well; another release cannot."""
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}
"""Libraries that start threads when they are loaded leave it with these."""
SEEDS = 2
READ_LATE = (
    names.ENV_PREFIX,
    "AWS_",
    "COLUMNS",
    "OTEL_BSP_",
    "OTEL_EXPORTER_",
    "OTEL_TRACES_",
    "PYTEST_",
    "SPARK_",
    "TMPDIR",
)
"""How names of variables begin that nobody reads before `silt` begins."""
EXECUTE = server_process._run


def _execute(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: IO[bytes]
) -> "subprocess.Popen[str]":
    return EXECUTE(arguments, folder, with_port(environment), log)


@contextmanager
def executing() -> Iterator[None]:
    """What is started in the block has an interpreter of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_process, "_run", _execute)
        yield


class ForkedProcess:
    """What `subprocess.Popen` is to who started it. Its parent is the fork server, which keeps its exit status."""

    def __init__(self, forks: "ForkServer", pid: int, stdout: IO[str]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._forks = forks
        self._lock = threading.Lock()
        self._ended = os.pidfd_open(pid)

    def poll(self) -> int | None:
        return self._status(0.0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._status(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("silt serve", timeout)
        return status

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _status(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            poller = select.poll()
            poller.register(self._ended, select.POLLIN)
            if poller.poll(None if timeout is None else timeout * 1000):
                self._collect()
        return self.returncode

    def _collect(self) -> None:
        with self._lock:
            if self.returncode is None:
                self.returncode = int(self._forks.ask({"wait": self.pid})["status"])

    def __del__(self) -> None:
        os.close(self._ended)


class ForkServer:
    """Runs from the first server on that it forks; any thread may ask it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._sock, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**environment, **ONE_THREAD},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def fork(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: int, site: str = ""
    ) -> ForkedProcess:
        """Forks a process; the file that `site` names is run in it before anything else."""
        reading, writing = os.pipe()
        with open(os.devnull, "rb") as nothing, os.fdopen(writing, "wb"):  # noqa: PTH123
            streams = (nothing.fileno(), writing, log)
            given = {"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)}
            request = {**given, "site": site}
            answer = self.ask(request, streams)
        return ForkedProcess(self, int(answer["pid"]), os.fdopen(reading, encoding="utf-8"))

    def ask(self, request: Mapping[str, Any], streams: Sequence[int] = ()) -> dict[str, Any]:
        document = json.dumps(request).encode()
        with self._lock:
            socket.send_fds(self._sock, [len(document).to_bytes(LENGTH_BYTES, "big")], streams)
            self._sock.sendall(document)
            with self._sock.makefile("rb") as replies:
                line = replies.readline()
        assert line, "the fork server has ended"
        answer: dict[str, Any] = json.loads(line)
        assert "refusal" not in answer, f"the fork server has {answer['refusal']}, which a fork would not take along"
        return answer

    def close(self) -> None:
        self._sock.close()
        self._process.wait(30)


class ForkServers:
    """Takes turns: all processes of one share a seed of `hash`, which a server and the next one do not.

    What is in the environment when they are made, they read: what a test has set by its first server counts for that
    test alone.
    """

    opened: "ForkServers | None" = None
    """The servers of this run of tests."""

    def __init__(self) -> None:
        self._environment = _without_settings(os.environ)
        self._servers: list[ForkServer] = []
        self._turn = 0
        self._lock = threading.Lock()
        ForkServers.opened = self

    def fork(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: int
    ) -> ForkedProcess | None:
        """None when the environment has what only a new interpreter would read."""
        environment, site = _with_site(environment)
        server = self.server_for(environment)
        return None if server is None else server.fork(arguments, folder, environment, log, site)

    def server_for(self, environment: Mapping[str, str], *, but: Sequence[str] = ()) -> ForkServer | None:
        """None when the environment has what only a new interpreter would read, leaving the variables `but` aside."""
        ours, theirs = _read_early(self._environment), _read_early(environment)
        if any(ours.get(name) != theirs.get(name) for name in {*ours, *theirs} - {*but}):
            return None
        with self._lock:
            if self._turn == len(self._servers):
                self._servers.append(ForkServer(self._environment))
            server = self._servers[self._turn]
            self._turn = (self._turn + 1) % SEEDS
        return server

    def close(self) -> None:
        ForkServers.opened = None
        for server in self._servers:
            server.close()


def _without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(names.ENV_PREFIX)}


def _with_site(environment: Mapping[str, str]) -> tuple[Mapping[str, str], str]:
    """The environment without the folder of a `sitecustomize`, and that program; as it is where it must be executed."""
    first, _, others = environment.get("PYTHONPATH", "").partition(os.pathsep)
    program = Path(first) / "sitecustomize.py"
    another_release = Path(environment.get(names.ENV_PREFIX + "DATA_DIR", "") + ".release").exists()
    if not first or not program.is_file() or another_release:
        return environment, ""
    rest = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    return {**rest, **({"PYTHONPATH": others} if others else {})}, str(program)


def _read_early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(READ_LATE)}
