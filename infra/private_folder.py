"""A folder of one process beside those of others, which goes with the process."""

import fcntl
import os
import shutil
import uuid
import weakref
from pathlib import Path


class PrivateFolder:
    """A folder in `parent` that is locked for as long as this object lives."""

    def __init__(self, parent: Path) -> None:
        """Removes the folders in `parent` whose processes were killed. Raises OSError when it cannot be made."""
        parent.mkdir(parents=True, exist_ok=True)
        self.path, descriptor = _made(parent)
        weakref.finalize(self, _remove, self.path, descriptor, os.getpid())
        for other in parent.iterdir():
            if other != self.path:
                _remove_abandoned(other)


def _made(parent: Path) -> tuple[Path, int]:
    while True:
        path = parent / uuid.uuid4().hex
        path.mkdir()
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Whoever saw it before it was locked took it for abandoned.
        if path.exists():
            return path, descriptor
        os.close(descriptor)


def _remove(path: Path, descriptor: int, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)
    os.close(descriptor)


def _remove_abandoned(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)
