"""DuckDB over the topics: each that a query names is a view under its own name, over the files of one version.

Arrow reads the files, with its own file systems: the connection itself reaches no file, no network and no extension.
A view hides the rows below the log start. As in Spark SQL, names may be in backquotes, and `string(key)` is text.
"""

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem, LocalFileSystem, S3FileSystem

from siltlog.infra import names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.columns import TABLE_SCHEMA
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.sql.dialect import CONFIG, Fault, fault_of, prepare, refusal_of
from siltlog.infra.sql.exact import exact, numbers
from siltlog.infra.sql.files import files_dataset, make_views
from siltlog.infra.sql.identifiers import DATABASE, PLAIN, quoted, with_quoted_names
from siltlog.infra.sql.values import python_values
from siltlog.infra.store.s3_denied import missing_permission, says_denied
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.sql.result import QueryResult, live_topics, unknown_table
from siltlog.pipelines.topics import store_of

BATCH_ROWS = 10_000
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0
READING = ("SELECT", "EXPLAIN")
_ELSEWHERE = "this is DuckDB's SQL; --engine spark takes Spark's"


@contextmanager
def query(settings: ServerSettings, sql: str, *, clock: Clock | None = None) -> Iterator[QueryResult]:
    """Runs `sql`; the result is there until the block ends.

    Raises UnknownTopic, Refused for SQL that is not valid or would do more than read topics.
    """
    with connected() as connection:
        yield run_query(connection, store_of(settings), sql, clock=clock)


@contextmanager
def connected() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory; what does not fit there is in a folder that is gone afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="silt-query-") as scratch,
        closing(duckdb.connect(config={**CONFIG, "temp_directory": scratch})) as connection,
    ):
        prepare(connection)
        yield connection


def run_query(
    connection: duckdb.DuckDBPyConnection, store: ObjectStore, sql: str, *, clock: Clock | None = None
) -> QueryResult:
    """The topics' views are pinned once, so a connection is for one query."""
    text = with_quoted_names(sql)
    known = live_topics(store)
    with translated(store, list(known.values())):
        _check_reads_only(connection, text)
        for topic in known.values():
            if _is_named(topic, text):
                _make_views(connection, store, topic, clock or SystemClock())
        connection.execute("SET lock_configuration = true")
        relation = connection.sql(text)
        reader: Any = exact(relation).to_arrow_reader(BATCH_ROWS)
    return QueryResult(list(reader.schema.names), _rows(reader, relation.types, store))


@contextmanager
def translated(store: ObjectStore, known: list[str]) -> Iterator[None]:
    """Errors of DuckDB become those of a query, with DuckDB's own sentence."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise _error_of(fault_of(error), store, known) from error


def _error_of(fault: Fault, store: ObjectStore, known: list[str]) -> SiltlogError:
    match fault.kind:
        case "memory" | "unreadable" | "failed":
            if says_denied(fault.reason):
                return missing_permission(fault.reason, "the tables of the query")
            return problem("topic_unavailable", f"the query failed: {fault.reason}")
        case "no_table":
            return unknown_table(store, fault.name, known)
        case "no_column":
            columns = ", ".join(TABLE_SCHEMA.names)
            return problem("invalid_request", f"{fault.reason}; the columns of a topic are {columns}")
        case "dialect":
            return problem("invalid_request", f"{fault.reason}; {_ELSEWHERE}")
    return problem("invalid_request", fault.reason)


def _check_reads_only(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raises Refused for what is no query: tables are changed through Siltlog alone."""
    refusal = refusal_of(connection, sql, READING)
    if refusal is not None:
        raise problem("invalid_request", refusal)


def _is_named(topic: str, sql: str) -> bool:
    """Whether a topic's name stands in the query: as a table, or as anything else, which costs a look at its table."""
    return re.search(rf"(?<!\w){re.escape(topic)}(?!\w)", sql, re.IGNORECASE) is not None


def _make_views(connection: duckdb.DuckDBPyConnection, store: ObjectStore, topic: str, clock: Clock) -> None:
    snapshot = TopicTable.open(store, topic, clock).snapshot
    if snapshot.deleted:
        return
    places = [(schema, topic) for schema in ("main", DATABASE)]
    select = make_views(connection, topic, places, records_dataset(store, topic, snapshot))
    parts = topic.split(".")
    if len(parts) == 2 and all(PLAIN.fullmatch(part) for part in parts):
        # A name with one dot needs no quotes either, but where DuckDB has something else of its first half.
        with suppress(duckdb.Error):
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(parts[0])}")
            connection.execute(f"CREATE VIEW {quoted(parts[0])}.{quoted(parts[1])} AS {select}")


def records_dataset(store: ObjectStore, topic: str, snapshot: TableSnapshot) -> ds.Dataset:
    """The rows of a snapshot's files, in the columns of the table, read as they are asked for."""
    file_system, folder = _file_system(store, names.topic_path(topic))
    files = (
        (f"{folder}/{unquote(file.path)}", file.partition, file.first_offset, file.last_offset)
        for file in snapshot.files.values()
    )
    return files_dataset(files, snapshot.starts, TABLE_SCHEMA, file_system)


def _file_system(store: ObjectStore, path: str) -> tuple[FileSystem, str]:
    """Arrow's own file system for a store, and the folder of `path` in it: nothing of Python stands in a read."""
    place = urlsplit(store.uri(path))
    if place.scheme == "file":
        return LocalFileSystem(), unquote(place.path)
    options = store.storage_options()
    scheme, _, host = options.get("AWS_ENDPOINT_URL", "").rpartition("://")
    remote = S3FileSystem(
        access_key=options.get("AWS_ACCESS_KEY_ID"),
        secret_key=options.get("AWS_SECRET_ACCESS_KEY"),
        session_token=options.get("AWS_SESSION_TOKEN"),
        region=options.get("AWS_REGION"),
        scheme=scheme or "https",
        endpoint_override=host or None,
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
    )
    return remote, f"{place.netloc}{place.path}"


def _rows(reader: pa.RecordBatchReader, types: Sequence[Any], store: ObjectStore) -> Iterator[tuple[Any, ...]]:
    with translated(store, []):
        for batch in reader:
            yield from zip(*map(_values, batch.columns, types), strict=True)


def _values(column: pa.Array, kind: Any) -> list[Any]:
    """Python's values: whole numbers of any size are int, periods are timedelta. `kind` is DuckDB's type."""
    values = numbers(python_values(column), kind)
    if pa.types.is_decimal(column.type) and column.type.scale == 0:
        return [int(value) if isinstance(value, Decimal) else value for value in values]
    if pa.types.is_interval(column.type):
        return [_period(value) for value in values]
    return values


def _period(value: Any) -> Any:
    if value is None or value.months:
        return value
    return timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
