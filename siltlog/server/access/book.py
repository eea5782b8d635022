"""Follows the access document, changes it, and says what of it counts on this node.

What is read of it holds while the object store is away, for a while: then nobody is let in but the machine's own user,
because a key that was revoked elsewhere would count for ever.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.security.access import LOCAL
from siltlog.infra.security.callers.api_keys import ApiKeys
from siltlog.infra.security.callers.identification import Verifier
from siltlog.infra.security.document import AccessDocument
from siltlog.infra.security.documents import AccessDocuments, Change
from siltlog.infra.security.grant import Access, Identity
from siltlog.infra.telemetry import Logger
from siltlog.server.access.changes import without_keys
from siltlog.server.access.ended import SessionEnds
from siltlog.server.access.held import HeldRevocations

T = TypeVar("T")
Tell = Callable[[int, Collection[str]], "asyncio.Future[Any] | None"]
"""Tells the other nodes of a version of the document, and of keys that count no more, whatever it has. What it gives is
done once each has heard it, or does not answer; None where there is no other."""

FOLLOW_SECONDS = 1.5
"""What another node revokes, and could not tell, counts no more here within three seconds: after this, and one answer
of the store."""
PAUSE_SECONDS = 10.0
"""A server that has not looked for so long, by any clock, looks through all versions: the next of them may be gone."""
AWAY_SECONDS = 10.0
"""Without an answer for so long the object store is told to be away."""
TURN_SECONDS_MAX = 5.0
"""How long a change waits for the store to answer what was asked before it."""
CHANGE_SECONDS_MAX = 10.0
REVOKE_SECONDS_MAX = 2.0
"""How long an answer waits for a revocation to be in the document; it is written later all the same."""
TOLD_SECONDS_MAX = 1.0
"""How long an answer waits for other nodes to hear of a change: who then goes to another finds it there."""
CLOSE_SECONDS_MAX = 2.0


class AccessBook:
    """Used on one event loop; the store is asked on threads, one at a time."""

    def __init__(
        self,
        documents: AccessDocuments,
        held: HeldRevocations,
        keys: ApiKeys,
        verifiers: Sequence[Verifier],
        *,
        clock: Clock,
        logger: Logger,
        stale_ms: int,
        tell: Tell = lambda version, revoked: None,
        ends: SessionEnds | None = None,
    ) -> None:
        """`documents` are open. `verifiers` are all there are, `keys` among them; without `ends` there are no
        sessions."""
        self._tell = tell
        self._ends = ends
        self._documents = documents
        self._held = held
        self._keys = keys
        self._verifiers = tuple(verifiers)
        self._clock = clock
        self._logger = logger
        self._stale_seconds = stale_ms / 1000
        self._turn = asyncio.Lock()
        """Whose it is may ask the store."""
        self._holding = asyncio.Lock()
        self._failure = ""
        self._was_stale = False
        self._looked_us = clock.now_us()
        self._changing: set[asyncio.Task[Any]] = set()
        self._following: list[asyncio.Task[None]] = []
        self.document = documents.current.document
        """The newest, without the keys that were revoked here."""
        self.access = Access(clock, check=self._check, until=self._until_us)
        self._take()

    async def read_up(self, version: int) -> None:
        """Returns once that version, or a later one, holds here. Raises Unavailable where it cannot be read."""
        if self.document.number >= version:
            return
        async with self._turn:
            try:
                await asyncio.to_thread(self._documents.follow, thoroughly=False)
            except SiltlogError as error:
                self._told_away(error.detail)
                raise _unavailable(error.detail) from None
            await self._took()
        if self.document.number < version:
            raise _unavailable(f"another node knows version {version} of who may do what")

    async def hear(self, version: int, revoked: Collection[str]) -> None:
        """Another node tells: the keys count no more here either, whether or not the object store answers.

        Raises Unavailable where the version cannot be read.
        """
        await self._hold_known(revoked)
        await self.read_up(version)
        # A key that was made and revoked there since is known here just now.
        await self._hold_known(revoked)

    def check_named(self, identity: Identity) -> None:
        """Raises Refused `unauthenticated` for who another node says calls, by a key that counts no more here; of
        tokens that node knows better, which has verified them."""
        if identity.subject.principal.startswith(self._keys.principals):
            self._keys.check(identity)

    def start(self) -> None:
        self._following.append(asyncio.create_task(self._follow()))

    def stop(self) -> None:
        for task in self._following:
            task.cancel()

    async def close(self, patient: bool) -> bool:
        """Says whether no thread of it hangs."""
        if patient and self._turn.locked():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._turn.acquire(), CLOSE_SECONDS_MAX)
                return True
        return not self._turn.locked()

    def stale(self) -> SiltlogError | None:
        """The refusal for everybody but the machine's own user, once the store has been away for too long."""
        if self._away_seconds() < self._stale_seconds:
            return None
        return problem(
            "access_unavailable",
            "the object store has not answered for so long that who may do what is not known any more; callers on the "
            "server's own machine are let in",
        )

    def warnings(self) -> list[str]:
        """Sentences about what is wrong, for who looks whether the server is well."""
        told = []
        away_seconds = self._away_seconds()
        if away_seconds >= AWAY_SECONDS:
            reason = f": {self._failure}" if self._failure else ""
            told.append(f"access: the object store has not answered for {int(away_seconds)} s{reason}")
        if self._held.ids:
            told.append(f"access: {len(self._held.ids)} revoked keys are revoked on this node only, until it answers")
        unkept = {"which keys were revoked": self._held.failure}
        if self._ends is not None:
            unkept["which sessions of the page were ended"] = self._ends.failure
        for what, reason in unkept.items():
            if reason:
                told.append(f"access: {what} cannot be kept in the data directory: {reason}")
        return told

    async def change(self, change: Change, expected: int | None = None, *, waits: bool = True) -> AccessDocument:
        """Makes a new version, durable and in force here on return; where it `waits`, on other nodes that answer, too.
        With `expected` of that version only.

        Raises Refused `access_changed`, what `change` raises, Unavailable `access_unavailable`: nothing was changed;
        OutcomeUnknown `ack_timeout`.
        """
        try:
            await asyncio.wait_for(self._turn.acquire(), TURN_SECONDS_MAX)
        except TimeoutError:
            raise _unavailable("the object store does not answer") from None
        writing = asyncio.create_task(self._write(change, expected))
        self._changing.add(writing)
        writing.add_done_callback(self._changing.discard)
        done, _ = await asyncio.wait((writing,), timeout=CHANGE_SECONDS_MAX)
        if not done:
            writing.add_done_callback(_looked_at)
            raise problem(
                "ack_timeout", "the object store has not answered; whether the change was made is seen at /v1/access"
            )
        told = writing.result()
        if waits:
            await _heard(told)
        return self.document

    async def revoke(self, key_id: str) -> bool:
        """Has a key count no more, here at once; whether that is in the document, and so holds on every node.

        Raises Unavailable `access_unavailable` where neither the disk nor the store keeps it: it holds here all the
        same, until the process ends, and is tried again.
        """
        self._held.hold([key_id])
        self._take()
        told = self._tell(self.document.number, [key_id])
        await self._keep_held()
        writing = asyncio.create_task(self._write_held())
        self._changing.add(writing)
        writing.add_done_callback(self._changing.discard)
        writing.add_done_callback(_looked_at)
        await asyncio.wait((writing,), timeout=REVOKE_SECONDS_MAX)
        await _heard(told)
        if key_id in self._held.ids and not self._held.are_kept:
            raise problem(
                "access_unavailable",
                f"the key {key_id[:80]!r} counts no more on this node, and neither the disk nor the object store could "
                "keep that: it holds until the server stops; that is tried again, so make room on the disk",
            )
        return key_id not in self._held.ids

    async def _hold_known(self, revoked: Collection[str]) -> None:
        known = self.document.keys.keys() & set(revoked)
        if known:
            self._held.hold(known)
            self._take()
            await self._keep_held()

    def _check(self, identity: Identity) -> None:
        if identity.subject.principal == LOCAL:
            return
        stale = self.stale()
        if stale is not None:
            raise stale
        for verifier in self._verifiers:
            if identity.subject.principal.startswith(verifier.principals):
                verifier.check(identity)
        if self._ends is not None:
            self._ends.check(identity)

    def _until_us(self, identity: Identity) -> int | None:
        is_key = identity.subject.principal.startswith(self._keys.principals)
        return self._keys.until_us(identity) if is_key else identity.until_us

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            paused = self._clock.now_us() - self._looked_us > PAUSE_SECONDS * MICROS_PER_SECOND
            try:
                async with self._turn:
                    await asyncio.to_thread(self._documents.follow, thoroughly=paused)
                    await self._took()
                await self._keep_held()
                if self._held.ids:
                    await self._write_held()
                if self._ends is not None:
                    await self._ends.write(partial(self.change, waits=False))
            except SiltlogError as error:
                self._told_away(error.detail)
            except Exception:
                # Whatever it was, the next look must come.
                self._logger.exception("following the access document failed")
            if self._was_stale != (self.stale() is not None):
                self._was_stale = not self._was_stale
                self.access.look_again()

    async def _write(self, change: Change, expected: int | None) -> "asyncio.Future[Any] | None":
        """Has its turn, and ends it; what is done once others have heard of it."""
        try:
            before = self._documents.current.document.number
            await asyncio.to_thread(self._documents.write, change, expected)
            await self._took()
            return self._tell(self.document.number, ()) if self.document.number > before else None
        except SiltlogError as error:
            if error.retryable != "no" or error.error_code == "store_denied":
                self._told_away(error.detail)
                raise _unavailable(error.detail) from None
            raise
        finally:
            self._turn.release()

    async def _write_held(self) -> None:
        held = self._held.ids
        if held & set(self._documents.current.document.keys):
            await self.change(without_keys(held), waits=False)
        else:
            await self._release_held()

    async def _took(self) -> None:
        """The documents were looked at: what is new of them holds from now on."""
        self._looked_us = self._clock.now_us()
        if self._failure:
            self._failure = ""
            self._logger.info("the access document is followed again")
        self._take()
        await self._release_held()

    async def _release_held(self) -> None:
        self._held.release(self._held.ids.difference(self._documents.current.document.keys))
        await self._keep_held()

    async def _keep_held(self) -> None:
        async with self._holding:
            try:
                await asyncio.to_thread(self._held.keep)
            except OSError as error:
                self._logger.error("revoked keys cannot be kept in the data directory", reason=str(error))

    def _take(self) -> None:
        document = without_keys(self._held.ids)(self._documents.current.document)
        if document != self.document or not self.access.version:
            self.document = document
            self._keys.keep(document.keys)
            self.access.change(document.policy())

    def _told_away(self, reason: str) -> None:
        if not self._failure:
            self._logger.warning("the access document cannot be looked at; the last one holds", reason=reason)
        self._failure = reason

    def _away_seconds(self) -> float:
        return self._clock.monotonic() - self._documents.looked_s


async def _heard(told: "asyncio.Future[Any] | None") -> None:
    if told is not None:
        await asyncio.wait((told,), timeout=TOLD_SECONDS_MAX)


def _unavailable(reason: str) -> SiltlogError:
    return problem("access_unavailable", f"who may do what cannot be changed now: {reason}; nothing was changed")


def _looked_at(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()
