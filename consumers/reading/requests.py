"""What is asked for of many partitions at once."""

from collections.abc import Iterable
from typing import Annotated, Protocol

import msgspec

from siltlog.consumers.reading.reader import Isolation
from siltlog.consumers.reading.render import Values
from siltlog.infra.errors import problem
from siltlog.infra.limits import INTEGER_MAX, PARTITION_MAX

FETCH_PARTITIONS_MAX = 10_000
_Whole = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=INTEGER_MAX)]


class FetchPartition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)]
    offset: _Whole
    max_bytes: _Positive | None = None
    topic_id: str | None = None


class NamesPartition(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


class FetchRequest(msgspec.Struct, forbid_unknown_fields=True):
    partitions: Annotated[list[FetchPartition], msgspec.Meta(min_length=1, max_length=FETCH_PARTITIONS_MAX)]
    max_records: _Positive | None = None
    max_bytes: _Positive | None = None
    min_bytes: _Whole = 1
    wait_ms: _Whole = 0
    isolation: Isolation = "wal"
    values: Values = "text"


def check_once(positions: Iterable[NamesPartition]) -> None:
    """Raises Refused where a partition is named twice."""
    seen: set[tuple[str, int]] = set()
    for at in positions:
        if (at.topic, at.partition) in seen:
            raise problem(
                "invalid_request", f"partition {at.partition} of topic {at.topic[:200]} is given twice; give it once"
            )
        seen.add((at.topic, at.partition))
