"""How many topics and partitions there may be under the names that somebody may make."""

from collections.abc import Callable, Collection, Sequence, Sized
from typing import Protocol

from siltlog.infra import names
from siltlog.infra.security.grant import Grant

Room = Callable[[int], None]
"""Raises Refused `cap_reached` where there may be no more topic with so many partitions."""


class There(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> Sized: ...


class AllThere(Protocol):
    def topics(self) -> Sequence[There]: ...
    def opening(self) -> Collection[str]: ...


def room_of(seen: Callable[[], AllThere], grant: Grant) -> Room | None:
    """Gives what asks whether a caller may make one more of all that is there; None where he may make any number."""
    if grant.cap("topics") is None and grant.cap("partitions") is None:
        return None

    def check(partitions: int) -> None:
        there = seen()
        # What is not open here yet is there all the same; how many partitions it has is seen once it is.
        unopened = sum(_may_make(name, grant) for name in there.opening())
        grant.check_room("topics", len(_makeable(there, grant)) + unopened)
        check_partitions(seen, grant, partitions)

    return check


def check_partitions(seen: Callable[[], AllThere], grant: Grant, more: int) -> None:
    """Raises Refused `cap_reached` where so many more partitions would be too many."""
    if grant.cap("partitions") is not None:
        grant.check_room("partitions", sum(len(topic.partitions) for topic in _makeable(seen(), grant)), more)


def _makeable(there: AllThere, grant: Grant) -> list[There]:
    """Lists the topics whose names a caller may make: nobody keeps who made which."""
    return [topic for topic in there.topics() if _may_make(topic.name, grant)]


def _may_make(name: str, grant: Grant) -> bool:
    return not names.is_system_topic(name) and grant.may("create", "topic", name)
