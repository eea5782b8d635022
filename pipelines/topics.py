"""The topics that a job works on, and how Spark names what they have stored."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.cluster.steps import newest_view, taken
from siltlog.infra.errors import ConfigError, SiltlogError, UnknownTopic, problem
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.settings.suggestion import did_you_mean
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.opening import load
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable, topic_names


def store_of(settings: ServerSettings) -> ObjectStore:
    return open_store(settings.root_uri, **settings.s3_options())


def journals_store(settings: ServerSettings, store: ObjectStore) -> ObjectStore:
    """Where journals are: as the settings say, or else the newest view, where that can be read."""
    place = settings.journal_root
    if not place:
        with suppress(SiltlogError):
            view = taken(store, newest_view(0))
            place = "" if view is None else view.journal_root
    return open_store(place, **settings.s3_options()) if place else store


def other_store(settings: ServerSettings, uri: str, *, make: bool) -> ObjectStore | None:
    """Another root, reached as the settings' own is; None for a local one that is not there, unless it is to be made.

    Raises ConfigError.
    """
    place = urlsplit(uri)
    if place.scheme == "file" and not make and not Path(unquote(place.path)).is_dir():
        return None
    return open_store(uri, **settings.s3_options())


def chosen_topics(store: ObjectStore, topics: Sequence[str]) -> list[str]:
    """`topics`, or every topic that has a table when empty (deleted ones included).

    Raises UnknownTopic; ConfigError for a root that is none: a job at a mistyped prefix would do nothing, and succeed.
    """
    known = topic_names(store)
    if not known and store.info(names.CLUSTER_ID_OBJECT) is None and not store.folders(names.TOPICS_FOLDER):
        raise no_tables(store.root_uri)
    for topic in topics:
        if topic not in known:
            raise unknown_topic(store, topic, known)
    return list(dict.fromkeys(topics)) or known


def no_tables(root_uri: str) -> ConfigError:
    return ConfigError(f"there are no tables at {root_uri}; name the server's --data-dir, or the tables' --root")


def opened(store: ObjectStore, topic: str, clock: Clock) -> TopicTable:
    """The table of a topic. Raises UnknownTopic that says which there are."""
    try:
        return TopicTable.open(store, topic, clock)
    except UnknownTopic:
        raise unknown_topic(store, topic, topic_names(store)) from None


def unknown_topic(store: ObjectStore, topic: str, known: Sequence[str]) -> SiltlogError:
    there_are = f"there are: {', '.join(known)}" if known else f"{store.root_uri} has none yet"
    meant = did_you_mean(topic, known)
    return problem("unknown_topic", f"there is no topic {topic!r}{meant or ';'} {there_are}", topic=topic)


def open_each(
    store: ObjectStore, topics: Sequence[str], clock: Clock
) -> Iterator[tuple[str, TopicTable | SiltlogError]]:
    """Each of `topics` with its table, or with why it cannot be opened; every topic when empty.

    Without names deleted topics are left out, and those whose creation was cut short before its first commit. Raises
    UnknownTopic for a name that is none, before any is opened.
    """
    chosen = chosen_topics(store, topics)
    return ((topic, table) for topic in chosen if (table := _opened(store, topic, clock, topics)) is not None)


def _opened(store: ObjectStore, topic: str, clock: Clock, named: Sequence[str]) -> TopicTable | SiltlogError | None:
    try:
        table = TopicTable.open(store, topic, clock)
    except UnknownTopic as error:
        return error if named else None
    except SiltlogError as error:
        return error
    if table.snapshot.deleted:
        return problem("unknown_topic", f"topic {topic!r} was deleted", topic=topic) if named else None
    return table


def have_gone(store: ObjectStore, topic: str, paths: Iterable[str]) -> bool:
    """Whether any of `paths`, of files that are relative to the topic's path, is no part of its table any more, and
    deleted: who began to read it before `silt erase` took it out begins anew, and nothing is lost."""
    try:
        files = load(store, topic).snapshot.files
    except UnknownTopic:
        return False
    return any(path not in files and store.size(f"{names.topic_path(topic)}/{path}") is None for path in paths)


def spark_uri(store: ObjectStore, path: str) -> str:
    """Names the place of `path` as Spark does: Hadoop takes a path as it is, without percent-encoding."""
    uri = store.uri(path, scheme="s3a")
    return unquote(uri) if urlsplit(uri).scheme == "file" else uri


def select_of(store: ObjectStore, topic: str, snapshot: TableSnapshot) -> str:
    """Spark SQL that reads what `topic` holds at `snapshot`, without the rows below the log start."""
    uri = spark_uri(store, names.topic_path(topic)).replace("`", "``")
    sql = f"SELECT * FROM delta.`{uri}` VERSION AS OF {snapshot.version}"  # noqa: S608
    moved = [(partition, start) for partition, start in sorted(snapshot.starts.items()) if start > 0]
    if moved:
        bounds = " ".join(f"WHEN {partition} THEN `offset` >= {start}" for partition, start in moved)
        sql += f" WHERE CASE `{names.PARTITION_COLUMN}` {bounds} ELSE true END"
    return sql
