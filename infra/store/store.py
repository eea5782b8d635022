"""The object store: what every part needs of the place where tables live, the same on a local disk and on S3."""

import builtins
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import NamedTuple, Protocol

import pyarrow as pa

from siltlog.infra.errors import ConfigError
from siltlog.infra.locations import root_parts
from siltlog.infra.store.observed import Observe, unobserved

COPY_BYTES = 8 * 1024 * 1024
"""The bytes of a copied object that are in memory at once."""
REQUESTS_AT_ONCE = 8
PROGRESS_FILES = 100


class Put(Enum):
    """What came of a put that writes only where no object is."""

    WRITTEN = "written"
    EXISTS = "exists"
    """An object is there; it may be the writer's own, from a put of which it never heard, or that the network doubled.
    Who must know looks at its content."""
    UNKNOWN = "unknown"
    """It may have been written, or may be yet, long after the writer gave up: no answer came, or one of a server in
    trouble."""

    def __bool__(self) -> bool:
        raise TypeError("what came of a put is one of three: compare it")


class ObjectInfo(NamedTuple):
    path: str
    size: int
    modified_ms: int


class Readable(Protocol):
    """A store whose objects can be read."""

    def open(self, path: str) -> pa.NativeFile:
        """Opens the object for random access. Raises FileNotFoundError when it is absent."""


class ReadableStore(Readable, Protocol):
    """A store whose objects can be found, too. Methods are those of ObjectStore."""

    def size(self, path: str) -> int | None: ...

    def list(self, prefix: str) -> builtins.list[ObjectInfo]: ...


class ByteStream(Protocol):
    """A source of bytes, read once."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, `size` at most, or all of them; none at the end."""


class StagedObject(Protocol):
    """An object that is written and durable, and that nobody sees."""

    def put(self) -> Put:
        """Puts it as `ObjectStore.put_if_absent` does; UNKNOWN also where it cannot be put any more. Once only."""

    def discard(self) -> None:
        """Removes it."""


class ObjectStore(Protocol):
    """Objects under one root. Paths are relative to the root and separated by "/".

    Every method raises Unavailable (`topic_unavailable`, `disk_full`, `store_denied`) when the store cannot do it now.
    """

    root_uri: str

    def uri(self, path: str, scheme: str | None = None) -> str:
        """The full URI of `path`; `scheme="s3a"` for Spark, which knows S3 by that name (no effect on a local root)."""

    def storage_options(self) -> dict[str, str]:
        """Options that deltalake needs to reach the store; empty locally."""

    def get(self, path: str) -> bytes:
        """Raises FileNotFoundError when absent."""

    def put(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Writes the whole object; seen whole or not at all. Locally not durable before `sync`."""

    def put_from(self, path: str, source: ByteStream) -> None:
        """Puts all that `source` has from its position on, without all of it in memory at once.

        Nothing is written where `source` raises an error, which passes.
        """

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Writes the whole object, atomic and durable, where there is none. It is sent once: nothing below repeats it.

        Raises Unavailable only where it surely was not written, and never will be. `put_once` is for who needs no more
        than yes or no.
        """

    def info(self, path: str) -> ObjectInfo | None:
        """None when absent."""

    def size(self, path: str) -> int | None:
        """Bytes; None when absent."""

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """`size` of each of `paths`, asked for together."""

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """Every object below the folder `prefix`, in the order of their paths."""

    def unfinished(self, prefix: str) -> builtins.list[ObjectInfo]:
        """Lists what is being written below the folder `prefix`, and what a killed process left of its writing.

        `delete` ends it.
        """

    def clock_ms(self) -> int:
        """Reads the clock that `modified_ms` goes by, which may be another machine's."""

    def folders(self, prefix: str) -> builtins.list[str]:
        """The names (not paths) of the direct sub-folders of `prefix`, sorted."""

    def delete(self, path: str) -> None:
        """An absent object is fine."""

    def prune(self, folder: str) -> None:
        """Removes `folder`, and those above it below the root, as far as they are empty; S3 has no folders."""

    def prune_below(self, folder: str, before_ms: int) -> None:
        """Removes `folder` and those below it where they are empty and nothing has changed in them since."""

    def sync(self, paths: Iterable[str]) -> None:
        """Makes objects durable: locally by fsync of the files, then of each folder above them up to the root."""

    def open(self, path: str) -> pa.NativeFile:
        """Opens the object for random access. Raises FileNotFoundError when it is absent."""


def delete_all(
    store: ObjectStore, doomed: Sequence[ObjectInfo], progress: Callable[[int, int], None] | None = None
) -> None:
    """Some at a time: on S3 each is a request."""
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        for done, _ in enumerate(pool.map(store.delete, (info.path for info in doomed)), 1):
            if progress is not None and (done % PROGRESS_FILES == 0 or done == len(doomed)):
                progress(done, len(doomed))


def open_store(
    root_uri: str,
    *,
    s3_endpoint: str = "",
    s3_region: str = "",
    s3_sse: str = "bucket",
    s3_kms_key_id: str = "",
    patience_ms: int | None = None,
    observe: Observe = unobserved,
) -> ObjectStore:
    """The store at `file:///path` or `s3://bucket/prefix`. Keys for S3 come by boto3's own chain.

    With `patience_ms` a request to S3 is made once, and given up after so long: for who soon asks again anyway.
    `observe` hears of each request.
    Raises ConfigError when `root_uri` is no such location or a local root cannot be made.
    """
    try:
        bucket, path = root_parts(root_uri)
    except ValueError as error:
        raise ConfigError(f"the root {error}") from None
    if not bucket:
        from siltlog.infra.store.local import LocalStore

        return LocalStore(path, observe)
    from siltlog.infra.store.s3 import S3Store

    return S3Store(
        bucket,
        path,
        endpoint=s3_endpoint,
        region=s3_region,
        sse=s3_sse or "bucket",
        kms_key_id=s3_kms_key_id,
        patience_ms=patience_ms,
        observe=observe,
    )
