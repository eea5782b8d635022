"""Paths of sockets in the file system: a socket's own may be short only, a path may be long."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from siltlog.infra.errors import ConfigError
from siltlog.infra.private_folder import private_folder

SOCKET_PATH_BYTES_MAX = 103
"""macOS and the BSDs have room for 104 bytes, Linux for 108, and one of them ends the path."""

NAME_BYTES_MAX = 24
"""The longest name of a socket in a folder that is made for them, with the slash before it."""


@contextmanager
def short_folder(kind: str) -> Iterator[Path]:
    """Yields a fresh folder, which nobody else may enter, whose sockets have paths that are short enough.

    Raises ConfigError where there is none.
    """
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108 (a fresh folder of mode 700 in it)
        with private_folder(kind, parent) as folder:
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
        with private_folder("sockets", parent) as folder:
            link = folder / "l"
            if len(os.fsencode(link / path.name)) <= SOCKET_PATH_BYTES_MAX:
                link.symlink_to(path.parent.absolute(), target_is_directory=True)
                yield link / path.name
                return
    raise ConfigError(f"the path {path} is too long for a socket: use a shorter one")
