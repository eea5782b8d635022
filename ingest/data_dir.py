"""The data dir: made when absent, checked, and locked for one process.

The lock is the kernel's (flock): it goes with the process, however that ends. The lock file only says who has it.
"""

import fcntl
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import msgspec

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, problem

MIB = 1024 * 1024
FREE_BYTES_MIN = 64 * MIB
# `holder_of` has the lock for a moment to see whether it is free; that alone must refuse nobody.
PROBES_MAX = 5
PROBE_SECONDS = 0.02


@dataclass(frozen=True)
class LockHolder:
    """The process that uses a data dir; `url` is empty until it listens."""

    pid: int
    url: str


class DataDir:
    """A data dir that this process holds until `close`; a context manager."""

    def __init__(self, path: Path, clock: Clock, *, free_bytes_min: int = FREE_BYTES_MIN) -> None:
        """Raises ConfigError when the dir cannot be made, used or locked, Unavailable (`disk_full`) without space."""
        self.path = path
        _make(path)
        try:
            self._fd = os.open(path / names.LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise _unusable(path, "cannot be written to", error) from error
        try:
            self._lock(clock)
            free = shutil.disk_usage(path).free
            if free < free_bytes_min:
                raise problem(
                    "disk_full",
                    f"the disk of the data dir {path} has {free // MIB} MiB left and {free_bytes_min // MIB} are "
                    "needed: free some space, or set SILT_DATA_DIR to a folder on another disk",
                )
            self._write(LockHolder(os.getpid(), ""))
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def wal_path(self) -> Path:
        return self.path / names.WAL_FOLDER

    def announce(self, url: str) -> None:
        """Writes where this process listens, for others on this machine."""
        self._write(LockHolder(os.getpid(), url))

    def close(self) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self, clock: Clock) -> None:
        try:
            for _ in range(PROBES_MAX):
                if _locked(self._fd):
                    return
                clock.sleep(PROBE_SECONDS)
            holder = _read(self.path)
            who = "another process"
            if holder is not None:
                who = f"process {holder.pid}" + (f", which listens on {holder.url}" if holder.url else "")
            raise ConfigError(
                f"the data dir {self.path} is in use by {who}: stop it, or set SILT_DATA_DIR to another folder"
            )
        except OSError as error:
            raise _unusable(self.path, "is on a file system that cannot lock files", error) from error

    def _write(self, holder: LockHolder) -> None:
        content = msgspec.json.encode(asdict(holder)) + b"\n"
        # One write, and only then shorter: whoever reads meanwhile sees no half of it.
        os.pwrite(self._fd, content, 0)
        os.ftruncate(self._fd, len(content))


def holder_of(path: Path) -> LockHolder | None:
    """Tells who holds the data dir `path` right now; None when nobody does."""
    try:
        fd = os.open(path / names.LOCK_FILE, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(path)
    finally:
        os.close(fd)
    return None


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make(path: Path) -> None:
    """The folder, each new one durable in the one above it."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            _sync_folder(folder.parent)
    except FileExistsError:
        raise ConfigError(
            f"the data dir {path} is a file: set SILT_DATA_DIR to a folder, or to a name that is free"
        ) from None
    except OSError as error:
        raise _unusable(path, "cannot be made", error) from error


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _read(path: Path) -> LockHolder | None:
    try:
        line = (path / names.LOCK_FILE).read_bytes().partition(b"\n")[0]
        return msgspec.json.decode(line, type=LockHolder)
    except (OSError, msgspec.DecodeError):
        return None


def _unusable(path: Path, what: str, error: OSError) -> ConfigError:
    return ConfigError(
        f"the data dir {path} {what} ({error.strerror}): give this user the right to it, or set SILT_DATA_DIR to "
        "another folder"
    )
