"""Tells a catalog of the topics' tables: what is lacking is made, what differs is put right, what has no topic goes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from siltlog.infra import names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import SiltlogError
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.table import TopicTable, topic_names
from siltlog.pipelines.catalog.plan import CatalogTable, Change, changes, create_statement, table_name
from siltlog.pipelines.topics import open_each, spark_uri, store_of


class Catalog(Protocol):
    """Each method raises ConfigError where the catalog does not do it."""

    def tables(self) -> list[CatalogTable]: ...

    def create(self, table: CatalogTable) -> None: ...

    def replace(self, table: CatalogTable) -> None: ...

    def drop(self, name: str) -> None: ...


def register_topics(
    settings: ServerSettings,
    catalog: Catalog,
    topics: Sequence[str] = (),
    *,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> list[Change]:
    """Gives what was done for each topic.

    Without `topics` it is for all but those of Siltlog itself, and tables go whose topic was deleted; those of a topic
    that cannot be read now stay.
    """
    store = store_of(settings)
    wanted, unread, known = _wanted(store, topics, clock or SystemClock())
    kept = None if topics else known
    made = changes(wanted, catalog.tables(), store.root_uri, kept)
    if not dry_run:
        made = [_done(catalog, change) for change in made]
    return [*made, *unread]


def statements(
    settings: ServerSettings, schema: str, topics: Sequence[str] = (), *, clock: Clock | None = None
) -> tuple[list[str], list[Change]]:
    """Spark SQL that makes the tables in a catalog that Spark knows, such as a Hive metastore; and what is left out."""
    store = store_of(settings)
    wanted, unread, _ = _wanted(store, topics, clock or SystemClock())
    planned = changes(wanted, [], store.root_uri, None)
    made = []
    for change in planned:
        if change.wanted is not None:
            location = spark_uri(store, names.topic_path(change.topic))
            made.append(create_statement(replace(change.wanted, location=location), schema))
    return made, [*(change for change in planned if change.action == "refuse"), *unread]


def _wanted(
    store: ObjectStore, topics: Sequence[str], clock: Clock
) -> tuple[list[CatalogTable], list[Change], set[str]]:
    """The tables to be told, what of the topics cannot be read, and all topics that there are."""
    wanted, unread, known = [], [], set()
    for topic, table in open_each(store, topics, clock):
        known.add(topic)
        if isinstance(table, SiltlogError):
            unread.append(Change("refuse", topic, table_name(topic), table.detail))
        elif topics or not topic.startswith("_"):
            location = store.uri(names.topic_path(topic))
            wanted.append(CatalogTable(table_name(topic), topic, store.root_uri, location))
    if not topics:
        known |= {topic for topic in topic_names(store) if topic not in known and not _deleted(store, topic, clock)}
    return wanted, unread, known


def _deleted(store: ObjectStore, topic: str, clock: Clock) -> bool:
    """Whether its table says so: one whose log cannot be read, or has no commit yet, does not."""
    try:
        return TopicTable.open(store, topic, clock).snapshot.deleted
    except SiltlogError:
        return False


def _done(catalog: Catalog, change: Change) -> Change:
    """One that fails does not keep the others from being done."""
    try:
        if change.action == "create" and change.wanted is not None:
            catalog.create(change.wanted)
        elif change.action == "update" and change.wanted is not None:
            catalog.replace(change.wanted)
        elif change.action == "drop":
            catalog.drop(change.table)
    except SiltlogError as error:
        return replace(change, action="refuse", why=error.detail)
    return change
