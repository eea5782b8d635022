"""Objects copied from one root to another, side by side; what is there already is left alone."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa

from siltlog.infra.errors import problem
from siltlog.infra.store.checksum import crc32c
from siltlog.infra.store.store import ObjectStore

COPIES_AT_ONCE = 8


class Copy(NamedTuple):
    source: str
    target: str
    size_bytes: int
    content_crc: int | None = None
    """The CRC32C that the bytes must have, where it is known."""


def left_to_copy(copies: Iterable[Copy], there: Mapping[str, int]) -> list[Copy]:
    """Picks the copies that `there`, sizes by path in the target, lacks: an object is seen whole or not at all."""
    return [copy for copy in copies if there.get(copy.target) != copy.size_bytes]


def copy_all(source: ObjectStore, target: ObjectStore, copies: list[Copy], done: Callable[[Copy], None]) -> None:
    """Durable when it returns.

    Raises CorruptData for a source that is gone, of another size or damaged, which is not at its target then;
    Unavailable.
    """
    with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
        futures = [pool.submit(_copy, source, target, copy) for copy in copies]
        try:
            for copy, future in zip(copies, futures, strict=True):
                future.result()
                done(copy)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    target.sync(copy.target for copy in copies)


class _Checked:
    """Reads an object, and ends in an error where its checksum is not the known one."""

    def __init__(self, content: pa.NativeFile, source: ObjectStore, copy: Copy) -> None:
        self._content = content
        self._source = source
        self._copy = copy
        self._read_bytes = 0
        self._crc = 0

    def read(self, size: int = -1, /) -> bytes:
        part: bytes = self._content.read(None if size < 0 else size)
        self._read_bytes += len(part)
        self._crc = crc32c(part, self._crc)
        # With its last bytes, and not after them: they might be sent by then.
        if self._read_bytes >= self._copy.size_bytes and self._crc != self._copy.content_crc:
            raise problem(
                "corrupt_data",
                f"the file {self._source.uri(self._copy.source)} is damaged: it fails its checksum; put it back from "
                "an older backup or from a copy of the root",
                path=self._copy.source,
            )
        return part


def _copy(source: ObjectStore, target: ObjectStore, copy: Copy) -> None:
    size = source.size(copy.source)
    if size == copy.size_bytes:
        try:
            with source.open(copy.source) as content:
                target.put_from(copy.target, content if copy.content_crc is None else _Checked(content, source, copy))
        except FileNotFoundError:
            size = None
        else:
            size = target.size(copy.target)
    if size != copy.size_bytes:
        what = "is missing" if size is None else f"has {size} bytes, not {copy.size_bytes}"
        raise problem("corrupt_data", f"the file {source.uri(copy.source)} {what}", path=copy.source)
