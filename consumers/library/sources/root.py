"""The root that a server writes its tables under, as far as this process reaches it by itself."""

from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.client.address import S3Address
from siltlog.infra.errors import ConfigError, SiltlogError, problem

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0
ATTEMPTS_MAX = 3
DEFAULT_REGION = "us-east-1"
_ID_BYTES_MAX = 64
_REMOTE_ERROR = "AWS Error"
"""Begins what Arrow says where S3 did not answer as it should."""


class TableRoot:
    """Files below one root, for reading. From any thread."""

    def __init__(self, uri: str, s3: S3Address) -> None:
        """Raises ConfigError where `uri` is no place that this process could read."""
        parts = urlsplit(uri)
        self.uri = uri
        self._remote: Any = None
        if parts.scheme == "file" and parts.path:
            self._folder = unquote(parts.path)
        elif parts.scheme == "s3" and parts.netloc:
            self._remote = _s3(s3)
            self._folder = f"{parts.netloc}{parts.path}".rstrip("/")
        else:
            raise ConfigError(f"the root {uri!r} of the server's tables is neither on a disk nor on S3")

    def check(self, cluster_id: str) -> None:
        """Raises ConfigError, with the reason, unless this is the root of that cluster."""
        try:
            with self.open(names.CLUSTER_ID_OBJECT) as file:
                found = file.read(_ID_BYTES_MAX).decode(errors="replace").partition("\n")[0]
        except (OSError, SiltlogError) as error:
            raise ConfigError(f"the tables at {self.uri} cannot be read from here: {error}") from error
        if found != cluster_id:
            raise ConfigError(
                f"{self.uri} is another place here than for the server: its id is {found!r}, not {cluster_id!r}"
            )

    def open(self, path: str) -> pa.NativeFile:
        """Raises FileNotFoundError when absent, Unavailable when it cannot be read now."""
        if path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise ConfigError(f"{path!r} is not below the root {self.uri}")
        whole = f"{self._folder}/{path}"
        try:
            return (
                pa.OSFile(str(Path(whole)), mode="rb") if self._remote is None else self._remote.open_input_file(whole)
            )
        except FileNotFoundError:
            raise
        except OSError as error:
            raise unavailable(self.uri, error) from error

    def unavailable(self, error: BaseException | None) -> SiltlogError | None:
        """The error in its place where S3, and not what it holds, is the reason of `error`; else None."""
        return unavailable(self.uri, error) if error is not None and _REMOTE_ERROR in str(error) else None


def unavailable(uri: str, error: BaseException) -> SiltlogError:
    return problem("topic_unavailable", f"the tables at {uri} cannot be read now: {error}")


def _s3(address: S3Address) -> Any:
    """Arrow's own client of S3: it reads and waits without Python. Keys by the AWS SDK's own chain."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    scheme, _, host = address.endpoint.rpartition("://")
    return S3FileSystem(
        endpoint_override=host or None,
        scheme=scheme or "https",
        region=address.region or DEFAULT_REGION,
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS_MAX),
    )
