"""Processes that a benchmark starts beside Siltlog: each says its port, and ends with the benchmark."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from siltlog.infra.redis.embedded import valkey_binary

START_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 10.0
VALKEY_CLIENTS_MAX = 12_000


_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


class BareServer(NamedTuple):
    port: int
    pid: int


@contextmanager
def bare_server(reply: bytes, media: str, folder: Path | None = None) -> Iterator[BareServer]:
    """An HTTP server that reads each request and answers it, with a folder once its body is synced there."""
    arguments = [sys.executable, "-m", "benchmarks.servers.bare_server", media, *([str(folder)] if folder else [])]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with ending(process):
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(reply)
        process.stdin.close()
        yield BareServer(int(process.stdout.readline()), process.pid)


@contextmanager
def valkey_server(folder: Path) -> Iterator[BareServer]:
    """A Valkey that syncs before it answers."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    arguments = [str(valkey_binary()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    arguments += ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--loglevel", "warning"]
    arguments += ["--maxclients", str(VALKEY_CLIENTS_MAX)]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    with ending(process):
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError("Valkey did not start") from None
                time.sleep(0.02)
        yield BareServer(port, process.pid)


@contextmanager
def ending(process: "subprocess.Popen[Any]") -> Iterator[None]:
    """Whatever happens, the process ends with the block."""
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
