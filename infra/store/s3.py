"""The object store on S3, or anything that speaks its protocol with conditional puts."""

import builtins
import io
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any

import boto3
import pyarrow as pa
from boto3.exceptions import S3UploadFailedError
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
)
from botocore.parsers import ResponseParserError

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, problem
from siltlog.infra.store import s3_denied
from siltlog.infra.store.observed import Observe, observed, unobserved
from siltlog.infra.store.store import COPY_BYTES, ByteStream, ObjectInfo, Put

CONNECT_TIMEOUT_MS = 5_000
READ_TIMEOUT_MS = 30_000
ATTEMPTS_MAX = 5
CONNECTIONS_MAX = 32
_THREADS = 8
_DEFAULT_REGION = "us-east-1"
_TRANSFER = TransferConfig(multipart_threshold=COPY_BYTES, multipart_chunksize=COPY_BYTES, use_threads=False)
_ABSENT = ("NoSuchKey", "NoSuchUpload", "404", "NotFound")
_NOT_OFFERED = ("AccessDenied", "NotImplemented", "MethodNotAllowed", "501", "405")
_UPLOAD = "?uploadId="
"""Between the path of an object that is being uploaded and the id of the upload; no path of ours has it."""
_EXISTS = ("PreconditionFailed", "412")
_CONFLICT_STATUS = 409
_CONFLICTS_MAX = 6
_CONFLICT_S = 0.05
_NOT_SENT = (ConnectTimeoutError, EndpointConnectionError)
SSE = {"bucket": "", "s3": "AES256", "kms": "aws:kms"}
"""The encryption that S3 is asked for with each object, by the value of the setting. Empty asks for none: the bucket
decides."""


@contextmanager
def translated(path: str, uri: str = "") -> Iterator[None]:
    """Foreign errors of S3 become FileNotFoundError (no such object) or Unavailable (`store_denied` where nobody allows
    it)."""
    try:
        yield
    except ClientError as error:
        code = error_code(error)
        if code in _ABSENT:
            raise FileNotFoundError(path) from error
        if code in s3_denied.CODES:
            message = f"{code} {error.response['Error'].get('Message', '')}".strip()
            raise s3_denied.denied(error.operation_name, uri or path, message) from error
        if s3_denied.says_skewed(code):
            raise s3_denied.skewed(uri or path) from error
        raise problem(
            "topic_unavailable", f"S3 refused {path}: {code} {error.response['Error'].get('Message', '')}"
        ) from error
    except NoCredentialsError as error:
        raise problem(
            "topic_unavailable",
            f"there are no keys for S3 here, to reach {path}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give "
            "this machine a role; and SILT_S3_ENDPOINT for another server than AWS",
        ) from error
    except (BotoCoreError, S3UploadFailedError) as error:
        if s3_denied.says_skewed(str(error)):
            raise s3_denied.skewed(uri or path) from error
        if s3_denied.says_denied(str(error)):
            raise s3_denied.denied("PutObject", uri or path, str(error)) from error
        raise problem("topic_unavailable", f"S3 cannot be reached for {path}: {error}") from error


def error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


class S3Store:
    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        endpoint: str = "",
        region: str = "",
        sse: str = "bucket",
        kms_key_id: str = "",
        patience_ms: int | None = None,
        observe: Observe = unobserved,
    ) -> None:
        """`sse` is one of SSE; `kms_key_id` goes with `kms`, and without it the account's own key for S3 is used.
        `patience_ms` is as of `open_store`."""
        if sse not in SSE or (kms_key_id and sse != "kms"):
            raise ConfigError(
                f"SILT_S3_SSE={sse} is none of {', '.join(SSE)}"
                if sse not in SSE
                else "SILT_S3_KMS_KEY_ID is for SILT_S3_SSE=kms"
            )
        self.observe = observe
        self._encryption: dict[str, Any] = {"ServerSideEncryption": SSE[sse]} if SSE[sse] else {}
        if kms_key_id:
            self._encryption["SSEKMSKeyId"] = kms_key_id
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self.root_uri = f"s3://{bucket}/{prefix}".rstrip("/")
        self._endpoint = endpoint
        connect_ms, read_ms, attempts = CONNECT_TIMEOUT_MS, READ_TIMEOUT_MS, ATTEMPTS_MAX
        if patience_ms is not None:
            connect_ms, read_ms, attempts = min(connect_ms, patience_ms), min(read_ms, patience_ms), 1
        try:
            self._session = boto3.Session(region_name=region or None)
            self._region = region or self._session.region_name or _DEFAULT_REGION
            self._client, self._once = (
                self._session.client(
                    "s3",
                    endpoint_url=endpoint or None,
                    region_name=self._region,
                    config=Config(
                        connect_timeout=connect_ms / 1000,
                        read_timeout=read_ms / 1000,
                        retries={"mode": "standard", "total_max_attempts": attempts_max},
                        max_pool_connections=CONNECTIONS_MAX,
                    ),
                )
                # What is put only where nothing is, sent again, tells its own writer that it exists.
                for attempts_max in (attempts, 1)
            )
        except (ValueError, BotoCoreError) as error:
            raise ConfigError(
                f"S3 cannot be used as SILT_S3_ENDPOINT, SILT_S3_REGION and the AWS SDK's own settings say: {error}"
            ) from None

    def _key(self, path: str) -> str:
        return self._prefix + path

    def uri(self, path: str, scheme: str | None = None) -> str:
        return f"{scheme or 's3'}://{self._bucket}/{self._key(path)}"

    def storage_options(self) -> dict[str, str]:
        options = {"AWS_REGION": self._region, "timeout": f"{READ_TIMEOUT_MS}ms"}
        if self._endpoint:
            options["AWS_ENDPOINT_URL"] = self._endpoint
            if self._endpoint.startswith("http:"):
                options["AWS_ALLOW_HTTP"] = "true"
        if self._encryption:
            options["AWS_SERVER_SIDE_ENCRYPTION"] = self._encryption["ServerSideEncryption"]
            if "SSEKMSKeyId" in self._encryption:
                options["AWS_SSE_KMS_KEY_ID"] = self._encryption["SSEKMSKeyId"]
        credentials = self._session.get_credentials()
        # Credentials that expire are left to deltalake's own chain, which renews them.
        if credentials is not None and not isinstance(credentials, RefreshableCredentials):
            frozen = credentials.get_frozen_credentials()
            options["AWS_ACCESS_KEY_ID"] = frozen.access_key or ""
            options["AWS_SECRET_ACCESS_KEY"] = frozen.secret_key or ""
            if frozen.token:
                options["AWS_SESSION_TOKEN"] = frozen.token
        return options

    @observed("get")
    def get(self, path: str) -> bytes:
        with translated(path, self.uri(path)):
            content: bytes = self._client.get_object(Bucket=self._bucket, Key=self._key(path))["Body"].read()
            return content

    @observed("put")
    def put(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        with translated(path, self.uri(path)):
            self._client.put_object(Bucket=self._bucket, Key=self._key(path), Body=bytes(data), **self._encryption)

    @observed("put")
    def put_from(self, path: str, source: ByteStream) -> None:
        with translated(path, self.uri(path)):
            stream: Any = source
            self._client.upload_fileobj(
                stream, self._bucket, self._key(path), ExtraArgs=self._encryption, Config=_TRANSFER
            )

    @observed("put")
    def put_if_absent(self, path: str, data: bytes) -> Put:
        with translated(path, self.uri(path)):
            for conflicts in range(1, _CONFLICTS_MAX + 1):
                try:
                    self._once.put_object(
                        Bucket=self._bucket, Key=self._key(path), Body=data, IfNoneMatch="*", **self._encryption
                    )
                    return Put.WRITTEN
                except ClientError as error:
                    if error_code(error) in _EXISTS:
                        return Put.EXISTS
                    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
                    if status >= 500:
                        return Put.UNKNOWN
                    # Another writer was at it at the same time: nothing was written by this one.
                    if status != _CONFLICT_STATUS or conflicts == _CONFLICTS_MAX:
                        raise
                    SystemClock().sleep(_CONFLICT_S * conflicts)
                except _NOT_SENT:
                    raise
                except (HTTPClientError, ResponseParserError):
                    return Put.UNKNOWN
        raise AssertionError("the last conflict is raised")

    @observed("head")
    def info(self, path: str) -> ObjectInfo | None:
        try:
            with translated(path, self.uri(path)):
                head = self._head(path)
        except FileNotFoundError:
            return None
        return ObjectInfo(path, head["ContentLength"], int(head["LastModified"].timestamp() * 1000))

    def _head(self, path: str) -> Any:
        bucket, key = self._bucket, self._key(path)
        try:
            return self._client.head_object(Bucket=bucket, Key=key)
        except ClientError as error:
            if error_code(error) == "403":
                # Why is in the body, which no answer to a HEAD has.
                self._client.get_object(Bucket=bucket, Key=key)["Body"].close()
            raise

    def size(self, path: str) -> int | None:
        info = self.info(path)
        return None if info is None else info.size

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        if len(paths) < 2:
            return [self.size(path) for path in paths]
        with ThreadPoolExecutor(min(_THREADS, len(paths))) as pool:
            return list(pool.map(self.size, paths))

    @observed("list")
    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        found: list[ObjectInfo] = []
        with translated(prefix, self.uri(prefix)):
            for page in self._pages(prefix, delimiter=""):
                found += [
                    ObjectInfo(
                        item["Key"].removeprefix(self._prefix),
                        item["Size"],
                        int(item["LastModified"].timestamp() * 1000),
                    )
                    for item in page.get("Contents", [])
                ]
        return sorted(found)

    def unfinished(self, prefix: str) -> builtins.list[ObjectInfo]:
        """Uploads in parts that were begun and not ended: nobody sees them, and they are paid for."""
        lister = self._client.get_paginator("list_multipart_uploads")
        with translated(prefix, self.uri(prefix)):
            try:
                pages = list(lister.paginate(Bucket=self._bucket, Prefix=self._folder(prefix)))
            except ClientError as error:
                if error_code(error) in _NOT_OFFERED:
                    return []
                raise
        return sorted(
            ObjectInfo(
                f"{item['Key'].removeprefix(self._prefix)}{_UPLOAD}{item['UploadId']}",
                0,
                int(item["Initiated"].timestamp() * 1000),
            )
            for page in pages
            for item in page.get("Uploads", [])
        )

    def clock_ms(self) -> int:
        with translated(self.root_uri):
            reply = self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
        return int(parsedate_to_datetime(reply["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp() * 1000)

    @observed("list")
    def folders(self, prefix: str) -> builtins.list[str]:
        with translated(prefix, self.uri(prefix)):
            return sorted(
                common["Prefix"].rstrip("/").rpartition("/")[2]
                for page in self._pages(prefix, delimiter="/")
                for common in page.get("CommonPrefixes", [])
            )

    def _pages(self, prefix: str, delimiter: str) -> Iterable[Any]:
        return self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._folder(prefix), Delimiter=delimiter
        )

    def _folder(self, prefix: str) -> str:
        folder = self._key(prefix.strip("/"))
        return f"{folder.rstrip('/')}/" if folder else ""

    @observed("delete")
    def delete(self, path: str) -> None:
        path, _, upload = path.partition(_UPLOAD)
        with translated(path, self.uri(path)):
            if not upload:
                self._client.delete_object(Bucket=self._bucket, Key=self._key(path))
                return
            with suppress(FileNotFoundError), translated(path, self.uri(path)):
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=self._key(path), UploadId=upload)

    def prune(self, folder: str) -> None:
        """There are no folders."""

    def prune_below(self, folder: str, before_ms: int) -> None:
        """There are no folders."""

    def sync(self, paths: Iterable[str]) -> None:
        """Does nothing: an object that S3 has acknowledged is durable."""

    def open(self, path: str) -> pa.NativeFile:
        size = self.size(path)
        if size is None:
            raise FileNotFoundError(path)
        return pa.PythonFile(_Ranges(self, path, size), mode="r")

    @observed("get")
    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Bytes [start, end), at least one."""
        with translated(path, self.uri(path)):
            span = f"bytes={start}-{end - 1}"
            content: bytes = self._client.get_object(Bucket=self._bucket, Key=self._key(path), Range=span)[
                "Body"
            ].read()
            return content


class _Ranges(io.RawIOBase):
    """An object as a file; each read is one request."""

    def __init__(self, store: S3Store, path: str, size: int) -> None:
        self._store = store
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._position + size, self._size)
        if end <= self._position:
            return b""
        content = self._store.read_range(self._path, self._position, end)
        self._position += len(content)
        return content
