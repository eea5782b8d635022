"""Sessions of the page that were ended before their time: here at once, in the document and on other nodes soon after.

To end one is never refused. It is held here, durable in the data directory, and written into the access document
together with others: each version of that is an object, which every node reads.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from siltlog.infra.clock import AgingTime, Clock
from siltlog.infra.errors import ConfigError
from siltlog.infra.security.document import AccessDocument
from siltlog.infra.security.documents import Change
from siltlog.infra.security.grant import Identity, unauthenticated
from siltlog.infra.security.private_file import replace_private
from siltlog.infra.security.sessions import SESSION_US, EndedSession, Ends, Session
from siltlog.infra.telemetry import Logger

Ended = Mapping[str, EndedSession]
"""By the ids of sessions."""
WRITE_SECONDS = 2.0
"""They are written together, at most so often."""
_ended = msgspec.json.Decoder(Ends)


class SessionEnds:
    """Used on one event loop."""

    def __init__(
        self,
        path: Path,
        document: Callable[[], AccessDocument],
        ask_again: Callable[[], None],
        tell: Callable[[Ended], None],
        clock: Clock,
        logger: Logger,
    ) -> None:
        """`document()` is the newest; `ask_again()` has streams look whether they may go on; `tell` tells other nodes.

        Raises ConfigError when the file is there and cannot be read: what it held would count again.
        """
        self._path = path
        self._document = document
        self._ask_again = ask_again
        self._tell = tell
        self._clock = clock
        # A clock that jumps ahead, and back, must not have any forgotten that would count again.
        self._aging = AgingTime(clock)
        self._aging.now_us()
        self._logger = logger
        try:
            self._kept = _ended.decode(path.read_bytes())
        except FileNotFoundError:
            self._kept = Ends()
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}; restore it, or remove it if that is meant") from None
        self._held = self._kept
        self.failure = ""
        """Why what is held could not be kept at the last try; empty where it was."""
        self._keeping = asyncio.Lock()
        self._written_s = clock.monotonic() - WRITE_SECONDS

    @property
    def are_kept(self) -> bool:
        return self._held == self._kept

    def check(self, identity: Identity) -> None:
        """Raises Refused `unauthenticated` for a session that was ended."""
        session = identity.session
        if session is not None and (self._held.has(session) or self._document().ends().has(session)):
            raise unauthenticated("unknown", "the session was ended by a logout; log in again")

    async def end(self, session: Session) -> bool:
        """Ends a session, here at once; whether that outlives the process."""
        ended = {session.session_id: EndedSession(session.principal, session.begun_us)}
        self._tell(ended)
        await self.hear(ended)
        return self.are_kept

    async def hear(self, ended: Ended) -> None:
        """Another node ended some."""
        if ended.keys() <= self._held.sessions.keys():
            return
        self._held = self._held.with_more(ended, self._aging.now_us())
        self._ask_again()
        await self._keep()

    async def write(self, change: Callable[[Change], Awaitable[object]]) -> None:
        """Has what is held written into the document by `change`, unless that was a moment ago; what it has is let go.

        Raises what `change` does.
        """
        if self._held == Ends():
            return
        now_s = self._clock.monotonic()
        if now_s - self._written_s < WRITE_SECONDS:
            return
        self._written_s = now_s
        held = self._held
        now_us = self._aging.now_us()
        await change(with_ended(held, now_us))
        there = self._document().ends()
        left = {each: one for each, one in self._held.sessions.items() if not _is_in(there, each, one, now_us)}
        before_us = {who: at_us for who, at_us in self._held.before_us.items() if there.before_us.get(who, -1) < at_us}
        self._held = Ends(left, before_us)
        await self._keep()

    async def _keep(self) -> None:
        async with self._keeping:
            held = self._held
            try:
                if held != self._kept:
                    await asyncio.to_thread(replace_private, self._path, msgspec.json.encode(held))
            except OSError as error:
                self.failure = str(error)
                self._logger.error("ended sessions cannot be kept in the data directory", reason=str(error))
            else:
                self._kept = held
                self.failure = ""


def with_ended(held: Ends, now_us: int) -> Change:
    """Adds ended sessions to the document, and leaves out those whose time is over."""

    def change(document: AccessDocument) -> AccessDocument:
        before = document.ends()
        known = Ends(before.sessions, _latest(before.before_us, held.before_us))
        after = known.with_more(held.sessions, now_us)
        if after == before:
            return document
        return msgspec.structs.replace(document, ended=after.sessions, ended_before_us=after.before_us)

    return change


def _latest(ours: Mapping[str, int], theirs: Mapping[str, int]) -> Mapping[str, int]:
    return {who: max(ours.get(who, -1), theirs.get(who, -1)) for who in {**ours, **theirs}}


def _is_in(there: Ends, session_id: str, ended: EndedSession, now_us: int) -> bool:
    """Whether the document has it, or its time is over."""
    is_over = now_us >= ended.begun_us + SESSION_US
    return is_over or session_id in there.sessions or ended.begun_us <= there.before_us.get(ended.principal, -1)
