"""Knows who is at the other end of a connection of Kafka, and what he may do, by the same access as requests of HTTP.

Without authentication everybody may do everything. With it nothing is answered before a login but how to log in, unless
the client's certificate says who he is.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from siltlog.consumers.kafka.sessions import FetchSessions
from siltlog.infra.errors import SiltlogError
from siltlog.infra.security.access import Kind, Right
from siltlog.infra.security.callers.identification import FAILURES_SCOPE, Identification
from siltlog.infra.security.grant import EVERYTHING, Caller, Grant, Identity, unauthenticated
from siltlog.infra.security.guard import ADDRESS, Guard, Meter
from siltlog.server.kafka.connection import Ended, KafkaConnection
from siltlog.server.kafka.sasl import Said, Sasl

FAILED_SECONDS = 0.1
"""So long a login that failed waits for its answer, as with Kafka's brokers: clients come again at once. It is their
`connection.failed.authentication.delay.ms`."""


class Session:
    """What one connection has said of itself."""

    def __init__(
        self, connection: KafkaConnection, sasl: Sasl | None, guard: Guard | None, fetches: FetchSessions
    ) -> None:
        """Without `sasl` nobody is asked who he is."""
        self.connection = connection
        self.fetches = fetches
        self.grant: Grant | None = EVERYTHING if sasl is None else None
        """None before a login."""
        self.awaits_token = False
        """A handshake of version 0 came before: the next frame is the token itself."""
        self._sasl = sasl
        self.mechanism = ""
        """By which the next login comes; empty where no handshake has said so."""
        self._refused: SiltlogError | None = None
        """Why a token was refused, while its client has not acknowledged that it heard so."""
        self._principal = ""
        """The caller who has logged in by SASL."""
        self._guard = guard
        self._id = uuid.uuid4().hex[:12]
        self._requests = 0
        connection.awaits_login = sasl is not None
        if sasl is not None and connection.peer.certificate is not None:
            identity = sasl.identification.known(self._caller())
            if identity is not None:
                self._logged_in(sasl.identification, identity)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """By which it takes logins; none where nobody is asked who he is."""
        return () if self._sasl is None else self._sasl.mechanisms

    @property
    def granted(self) -> Grant:
        """Raises Ended before a login."""
        if self.grant is None:
            raise Ended("unauthenticated")
        return self.grant

    def check(self) -> None:
        """Raises Ended where the login has ended."""
        try:
            self.granted.check()
        except SiltlogError:
            raise Ended("unauthenticated") from None

    def begin_login(self, mechanism: str) -> bool:
        """Says how the next login comes; False where it is no mechanism that is taken here."""
        self._refused = None
        self.mechanism = mechanism if mechanism in self.mechanisms else ""
        return bool(self.mechanism)

    async def login(self, message: bytes) -> bytes:
        """Takes a message of the mechanism that was begun, and gives the answer: empty once somebody has logged in.

        Raises SiltlogError where nobody has, a moment later; who was logged in before is so no more, as the connection
        ends. Raises Ended where nobody can tell now: clients come again after that, and give up after a refusal.
        """
        try:
            return await self._login(message)
        except (SiltlogError, Ended):
            await self.failed()
            raise

    async def failed(self) -> None:
        """Returns when a login that failed may be answered, after which its connection ends."""
        await self.connection.rest(FAILED_SECONDS)
        self.connection.shutdown()

    async def _login(self, message: bytes) -> bytes:
        sasl = self._sasl
        assert sasl is not None, "no login is announced where there is none"
        caller = self._caller()
        if self._refused is not None:
            refused, self._refused = self._refused, None
            raise refused
        try:
            said = sasl.read(self.mechanism, message)
        except SiltlogError as malformed:
            raise sasl.identification.failed(caller, malformed) from None
        try:
            identity = await self._identity(sasl.identification, caller, said)
        except SiltlogError as error:
            if _says_nothing(error):
                raise Ended("unavailable") from None
            told = sasl.told(self.mechanism, error)
            if not told:
                raise
            self._refused = error
            return told
        if self._principal not in ("", identity.subject.principal):
            raise unauthenticated(
                "unknown",
                f"{self._principal} has logged in on this connection, and {identity.subject.principal} cannot take it "
                "over: open another",
            )
        self._principal = identity.subject.principal
        self._logged_in(sasl.identification, identity)
        return b""

    async def _identity(self, identification: Identification, caller: Caller, said: Said) -> Identity:
        found = identification.identify(caller._replace(authorization=b"Bearer " + said.token.encode()))
        identity = found if isinstance(found, Identity) else await found
        if said.as_whom not in ("", identity.subject.principal, identity.subject.principal.partition(":")[2]):
            raise unauthenticated("unknown", f"the token is not {said.as_whom[:100]!r}'s: leave out for whom it is")
        return identity

    def lifetime_ms(self) -> int:
        """How long the login lasts; 0 where it does not end."""
        seconds = None if self.grant is None else self.grant.seconds_left()
        return 0 if seconds is None else max(int(seconds * 1000), 1)

    def refusal(self, operation: str, right: Right, name: str, kind: Kind = "topic") -> SiltlogError | None:
        """Why he may not; None where he may. Raises Ended where the login has ended."""
        try:
            self.granted.require(right, kind, name)
        except SiltlogError as error:
            if self._guard is not None:
                self._guard.denied(operation, self.request({kind: name}), self.granted, error)
            if error.error_code == "unauthenticated":
                raise Ended("unauthenticated") from None
            return error
        return None

    def without_name(self, refusal: SiltlogError, topic: str) -> str:
        """The sentence of a refusal for who named a topic by its id: of one that he may not see no name is told."""
        may_know = self.granted.may("describe", "topic", topic)
        return refusal.detail if may_know else f"{self.granted.principal} has no right to the topic with this id"

    async def charged(self, topic: str | None = None, *, reads: bool = False) -> Meter | None:
        """Returns once the quotas let a request pass; gives what counts the bytes of its answer, where it `reads`.

        Whoever is above a quota is slowed down, as Kafka's brokers do it: his connection waits.
        """
        if self._guard is None:
            return None
        while True:
            try:
                return self._guard.charge(self.granted, topic, reads=reads)
            except SiltlogError as error:
                await slowed(error)

    async def charged_publish(self, topic: str, nbytes: int, seconds_max: float) -> None:
        """The same of a publish of so many bytes. Raises Unavailable `rate_limited` where that would take longer than
        the client waits."""
        guard = self._guard
        if guard is None or not guard.quotas.any:
            return
        waited = 0.0
        while True:
            limits = guard.quotas.both(self.granted.principal, topic, guard.now())
            exceeded = guard.exceeded(limits, nbytes)
            if exceeded is None:
                return
            waited += exceeded.wait
            if waited > seconds_max:
                raise guard.limited(exceeded)
            await asyncio.sleep(exceeded.wait)

    @asynccontextmanager
    async def changing(self, operation: str, resource: str, status: int) -> AsyncIterator[None]:
        """Records a change, from before it is made to how it ended, as the operation of HTTP that does the same and
        answers with `status`; `resource` is such as `topic/orders`.

        Raises Unavailable `audit_unavailable` before.
        """
        if self._guard is None:
            yield
            return
        change = self._guard.change(operation, "in_body", self.request({}), self.granted)
        async with change.around(resource, status):
            yield

    def _logged_in(self, identification: Identification, identity: Identity) -> None:
        self.grant = Grant(identification.access, identity)
        self.connection.known()

    def request(self, about: Mapping[str, str]) -> Mapping[str, Any]:
        """A request as what is recorded of one is taken from it."""
        self._requests += 1
        return {
            "path_params": about,
            "state": {"request_id": f"{self._id}{self._requests:x}", ADDRESS: self.connection.peer.address},
        }

    def _caller(self) -> Caller:
        peer = self.connection.peer
        return Caller(b"", peer.scheme, address=peer.address, certificate=peer.certificate)


def _says_nothing(error: SiltlogError) -> bool:
    """Whether a credential may be a good one, by what is known now: those of callers with many wrong ones are not."""
    return error.retryable == "yes" and error.members.get("scope") != FAILURES_SCOPE


async def slowed(error: SiltlogError) -> None:
    """Waits as long as a refusal for a quota says. Raises it where it is another."""
    if error.error_code != "rate_limited":
        raise error
    await asyncio.sleep((error.retry_after_ms or 1) / 1000)
