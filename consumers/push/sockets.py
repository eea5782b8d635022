"""WebSockets: their routes, the answer that opens one, and the session that reads a topic without a group."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.members_http import OTHERS_MEMBER
from siltlog.consumers.groups.messages import ATTEMPTS_MAX, ATTEMPTS_MAX_MAX, MemberRequest, ResetPolicy
from siltlog.consumers.push.group_socket import Connected, GroupSocket, Joining, Nacks
from siltlog.consumers.push.messages import JsonWording, Wording
from siltlog.consumers.push.session import Channel, Session
from siltlog.consumers.push.tail import (
    PARAMETERS,
    TAIL_ERRORS,
    TAIL_PARAMETERS,
    Tail,
    TailRequest,
    tail_request,
)
from siltlog.consumers.reading.fetch import Fetcher, require_read
from siltlog.consumers.reading.http import DEAD_LETTERS_READ
from siltlog.consumers.reading.parameters import VALUES_PARAMETER, values_of
from siltlog.consumers.reading.render import Values
from siltlog.consumers.reading.view import LogView
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.connection.web_socket import REFUSED, UPGRADE
from siltlog.infra.http.memory import Held, held_of
from siltlog.infra.http.operations import (
    GROUP,
    IN_BODY,
    NAME,
    TOPIC,
    Reply,
    choice,
    in_query,
    on_topic,
    operation,
    whole,
)
from siltlog.infra.http.query import Query, named
from siltlog.infra.http.streams import STREAM, Kind, Stream, Streams, asked_again
from siltlog.infra.limits import MEMBER_TIMEOUT_MS_MAX, MEMBER_TIMEOUT_MS_MIN
from siltlog.infra.security.grant import grant_of
from siltlog.infra.security.guard import METERED
from siltlog.infra.telemetry import Logger

WORDING = "wording"
"""Where the extension of a scope that offers a channel has the wording of that."""
RESETS: tuple[ResetPolicy, ...] = ("earliest", "latest", "error")
GROUP_PARAMETERS = (
    *("topics", "member", "max_attempts", "values"),
    *("client_id", "instance_id", "auto_offset_reset", "session_timeout_ms", "rebalance_timeout_ms"),
)

_SOCKET = Reply(f"A WebSocket, subprotocol `{names.SUBPROTOCOL}`: JSON texts, each with a `type`.")


class TopicSocket(Session):
    in_group = False

    def __init__(
        self,
        socket: Channel,
        stream: Stream,
        log: LogView,
        fetcher: Fetcher,
        request: TailRequest,
        held: Held | None,
        logger: Logger,
    ) -> None:
        super().__init__(socket, stream, JsonWording(request.values), held, logger)
        self._tail = Tail(log, fetcher, request, stream.wake, held)
        self._told = False
        self.feed = self._tail.feed

    def cursor(self) -> str:
        self._told = True
        return self._tail.cursor()

    def credited(self) -> None:
        # Where it begins: who is cut off before the first record comes back to there.
        if not self._told:
            self._tell()

    def beat(self) -> None:
        self._tail.grow()
        self.farewell()

    def farewell(self) -> None:
        # The filter may have passed over much since the last record.
        if self._told and self._tail.is_ahead:
            self._tell()

    def _tell(self) -> None:
        self.socket.send(self.wording.records((), cursor=self.cursor()))


@dataclass(frozen=True, slots=True)
class Sockets:
    log: LogView
    fetcher: Fetcher
    groups: Groups
    nacks: Nacks
    streams: Streams
    connected: Connected
    logger: Logger

    @operation(
        "GET",
        "/v1/topics/{topic}/ws",
        "openTopicSocket",
        "Push",
        "A topic as it comes, over a WebSocket",
        'The client says `{"type": "credit", "records": 100}`: so many more it takes, and nothing is sent before the '
        'first. The server says `{"type": "records", "records": […], "cursor": "…"}`, and `problem` before it '
        "closes. A ping comes every 15 seconds. Closes: 1000 done, 1001 the server goes away (come back with the "
        "cursor), 1008 refused, 1009 too large, 1013 too slow.",
        access=on_topic("read"),
        needs=DEAD_LETTERS_READ,
        reads=True,
        replies={101: _SOCKET},
        parameters=(TOPIC, *TAIL_PARAMETERS),
        errors=TAIL_ERRORS,
    )
    async def topic(self, request: Request) -> Response:
        query = Query(request, PARAMETERS)
        grant, name = grant_of(request), request.path_params["topic"]
        require_read(grant, name)
        asked = await tail_request(self.log, self.fetcher, name, query)

        async def talk(socket: Channel, stream: Stream) -> None:
            held = held_of(request.scope)
            await TopicSocket(socket, stream, self.log, self.fetcher, asked, held, self.logger).run()

        return self._opening(request, "topic_socket", talk, partial(require_read, grant, name))

    @operation(
        "GET",
        "/v1/groups/{group}/ws",
        "openGroupSocket",
        "Push",
        "A member of a group, over a WebSocket",
        "The connection is its heartbeat; a lost one has its session timeout to come back with `member=`. Beside "
        "`credit` the client says `commit` (`offsets` of `topic`, `partition`, `offset`), `nack` (the same, and "
        "`error`: counts an attempt and delivers again from there, or dead-letters) and `release` (`partitions` that "
        "were revoked). The server says `assigned`, `revoked`, `lost` (`partitions` with `offset` and `generation`), "
        "`records`, `committed` and `problem`.",
        access=IN_BODY,
        needs=f"group `read` and `read` of each topic; {OTHERS_MEMBER}",
        reads=True,
        replies={101: _SOCKET},
        parameters=(
            GROUP,
            in_query("topics", "What it reads, separated by commas.", example="flights"),
            in_query("member", "The id of a member that comes back. Left out: a new one.", NAME),
            in_query(
                "max_attempts",
                "At so many attempts a record is a dead letter.",
                whole(1, ATTEMPTS_MAX_MAX, ATTEMPTS_MAX),
            ),
            VALUES_PARAMETER,
            in_query("client_id", "A name for people.", NAME),
            in_query(
                "instance_id",
                "Of a static member: a join takes over what its last one has, and closing leaves nothing.",
                NAME,
            ),
            in_query(
                "auto_offset_reset", "Where the group begins when it is new.", choice(*RESETS, default="earliest")
            ),
            in_query(
                "session_timeout_ms",
                "How long it may be away.",
                whole(MEMBER_TIMEOUT_MS_MIN, MEMBER_TIMEOUT_MS_MAX, 45_000),
            ),
            in_query(
                "rebalance_timeout_ms",
                "How long it may take to let go of what is revoked.",
                whole(MEMBER_TIMEOUT_MS_MIN, MEMBER_TIMEOUT_MS_MAX, 60_000),
            ),
        ),
        errors=("unknown_topic", "shutting_down", "cap_reached"),
    )
    async def group(self, request: Request) -> Response:
        joining = _joining(request)
        grant = grant_of(request)

        def ask() -> None:
            grant.require("read", "group", joining.group)
            for topic in joining.request.topics or ():
                require_read(grant, topic)

        ask()
        for topic in joining.request.topics or ():
            self.log.topic(topic)

        async def talk(socket: Channel, stream: Stream) -> None:
            session = GroupSocket(
                socket,
                stream,
                joining,
                grant,
                self._wording(request, joining.values),
                groups=self.groups,
                nacks=self.nacks,
                log=self.log,
                fetcher=self.fetcher,
                held=held_of(request.scope),
                logger=self.logger,
            )
            self.connected.put(session)
            try:
                await session.run()
            finally:
                self.connected.remove(session)

        return self._opening(request, "group_socket", talk, ask)

    def _wording(self, request: Request, values: Values) -> Wording:
        """How the two write to each other: JSON, unless whoever offers the channel has a way of its own."""
        own: Wording | None = request.scope["extensions"][UPGRADE].get(WORDING)
        return own or JsonWording(values)

    def _opening(
        self, request: Request, kind: Kind, talk: Callable[[Channel, Stream], Any], ask: Callable[[], None]
    ) -> Response:
        socket: Channel | None = request.scope.get("extensions", {}).get(UPGRADE, {}).get("socket")
        if socket is None:
            raise problem(
                "invalid_parameter",
                f"this is a WebSocket: connect to ws://{request.headers.get('host', '')[:200]}{request.url.path[:200]} "
                f"with the subprotocol {names.SUBPROTOCOL}",
                parameter="Upgrade",
            )
        if self.streams.draining:
            raise problem("shutting_down", "the server is shutting down; connect again in a moment")
        self.streams.check_room(kind)
        return _Opening(self.streams, kind, socket, socket.accepted(), talk, ask)


class _Opening(Response):
    """The answer 101, and all that is said after it."""

    def __init__(
        self,
        streams: Streams,
        kind: Kind,
        socket: Channel,
        headers: list[tuple[bytes, bytes]],
        talk: Callable[[Channel, Stream], Any],
        ask: Callable[[], None],
    ) -> None:
        super().__init__(status_code=101)
        self.raw_headers = headers
        self._streams = streams
        self._kind = kind
        self._socket = socket
        self._talk = talk
        self._ask = ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = self._socket
        with (
            self._streams.opened(self._kind) as stream,
            asked_again(stream, grant_of(scope), self._ask),
        ):
            scope["state"][STREAM] = stream
            stream.meter = scope["state"].get(METERED)
            socket.begin(scope["state"].get("request_id", ""), stream.wake)
            await send({"type": "http.response.start", "status": 101, "headers": self.raw_headers})
            socket.open()
            try:
                await self._talk(socket, stream)
            except SiltlogError as error:
                # What was there a moment ago is gone.
                socket.close(REFUSED, error)


def _joining(request: Request) -> Joining:
    query = Query(request, GROUP_PARAMETERS)
    group = named("group", request.path_params["group"])
    returns = "member" in query
    member = named("member", query.text("member")) if returns else uuid.uuid4().hex
    topics = [named("topics", topic) for topic in query.text("topics").split(",")] if "topics" in query else []
    if not topics:
        raise problem("invalid_parameter", "a member names what it reads: give topics=flights,...", parameter="topics")
    asked = MemberRequest(topics=topics)
    for name in ("client_id", "instance_id"):
        if name in query:
            setattr(asked, name, named(name, query.text(name)))
    if "auto_offset_reset" in query:
        asked.auto_offset_reset = cast(ResetPolicy, query.choice("auto_offset_reset", RESETS, "earliest"))
    for name in ("session_timeout_ms", "rebalance_timeout_ms"):
        if name in query:
            setattr(asked, name, query.integer(name, 0, minimum=MEMBER_TIMEOUT_MS_MIN, maximum=MEMBER_TIMEOUT_MS_MAX))
    values = values_of(query)
    attempts_max = query.integer("max_attempts", ATTEMPTS_MAX, minimum=1, maximum=ATTEMPTS_MAX_MAX)
    return Joining(group, member, asked, values, attempts_max, returns)
