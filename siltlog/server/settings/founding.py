"""Writes what a server needs for its first start: all of it, or nothing."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError
from siltlog.infra.security.private_file import replace_private
from siltlog.infra.settings.file import settings_file
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import open_store
from siltlog.infra.telemetry import Logger
from siltlog.infra.whole_file import replace_whole
from siltlog.server.access.bootstrap import first_key

FIRST_KEY = "admin"
_OWNER_ALONE = 0o700


class Founded(NamedTuple):
    config: Path
    key_file: Path | None
    """Where the first key is; None where nobody needs one, or the log has its keys already."""


def check_free(*files: Path | None, force: bool) -> None:
    """Raises ConfigError for a file that is there and would be written over."""
    there = [path for path in files if path is not None and path.exists()]
    if there and not force:
        raise ConfigError(f"{there[0]} exists, and is kept as it is: name another place, or say --force")


def found(
    chosen: Mapping[str, int | str],
    config: Path,
    key_file: Path,
    clock: Clock,
    logger: Logger,
    beside: Mapping[Path, str] | None = None,
) -> Founded:
    """Makes the data directory, the secret and the first key where callers need one, the files `beside`, last `config`.

    What it has made when something goes wrong, it takes away again. Raises ConfigError, Unavailable, OSError.
    """
    settings = ServerSettings(**chosen)  # type: ignore[arg-type]
    with ExitStack() as undo:
        _make_folder(settings.data_dir, undo)
        root = urlsplit(settings.root_uri)
        if root.scheme == "file":
            _make_folder(Path(unquote(root.path)), undo)
        made = False
        if settings.auth == "on":
            store = open_store(settings.root_uri, **settings.s3_options())
            try:
                key = first_key(settings, store, FIRST_KEY, clock, logger)
            except ConfigError as error:
                if error.error_code != "key_exists" or not config.exists():
                    raise
            else:
                made = True
                if not key_file.exists():
                    undo.callback(key_file.unlink, missing_ok=True)
                replace_private(key_file, key.text().encode() + b"\n")
        for path, text in (beside or {}).items():
            if not path.exists():
                undo.callback(path.unlink, missing_ok=True)
            replace_whole(path, text.encode())
        replace_whole(config, settings_file(chosen).encode())
        undo.pop_all()
    return Founded(config, key_file if made else None)


@contextmanager
def folder_for_a_moment(folder: Path) -> Iterator[None]:
    """Makes a folder where there is none, and takes it away again. Raises ConfigError where it cannot be made."""
    with ExitStack() as undo:
        try:
            _make_folder(folder, undo)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be made: {error.strerror}") from None
        yield


def _make_folder(folder: Path, undo: ExitStack) -> None:
    if folder.exists():
        return
    first = folder
    while not first.parent.exists():
        first = first.parent
    undo.callback(shutil.rmtree, first, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(_OWNER_ALONE)
