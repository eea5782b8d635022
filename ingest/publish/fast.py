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

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from siltlog.infra import names
from siltlog.infra.http.door import Door
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.memory import InFlight
from siltlog.infra.http.requests import JSON_HEADERS
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers.headers import NAMES as PRODUCER_HEADERS
from siltlog.ingest.producers.headers import placed_by, publisher
from siltlog.ingest.publish.callers import Callers, Remembered
from siltlog.ingest.publish.exchange import Exchange, header_lines
from siltlog.ingest.publish.http import TIMEOUT_MS, TIMEOUT_MS_MAX
from siltlog.ingest.publish.publishing import ANYBODY, Acks, Published, Publisher, Publishing
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
        exchange: Callable[..., Exchange] | None = None,
    ) -> None:
        """`exchange` makes what is not the plain Exchange."""
        self.publishing = publishing
        self.door = door
        self.in_flight = in_flight
        self.draining = draining
        self.callers = Callers(door)
        self._origins = door.origins
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

    def taken(self, connection: Any) -> Exchange | None:
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
            or self._origins.known(host) is None
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

    def begun(self, exchange: Exchange) -> None:
        self._pending[exchange] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def ended(self, exchange: Exchange) -> None:
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
            self._head = STATUS_LINE[200] + header_lines([*defaults, *JSON_HEADERS]) + b"content-length: "
        return self._head

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for exchange in tuple(self._pending):
            if now >= exchange.deadline:
                exchange.refuse(self.publishing.late(exchange.topic, exchange.asked.acks))
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look) if self._pending else None


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
