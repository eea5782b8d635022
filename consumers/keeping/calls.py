"""Asks the node that owns `_offsets`, and answers others where that is this one."""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from siltlog.consumers.keeping.keeper import KeeperAsked, KeeperTold
from siltlog.infra import names
from siltlog.infra.client.core import ConnectionFailed
from siltlog.infra.clock import Clock
from siltlog.infra.cluster.router import Here, Member, There, Unknown
from siltlog.infra.errors import SiltlogError, from_problem, problem
from siltlog.infra.http.door import HOP
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.peers.forwarding import Routes
from siltlog.infra.peers.peers import NODE, PeerRefused, Peers

PATH = "/peers/offsets"
BODY_BYTES_MAX = 1024 * 1024
KEEPER_SECONDS = 5.0
"""How long a call of a group waits for the keeper."""
ANSWER_SECONDS = 15.0
"""How long the keeper may take: one that gives everything back to an emptied Redis takes some time."""
LOOK_SECONDS = 0.1
AWAY_RETRY_MS = 1_000

_encode = msgspec.json.Encoder().encode
_asked = msgspec.json.Decoder(KeeperAsked)
_told = msgspec.json.Decoder(KeeperTold)


class KeeperCalls:
    """Satisfies `Elsewhere` of the groups. Used on one event loop."""

    def __init__(self, routes: Routes, peers: Peers, clock: Clock, make: Callable[[], Awaitable[object]]) -> None:
        """`make` makes `_offsets`, where there is none: somebody owns it then."""
        self._routes = routes
        self._peers = peers
        self._clock = clock
        self._make = make

    async def ask(self, asked: KeeperAsked) -> KeeperTold | None:
        deadline = self._clock.monotonic() + KEEPER_SECONDS
        denied: frozenset[str] = frozenset()
        failure = "nobody owns it now"
        again = False
        while (left := deadline - self._clock.monotonic()) > 0:
            match self._routes.where(names.OFFSETS_TOPIC, denied):
                case Here():
                    return None
                case Unknown():
                    await self._make()
                case There(member):
                    try:
                        told = await self._told(member, asked)
                    except ConnectionFailed as failed:
                        failure = f"{member.node}: {failed}"
                        again = again or failed.sent
                    except PeerRefused as refused:
                        failure = f"{member.node}: {refused}"
                    else:
                        if told is not None:
                            return _of_first(told) if again else told
                        failure = f"{member.node} does not own it"
                        denied |= {member.journal}
                        continue
                case _:
                    denied = frozenset()
            await self._routes.changed(min(LOOK_SECONDS, left))
        raise problem(
            "coordinator_unavailable",
            f"the node that owns {names.OFFSETS_TOPIC}, and so keeps what groups commit, does not answer ({failure}); "
            "come again in a moment",
            retry_after_ms=AWAY_RETRY_MS,
        )

    async def _told(self, member: Member, asked: KeeperAsked) -> KeeperTold | None:
        """The node's answer; None where it is not the owner. Raises what it refuses with."""
        reply = await self._peers.ask(
            member, "POST", PATH.encode(), (), _encode(asked), identity=NODE, seconds=ANSWER_SECONDS
        )
        if reply.status == 200:
            return _told.decode(reply.body)
        error = _error(reply.status, reply.body)
        if error.error_code == "not_owner" or error.members.get("parameter") == names.HEADER_HOP:
            view = error.members.get("view")
            if isinstance(view, int):
                self._routes.told(view)
            return None
        error.detail = f"node {member.node}, which keeps what groups commit, says: {error.detail}"
        raise error


def _of_first(told: KeeperTold) -> KeeperTold:
    """What is told of a deletion whose first answer was lost: that it is done."""
    return msgspec.structs.replace(told, status="ok") if told.status == "unknown_group" else told


def _error(status: int, body: bytes) -> SiltlogError:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = {}
    return from_problem(document if isinstance(document, dict) else {}, status)


class ServedKeeper:
    """Answers other nodes; everything else goes to the application. It is no operation: nobody else can call it."""

    def __init__(self, answer: Callable[[KeeperAsked], Awaitable[KeeperTold]], app: ASGIApp) -> None:
        self._answer = answer
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or HOP not in scope["state"]:
            await self._app(scope, receive, send)
            return
        asked = decode(await body_of(Request(scope, receive), BODY_BYTES_MAX), _asked)
        reply = json_reply(await self._answer(asked))
        await reply(scope, receive, send)
