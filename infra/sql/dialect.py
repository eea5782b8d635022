"""The SQL of queries: DuckDB's, with names and functions of Spark's, and what its errors mean."""

import re
from typing import Literal, NamedTuple

import duckdb
import pyarrow as pa

from siltlog.infra.sql.identifiers import DATABASE

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
ONLY_TOPICS = "queries only read topics: files, other databases and extensions are out of their reach"
_OFFSET = re.compile(r"(?i)at or near \"{1,2}offset\"")
_NO_TABLE = re.compile(r"Table with name (.+?) does not exist")
_NO_COLUMN = re.compile(r"Referenced column .+? not found")
_NO_FUNCTION = re.compile(r"Function with name (.+?) does not exist")
_ADVICE = re.compile(r"\n\nLINE |\s*Possible solutions:|\s*Database is launched in")
"""Begins what DuckDB adds: the place in the query, and settings that cannot be set."""
_PLACE = re.compile(r"\nLINE (\d+): ([^\n]*)\n( *)\^")
"""The line of the query, or the part of it between dots, and below it a mark."""
_CUT = "..."
_UNREADABLE = "reading the stream registered as"
"""Stands in what DuckDB says where Arrow could not read a file."""
_OUT_OF_MEMORY = (duckdb.OutOfMemoryException, pa.ArrowMemoryError, MemoryError)

FaultKind = Literal["outside", "memory", "unreadable", "failed", "no_table", "no_column", "dialect", "wrong"]
"""What is wrong: the query reaches past the topics, takes too much memory, met a file that cannot be read, or failed
otherwise; or its SQL is not valid: by a table or column that is not there, as another dialect has it, otherwise."""


class Fault(NamedTuple):
    """What an error of DuckDB means; `reason` is its message on one line, and `name` the table that is not there."""

    kind: FaultKind
    reason: str
    name: str = ""


def prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """Makes what every query may use."""
    for statement in ("SET TimeZone = 'UTC'", f"CREATE SCHEMA {DATABASE}", *MACROS):
        connection.execute(statement)


def refusal_of(connection: duckdb.DuckDBPyConnection, sql: str, reading: tuple[str, ...]) -> str | None:
    """Says why `sql` is not one statement of the kinds `reading`; None where it is. Raises what DuckDB does."""
    statements = connection.extract_statements(sql)
    for statement in statements:
        kind = statement.type.name
        if kind not in reading:
            return f"queries only read: {kind} is not a query; write SELECT ..."
    return None if len(statements) == 1 else f"one query at a time, not {len(statements)}"


def fault_of(error: Exception) -> Fault:
    told, reason = str(error), _reason(error)
    if isinstance(error, duckdb.PermissionException):
        return Fault("outside", ONLY_TOPICS)
    if isinstance(error, _OUT_OF_MEMORY):
        return Fault("memory", reason)
    if _UNREADABLE in told:
        return Fault("unreadable", reason)
    if not isinstance(error, duckdb.ProgrammingError | duckdb.DataError | duckdb.NotSupportedError):
        return Fault("failed", reason)
    absent = _NO_TABLE.search(told)
    if absent is not None:
        return Fault("no_table", reason, absent[1].strip('"'))
    if _NO_COLUMN.search(told):
        return Fault("no_column", reason)
    if isinstance(error, duckdb.ParserException) or _NO_FUNCTION.search(told):
        return Fault("dialect", reason)
    return Fault("wrong", reason)


def place_of(error: Exception, text: str) -> int | None:
    """Finds the index in `text`, which DuckDB was given, of what an error is about; None where it does not say."""
    found = _PLACE.search(str(error))
    if found is None:
        return _place_of_function(str(error), text)
    lines, number = text.split("\n"), int(found[1])
    at = len(found[3]) - len(f"LINE {number}: ")
    if number > len(lines) or at < 0:
        return None
    line, begins = lines[number - 1], 0
    if found[2].startswith(_CUT) and not line.startswith(found[2]):
        part = found[2].removeprefix(_CUT).removesuffix(_CUT)
        begins = line.find(part)
        if begins < 0 or line.find(part, begins + 1) >= 0:
            return None
        at -= len(_CUT)
    return sum(len(before) + 1 for before in lines[: number - 1]) + begins + at


def _place_of_function(told: str, text: str) -> int | None:
    """Finds the function that is not there, of which DuckDB says no more than its name."""
    absent = _NO_FUNCTION.search(told)
    found = absent and re.search(rf"(?i)(?<!\w){re.escape(absent[1])}\s*\(", text)
    return found.start() if found else None


def _reason(error: Exception) -> str:
    """DuckDB's message on one line, without its kind and the place in the query."""
    told = " ".join(_ADVICE.split(str(error))[0].split())
    told = told.partition("Error: ")[2] or told
    if _OFFSET.search(told):
        return f'{told}: offset is a reserved word, which is the clause before a number; write "offset" for the column'
    return told
