"""Requests for a topic that another node owns: they go there, one hop, or wait until somebody owns it.

Who calls was let in before, and what he may do decided, by this node. Nothing of a request is sent twice unless that is
harmless, or nothing of it can have happened.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope

from siltlog.infra import names
from siltlog.infra.client.core import IDEMPOTENT_METHODS, ConnectionFailed
from siltlog.infra.clock import Clock, format_us
from siltlog.infra.cluster.router import Away, Here, Member, There, Unknown, Where
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.door import HOP
from siltlog.infra.http.memory import Held, held_of
from siltlog.infra.peers.body import RepeatedBody
from siltlog.infra.peers.connection import Field, PeerReply
from siltlog.infra.peers.hop import OF_HEAD, digest
from siltlog.infra.peers.peers import PeerRefused, Peers
from siltlog.infra.security.grant import grant_of

T = TypeVar("T")

TIMEOUT_MS = 10_000
TIMEOUT_MS_MAX = 60_000
GRACE_SECONDS = 5.0
"""How much longer an owner may take than the request gives it."""
ANSWER_SECONDS_MAX = 600.0
"""How long it may take for what says no time: a replay of dead letters takes as long as it has some."""
LOOK_SECONDS = 0.1
"""How long it waits for news before it tries a node again that could not answer."""
UNKNOWN_SECONDS = 0.25
"""How long a topic that no view names is looked for."""
OPENED_SECONDS = 1.0
"""How long a read waits until its topic is open here."""
LET_GO_RETRY_MS = 200
"""How long it takes, most often, until the topic's next owner has claimed it; else the request waits."""
LEFT_SECONDS = 1.0
"""An owner whose topic is another's answers within that what it had begun, or nobody hears its answer."""
ASKED_WAIT_SECONDS = 1.0
"""How long a node that was asked by another waits for a claim or a hand-over to end."""
THREAD_BYTES_MIN = 1024 * 1024
"""Bodies from this size on leave the event loop to be digested."""
_TIMEOUT = re.compile(rb"(?:\A|&)timeout_ms=(\d{1,5})(?:&|\Z)")
_ROUTE = names.HEADER_ROUTE.lower().encode()
_VIEW = names.HEADER_VIEW.lower().encode()
_REQUEST_ID = names.HEADER_REQUEST_ID.lower().encode()
_KEPT_HERE = OF_HEAD | {
    *(b"authorization", b"cookie", b"origin", b"expect", b"te", b"upgrade", b"keep-alive", b"proxy-authorization"),
    *(b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-prefix", _ROUTE, _REQUEST_ID),
}
"""Fields that are not passed on: a hop never carries the caller's credential."""
_NOT_ANSWERED = OF_HEAD | {b"keep-alive", b"date", b"server", _VIEW, _REQUEST_ID}
_ONCE = {names.HEADER_PRODUCER_ID.lower().encode(), names.HEADER_IDEMPOTENCY_KEY.lower().encode()}
"""A publish with one of them lands once, however often it is sent."""


class Routes(Protocol):
    """Says where topics are."""

    @property
    def view(self) -> int:
        """The number of the newest view that this node knows."""

    def where(self, topic: str, denied: frozenset[str] = frozenset(), *, decides: bool = True) -> Where:
        """Where a request for `topic` goes; journals that are `denied` have said that they do not own it. An owner whom
        others may take for gone may still append, but not tell its bounds, where that `decides` something."""

    async def changed(self, seconds: float) -> None:
        """Returns once there is a newer view, or a topic's state here is another, or the time is over."""

    def told(self, view: int) -> None:
        """Another node knows that view."""


class _Problem(msgspec.Struct):
    error_code: str = ""
    parameter: str = ""
    view: int | None = None


_PROBLEM = msgspec.json.Decoder(_Problem)


class Forwarding:
    """Used on one event loop."""

    def __init__(
        self, routes: Routes, peers: Peers, clock: Clock, opened: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        """`opened(topic)` returns once a topic that a view names can be read here, or cannot be now."""
        self._routes = routes
        self._peers = peers
        self._clock = clock
        self._opened = opened
        self.proxied: dict[str, int] = {}
        """Requests that other nodes have answered, by their topics."""

    async def answered(
        self,
        scope: Scope,
        receive: Receive,
        topic: str,
        here: Callable[[Receive], Awaitable[T]],
        *,
        or_here: bool = False,
    ) -> T | Response:
        """Has `here` answer a request, or the topic's owner. The caller may do what he asks for.

        With `or_here` this node answers as well as it can where there is no owner.

        Raises what `here` does; Unavailable `not_owner` for who goes to owners by himself, and for another node;
        `owner_away`; `topic_unavailable` where nobody owned it in time; OutcomeUnknown.
        """
        request = _Request(self._routes, self._peers, self._clock, scope, receive, topic, or_here)
        return await request.run(here, partial(self._answered, topic))

    async def seen(self, topic: str) -> None:
        """Returns once a topic that another node made just now can be read here, or soon; it may be none."""
        if isinstance(self._routes.where(topic, decides=False), Unknown):
            await _looked_for(self._routes)
        if self._opened is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(OPENED_SECONDS):
                    await self._opened(topic)

    def _answered(self, topic: str) -> None:
        self.proxied[topic] = self.proxied.get(topic, 0) + 1


class _NoOwner(Exception):
    """Nobody owns the topic now; `error` is what a caller is told."""

    def __init__(self, error: SiltlogError) -> None:
        super().__init__(error.detail)
        self.error = error


class _Request:
    """One request, until it is answered."""

    def __init__(
        self,
        routes: Routes,
        peers: Peers,
        clock: Clock,
        scope: Scope,
        receive: Receive,
        topic: str,
        or_here: bool,
    ) -> None:
        self._routes = routes
        self._peers = peers
        self._now = clock.monotonic
        self._scope = scope
        self._topic = topic
        self._body = RepeatedBody(receive)
        self._asked = HOP in scope["state"]
        self._direct = self._asked or _direct(scope)
        self._timeout, self._is_timed = _timeout_seconds(scope)
        self._or_here = or_here and not self._asked
        # What tells bounds is what this node answers as well as it can where there is no owner.
        self._decides = or_here
        wait = min(self._timeout, ASKED_WAIT_SECONDS) if self._asked or or_here else self._timeout
        self._deadline = clock.monotonic() + wait
        self._denied: frozenset[str] = frozenset()
        self._failure = ""
        self._looked = False

    async def run(self, here: Callable[[Receive], Awaitable[T]], answered: Callable[[], None]) -> T | Response:
        try:
            return await self._run(here, answered)
        except _NoOwner as none:
            if self._or_here:
                return await here(self._body.receive)
            raise none.error from None

    async def _run(self, here: Callable[[Receive], Awaitable[T]], answered: Callable[[], None]) -> T | Response:
        while True:
            match self._routes.where(self._topic, self._denied, decides=self._decides):
                case Unknown() if not self._looked:
                    self._looked = True
                    await _looked_for(self._routes)
                case Here() | Unknown():
                    try:
                        return await here(self._body.receive)
                    except SiltlogError as error:
                        if error.error_code != "not_owner":
                            raise
                        if not self._begin_again():
                            raise error if self._direct else _let_go(self._topic) from None
                case There(member):
                    if self._direct:
                        raise not_owner(self._topic, member, self._routes.view)
                    reply = await self._ask(member)
                    if reply is not None:
                        if self._or_here and _says_away(reply):
                            # Who is to own it next waits for the records of a node that is gone.
                            return await here(self._body.receive)
                        answered()
                        return _response(reply)
                case Away(node, since_us):
                    raise _NoOwner(owner_away(self._topic, node, since_us))
                case _:
                    # Of a node that owns it any moment now this one hears nothing.
                    seconds = LOOK_SECONDS if self._denied else None
                    self._denied = frozenset()
                    await self._news(seconds)

    def _begin_again(self) -> bool:
        """Whether a request that this node had begun can be sent to another."""
        held = held_of(self._scope)
        if held is not None:
            held.release()
        return self._body.rewind()

    async def _news(self, seconds: float | None = None) -> None:
        """Waits for news of the topic. Raises once the time is over."""
        left = self._deadline - self._now()
        if left <= 0:
            if self._asked:
                raise not_owner(self._topic, None, self._routes.view)
            raise _NoOwner(
                problem(
                    "topic_unavailable",
                    f"no node that owns the topic {self._topic} answered within {int(self._timeout * 1000)} ms"
                    f"{self._failure}; nothing happened, try again",
                    topic=self._topic,
                )
            )
        await self._routes.changed(left if seconds is None else min(left, seconds))

    async def _ask(self, member: Member) -> PeerReply | None:
        """The owner's answer; None where it is to be tried again, once there is news."""
        body = await self._body.whole(self._scope)
        signed = await asyncio.to_thread(digest, body) if len(body) >= THREAD_BYTES_MIN else digest(body)
        held = held_of(self._scope)
        scope = self._scope
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        try:
            ask = self._peers.ask(
                member,
                scope["method"],
                target,
                self._fields(),
                body,
                identity=grant_of(scope).identity,
                seconds=max(self._deadline - self._now(), 0) + GRACE_SECONDS if self._is_timed else ANSWER_SECONDS_MAX,
                digest=signed,
                took=None if held is None else _counting(scope["method"], held),
                repeats=self._may_repeat(),
            )
            reply = await (self._while_its(member, ask) if self._may_repeat() else ask)
        except ConnectionFailed as failed:
            self._failure = f": {member.node} ({failed})"
            if failed.sent and not self._may_repeat():
                raise problem(
                    "ack_timeout",
                    f"the node {member.node}, which owns the topic {self._topic}, was lost before its answer came: "
                    f"{failed}; whether it was done is not known",
                    topic=self._topic,
                ) from None
            await self._news(LOOK_SECONDS)
            return None
        except PeerRefused as refused:
            self._failure = f": {member.node}: {refused}"
            await self._news(LOOK_SECONDS)
            return None
        if reply.status not in (400, 421):
            return reply
        return await self._denied_by(member, reply)

    async def _while_its(self, member: Member, ask: Coroutine[Any, Any, PeerReply]) -> PeerReply:
        """The answer to what may be asked twice. Raises ConnectionFailed where the topic went to another node and the
        one that had it says nothing: nobody may reach it, also where it is a member that could hand the topic over."""
        asking = asyncio.create_task(ask)
        is_anothers = False
        try:
            while not (await asyncio.wait((asking,), timeout=LEFT_SECONDS))[0]:
                was, is_anothers = is_anothers, self._routes.where(self._topic) != There(member)
                if was and is_anothers:
                    raise ConnectionFailed("it does not own the topic any more, and says nothing", sent=True)
            return asking.result()
        finally:
            asking.cancel()

    async def _denied_by(self, member: Member, reply: PeerReply) -> PeerReply | None:
        try:
            said = _PROBLEM.decode(reply.body)
        except msgspec.MsgspecError:
            return reply
        if said.error_code != "not_owner" and said.parameter != names.HEADER_HOP:
            return reply
        self._failure = f": {member.node} does not own it"
        if said.view is not None:
            self._routes.told(said.view)
        if member.journal in self._denied:
            # It, and who is to own it after, both said no: somebody will soon.
            self._denied = frozenset()
            await self._news(LOOK_SECONDS)
        self._denied |= {member.journal}
        return None

    def _fields(self) -> Sequence[Field]:
        own = (_REQUEST_ID, self._scope["state"]["request_id"].encode("latin-1"))
        return [*(field for field in self._scope["headers"] if field[0] not in _KEPT_HERE), own]

    def _may_repeat(self) -> bool:
        scope = self._scope
        return scope["method"] in IDEMPOTENT_METHODS or not _ONCE.isdisjoint(name for name, _ in scope["headers"])


async def _looked_for(routes: Routes) -> None:
    """Looks for a topic that no view names: another node may have made it just now."""
    routes.told(routes.view + 1)
    await routes.changed(UNKNOWN_SECONDS)


def _counting(method: str, held: Held) -> Callable[[int], None]:
    """Counts a reply as it comes. What only reads is refused where there is no room for it; whatever else was asked for
    is done by then, and its reply, which is small, is let through."""
    return held.take if method in ("GET", "HEAD") else held.add


def _says_away(reply: PeerReply) -> bool:
    if reply.status != 503:
        return False
    try:
        return _PROBLEM.decode(reply.body).error_code == "owner_away"
    except msgspec.MsgspecError:
        return False


def not_owner(topic: str, member: Member | None, view: int) -> SiltlogError:
    """Tells who goes to owners by himself where the topic is, as far as that is known."""
    who = "nobody is known to" if member is None else f"the node {member.node} at {member.url} does"
    return problem(
        "not_owner",
        f"this node does not own the topic {topic}; {who} by view {view}",
        topic=topic,
        node=None if member is None else member.node,
        url=None if member is None else member.url,
        view=view,
    )


def _let_go(topic: str) -> SiltlogError:
    """What who knows nothing of owners is told where a body that is not kept was under way at a hand-over."""
    return problem(
        "topic_unavailable",
        f"the topic {topic} went to another node while this request was read; nothing happened, send it again",
        retry_after_ms=LET_GO_RETRY_MS,
        topic=topic,
    )


def owner_away(topic: str, node: str, since_us: int) -> SiltlogError:
    since = format_us(since_us)
    return problem(
        "owner_away",
        f"the topic {topic} is owned by the node {node}, which is away since {since} and has acknowledged records that "
        f"are on its disk alone: start it again, or give them up with `silt topic abandon {topic}`",
        topic=topic,
        node=node,
        since=since,
    )


def _response(reply: PeerReply) -> Response:
    response = Response(reply.body, reply.status)
    kept = [field for field in reply.fields if field[0] not in _NOT_ANSWERED]
    response.raw_headers[:] = [*kept, (b"content-length", b"%d" % len(reply.body))]
    return response


def _direct(scope: Scope) -> bool:
    return any(name == _ROUTE and value == names.ROUTE_DIRECT.encode() for name, value in scope["headers"])


def _timeout_seconds(scope: Scope) -> tuple[float, bool]:
    """Seconds that a request gives an owner, and whether they end it: they do where records are published."""
    found = _TIMEOUT.search(scope["query_string"])
    timeout_ms = TIMEOUT_MS if found is None else int(found[1])
    is_publish = scope["method"] == "POST" and scope["path"].endswith("/records")
    return min(timeout_ms, TIMEOUT_MS_MAX) / 1000, is_publish
