"""DuckDB over the topics: each that a query names is a view under its own name, over the files of one version.

Arrow reads the files, with its own file systems: the connection itself reaches no file, no network and no extension.
A view hides the rows below the log start. As in Spark SQL, names may be in backquotes, and `string(key)` is text.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem, LocalFileSystem, S3FileSystem

from siltlog.infra import names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.columns import TABLE_SCHEMA
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.s3_denied import missing_permission, says_denied
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.sql.result import DATABASE, PLAIN, QueryResult, live_topics, unknown_table
from siltlog.pipelines.topics import store_of

BATCH_ROWS = 10_000
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0
CONFIG: dict[str, str | int | float | list[str]] = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    # Otherwise a name of a query could be a variable of this program.
    "python_enable_replacements": False,
}
MACROS = (
    "CREATE MACRO string(given BLOB) AS coalesce(try(decode(given)), CAST(given AS VARCHAR)), "
    "(given) AS CAST(given AS VARCHAR)",
    "CREATE MACRO get_json_object(text, path) AS json_extract_string(text, path)",
)
"""Functions of Spark SQL without which no query over records gets far."""
READING = ("SELECT", "EXPLAIN")
_TEXT = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"
_NAMES = re.compile(rf"{_TEXT}|`((?:[^`]|``)+)`|(?<!\w)(offset)(?!\w)(?!\s*[\d(?$])", re.DOTALL | re.IGNORECASE)
"""Texts and comments, names in backquotes, and `offset` where no number follows: a column's name, which DuckDB reserves
for the clause."""
_NO_TABLE = re.compile(r"Table with name (.+?) does not exist")
_NO_COLUMN = re.compile(r"Referenced column .+? not found")
_NO_FUNCTION = re.compile(r"Function with name .+? does not exist")
_UNREADABLE = "reading the stream registered as"
"""Stands in what DuckDB says where Arrow could not read a file."""
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
        for statement in ("SET TimeZone = 'UTC'", f"CREATE SCHEMA {DATABASE}", *MACROS):
            connection.execute(statement)
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
        reader: Any = connection.sql(text).to_arrow_reader(BATCH_ROWS)
    return QueryResult(list(reader.schema.names), _rows(reader, store))


def with_quoted_names(sql: str) -> str:
    """Names as Spark SQL has them become names in double quotes; texts and comments stay as they are."""

    def requoted(found: re.Match[str]) -> str:
        name = found[1].replace("``", "`") if found[1] else found[2]
        return _quoted(name) if name else found[0]

    return _NAMES.sub(requoted, sql)


@contextmanager
def translated(store: ObjectStore, known: list[str]) -> Iterator[None]:
    """Errors of DuckDB become those of a query, with DuckDB's own sentence."""
    try:
        yield
    except duckdb.PermissionException as error:
        raise problem(
            "invalid_request", "queries only read topics: files, other databases and extensions are out of their reach"
        ) from error
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise _error_of(error, store, known) from error


def _error_of(error: Exception, store: ObjectStore, known: list[str]) -> SiltlogError:
    told = str(error)
    wrong = isinstance(error, duckdb.ProgrammingError | duckdb.DataError | duckdb.NotSupportedError)
    if not wrong or _UNREADABLE in told:
        if says_denied(told):
            return missing_permission(_reason(error), "the tables of the query")
        return problem("topic_unavailable", f"the query failed: {_reason(error)}")
    absent = _NO_TABLE.search(told)
    if absent is not None:
        return unknown_table(store, absent[1].strip('"'), known)
    if _NO_COLUMN.search(told):
        columns = ", ".join(TABLE_SCHEMA.names)
        return problem("invalid_request", f"{_reason(error)}; the columns of a topic are {columns}")
    dialect = isinstance(error, duckdb.ParserException) or _NO_FUNCTION.search(told)
    return problem("invalid_request", f"{_reason(error)}; {_ELSEWHERE}" if dialect else _reason(error))


def _reason(error: Exception) -> str:
    """DuckDB's message on one line, without its kind and the place in the query."""
    told = " ".join(str(error).split("\n\nLINE ")[0].split())
    return told.partition("Error: ")[2] or told


def _check_reads_only(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raises Refused for what is no query: tables are changed through Siltlog alone."""
    statements = connection.extract_statements(sql)
    for statement in statements:
        kind = statement.type.name
        if kind not in READING:
            raise problem("invalid_request", f"queries only read: {kind} is not a query; write SELECT ...")
    if len(statements) != 1:
        raise problem("invalid_request", f"one query at a time, not {len(statements)}")


def _is_named(topic: str, sql: str) -> bool:
    """Whether a topic's name stands in the query: as a table, or as anything else, which costs a look at its table."""
    return re.search(rf"(?<!\w){re.escape(topic)}(?!\w)", sql, re.IGNORECASE) is not None


def _make_views(connection: duckdb.DuckDBPyConnection, store: ObjectStore, topic: str, clock: Clock) -> None:
    snapshot = TopicTable.open(store, topic, clock).snapshot
    if snapshot.deleted:
        return
    source = f"files of {topic}"
    connection.register(source, records_dataset(store, topic, snapshot))
    select = f"SELECT * FROM {_quoted(source)}{_above_log_start(snapshot)}"  # noqa: S608
    for schema in ("main", DATABASE):
        connection.execute(f"CREATE VIEW {schema}.{_quoted(topic)} AS {select}")
    parts = topic.split(".")
    if len(parts) == 2 and all(PLAIN.fullmatch(part) for part in parts):
        # A name with one dot needs no quotes either, but where DuckDB has something else of its first half.
        with suppress(duckdb.Error):
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(parts[0])}")
            connection.execute(f"CREATE VIEW {_quoted(parts[0])}.{_quoted(parts[1])} AS {select}")


def records_dataset(store: ObjectStore, topic: str, snapshot: TableSnapshot) -> ds.Dataset:
    """The rows of a snapshot's files, in the columns of the table, read as they are asked for."""
    file_system, folder = _file_system(store, names.topic_path(topic))
    parquet = ds.ParquetFileFormat()
    fragments = [
        parquet.make_fragment(
            f"{folder}/{unquote(file.path)}",
            file_system,
            partition_expression=(pc.field(names.PARTITION_COLUMN) == pa.scalar(file.partition, pa.int32())),
        )
        for file in snapshot.files.values()
    ]
    return ds.FileSystemDataset(fragments, TABLE_SCHEMA, parquet, file_system)


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


def _above_log_start(snapshot: TableSnapshot) -> str:
    moved = [(partition, start) for partition, start in sorted(snapshot.starts.items()) if start > 0]
    if not moved:
        return ""
    bounds = " ".join(f'WHEN {partition} THEN "offset" >= {start}' for partition, start in moved)
    return f" WHERE CASE {_quoted(names.PARTITION_COLUMN)} {bounds} ELSE true END"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _rows(reader: pa.RecordBatchReader, store: ObjectStore) -> Iterator[tuple[Any, ...]]:
    with translated(store, []):
        for batch in reader:
            yield from zip(*(_values(column) for column in batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    """Python's values: whole numbers of any size are int, periods are timedelta."""
    values: list[Any] = column.to_pylist()
    if pa.types.is_decimal(column.type) and column.type.scale == 0:
        return [int(value) if isinstance(value, Decimal) else value for value in values]
    if pa.types.is_interval(column.type):
        return [_period(value) for value in values]
    return values


def _period(value: Any) -> Any:
    if value is None or value.months:
        return value
    return timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
