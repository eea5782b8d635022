"""`POST /v1/topics/{topic}/search`: the records of a range that are as asked, line by line as they are found."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import pyarrow as pa
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltlog.consumers.reading import render
from siltlog.consumers.reading.budget import READ_BYTES_MAX, READ_RECORDS_MAX, Budget, Share
from siltlog.consumers.reading.fetch import require_read
from siltlog.consumers.reading.http import DEAD_LETTERS_READ
from siltlog.consumers.reading.lookup import Lookup
from siltlog.consumers.reading.render import Values
from siltlog.consumers.reading.row_groups import CheckedFiles
from siltlog.consumers.reading.view import LogView
from siltlog.consumers.searching.member import Member
from siltlog.consumers.searching.places import Beginning, Partitions, Place, find_range
from siltlog.consumers.searching.search import Piece, Search, Wanted
from siltlog.infra import names
from siltlog.infra.arrow.record_filter import RecordFilter
from siltlog.infra.errors import SiltlogError, problem, problem_document
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.memory import held_of
from siltlog.infra.http.operations import TEXT, TOPIC, Content, Reply, json_body, on_topic, operation
from siltlog.infra.http.pace import pace_of
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import EVENTS_HEADERS, body_of, decode
from siltlog.infra.http.streams import STREAM, Stream, Streams, asked_again, body_part, until_gone
from siltlog.infra.limits import INTEGER_MAX
from siltlog.infra.process.priority import run_behind_others
from siltlog.infra.security.grant import Grant, grant_of

T = TypeVar("T")

SEARCHES_MAX = 2
"""Searches of a node at once; each has one thread, and one row group in memory."""
CROWDED_RETRY_MS = 1_000
PROGRESS_SECONDS = 0.25
BODY_BYTES_MAX = 64 * 1024
LIMIT_DEFAULT = 100
LIMIT_MAX = 10_000
TIMEOUT_MS_DEFAULT = 30_000
TIMEOUT_MS_MAX = 600_000

EndedBy = Literal["end", "limit", "timeout", "problem", "stop"]
_Positive = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
_JSON = msgspec.json.Encoder()


class SearchRequest(msgspec.Struct, forbid_unknown_fields=True):
    start: Annotated[Beginning | None, Meta(description="Left out: the earliest record")] = msgspec.field(
        name="from", default=None
    )
    end: Annotated[
        Place | None, Meta(description="Before this place of each partition. Left out: where they end as it begins")
    ] = msgspec.field(name="to", default=None)
    partitions: Annotated[Partitions | None, Meta(description="Left out: all; at most 256")] = None
    key: Annotated[str | None, Meta(description="Only records with this key")] = None
    contains: Annotated[str | None, Meta(description="Only records whose value contains this text")] = None
    header: Annotated[str | None, Meta(description="Only records with a header of this name")] = None
    header_value: Annotated[str | None, Meta(description="With `header`: only where such a header has this value")] = (
        None
    )
    producer_id: Annotated[str | None, Meta(description="Only records that this producer published")] = None
    path: Annotated[
        str | None,
        Meta(description="A JSON Pointer, such as `/user/id`: only records whose JSON value `equals` this there"),
    ] = None
    equals: Annotated[Any | UnsetType, Meta(description="The JSON value at `path`")] = UNSET
    limit: Annotated[_Positive, Meta(description=f"Stop after so many; more than {LIMIT_MAX:,} is cut")] = LIMIT_DEFAULT
    timeout_ms: Annotated[_Positive, Meta(description=f"Stop after so long; more than {TIMEOUT_MS_MAX:,} is cut")] = (
        TIMEOUT_MS_DEFAULT
    )
    values: Values = "text"
    producers: Annotated[
        bool, Meta(description="Each record says in `producer` who published it; so it does with `producer_id`")
    ] = False

    def wanted(self) -> Wanted:
        """Raises Refused `invalid_request`."""
        if (self.path is None) != (self.equals is UNSET):
            lacks, has = ("equals", "path") if self.equals is UNSET else ("path", "equals")
            raise problem(
                "invalid_request", f"{has} is given without {lacks}: path says where, and equals what is there"
            )
        try:
            member = None if self.path is None else Member(self.path, self.equals)
        except ValueError as error:
            raise problem("invalid_request", f"path and equals: {error}") from None
        if self.header_value is not None and self.header is None:
            raise problem(
                "invalid_request",
                "header_value is given without header: header says its name, and header_value what it has",
            )
        key, contains, value = map(_bytes, (self.key, self.contains, self.header_value))
        return Wanted(RecordFilter(key, contains, self.header, value, self.producer_id), member, self.producers)


class Progress(msgspec.Struct):
    looked_at: int
    of: int


class Done(msgspec.Struct):
    looked_at: int
    of: int
    records: int
    ended_by: EndedBy
    next: str | None


_decoder = msgspec.json.Decoder(SearchRequest)

_LINES = """\
{"progress":{"looked_at":0,"of":4100}}
{"record":{"partition":0,"offset":7,"timestamp":"2026-11-21T07:36:00.123456Z","key":"ada","value":"tea","headers":[]}}
{"done":{"looked_at":4100,"of":4100,"records":1,"ended_by":"end","next":null}}
"""


class SearchHttp:
    """Used on one event loop."""

    def __init__(self, log: LogView, lookup: Lookup, streams: Streams) -> None:
        self.log = log
        self.lookup = lookup
        self.streams = streams
        self.checked = CheckedFiles()
        self._threads = ThreadPoolExecutor(SEARCHES_MAX, "search", initializer=run_behind_others)
        self._running = 0

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def run(self, work: Callable[[], T]) -> T:
        """Does work on a thread that gives way to others."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Takes one of the places that there are. Raises Unavailable `overloaded` where none is free."""
        if self._running >= SEARCHES_MAX:
            raise problem(
                "overloaded",
                f"{SEARCHES_MAX} searches run at this node, and no more may; try again in a moment, or at another node",
                retry_after_ms=CROWDED_RETRY_MS,
            )
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    @operation(
        "POST",
        "/v1/topics/{topic}/search",
        "searchTopic",
        "Read",
        "Search a topic",
        "What it finds from `from` to before `to`: `offset` (a number, which counts from the end where it is negative, "
        "`earliest` or `latest`) or `timestamp`, the first record at or after it. Lines: `progress` each half second "
        "or more often, `record` in order within each partition, at last `done`, and before it `problem` if any. "
        "`done.next`, where it is not null, goes on as `from.cursor`. "
        f"{SEARCHES_MAX} at a time on a node; who hangs up ends it.",
        access=on_topic("read"),
        needs=DEAD_LETTERS_READ,
        reads=True,
        replies={200: Reply("The lines.", {names.MEDIA_NDJSON: Content(TEXT, _LINES)})},
        parameters=(TOPIC,),
        body=json_body(
            SearchRequest,
            {"from": {"timestamp": "2026-11-21T07:00:00Z"}, "contains": "tea", "path": "/user/id", "equals": 7},
        ),
        errors=(
            *("unknown_topic", "unknown_partition", "corrupt_data", "topic_unavailable", "store_denied"),
            *("malformed_body", "request_timeout", "request_too_large", "invalid_request", "not_acceptable"),
            *("overloaded", "shutting_down"),
        ),
    )
    async def search(self, request: Request) -> Response:
        Query(request, ())
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_NDJSON,))
        topic = request.path_params["topic"]
        require_read(grant_of(request), topic)
        asked = decode(await body_of(request, BODY_BYTES_MAX), _decoder)
        wanted = asked.wanted()
        if self.streams.draining:
            raise problem("shutting_down", "the server is shutting down; search again in a moment")
        with self.place():
            within = await find_range(self.log, self.lookup, topic, asked.start, asked.end, asked.partitions)
        search = Search(self.log.store, self.checked, self.run, pace_of(request.scope).rest, within, wanted)
        return _Lines(self, topic, asked, search)


class _Lines(Response):
    def __init__(self, searches: SearchHttp, topic: str, asked: SearchRequest, search: Search) -> None:
        super().__init__(headers=EVENTS_HEADERS, media_type=names.MEDIA_NDJSON)
        del self.headers["content-length"]
        self._searches = searches
        self._topic = topic
        self._search = search
        self._values = asked.values
        self._left = min(asked.limit, LIMIT_MAX)
        self._seconds = min(asked.timeout_ms, TIMEOUT_MS_MAX) / 1000
        self._records = 0
        self._told = 0.0
        """When progress was last told."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        grant: Grant = grant_of(scope)
        with (
            self._searches.place(),
            self._searches.streams.opened("search") as stream,
            asked_again(stream, grant, partial(require_read, grant, self._topic)),
        ):
            scope["state"][STREAM] = stream
            listening = asyncio.create_task(until_gone(receive, stream))
            try:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await self._progress(send)
                ended_by, error = await self._ended(scope, stream, send)
                if error is not None:
                    document = problem_document(error, scope["state"].get("request_id"))
                    await send(body_part(_line("problem", document)))
                search = self._search
                done = Done(search.looked_at, search.of, self._records, ended_by, search.cursor())
                await send(body_part(_line("done", done)))
                await send(body_part(b"", more=False))
            finally:
                listening.cancel()

    async def _ended(self, scope: Scope, stream: Stream, send: Send) -> tuple[EndedBy, SiltlogError | None]:
        """Sends what is found until it ends, and says by what."""
        loop, pace = asyncio.get_running_loop(), pace_of(scope)
        deadline = loop.time() + self._seconds
        try:
            while not self._search.complete:
                if stream.refusal is not None:
                    raise stream.refusal
                if stream.ended:
                    return "stop", None
                if stream.resting:
                    await self._waited(asyncio.sleep(PROGRESS_SECONDS), stream, send)
                else:
                    piece = await self._waited(self._search.step(), stream, send)
                    if piece is None:
                        return "stop", None
                    if not await self._give(piece, scope, stream, send):
                        return "limit", None
                if loop.time() - self._told >= PROGRESS_SECONDS:
                    await self._progress(send)
                if loop.time() >= deadline and not self._search.complete:
                    return "timeout", None
                # Others publish and fetch.
                await pace.rest()
        except SiltlogError as error:
            return "problem", error
        return "end", None

    async def _waited(self, work: Awaitable[T], stream: Stream, send: Send) -> T | None:
        """What the work gives; it tells of the progress meanwhile. None where the stream ended first."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait((task,), timeout=PROGRESS_SECONDS))[0]:
                if stream.ended:
                    return None
                await self._progress(send)
            return task.result()
        finally:
            task.cancel()

    async def _give(self, piece: Piece, scope: Scope, stream: Stream, send: Send) -> bool:
        """Sends the rows of a piece, a part at a time; False where the limit came before the last of them."""
        rows = piece.rows
        held = held_of(scope)
        while rows is not None and rows.num_rows:
            if self._left == 0 or stream.ended or stream.refusal is not None:
                self._search.reached(piece.partition, rows.column("offset")[0].as_py())
                return self._left > 0
            budget = Budget(min(self._left, READ_RECORDS_MAX), READ_BYTES_MAX, held)
            part = budget.take(rows, Share())
            await send(body_part(await self._searches.run(partial(_record_lines, part, self._values))))
            # Once more, with nothing: what was sent may be forgotten when this returns.
            await send(body_part(b""))
            stream.sent(part.num_rows)
            if held is not None:
                held.release()
            self._left -= part.num_rows
            self._records += part.num_rows
            self._search.reached(piece.partition, part.column("offset")[-1].as_py() + 1)
            rows = rows.slice(part.num_rows)
        self._search.reached(piece.partition, piece.next_offset)
        return self._left > 0 or self._search.complete

    async def _progress(self, send: Send) -> None:
        self._told = asyncio.get_running_loop().time()
        await send(body_part(_line("progress", Progress(self._search.looked_at, self._search.of))))


def _record_lines(batch: pa.RecordBatch, values: Values) -> bytes:
    return b"".join(_line("record", record) for record in render.records([batch], values))


def _line(kind: str, what: Any) -> bytes:
    return b'{"%b":%b}\n' % (kind.encode(), _JSON.encode(what))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
