"""Where the server is when nobody says: the environment. The only module of the client that reads it."""

import os
from typing import NamedTuple

from siltlog.infra import names


def default_url() -> str:
    """`SILT_URL` (one URL, or several by commas), else the address a server listens on when nothing is set."""
    return os.environ.get(names.ENV_URL) or names.DEFAULT_URL  # noqa: TID251


def scheduled_run() -> str | None:
    """The id of the run that a schedule has started this process for; None when it was started by hand."""
    return os.environ.get(names.ENV_RUN_ID) or None  # noqa: TID251


class S3Address(NamedTuple):
    """An empty text leaves it to the AWS SDK's own chain."""

    endpoint: str = ""
    region: str = ""


def default_s3() -> S3Address:
    """`SILT_S3_ENDPOINT` and `SILT_S3_REGION`, as the server has them."""
    endpoint, region = os.environ.get(names.ENV_S3_ENDPOINT), os.environ.get(names.ENV_S3_REGION)  # noqa: TID251
    return S3Address(endpoint or "", region or "")
