"""Where the server is when nobody says: the environment. The only module of the client that reads it."""

import os

from siltlog.infra import names


def default_url() -> str:
    """`SILT_URL` (one URL, or several by commas), else the address a server listens on when nothing is set."""
    return os.environ.get(names.ENV_URL) or names.DEFAULT_URL  # noqa: TID251
