"""This machine: where data is kept, how fast its disk is, what a process may open."""

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from siltlog.doctor.finding import Finding
from siltlog.infra import names
from siltlog.infra.clock import Clock, stopwatch
from siltlog.ingest.data_dir import FREE_BYTES_MIN, holder_of
from siltlog.server.process import RESERVE, raise_file_limit

if TYPE_CHECKING:
    from siltlog.infra.settings.settings import ServerSettings

MIB = 1024 * 1024
SYNCS = 5
SYNC_SECONDS_MAX = 0.05
"""Slower than a disk: each acknowledgement waits for one."""


def directory_problem(folder: Path) -> str | None:
    """Why a server could not keep its data there."""
    nearest = nearest_folder(folder)
    if not nearest.is_dir():
        return f"data_dir {folder}: {nearest} is a file; name a directory by SILT_DATA_DIR"
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        return f"data_dir {folder}: no permission to write in {nearest}; change its owner, or set SILT_DATA_DIR"
    return None


def nearest_folder(folder: Path) -> Path:
    return next(there for there in (folder, *folder.parents) if there.exists())


def program() -> Finding:
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return Finding("siltlog", "ok", f"{version('siltlog')}, {system}")


def data_dir(settings: "ServerSettings", clock: Clock) -> Iterator[Finding]:
    problem = directory_problem(settings.data_dir)
    if problem is not None:
        yield Finding("data dir", "wrong", problem, "export SILT_DATA_DIR=…")
        return
    holder = holder_of(settings.data_dir)
    used = f", used by process {holder.pid} {holder.url}".rstrip() if holder is not None else ""
    yield Finding("data dir", "ok", f"{settings.data_dir}{used}")
    nearest = nearest_folder(settings.data_dir)
    free = shutil.disk_usage(nearest).free
    wanted = settings.wal_bytes_max - _taken_bytes(settings.data_dir / names.WAL_FOLDER)
    if free < FREE_BYTES_MIN:
        yield Finding("disk", "wrong", f"{free // MIB:,} MiB free, {FREE_BYTES_MIN // MIB} are needed", f"df {nearest}")
    elif free < wanted:
        yield Finding(
            "disk",
            "warning",
            f"{free // MIB:,} MiB free; the write-ahead log may take {wanted // MIB:,} more while tables cannot be "
            "written",
            f"export SILT_WAL_BYTES_MAX={max(free // 2 // MIB, 1) * MIB}",
        )
    else:
        yield Finding("disk", "ok", f"{free // MIB:,} MiB free")
    try:
        seconds = _sync_seconds(nearest, clock)
    except OSError as error:
        yield Finding("sync", "wrong", f"{nearest}: {error.strerror}", "export SILT_DATA_DIR=…")
        return
    slow = seconds > SYNC_SECONDS_MAX
    yield Finding(
        "sync",
        "warning" if slow else "ok",
        f"a write is on the disk after {seconds * 1000:.1f} ms" + ("; each acknowledgement waits for one" * slow),
        "export SILT_DATA_DIR=… (a folder on a faster disk)" if slow else "",
    )


def _taken_bytes(wal: Path) -> int:
    taken = 0
    for file in wal.glob("*"):
        # A server that runs renames its segments, and removes them.
        with suppress(FileNotFoundError):
            taken += file.stat().st_size
    return taken


def _sync_seconds(folder: Path, clock: Clock) -> float:
    taken = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(SYNCS):
            with stopwatch(clock) as seconds:
                file.write(bytes(4096))
                os.fsync(file.fileno())
            taken.append(seconds[0])
    return median(taken)


def open_files(settings: "ServerSettings") -> Finding:
    limit = raise_file_limit()
    wanted = settings.connections_max + RESERVE
    if limit >= wanted:
        return Finding("open files", "ok", f"up to {limit:,}")
    return Finding(
        "open files",
        "warning",
        f"up to {limit:,}: fewer connections than SILT_CONNECTIONS_MAX={settings.connections_max} says are served",
        f"ulimit -Hn {wanted} (as root), or LimitNOFILE={wanted} in its systemd unit",
    )


def kafka_codec() -> Finding:
    """What reads and makes the batches and messages of Kafka's clients on this machine."""
    # Where nobody speaks Kafka nothing of it is imported.
    from siltlog.infra.kafka.native import CODEC, IS_NATIVE

    if IS_NATIVE:
        return Finding("kafka", "ok", f"record batches and messages are read and made by {CODEC}")
    return Finding(
        "kafka", "ok", "record batches are read and made by numpy; siltlog-native takes less time: make native"
    )
