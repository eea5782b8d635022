"""What every engine's query has in common: its result, and which topics there are by name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.sql.identifiers import PLAIN
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.table import topic_names
from siltlog.pipelines.topics import unknown_topic


@dataclass(frozen=True, slots=True)
class QueryResult:
    """`rows` are tuples in the order of `columns`, fetched as they are asked for; times are in UTC."""

    columns: list[str]
    rows: Iterator[tuple[Any, ...]]


def live_topics(store: ObjectStore) -> dict[str, str]:
    """Lists topics by their lower-case names: SQL does not tell case, and no two topics differ by it alone."""
    return {name.lower(): name for name in topic_names(store)}


def unknown_table(store: ObjectStore, name: str, known: Sequence[str]) -> SiltlogError:
    """The error for a table of a query that is no topic."""
    error = unknown_topic(store, name, known)
    if not all(PLAIN.fullmatch(topic) for topic in known):
        error = problem("unknown_topic", f"{error.detail}; a name with '-' or '.' goes in backquotes", topic=name)
    return error
