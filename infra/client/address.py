"""Finds the server in the environment when no address is given. The only module of the client that reads it."""

import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

from siltlog.infra import names
from siltlog.infra.errors import ConfigError
from siltlog.infra.settings.environment import misspelt_for


def default_url() -> str:
    """`SILT_URL` (one URL, or several by commas), else the address a server listens on when nothing is set.

    Raises ConfigError where a misspelt variable would leave it at that.
    """
    return _variable(names.ENV_URL) or names.DEFAULT_URL


def scheduled_run() -> str | None:
    """The id of the run that a schedule has started this process for; None when it was started by hand."""
    return os.environ.get(names.ENV_RUN_ID) or None  # noqa: TID251


def run_trigger() -> Literal["hand", "schedule"]:
    """What has begun this process: the times of a schedule, or somebody, who may have asked a schedule for it."""
    asked = os.environ.get(names.ENV_RUN_TRIGGER) == "hand"  # noqa: TID251
    return "hand" if asked or scheduled_run() is None else "schedule"


class S3Address(NamedTuple):
    """An empty text leaves it to the AWS SDK's own chain."""

    endpoint: str = ""
    region: str = ""
    sse: str = ""
    kms_key_id: str = ""

    def options(self) -> dict[str, Any]:
        """The keywords of `open_store`."""
        return {f"s3_{name}": value for name, value in self._asdict().items() if value}


def default_s3() -> S3Address:
    """`SILT_S3_ENDPOINT`, `SILT_S3_REGION`, `SILT_S3_SSE` and `SILT_S3_KMS_KEY_ID`, as the server has them."""
    variables = (names.ENV_S3_ENDPOINT, names.ENV_S3_REGION, names.ENV_S3_SSE, names.ENV_S3_KMS_KEY_ID)
    return S3Address(*map(_variable, variables))


def config_folder() -> Path | None:
    """The folder of this user's settings (XDG Base Directory Specification); None for a user who has no home."""
    given = os.environ.get("XDG_CONFIG_HOME", "")  # noqa: TID251
    try:
        return Path(given) if given.startswith("/") else Path.home() / ".config"
    except RuntimeError:
        return None


def variable(name: str) -> str:
    """Its value, or nothing. A server's `SILT_TLS_CERT` is no misspelt `SILT_CERT`: what lacks is told when it is
    needed."""
    return os.environ.get(name, "")  # noqa: TID251


def _variable(name: str) -> str:
    """Gives a variable's value, or nothing; raises ConfigError where another variable seems to be meant for it."""
    environment = os.environ  # noqa: TID251
    value = environment.get(name, "")
    misspelt = None if value else misspelt_for(name, environment, names.ENV_OF_CLIENTS)
    if misspelt is not None:
        raise ConfigError(
            f"{misspelt} is not a variable of Siltlog, and {name} is not set: did you mean {name}? "
            "rename it, or unset it"
        )
    return value
