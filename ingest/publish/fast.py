"""Takes publishes that ask for nothing special from their connection, and answers them on it.

For a record of a hundred bytes, a task, an ASGI scope and a router cost more than everything that makes it durable. So
a request that has come whole and has no more than a topic, a media type and a producer goes from the parser to the log
and from the sync to the socket. Any other, and any that comes in pieces, takes the long way through the application,
which answers the same.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from siltlog.infra import names
from siltlog.infra.http.door import Door
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.log.access_log import LOCAL_ADDRESS, AccessLog
from siltlog.infra.http.memory import SMALL_BYTES, Held, InFlight
from siltlog.infra.http.operations import operations_of
from siltlog.infra.http.requests import JSON_HEADERS, problem_reply
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers.headers import NAMES as PRODUCER_HEADERS
from siltlog.ingest.producers.headers import placed_by, publisher
from siltlog.ingest.publish.callers import Callers, Remembered
from siltlog.ingest.publish.http import TIMEOUT_MS, TIMEOUT_MS_MAX, Publish
from siltlog.ingest.publish.publishing import ANYBODY, Acks, Published, Publisher, Publishing
from siltlog.ingest.publish.reply import publish_reply
from siltlog.ingest.records.arrow import parse_arrow
from siltlog.ingest.records.arrow_messages import inflated_within
from siltlog.ingest.records.body import fix_partition, one_record
from siltlog.ingest.records.json import parse_json

PATH_START, PATH_END = b"/v1/topics/", b"/records"
MEDIA = (names.MEDIA_JSON, names.MEDIA_BYTES, names.MEDIA_ARROW)
WHOLE_BYTES_MAX = 256 * 1024
"""More is not read at once, and so never comes whole."""
INFLATED_BYTES_MAX = 256 * 1024
LOOK_SECONDS = 0.25
TIMEOUT_MS_MIN = 1_000
"""A request with less time goes the long way, which counts it more exactly."""
QUERIES_KEPT = 64
"""How many queries are known again without being read: clients send the same few."""
_QUERY = re.compile(rb"(?:timeout_ms=(\d{1,5}))?(?:(?:\A|&)acks=(written|wal|object))?(?:(?:\A|&)partition=(\d{1,9}))?")
"""The parameters that the client library sends, in its order."""
_MEDIA = {media.encode(): media for media in MEDIA}
_PRODUCER_HEADERS = {name.encode(): name for name in PRODUCER_HEADERS}
"""The headers of producers that it acts on, in lower case."""
_TRACE = (names.HEADER_TRACEPARENT.encode(), names.HEADER_TRACESTATE.encode())
_PLAIN_HEADERS = frozenset((b"user-agent", b"accept", b"accept-encoding", *_TRACE))
_REQUEST_IDS = (names.HEADER_REQUEST_ID.lower().encode(), names.HEADER_GIVEN_REQUEST_ID.lower().encode())
"""Headers by which a request has an id already, the first before the second."""


class Asked(NamedTuple):
    """The parameters of the query."""

    timeout_ms: int
    partition: str
    acks: Acks | None = None
    """The level of the topic where it says none."""


_PUBLISH = operations_of(Publish)[0].operation_id
_ANSWERED = (_PUBLISH, 200)
_NOTHING_ASKED = Asked(TIMEOUT_MS, "")


class FastPublishes:
    """Takes requests of connections, and looks after their time.

    What it refuses, and how it answers, is what `Publish` does with the same request.
    """

    def __init__(
        self,
        publishing: Publishing,
        door: Door,
        in_flight: InFlight,
        draining: Draining,
        request_bytes_max: int,
        exchange: "Callable[..., Exchange] | None" = None,
    ) -> None:
        """`exchange` makes what is not the plain Exchange."""
        self.publishing = publishing
        self.door = door
        self.in_flight = in_flight
        self.draining = draining
        self.callers = Callers(door)
        self.reconfigure(request_bytes_max)
        self._exchange = exchange or Exchange
        self._pending: dict[Exchange, None] = {}
        self._refusing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._defaults: list[tuple[bytes, bytes]] = []
        self._head = b""

    def reconfigure(self, request_bytes_max: int) -> None:
        """A body may become so large from now on, once it is inflated; one that is sent so goes the long way. What the
        door's access log is to have is asked anew."""
        log = self.door.access_log
        self.slow_log = log if log is not None and log.slow else None
        """Where also what went well may have a line."""
        self._bytes_max = request_bytes_max
        self._whole_bytes_max = min(request_bytes_max, WHOLE_BYTES_MAX)

    def taken(self, connection: Any) -> "Exchange | None":
        """The request whose head `connection` has just read; None when it has to go the long way."""
        path, asks, query = connection.url.partition(b"?")
        if not path.startswith(PATH_START) or not path.endswith(PATH_END):
            return None
        asked = _asked(query) if asks else _NOTHING_ASKED
        if asked is None:
            return None
        media = None
        host: bytes | None = None
        producer: dict[str, str] = {}
        authorization: bytes | None = None
        request_id = ""
        for name, value in connection.headers:
            if name == b"host" and host is None:
                host = value
            elif name == b"content-type" and media is None and value in _MEDIA:
                media = _MEDIA[value]
            elif name == b"content-length":
                if len(value) > 6 or int(value) > self._whole_bytes_max:
                    return None
            elif name in _PRODUCER_HEADERS and _PRODUCER_HEADERS[name] not in producer:
                producer[_PRODUCER_HEADERS[name]] = value.decode("latin-1")
            elif name == b"authorization" and authorization is None:
                # Where nobody is asked who he is, it says nothing.
                authorization = value
            elif name in _PLAIN_HEADERS:
                continue
            elif name in _REQUEST_IDS and not request_id:
                request_id = self.door.given_request_id(value)
                if not request_id:
                    return None
            elif name != b"connection" or value.lower() != b"keep-alive":
                # Of two ids the long way knows which counts.
                return None
        parser = connection.parser
        if (
            media is None
            or host is None
            or self.door.known(host) is None
            or parser.get_method() != b"POST"
            or parser.get_http_version() != "1.1"
            or self.draining.begun
            # A client that sends and does not read has to wait, which the long way does.
            or connection.flow.write_paused
        ):
            return None
        topic = self.publishing.open_topic(path[len(PATH_START) : -len(PATH_END)].decode("latin-1"))
        if (
            topic is None
            or (asked.acks == "object" and not topic.journaled)
            or not (self.door.identification is None or self.callers.may_write(connection, authorization, topic.name))
        ):
            return None
        return self._exchange(self, connection, topic, media, producer, asked, request_id)

    def suits(self, media: str, content: bytes) -> bool:
        """Whether so few bytes stay few once they are inflated."""
        return media != names.MEDIA_ARROW or inflated_within(content, INFLATED_BYTES_MAX)

    def append(
        self,
        topic: TopicLog,
        media: str,
        content: bytes,
        headers: Mapping[str, str],
        partition: str = "",
        remembered: Remembered | None = None,
        acks: Acks | None = None,
    ) -> Published:
        """`partition` and `acks` are what the query says. Raises SiltlogError; then nothing was appended."""
        if media == names.MEDIA_JSON:
            body = parse_json(content)
        elif media == names.MEDIA_BYTES:
            body = one_record(content, None, None, None)
        else:
            body = parse_arrow(content, self._bytes_max)
        asked: tuple[tuple[str, str], ...] = ()
        if partition:
            fix_partition(body, int(partition))
            asked = (("partition", partition),)
        by = ANYBODY
        if headers:
            principal = "" if remembered is None else remembered.identity.subject.principal
            by = Publisher(
                publisher(headers, body, content, media, asked, principal),
                placed_by(headers),
            )
        return self.publishing.append_now(topic, body, by, acks)

    def begun(self, exchange: "Exchange") -> None:
        self._pending[exchange] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def ended(self, exchange: "Exchange") -> None:
        self._pending.pop(exchange, None)

    def during(self, refusal: Coroutine[Any, Any, None]) -> None:
        """Sees that a refusal comes about, which has to wait."""
        task = asyncio.get_running_loop().create_task(refusal)
        self._refusing.add(task)
        task.add_done_callback(self._refusing.discard)

    @property
    def requests(self) -> int:
        """How many it has taken and not answered yet."""
        return len(self._pending)

    def head(self, connection: Any) -> bytes:
        """The start of every reply that was a success, up to its length."""
        defaults = connection.server_state.default_headers
        if defaults is not self._defaults:
            self._defaults = defaults
            self._head = STATUS_LINE[200] + _lines([*defaults, *JSON_HEADERS]) + b"content-length: "
        return self._head

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for exchange in tuple(self._pending):
            if now >= exchange.deadline:
                exchange.refuse(self.publishing.late(exchange.topic, exchange.asked.acks))
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look) if self._pending else None


class Exchange:
    """One request and its reply. To uvicorn it is the `cycle` of its connection."""

    __slots__ = (
        "_all",
        "_connection",
        "_headers",
        "_held",
        "_media",
        "_nbytes",
        "_path",
        "_published",
        "_request_id",
        "asked",
        "body",
        "deadline",
        "disconnected",
        "keep_alive",
        "message_event",
        "more_body",
        "response_complete",
        "scope",
        "topic",
    )

    def __init__(
        self,
        publishes: FastPublishes,
        connection: Any,
        topic: TopicLog,
        media: str,
        headers: Mapping[str, str],
        asked: "Asked",
        request_id: str = "",
    ) -> None:
        self.topic = topic
        self.scope = connection.scope
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True
        self.more_body = False
        self.body = b""
        self.message_event = _NO_EVENT
        self.deadline = connection.loop.time() + asked.timeout_ms / 1000
        self.asked = asked
        self._nbytes = 0
        self._all = publishes
        self._connection = connection
        self._media = media
        self._headers = headers
        self._path = connection.url
        self._held: Held
        self._published: Published
        self._request_id = request_id

    def suits(self, content: bytes) -> bool:
        return self._all.suits(self._media, content)

    def begin(self, content: bytes) -> None:
        """The whole request is here: appends it. Never raises."""
        publishes = self._all
        self._nbytes = len(content)
        if not self._request_id:
            self._request_id = publishes.door.next_request_id()
        self._held = publishes.in_flight.hold()
        publishes.begun(self)
        guard = publishes.door.guard
        if guard is not None and guard.quotas.any:
            refusal = publishes.callers.refusal(self._connection.remembered, self.topic.name, len(content))
            if refusal is not None:
                self.refuse(refusal)
                return
        try:
            self._held.take(len(content))
        except Exception as error:
            self.refuse(error)
            return
        try:
            remembered = self._connection.remembered
            self._published = publishes.append(
                self.topic, self._media, content, self._headers, self.asked.partition, remembered, self.asked.acks
            )
        except Exception as error:
            self._refuse_once_told(error)
            return
        if len(content) > SMALL_BYTES:
            # From here on the log counts what it keeps of it; of a small one that is not worth a call.
            self._held.release()
        appended = self._published.appended
        (appended.durable if appended.written is None else appended.written).add_done_callback(self._durable)

    def _durable(self, future: asyncio.Future[None]) -> None:
        if self.response_complete:
            return
        publishes = self._all
        if publishes.draining.begun:
            self.keep_alive = False
        try:
            future.result()
            wait = self._published.waits_for()
            if wait is not None:
                wait.add_done_callback(self._durable)
                return
            document = publish_reply(publishes.publishing.durable(self._published)).body
        except Exception as error:
            self.refuse(error)
            return
        replies = publishes.door.replies
        replies[_ANSWERED] = replies.get(_ANSWERED, 0) + 1
        end = b"\r\n" if self.keep_alive else b"\r\nconnection: close\r\n"
        id_line = b"\r\nsilt-request-id: " + self._request_id.encode()
        self._end(b"".join((publishes.head(self._connection), b"%d" % len(document), id_line, end, b"\r\n", document)))
        if publishes.slow_log is not None:
            self._log(publishes.slow_log, 200, len(document))

    def _refuse_once_told(self, error: Exception) -> None:
        publishing = self._all.publishing
        durable = publishing.told_once(error)
        if durable is None:
            self.refuse(error)
            return
        self._all.during(self._refuse_once_kept(durable, error))

    async def _refuse_once_kept(self, durable: asyncio.Future[None], error: Exception) -> None:
        try:
            await self._all.publishing.kept(self.topic, durable, self.asked.timeout_ms)
        except Exception as failed:
            self._told(failed)
        else:
            self._told(error)

    def _told(self, error: Exception) -> None:
        if self.response_complete:
            return
        if self._all.draining.begun:
            self.keep_alive = False
        self.refuse(error)

    def refuse(self, error: Exception) -> None:
        """Answers with a problem document."""
        door = self._all.door
        refusal = door.refusal(error, "POST", self._path.decode("latin-1"), self._request_id)
        reply: Response = problem_reply(refusal, self._request_id)
        door.count_reply(_PUBLISH, reply.status_code)
        headers = [*self._connection.server_state.default_headers, *reply.raw_headers]
        headers.append((b"silt-request-id", self._request_id.encode()))
        if not self.keep_alive:
            headers.append((b"connection", b"close"))
        self._end(STATUS_LINE[reply.status_code] + _lines(headers) + b"\r\n" + bytes(reply.body))
        if door.access_log is not None:
            self._log(door.access_log, reply.status_code, len(reply.body), error_code=refusal.error_code)

    def _log(self, log: AccessLog, status: int, bytes_out: int, **told: str) -> None:
        seconds = self._connection.loop.time() - self.deadline + self.asked.timeout_ms / 1000
        if not log.wants(status, seconds):
            return
        remembered: Remembered | None = self._connection.remembered
        if remembered is not None:
            told["principal"] = remembered.identity.subject.principal
        log.tell(
            status,
            self._path.partition(b"?")[0],
            seconds,
            request_id=self._request_id,
            operation=_PUBLISH,
            topic=self.topic.name,
            method="POST",
            bytes_in=self._nbytes,
            bytes_out=bytes_out,
            address=self._connection.peer.address or LOCAL_ADDRESS,
            **told,
        )

    def _end(self, reply: bytes) -> None:
        connection = self._connection
        self.response_complete = True
        self._held.release()
        self._all.ended(self)
        if self.disconnected:
            return
        connection.transport.write(reply)
        if not self.keep_alive:
            connection.transport.close()
        connection.on_response_complete()


class _NoEvent:
    """An event nobody waits for: a request that is whole has no more to come."""

    def set(self) -> None:
        pass


_NO_EVENT = _NoEvent()


@lru_cache(QUERIES_KEPT)
def _asked(query: bytes) -> Asked | None:
    """None where the long way has to look at the query."""
    found = _QUERY.fullmatch(query)
    if found is None:
        return None
    timeout_ms = TIMEOUT_MS if found[1] is None else int(found[1])
    if not TIMEOUT_MS_MIN <= timeout_ms <= TIMEOUT_MS_MAX:
        return None
    level = None if found[2] is None else cast(Acks, found[2].decode())
    return Asked(timeout_ms, (found[3] or b"").decode(), level)


def _lines(headers: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)
