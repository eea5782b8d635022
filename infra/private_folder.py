"""A folder of one process beside those of others, which goes with the process."""

import fcntl
import os
import shutil
import stat
import tempfile
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class PrivateFolder:
    """A folder in `parent` that is locked for as long as this object lives."""

    def __init__(self, parent: Path) -> None:
        """Removes the folders in `parent` whose processes were killed. Raises OSError when it cannot be made."""
        parent.mkdir(parents=True, exist_ok=True)
        self.path, descriptor = _made(parent)
        self._end = weakref.finalize(self, _remove, self.path, descriptor, os.getpid())
        for other in parent.iterdir():
            if other != self.path:
                _remove_abandoned(other)

    def remove(self) -> None:
        """Before this object goes."""
        self._end()


@contextmanager
def private_folder(kind: str, place: str) -> Iterator[Path]:
    """A folder in `place`, removed at the end of the block; what killed processes of this user left there of that
    `kind` is removed at its beginning. Raises OSError when it cannot be made."""
    parent = Path(place) / f"silt-{kind}-{os.getuid()}"
    status = _shared(parent)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        # Somebody else of this machine has taken the name.
        with tempfile.TemporaryDirectory(prefix=f"silt-{kind}-", dir=place, ignore_cleanup_errors=True) as own:
            yield Path(own)
        return
    folder = _in(parent)
    try:
        yield folder.path
    finally:
        folder.remove()
        with suppress(OSError):  # others are in it
            parent.rmdir()


def _shared(parent: Path) -> os.stat_result:
    """Makes the folder unless it, or something else of that name, is there, and looks at it."""
    while True:
        with suppress(FileExistsError):
            parent.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # the last one in it has just removed it
            return parent.lstat()


def _in(parent: Path) -> PrivateFolder:
    while True:
        _shared(parent)
        try:
            return PrivateFolder(parent)
        except (FileExistsError, FileNotFoundError):
            continue  # the last one in it has just removed it


def _made(parent: Path) -> tuple[Path, int]:
    while True:
        path = parent / uuid.uuid4().hex
        path.mkdir(mode=0o700)
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
