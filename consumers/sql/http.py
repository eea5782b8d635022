"""`POST /v1/sql`: a query over topics, their newest records in it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.reading.view import LogView
from siltlog.consumers.sql import frames
from siltlog.consumers.sql.process import QueryProcess
from siltlog.consumers.sql.reads import TableReads
from siltlog.consumers.sql.topics import HeadRoom, TopicRows, given_tables, named_topics, rows_of, still_readable
from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.memory import held_of
from siltlog.infra.http.operations import ANYTHING, IN_BODY, Content, Reply, json_body, operation
from siltlog.infra.http.pace import pace_of
from siltlog.infra.http.query import Query
from siltlog.infra.http.replies import read_reply
from siltlog.infra.http.requests import body_of, decode
from siltlog.infra.http.streams import Stream, Streams, asked_again, until_gone
from siltlog.infra.limits import INTEGER_MAX
from siltlog.infra.process.priority import run_behind_others
from siltlog.infra.security.grant import EVERYTHING, Grant, grant_of
from siltlog.infra.security.guard import METERED, Meter

T = TypeVar("T")

PACKAGE = "duckdb"
QUERIES_MAX = 2
"""Queries of a node at once; each has one process."""
QUERIES_OF_ONE = 1
"""Queries of a principal at once."""
CROWDED_RETRY_MS = 1_000
SQL_CHARS_MAX = 100_000
BODY_BYTES_MAX = 1024 * 1024
"""Room for each of them to be six, as JSON may write one."""
ROWS_MAX = 10_000
TIMEOUT_MS_MAX = 30_000
GONE = 499
"""The status of what nobody takes any more; it is for the access log."""

_Positive = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
_JSON = msgspec.json.Encoder()


class SqlRequest(msgspec.Struct, forbid_unknown_fields=True):
    sql: Annotated[str, Meta(description="One SELECT; each topic is a table of its name", max_length=SQL_CHARS_MAX)]
    limit: Annotated[_Positive, Meta(description=f"So many rows at most; more than {ROWS_MAX:,} is cut")] = ROWS_MAX
    timeout_ms: Annotated[
        _Positive, Meta(description=f"Give up after so long; more than {TIMEOUT_MS_MAX:,} is cut")
    ] = TIMEOUT_MS_MAX
    plan: Annotated[bool, Meta(description="Tell how the query would be answered, and do not run it")] = False


class Column(msgspec.Struct):
    name: str
    type: Annotated[str, Meta(description="As DuckDB calls it, such as `BIGINT`")]


class SqlResult(msgspec.Struct):
    columns: list[Column]
    rows: Annotated[
        list[list[Any]],
        Meta(description='Values in the order of the columns; bytes are text, or `{"base64": …}` where they are none'),
    ]
    cut: Annotated[bool, Meta(description="There are more rows than `limit`, or than fit in a reply")]
    snapshot: Annotated[dict[str, int], Meta(description="The version of the table of each topic that was read")]
    head: Annotated[
        bool,
        Meta(
            description="Whether records that are not in the tables yet are in the result, too; false where they are "
            "more than 64 MiB, or the node that has them does not answer"
        ),
    ]
    head_records: Annotated[int, Meta(description="How many such records the query read")]
    elapsed_ms: int


_decoder = msgspec.json.Decoder(SqlRequest)


class _Gone(Exception):
    """Nobody waits for the answer any more."""


class SqlHttp:
    """Used on one event loop."""

    def __init__(self, log: LogView, streams: Streams, clock: Clock) -> None:
        self.log = log
        self._streams = streams
        self._clock = clock
        self._available = _is_installed()
        self.threads = ThreadPoolExecutor(QUERIES_MAX, "sql", initializer=run_behind_others)
        self._running: Counter[str] = Counter()
        """Queries under way, by principal."""

    def close(self) -> None:
        self.threads.shutdown(wait=True, cancel_futures=True)

    @operation(
        "POST",
        "/v1/sql",
        "runSql",
        "Read",
        "Ask with SQL",
        "One SELECT in DuckDB's SQL. Each topic is a table of its name: the files of one snapshot, and the records "
        'above them, so that what is acknowledged is in it, once. `offset` is a reserved word: write `"offset"`. An '
        "error in it that has a place has `place`, its line and column, 1 the first. It "
        f"reads topics and nothing else, has 1 GiB of memory and {TIMEOUT_MS_MAX // 1000} s, and ends when its caller "
        f"hangs up; {QUERIES_OF_ONE} at a time of a principal, {QUERIES_MAX} of a node. In Arrow what is beside the "
        f"rows is JSON in the schema's metadata under `{names.ARROW_METADATA_KEY}`.",
        access=IN_BODY,
        needs="`read` of each topic in the query; for dead letters `read` of their topic too",
        reads=True,
        replies={200: Reply("The rows.", {names.MEDIA_JSON: Content(SqlResult), names.MEDIA_ARROW: Content(ANYTHING)})},
        body=json_body(SqlRequest, {"sql": "select string(key) as key, count(*) as n from flights group by 1"}),
        errors=(
            *("unknown_topic", "corrupt_data", "topic_unavailable", "store_denied", "not_supported", "query_limit"),
            *("malformed_body", "request_timeout", "request_too_large", "invalid_request", "not_acceptable"),
            *("overloaded", "shutting_down"),
        ),
    )
    async def run(self, request: Request) -> Response:
        Query(request, ())
        media = chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON, names.MEDIA_ARROW))
        began = self._clock.monotonic()
        asked = decode(await body_of(request, BODY_BYTES_MAX), _decoder)
        grant = grant_of(request)
        if not self._available:
            raise problem(
                "not_supported",
                "this server answers no SQL: pip install 'siltlog[sql]' where it runs, and start it anew",
            )
        if self._streams.draining:
            raise _draining()
        with self._place(grant), self._streams.opened("sql") as stream:
            listening = asyncio.create_task(until_gone(request.receive, stream))
            try:
                run = _Run(self, request, asked, media == names.MEDIA_ARROW, began, stream)
                return await read_reply(request, [await run.answered()], media, {})
            except _Gone:
                if self._streams.draining:
                    raise _draining() from None
                return Response(status_code=GONE)
            finally:
                listening.cancel()

    @contextmanager
    def _place(self, grant: Grant) -> Iterator[None]:
        """Takes one of the places that there are. Raises Unavailable `overloaded` where none is free."""
        principal = grant.principal
        if self._running.total() >= QUERIES_MAX:
            raise _crowded(f"{QUERIES_MAX} queries run at this node, and no more may; try again in a moment")
        if grant is not EVERYTHING and self._running[principal] >= QUERIES_OF_ONE:
            raise _crowded(f"a query of {principal} runs at this node; wait for it, or hang up on it")
        self._running[principal] += 1
        try:
            yield
        finally:
            self._running[principal] -= 1
            if not self._running[principal]:
                del self._running[principal]


class _Run:
    """One query, from its text to its reply."""

    def __init__(
        self, sql: SqlHttp, request: Request, asked: SqlRequest, arrow: bool, began: float, stream: Stream
    ) -> None:
        self._sql = sql
        self._asked = asked
        self._arrow = arrow
        self._began = began
        self._stream = stream
        self._grant = grant_of(request)
        self._held = held_of(request.scope)
        self._rest = pace_of(request.scope).rest
        self._meter: Meter | None = request.scope["state"].get(METERED)
        self._deadline = asyncio.get_running_loop().time() + min(asked.timeout_ms, TIMEOUT_MS_MAX) / 1000
        self._process = QueryProcess()

    async def answered(self) -> bytearray:
        """Raises _Gone where nobody waits any more; what a query is refused with."""
        topics: list[str] = []
        try:
            with asked_again(self._stream, self._grant, lambda: still_readable(self._grant, topics)()):
                found = await self._within(self._on_thread(partial(self._process.ask, self._asked.sql)))
                named = named_topics(self._sql.log, self._grant, found)
                topics += [one.topic for one in named]
                if self._meter is not None:
                    self._meter.ask_topics(topics)
                room = HeadRoom(self._held)
                rows = [await self._within(rows_of(self._sql.log, one, room, self._rest)) for one in named]
                content = await self._within(self._on_thread(partial(self._answer, rows)))
        finally:
            self._process.kill()
            await asyncio.shield(self._on_thread(self._process.close))
        self._count(topics, len(content))
        return content

    def _answer(self, rows: list[TopicRows]) -> bytearray:
        reads = TableReads(self._sql.log.store)
        tables, heads = given_tables(rows, reads)
        told = {
            "snapshot": {one.named.topic: one.snapshot.version for one in rows},
            "head": all(one.has_head for one in rows),
            "head_records": sum(one.head_records for one in rows),
        }
        limit = min(self._asked.limit, ROWS_MAX)
        given = frames.Tables(
            tables, self._arrow, self._asked.plan, limit, msgspec.Raw(_JSON.encode(told)), self._began
        )
        return self._process.answer(given, heads, reads)

    def _count(self, topics: list[str], nbytes: int) -> None:
        """The reply counts for the quotas of its topics, and for the memory of what is under way."""
        if self._held is not None:
            self._held.release()
            self._held.take(nbytes)
        if self._meter is not None:
            for topic in topics:
                self._meter.read_of(topic, nbytes)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._sql.threads, work)

    async def _within(self, work: Awaitable[T]) -> T:
        """What the work gives, unless the client, the server or the time ends the query before."""
        task = asyncio.ensure_future(work)
        woken: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        try:
            while True:
                if self._stream.refusal is not None:
                    raise self._stream.refusal
                if self._stream.ended:
                    raise _Gone
                left = self._deadline - loop.time()
                if left <= 0:
                    raise self._too_long()
                woken = asyncio.create_task(self._stream.sleep())
                await asyncio.wait((task, woken), timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    return task.result()
                woken.cancel()
        finally:
            if woken is not None:
                woken.cancel()
            if not task.done():
                # What it does on a thread ends with the process; nobody hears of it.
                self._process.kill()
                task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
                task.cancel()

    def _too_long(self) -> SiltlogError:
        seconds = min(self._asked.timeout_ms, TIMEOUT_MS_MAX) / 1000
        return problem(
            "query_limit",
            f'the query took longer than {seconds:g} s; ask for less of the topic, such as by "offset" or timestamp',
            limit="time",
        )


def _is_installed() -> bool:
    try:
        return find_spec(PACKAGE) is not None
    except ModuleNotFoundError:
        return False


def _crowded(detail: str) -> SiltlogError:
    return problem("overloaded", detail, retry_after_ms=CROWDED_RETRY_MS)


def _draining() -> SiltlogError:
    return problem("shutting_down", "the server is shutting down; ask again in a moment")
