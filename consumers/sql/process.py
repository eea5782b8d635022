"""One query in a process of its own: started, given what it may read, and gone when it is answered or given up."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from siltlog.consumers.sql import frames
from siltlog.consumers.sql.frames import Asked, Failed, Named, Tables
from siltlog.consumers.sql.reads import TableReads
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.process.priority import run_behind_others
from siltlog.infra.redaction import redacted
from siltlog.infra.settings.loading import environment_of_queries

MODULE = "siltlog.consumers.sql"
MIB = 1024 * 1024
READS_MAX = 4
"""Reads of files that a query has under way at once."""
READ_BYTES_MAX = 256 * MIB
NAMES_BYTES_MAX = 1 * MIB
ANSWER_BYTES_MAX = 128 * MIB
"""Rows of 16 MiB are several times as much in JSON."""
SAID_BYTES_MAX = 16 * 1024
_COLUMNS = "the columns of a topic are partition, offset, timestamp, key, value, headers and those of producers"


class QueryProcess:
    """`ask`, `answer` and `close` block, and are for one thread that lives on: Linux ends a child with the thread that
    began it, where the child asks for that. `kill` may be called from any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._killed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._channels: list[socket.socket] = []
        self._serving = False

    def ask(self, sql: str) -> list[str]:
        """Starts it, and gives the names of the tables in `sql`. Raises Refused where that is no query."""
        self._start()
        self._say(frames.ASKED, msgspec.json.encode(Asked(sql)))
        return msgspec.json.decode(self._told(frames.NAMED, NAMES_BYTES_MAX, None), type=Named).names

    def answer(self, tables: Tables, heads: Sequence[memoryview], reads: TableReads) -> bytearray:
        """The reply, as it is to be sent. Raises Refused, Unavailable, CorruptData."""
        self._serving = True
        for channel in self._channels:
            threading.Thread(target=_serve, args=(channel, reads), name="sql-read", daemon=True).start()
        self._say(frames.TABLES, msgspec.json.encode(tables))
        for head in heads:
            self._say(frames.HEAD, head)
        return self._told(frames.ANSWER, ANSWER_BYTES_MAX, reads)

    def kill(self) -> None:
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Ends it, and lets go of all that it had."""
        self.kill()
        if self._process is not None:
            self._process.wait()
            assert self._process.stderr is not None
            self._process.stderr.close()
        if self._control is not None:
            self._control.close()
        for channel in self._channels:
            # A thread that waits for the object store lets go of it by itself; nobody waits for that.
            with suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)
            if not self._serving:
                channel.close()

    def _start(self) -> None:
        pairs = [socket.socketpair() for _ in range(1 + READS_MAX)]
        ours, theirs = [one for one, _ in pairs], [other for _, other in pairs]
        numbers = [other.fileno() for other in theirs]
        self._control, *self._channels = ours
        try:
            with self._lock:
                if self._killed:
                    raise problem("shutting_down", "the query was given up before it began; ask again in a moment")
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", MODULE, *map(str, (os.getpid(), *numbers))],
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=environment_of_queries(),
                    pass_fds=numbers,
                    start_new_session=True,
                )
        except OSError as error:
            raise problem("overloaded", f"no process for the query could be started: {error.strerror}") from None
        finally:
            for other in theirs:
                other.close()

    def _say(self, kind: bytes, body: bytes | memoryview) -> None:
        assert self._control is not None
        try:
            frames.send(self._control, kind, body)
        except OSError:
            raise self._gone() from None

    def _told(self, kind: bytes, bytes_max: int, reads: TableReads | None) -> bytearray:
        """The body of the next frame, which must be of that kind."""
        assert self._control is not None
        try:
            frame = frames.receive(self._control, bytes_max)
        except (OSError, EOFError):
            raise self._gone() from None
        except ValueError as error:
            raise problem("query_limit", f"the reply is too large: {error}; select less", limit="bytes") from None
        if frame.kind == frames.FAILED:
            raise _error_of(msgspec.json.decode(frame.body, type=Failed), reads)
        assert frame.kind == kind, frame.kind
        return frame.body

    def _gone(self) -> SiltlogError:
        """Why the process has ended by itself."""
        assert self._process is not None
        assert self._process.stderr is not None
        status = self._process.wait()
        os.set_blocking(self._process.stderr.fileno(), False)
        said = (self._process.stderr.read(SAID_BYTES_MAX) or b"").decode("utf-8", "replace").strip()
        if status == -signal.SIGKILL or "MemoryError" in said or "bad_alloc" in said:
            return _out_of_memory()
        last = redacted(said.splitlines()[-1]) if said else f"it ended with {status}"
        return problem(
            "query_limit", f"the query broke the process that ran it ({last}); ask for less", limit="process"
        )


def _serve(channel: socket.socket, reads: TableReads) -> None:
    """Gives the process the bytes of files that it asks for, until it ends."""
    run_behind_others()
    with channel, suppress(EOFError, OSError):
        while True:
            number, start, size = frames.READ.unpack(frames.exactly(channel, frames.READ.size))
            try:
                content = memoryview(reads.read(number, start, min(size, READ_BYTES_MAX)))
                given = True
            except SiltlogError as error:
                content, given = memoryview(error.detail.encode()), False
            channel.sendall(frames.GIVEN.pack(given, content.nbytes))
            channel.sendall(content)


def _error_of(failed: Failed, reads: TableReads | None) -> SiltlogError:
    reason = redacted(failed.reason)
    place: dict[str, Any] = {}
    if failed.place is not None:
        place["place"] = {"line": failed.place[0], "column": failed.place[1]}
    match failed.kind:
        case "memory":
            return _out_of_memory(reason)
        case "unreadable" | "failed":
            if reads is not None and reads.failure is not None:
                return reads.failure
            if failed.kind == "failed":
                return problem("internal", f"the query failed: {reason}")
            return problem("corrupt_data", f"a file of the query cannot be read: {reason}; `silt audit` tells which")
        case "no_table":
            return problem("unknown_topic", f"there is no topic {failed.name[:200]}", topic=failed.name[:200], **place)
        case "no_column":
            return problem("invalid_request", f"{reason}; {_COLUMNS}", **place)
        case "dialect":
            return problem("invalid_request", f"{reason}; this is DuckDB's SQL", **place)
    return problem("invalid_request", reason, **place)


def _out_of_memory(reason: str = "its process was ended") -> SiltlogError:
    return problem(
        "query_limit",
        f"the query takes more memory than it may have: {reason}; select fewer columns or rows, or group less finely",
        limit="memory",
    )
