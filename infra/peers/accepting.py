"""Requests of other nodes: who may make them, and for whom they are made."""

import secrets
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Any

from starlette.types import Message, Receive, Scope

from siltlog.infra.errors import SiltlogError
from siltlog.infra.peers import hop as hops
from siltlog.infra.peers.hop import Asked, Hop, Session
from siltlog.infra.security.access import Subject
from siltlog.infra.security.grant import EVERYTHING, Access, Grant, Identity

ReadUp = Callable[[int], Awaitable[None]]


class AcceptedHops:
    """Satisfies `Hops` of the door."""

    def __init__(
        self,
        key: bytes,
        journal: Callable[[], str],
        access: Access | None = None,
        read_up: ReadUp | None = None,
        check: Callable[[Identity], None] | None = None,
    ) -> None:
        """`journal()` is that of this start of this node. `read_up(version)` has the access document read until that
        version of it holds here; `check` raises Refused for a caller whose credential counts no more by it."""
        self._key = key
        self._journal = journal
        self._access = access
        self._read_up = read_up
        self._check = check

    def session(self) -> Session:
        """Makes what is kept with each connection."""
        return Session()

    def welcome(self, said: str, session: Any) -> str | None:
        """The answer to a hello; None where it is none. Raises Refused."""
        if not said.startswith(hops.HELLO + " "):
            return None
        if not self._key:
            raise hops.refused("this node asks nobody who he is, and has no secret")
        session.theirs = hops.challenge_of(said)
        session.ours = secrets.token_bytes(hops.CHALLENGE_BYTES)
        session.n = 0
        return hops.welcome(self._key, session.theirs, session.ours)

    async def accept(self, said: str, session: Any, scope: Scope, receive: Receive) -> tuple[Grant, Receive]:
        """Gives what the caller may do, and the body, which ends only where it is what was signed. Raises Refused.

        Who decides is this node's access document, which is the caller's node's or a newer one.
        """
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        asked = Asked.of(scope["method"], target, scope["headers"])
        hop, digest = hops.verified(self._key, session, said, asked, self._journal())
        body = receive if not self._key else _checked(receive, digest)
        if self._access is None:
            return EVERYTHING, body
        if self._read_up is not None:
            await self._read_up(hop.access)
        identity = _identity(hop)
        if identity is not None and self._check is not None:
            try:
                self._check(identity)
            except SiltlogError as refusal:
                return Grant(self._access, None, refusal), body
        return Grant(self._access, identity), body


def _identity(hop: Hop) -> Identity | None:
    if not hop.principal:
        return None
    return Identity(Subject(hop.principal, hop.groups), hop.credential, hop.until_us, hop.address)


def _checked(receive: Receive, digest: bytes) -> Receive:
    """A body that raises Refused in the place of its end where it has another digest."""
    seen = blake2b(digest_size=hops.DIGEST_BYTES)

    async def checked() -> Message:
        message = await receive()
        if message["type"] == "http.request":
            seen.update(message.get("body", b""))
            if not message.get("more_body", False) and seen.digest() != digest:
                raise _changed()
        return message

    return checked


def _changed() -> SiltlogError:
    return hops.refused("the body is another than was signed")
