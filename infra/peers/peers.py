"""Calls to other nodes: connections that are kept, the challenges of each, and the field that each request has."""

import asyncio
import secrets
import ssl
from collections import deque
from collections.abc import Callable, Collection, Sequence

from siltlog.infra.client.connection import Address
from siltlog.infra.client.core import ConnectionFailed
from siltlog.infra.clock import Clock
from siltlog.infra.cluster.router import Member
from siltlog.infra.errors import SiltlogError
from siltlog.infra.names import HEADER_HOP
from siltlog.infra.peers import hop as hops
from siltlog.infra.peers.connection import Field, PeerConnection, PeerReply
from siltlog.infra.peers.hop import Asked, Hop, Session
from siltlog.infra.security.access import LOCAL, Subject
from siltlog.infra.security.grant import Identity

IDLE_SECONDS_MAX = 30.0
"""Servers close what has been quiet for longer than this: a request must not meet that."""
IDLE_MAX = 64
"""Connections to one node that are kept while nobody uses them."""
HELLO_SECONDS = 5.0
_HELLO_TARGET = b"/healthz"
_FIELD = HEADER_HOP.lower().encode()
_NO_MEMBER = "it is no member any more"


NODE = Identity(Subject(LOCAL))
"""The identity of a node where it asks another for itself."""


class PeerRefused(Exception):
    """The other node cannot be what it should be: nothing was asked of it."""


class Peers:
    """Used on one event loop."""

    def __init__(
        self,
        key: bytes,
        clock: Clock,
        *,
        context: Callable[[], ssl.SSLContext | None] = lambda: None,
        access_version: Callable[[], int] = lambda: 0,
    ) -> None:
        """Without a `key` nothing is proven: where nobody is asked who he is. `access_version()` is that of the access
        document by which callers are let in here."""
        self._key = key
        self._clock = clock
        self._context = context
        self._access_version = access_version
        self._idle: dict[str, deque[tuple[PeerConnection, Session]]] = {}
        self._members: Collection[str] | None = None
        """The journals of those that a view has; None before one is known."""
        self._repeated: dict[str, set[asyncio.Timeout]] = {}
        """Requests under way that another node may be asked instead, by the journal of the node that has them."""
        self._closed = False

    async def ask(
        self,
        member: Member,
        method: str,
        target: bytes,
        fields: Sequence[Field] = (),
        body: bytes = b"",
        *,
        identity: Identity | None = None,
        seconds: float,
        digest: bytes | None = None,
        took: Callable[[int], None] | None = None,
        repeats: bool = False,
    ) -> PeerReply:
        """Makes one request of a node, for a caller; without an identity for one who need not say who he is.

        One that `repeats`, as it may be made twice, waits no longer than its node is a member: who has stopped, or is
        cut off, closes no connection.

        Raises ConnectionFailed, of which `sent` says whether it may have been done; PeerRefused; what `took` raises.
        """
        signed = hops.digest(body) if digest is None else digest
        if not repeats:
            return await self._ask(member, method, target, fields, body, identity, seconds, signed, took)
        if self._members is not None and member.journal not in self._members:
            raise ConnectionFailed(_NO_MEMBER, sent=False)
        bounds = self._repeated.setdefault(member.journal, set())
        bound = asyncio.timeout(None)
        try:
            async with bound:
                bounds.add(bound)
                return await self._ask(member, method, target, fields, body, identity, seconds, signed, took)
        except TimeoutError:
            raise ConnectionFailed(_NO_MEMBER, sent=True) from None
        finally:
            bounds.discard(bound)

    def follow(self, journals: Collection[str]) -> None:
        """Takes the journals of all members there are now: of another none that repeats waits for an answer."""
        self._members = journals
        for journal in self._repeated.keys() - set(journals):
            for bound in self._repeated.pop(journal):
                bound.reschedule(0)

    async def _ask(
        self,
        member: Member,
        method: str,
        target: bytes,
        fields: Sequence[Field],
        body: bytes,
        identity: Identity | None,
        seconds: float,
        signed: bytes,
        took: Callable[[int], None] | None,
    ) -> PeerReply:
        connection, session = await self._taken(member.url)
        session.n += 1
        asked = Asked.of(method, target, fields)
        hop = self._hop(member, session.n, identity)
        said = hops.signed(self._key, session.ours, session.theirs, hop, asked, signed).encode()
        try:
            return await connection.ask(method, target, [*fields, (_FIELD, said)], body, seconds=seconds, took=took)
        finally:
            self._give_back(member.url, connection, session)

    def close(self) -> None:
        self._closed = True
        for connections in self._idle.values():
            for connection, _ in connections:
                connection.close()
        self._idle.clear()

    def _hop(self, member: Member, n: int, identity: Identity | None) -> Hop:
        if identity is None:
            return Hop(member.journal, n)
        subject = identity.subject
        return Hop(
            member.journal,
            n,
            subject.principal,
            subject.groups,
            identity.credential_id,
            identity.until_us,
            identity.address,
            self._access_version(),
        )

    async def _taken(self, url: str) -> tuple[PeerConnection, Session]:
        idle = self._idle.get(url)
        now = self._clock.monotonic()
        while idle:
            connection, session = idle.pop()
            if connection.is_open and now - connection.idle_since <= IDLE_SECONDS_MAX:
                return connection, session
            connection.close()
        address = Address.of(url)
        connection = await PeerConnection.opened(address, self._context() if address.is_tls else None)
        session = Session()
        if self._key:
            try:
                await self._greet(connection, session)
            except ConnectionFailed as failed:
                # Nothing was asked yet.
                raise ConnectionFailed(str(failed), sent=False) from None
            except BaseException:
                connection.close()
                raise
        return connection, session

    async def _greet(self, connection: PeerConnection, session: Session) -> None:
        session.ours = secrets.token_bytes(hops.CHALLENGE_BYTES)
        said = (_FIELD, hops.hello(session.ours).encode())
        reply = await connection.ask("GET", _HELLO_TARGET, [said], b"", seconds=HELLO_SECONDS)
        try:
            session.theirs = hops.welcomed(self._key, session.ours, reply.field(HEADER_HOP))
        except SiltlogError as error:
            raise PeerRefused(f"it does not have the secret of this cluster ({error.detail})") from None

    def _give_back(self, url: str, connection: PeerConnection, session: Session) -> None:
        idle = self._idle.setdefault(url, deque())
        if connection.is_open and not self._closed and len(idle) < IDLE_MAX:
            idle.append((connection, session))
        else:
            connection.close()
