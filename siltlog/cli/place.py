"""Where the server is that a command means when it is told nothing."""

import os
from pathlib import Path
from urllib.parse import urlsplit

from siltlog.infra import names
from siltlog.infra.client.address import default_url, variable
from siltlog.infra.client.credentials.contexts import contexts_file, read_contexts
from siltlog.infra.client.endpoints import UNIX
from siltlog.infra.errors import ConfigError
from siltlog.ingest.data_dir import holder_of

DATA_DIR = "silt-data"
"""What the setting of that name is when it is not set."""


def unsaid_url(*, alone: bool) -> str:
    """`SILT_URL`, the current context's, the socket of the server here, or the address that a server has unless told.

    The socket is taken where nobody said who asks (`alone`), as whoever may use it needs no token. Raises ConfigError
    for contexts that others may read, and where a misspelt variable seems to be meant.
    """
    url = default_url()
    if variable(names.ENV_URL):
        return url
    try:
        context = read_contexts(contexts_file()).chosen
    except ConfigError:
        if contexts_file().exists():
            raise
        context = None
    if context is not None:
        return context.url
    said_who = any(map(variable, (names.ENV_TOKEN, names.ENV_TOKEN_FILE, names.ENV_CERT)))
    own = _own_socket() if alone and not said_who else None
    return url if own is None else f"{UNIX}{own}"


def _own_socket() -> Path | None:
    """The socket of the server that the default address would reach, where this user may use it."""
    folder = Path(variable(f"{names.ENV_PREFIX}DATA_DIR") or DATA_DIR).absolute()
    path = folder / names.SOCKET_FILE
    if not (path.is_socket() and os.access(path, os.R_OK | os.W_OK)):
        return None
    holder = holder_of(folder)
    is_default = holder is not None and bool(holder.url) and urlsplit(holder.url).port == _port(names.DEFAULT_URL)
    return path if is_default else None


def _port(url: str) -> int | None:
    return urlsplit(url).port
