"""Runs one query, in a process that reaches nothing else: `python -m siltlog.consumers.sql PARENT SOCKET SOCKET ...`.

It has no key and no name of a place: bytes of files, the heads and the SQL come over the sockets that it began with,
the first for what is said, the others for reads of files.
"""

import io
import os
import queue
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.fs as arrow_fs

from siltlog.consumers.sql import frames
from siltlog.consumers.sql.answer import Rows, TooLarge
from siltlog.consumers.sql.confinement import close_off, give_way
from siltlog.consumers.sql.frames import Asked, Failed, Named, Table, Tables
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.columns import RECORD_SCHEMA, TABLE_SCHEMA, nulls
from siltlog.infra.sql.dialect import CONFIG, fault_of, place_of, prepare, refusal_of
from siltlog.infra.sql.exact import exact
from siltlog.infra.sql.files import files_dataset, make_views
from siltlog.infra.sql.identifiers import place_before_quoting, with_quoted_names

READING = ("SELECT",)
MEMORY_LIMIT = "1GiB"
BATCH_ROWS = 2_048
MESSAGE_BYTES_MAX = 512 * 1024 * 1024
THREADS_MAX = 4


class Reads(arrow_fs.FileSystemHandler):  # type: ignore[misc]
    """The files of the tables, by their numbers: each read is asked of the server on a socket that is free."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._free: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        for one in sockets:
            self._free.put(one)
        self.sizes: dict[str, int] = {}

    def read(self, path: str, start: int, size: int) -> bytearray:
        """Raises OSError where the file cannot be read; the server knows why."""
        one = self._free.get()
        try:
            one.sendall(frames.READ.pack(int(path), start, size))
            given, count = frames.GIVEN.unpack(frames.exactly(one, frames.GIVEN.size))
            content = frames.exactly(one, count)
        finally:
            self._free.put(one)
        if not given:
            raise OSError(content.decode())
        return content

    def get_type_name(self) -> str:
        return "silt"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[arrow_fs.FileInfo]:
        return [arrow_fs.FileInfo(path, arrow_fs.FileType.File, size=self.sizes[path]) for path in paths]

    def open_input_file(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(_File(self, path), mode="r")

    def _refuse(self, *_: Any) -> Any:
        raise OSError("these files are only read")

    open_input_stream = open_output_stream = open_append_stream = get_file_info_selector = _refuse
    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _refuse


class _File(io.RawIOBase):
    def __init__(self, reads: Reads, path: str) -> None:
        self._reads = reads
        self._path = path
        self._size = reads.sizes[path]
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = (0, self._position, self._size)[whence] + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._size - self._position, 0)
        size = left if size is None or size < 0 else min(size, left)
        content = self._reads.read(self._path, self._position, size) if size else b""
        self._position += len(content)
        return bytes(content)


class _Refused(Exception):
    pass


def run() -> None:
    parent, control, *channels = map(int, sys.argv[1:])
    give_way(parent)
    _import_the_rest()
    close_off()
    server = socket.socket(fileno=control)
    # Otherwise nobody asks any more.
    with suppress(EOFError, BrokenPipeError):
        answer(server, [socket.socket(fileno=one) for one in channels], SystemClock())
    # What it has goes with it: to tidy up first would take longer than many a query.
    os._exit(0)


def _import_the_rest() -> None:
    """Values that become Python's import modules when the first of them does."""
    time = datetime(2026, 1, 1, tzinfo=UTC)
    [*pa.array([time], TABLE_SCHEMA.field("timestamp").type).to_pylist(), *pa.array([1.5]).to_pylist()]
    str(pa.scalar(time, pa.timestamp("us", "Etc/UTC")).as_py())
    msgspec.json.encode(time)


def answer(server: socket.socket, channels: list[socket.socket], clock: Clock) -> None:
    """Answers the query that the server asks. Raises EOFError, BrokenPipeError where that is gone."""
    threads = max(1, min((os.cpu_count() or 1) // 2, THREADS_MAX))
    # What does not fit in memory is refused: there is no disk for it.
    limits: dict[str, str | int] = {"memory_limit": MEMORY_LIMIT, "temp_directory": "", "threads": threads}
    pa.set_cpu_count(threads)
    with _told(server) as query:
        connection = duckdb.connect(config=CONFIG | limits)
        prepare(connection)
        # On the connection on which no table is yet: what is there would not be among the names.
        asked = msgspec.json.decode(frames.receive(server, MESSAGE_BYTES_MAX).body, type=Asked)
        query.sql = asked.sql
        text = with_quoted_names(asked.sql)
        refusal = refusal_of(connection, text, READING)
        if refusal is not None:
            raise _Refused(refusal)
        found = sorted(connection.get_table_names(text, qualified=True))
        frames.send(server, frames.NAMED, msgspec.json.encode(Named(found)))
        given = msgspec.json.decode(frames.receive(server, MESSAGE_BYTES_MAX).body, type=Tables)
        _register(connection, server, Reads(channels), given.tables)
        connection.execute("SET lock_configuration = true")
        relation = _understood(connection, f"EXPLAIN {text}" if given.plan else text)
        reader = exact(relation).to_arrow_reader(BATCH_ROWS)
        rows = Rows(reader, reader.schema, given.limit)
        told = {**msgspec.json.decode(given.told), "elapsed_ms": round((clock.monotonic() - given.began) * 1000)}
        content = rows.arrow_bytes(told) if given.arrow else rows.json_bytes(relation.types, told)
        frames.send(server, frames.ANSWER, memoryview(content))


def _understood(connection: duckdb.DuckDBPyConnection, text: str) -> duckdb.DuckDBPyRelation:
    """Makes the relation that a statement means. Raises what DuckDB does, with the place in it."""
    try:
        return connection.sql(text)
    except duckdb.Error:
        # Of a relation DuckDB does not say where in the statement the error is, of a statement it does.
        connection.execute(text)
        raise


def _register(connection: duckdb.DuckDBPyConnection, server: socket.socket, reads: Reads, tables: list[Table]) -> None:
    file_system = arrow_fs.PyFileSystem(reads)
    for table in tables:
        head = None
        if table.has_head:
            head = _whole(pa.ipc.open_stream(frames.receive(server, MESSAGE_BYTES_MAX).body).read_all())
        for number, size, *_ in table.files:
            reads.sizes[str(number)] = size
        files = [(str(number), partition, first, last) for number, _, partition, first, last in table.files]
        dataset = files_dataset(files, table.starts, TABLE_SCHEMA, file_system)
        make_views(connection, table.name, table.places, dataset, head)


def _whole(head: pa.Table) -> pa.Table:
    """The columns of a table; a head tells nothing of producers."""
    columns = {name: head.column(name) for name in RECORD_SCHEMA.names}
    for field in TABLE_SCHEMA:
        columns.setdefault(field.name, nulls(head.num_rows, field.type))
    return pa.table([columns[field.name] for field in TABLE_SCHEMA], TABLE_SCHEMA)


class _Query:
    """The query that is being answered, once it is known."""

    sql = ""

    def place_of(self, error: Exception) -> tuple[int, int] | None:
        """Finds the line and the column of what an error is about, from 1 on."""
        quoted_at = place_of(error, with_quoted_names(self.sql))
        if quoted_at is None:
            return None
        at = place_before_quoting(self.sql, quoted_at)
        return self.sql.count("\n", 0, at) + 1, at - self.sql.rfind("\n", 0, at)


@contextmanager
def _told(server: socket.socket) -> Iterator[_Query]:
    """Tells the server what ends the query."""
    query = _Query()
    try:
        yield query
        return
    except (EOFError, BrokenPipeError):
        raise
    except _Refused as error:
        failed = Failed("refused", str(error))
    except TooLarge as error:
        failed = Failed("memory", str(error))
    except RecursionError:
        failed = Failed("wrong", "the query, or a value of it, is nested too deeply")
    except Exception as error:
        failed = Failed(*fault_of(error), place=query.place_of(error))
    frames.send(server, frames.FAILED, msgspec.json.encode(failed))
