"""Objects copied from one root to another, side by side; what is there already is left alone."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from siltlog.infra.errors import problem
from siltlog.infra.store import ObjectStore

COPIES_AT_ONCE = 8


class Copy(NamedTuple):
    source: str
    target: str
    size_bytes: int


def left_to_copy(copies: Iterable[Copy], there: Mapping[str, int]) -> list[Copy]:
    """Those that `there`, sizes by path in the target, lacks: an object is seen whole or not at all."""
    return [copy for copy in copies if there.get(copy.target) != copy.size_bytes]


def copy_all(source: ObjectStore, target: ObjectStore, copies: list[Copy], done: Callable[[Copy], None]) -> None:
    """Durable when it returns. Raises CorruptData for a source that is gone or of another size, Unavailable."""
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


def _copy(source: ObjectStore, target: ObjectStore, copy: Copy) -> None:
    size = source.size(copy.source)
    if size == copy.size_bytes:
        try:
            with source.open(copy.source) as content:
                target.put_from(copy.target, content)
        except FileNotFoundError:
            size = None
        else:
            size = target.size(copy.target)
    if size != copy.size_bytes:
        what = "is missing" if size is None else f"has {size} bytes, not {copy.size_bytes}"
        raise problem("corrupt_data", f"the file {source.uri(copy.source)} {what}", path=copy.source)
