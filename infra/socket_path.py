"""Paths of sockets in the file system: a socket's own may be short only, a path may be long."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from siltlog.infra.errors import ConfigError

SOCKET_PATH_BYTES_MAX = 103
"""macOS and the BSDs have room for 104 bytes, Linux for 108, and one of them ends the path."""

NAME_BYTES_MAX = 24
"""The longest name of a socket in a folder that is made for them, with the slash before it."""

LINK_PREFIX = "siltsock-"
"""What the names of folders begin with that have a link."""
_UNFINISHED = ".new"


@contextmanager
def short_folder(prefix: str) -> Iterator[Path]:
    """Yields a fresh folder, which nobody else may enter, whose sockets have paths that are short enough.

    Raises ConfigError where there is none.
    """
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108 (a fresh folder of mode 700 in it)
        with _own_folder(prefix, parent) as folder:
            if len(os.fsencode(folder)) + NAME_BYTES_MAX <= SOCKET_PATH_BYTES_MAX:
                yield folder
                return
    raise ConfigError(f"the path {tempfile.gettempdir()} is too long for a socket: set TMPDIR to a shorter one")


@contextmanager
def short_path(path: Path) -> Iterator[Path]:
    """Yields a path to the socket that is short enough, if need be through a link that is this block's own.

    Raises ConfigError where there is none, OSError where no link can be made.
    """
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        yield path
        return
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108 (a fresh folder of mode 700 in it)
        with _own_folder(LINK_PREFIX, parent) as folder:
            link = folder / "l"
            if len(os.fsencode(link / path.name)) <= SOCKET_PATH_BYTES_MAX:
                link.symlink_to(path.parent.absolute(), target_is_directory=True)
                yield link / path.name
                return
    raise ConfigError(f"the path {path} is too long for a socket: use a shorter one")


@contextmanager
def _own_folder(prefix: str, parent: str) -> Iterator[Path]:
    """Yields a fresh folder, and removes those that processes have left which were killed."""
    for left in Path(parent).glob(f"{prefix}*"):
        _remove_if_left(left)
    made = tempfile.mkdtemp(prefix=prefix, suffix=_UNFINISHED, dir=parent)
    with ExitStack() as stack:
        # On a file system without locks what is left stays.
        with suppress(OSError):
            stack.enter_context(_locked(made))
        # Only now it has a name by which others look for what was left.
        folder = Path(made).rename(made.removesuffix(_UNFINISHED))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


@contextmanager
def _locked(folder: str | Path) -> Iterator[None]:
    """Raises BlockingIOError where another process has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove_if_left(folder: Path) -> None:
    # Another's may not be opened, or is being removed.
    with suppress(OSError):
        if folder.lstat().st_uid == os.getuid() and folder.suffix != _UNFINISHED:
            with _locked(folder):
                shutil.rmtree(folder, ignore_errors=True)
