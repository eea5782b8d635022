"""The records that stay when a pass compacts keys, as both ways to find them tell of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from siltlog.infra.errors import problem
from siltlog.pipelines.compaction.keys_plan import KeptFile, KeyRange
from siltlog.pipelines.compaction.plan import Merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WORD_BITS = 64
WORD_SHIFT = 6


@dataclass(frozen=True, slots=True)
class Survivors:
    """The records that stay in some ranges of one pass."""

    words: Callable[[Merge], "DataFrame"]
    """(word, kept) at the offsets of a merge, where any stay: bit `offset % 64` of the row of `offset / 64` says
    whether that record does."""
    files: Mapping[str, KeptFile]
    """The files of the merge by their paths."""
    tombstones: Mapping[int, int]
    """The number of tombstones that stay for now, by partition."""


def check_seen(topic: str, ranges: Iterable[KeyRange], seen: Mapping[int, int]) -> None:
    """Raises CorruptData unless as many records of each partition were `seen` as the log says."""
    for found in ranges:
        if seen[found.partition] != found.rows:
            raise problem(
                "corrupt_data",
                f"of {found.rows} records of topic {topic}, partition {found.partition}, {seen[found.partition]} were "
                "seen; nothing was committed",
                topic=topic,
                partition=found.partition,
            )
