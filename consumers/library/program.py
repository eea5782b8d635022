"""Programs, which do no IO: a program yields what it needs, is sent what came of that, and goes on."""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from siltlog.consumers.library.options import OnPartitions
from siltlog.infra.client.core import Request
from siltlog.infra.client.record import TopicPartition

T = TypeVar("T")


class Tell(NamedTuple):
    """Call it with them, and go on once it returned."""

    callback: OnPartitions
    partitions: list[TopicPartition]


Program = Generator[Request | Tell, Any, T]
"""A `Request` is answered with the Response, or its SiltlogError is thrown in; a `Tell` likewise."""


def tell(callback: OnPartitions | None, partitions: Sequence[TopicPartition]) -> Program[None]:
    """Tells of the partitions, where there is a callback and a partition."""
    if callback is not None and partitions:
        yield Tell(callback, list(partitions))
