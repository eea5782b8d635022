"""Tells who a caller is, by the one credential that a request may have.

What looks like a token in the target of a request is refused whoever sends it: it is in the log of every proxy by now.
"""

import base64
import binascii
import ipaddress
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol
from urllib.parse import unquote_to_bytes

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, Unauthenticated, problem
from siltlog.infra.security.access import LOCAL, Subject
from siltlog.infra.security.callers.sessions import Sessions, is_from_page, refusal_of_two
from siltlog.infra.security.certificates import ClientCertificate
from siltlog.infra.security.grant import Access, Caller, Identity, missing, unauthenticated

FAILURES_MAX = 10
"""So many credentials of an address may be wrong in FAILURES_SECONDS; what is wrong beyond that is 429."""
FAILURES_SECONDS = 60.0
FAILURES_SCOPE = "failures"
"""The scope of the refusal for that, beside those of quotas."""
ADDRESSES_MAX = 10_000
TOKEN_BYTES_MAX = 16 * 1024
_SCHEME = b"bearer "
_BASIC = b"basic "
_TOKEN = re.compile(
    rb"silt_[0-9A-Za-z]{12}_[0-9A-Za-z]{8}|eyJ[A-Za-z0-9_-]{8,}\.(?:eyJ[A-Za-z0-9_-]{8,}|\.[A-Za-z0-9_-]{16})\."
)
"""An API key, a JSON Web Token, or a session of the page, wherever it stands."""
_V6_PREFIX = 64


class NotJudged(Unauthenticated):
    """A token that may be good, by what was not read yet: it says nothing against the address that it came from, and
    whoever sends it again later may be let in."""

    status = 401
    retryable = "yes"

    def __init__(self, detail: str, retry_after_ms: int) -> None:
        super().__init__(
            detail, error_code="unauthenticated", retry_after_ms=retry_after_ms, members={"reason": "unknown"}
        )


class Verifier(Protocol):
    """Verifies tokens of one kind."""

    @property
    def principals(self) -> str:
        """Begins the principals of all whom it verifies."""

    def takes(self, token: str) -> bool:
        """Whether the token looks like one of this kind."""

    def known(self, token: str) -> Identity | None:
        """The identity, where it can be told at once that the token is good."""

    def verify(self, token: str, *, aside: bool) -> Identity | Awaitable[Identity]:
        """Raises SiltlogError, also once awaited; NotJudged where it cannot tell yet. `aside`: from where many wrong
        ones came; not on the event loop where that costs more than little."""

    def check(self, identity: Identity) -> None:
        """Raises Refused `unauthenticated` when an identity that it gave does not count any more."""


Certificates = Callable[[ClientCertificate], Identity | None]
"""Gives whom a certificate stands for; None: nobody."""


class Failures:
    """How many credentials of each address were wrong lately. A network of IPv6 is one address: its owner has all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def count(self, address: str) -> int:
        """Counts one more, and gives how many there are now."""
        network, now = _network(address), self._clock.monotonic()
        begun, count = self._windows.pop(network, (now, 0))
        if now - begun >= FAILURES_SECONDS:
            begun, count = now, 0
        if len(self._windows) >= ADDRESSES_MAX:
            self._windows.popitem(last=False)
        self._windows[network] = (begun, count + 1)
        return count + 1

    def are_many(self, address: str) -> bool:
        begun, count = self._windows.get(_network(address), (0.0, 0))
        return count > FAILURES_MAX and self._clock.monotonic() - begun < FAILURES_SECONDS

    def wait_ms(self, address: str) -> int:
        """How long until what is wrong is counted from nothing again."""
        begun, _ = self._windows[_network(address)]
        return max(int((begun + FAILURES_SECONDS - self._clock.monotonic()) * 1000), 1)


class Identification:
    """Used on one event loop."""

    def __init__(
        self,
        access: Access,
        verifiers: Sequence[Verifier],
        clock: Clock,
        *,
        certificates: Certificates = lambda _: None,
        stale: Callable[[], SiltlogError | None] = lambda: None,
        sessions: Sessions | None = None,
    ) -> None:
        """`stale()` is the refusal while nobody knows any more who may do what; it does not hold for the machine's own
        user. Without `sessions` no cookie is looked at."""
        self.access = access
        self._verifiers = tuple(verifiers)
        self._certificates = certificates
        self._stale = stale
        self.sessions = sessions
        self._failures = Failures(clock)
        self._not_judged = Failures(clock)

    def identify(self, caller: Caller) -> Identity | Awaitable[Identity]:
        """Raises Refused `unauthenticated`, `credential_in_url`, `invalid_parameter`, `csrf` or `page_only_shows`,
        Unavailable `rate_limited`."""
        _check_target(caller)
        token = self._token(caller)
        if caller.visit is not None and self.sessions is not None:
            identity = self._of_session(caller, token, self.sessions)
            if identity is not None:
                return identity
        if token is None and caller.local:
            return Identity(Subject(LOCAL))
        stale = self._stale()
        if stale is not None:
            raise stale
        return self._of_certificate(caller) if token is None else self.verified(caller, token)

    def verified(self, caller: Caller, token: str) -> Identity | Awaitable[Identity]:
        """Tells who has a token, wherever in the request it stands. Raises SiltlogError, also once awaited."""
        aside = self._failures.are_many(caller.address) or self._not_judged.are_many(caller.address)
        try:
            found = self._verifier(token).verify(token, aside=aside)
        except SiltlogError as error:
            raise self.failed(caller, error) from None
        return found._replace(address=caller.address) if isinstance(found, Identity) else self._later(found, caller)

    def _of_session(self, caller: Caller, token: str | None, sessions: Sessions) -> Identity | None:
        """Tells who has the session whose cookie came; None where it has none, or one that does not count beside its
        token."""
        sealed = sessions.cookie(caller)
        if sealed is None:
            return None
        if token is not None:
            if is_from_page(caller):
                raise refusal_of_two()
            # A page that may call this server, by a token of its own, cannot keep its browser from sending the cookie.
            return None
        sessions.check_sender(caller)
        # One that counts no more is nobody's guess: it is not counted among wrong credentials, as pages ask again.
        identity = sessions.identity(sealed, caller.address)
        sessions.check_act(caller)
        return identity

    def known(self, caller: Caller) -> Identity | None:
        authorization = caller.authorization
        if caller.query or caller.protocols is not None:
            return None
        if authorization is None and caller.local:
            return Identity(Subject(LOCAL))
        if self._stale() is not None:
            return None
        if authorization is None:
            identity = None if caller.certificate is None else self._certificates(caller.certificate)
            return None if identity is None else identity._replace(address=caller.address)
        token = _bearer(authorization)
        if token is None:
            return None
        for verifier in self._verifiers:
            if verifier.takes(token):
                identity = verifier.known(token)
                return None if identity is None else identity._replace(address=caller.address)
        return None

    async def _later(self, found: Awaitable[Identity], caller: Caller) -> Identity:
        try:
            return (await found)._replace(address=caller.address)
        except SiltlogError as error:
            raise self.failed(caller, error) from None

    def _token(self, caller: Caller) -> str | None:
        """The token of a request; None where it has none. Raises SiltlogError for what is none, and for two."""
        offered = _offered(caller.protocols)
        if len(offered) + (caller.authorization is not None) > 1:
            raise refusal_of_two()
        if offered:
            return offered[0]
        if caller.authorization is None:
            return None
        token = _bearer(caller.authorization)
        if token is None:
            raise self.failed(
                caller, unauthenticated("malformed", "the header field Authorization must be: Bearer TOKEN")
            )
        return token

    def _verifier(self, token: str) -> Verifier:
        for verifier in self._verifiers:
            if verifier.takes(token):
                return verifier
        raise unauthenticated("malformed", "the token is of no kind that this server takes")

    def _of_certificate(self, caller: Caller) -> Identity:
        identity = None if caller.certificate is None else self._certificates(caller.certificate)
        if identity is None:
            raise missing()
        return identity._replace(address=caller.address)

    def fails_often(self, caller: Caller) -> bool:
        """More wrong credentials came from its address than are answered as such."""
        return self._failures.are_many(caller.address)

    def failed(self, caller: Caller, error: SiltlogError) -> SiltlogError:
        """Counts a wrong credential, and gives the refusal; any other error as it is."""
        if isinstance(error, NotJudged):
            # Where many come from, whoever makes them up pays for it by their being looked at aside.
            self._not_judged.count(caller.address)
            return error
        if error.error_code != "unauthenticated" or self._failures.count(caller.address) <= FAILURES_MAX:
            return error
        return problem(
            "rate_limited",
            "too many wrong credentials came from your address; a right one is taken at any time",
            retry_after_ms=self._failures.wait_ms(caller.address),
            scope=FAILURES_SCOPE,
            limit=FAILURES_MAX,
        )


def _bearer(authorization: bytes) -> str | None:
    if len(authorization) > TOKEN_BYTES_MAX or authorization[: len(_SCHEME)].lower() != _SCHEME:
        return None
    token = authorization[len(_SCHEME) :].strip()
    return token.decode() if token and token.isascii() and b" " not in token else None


def _offered(protocols: bytes | None) -> list[str]:
    if protocols is None:
        return []
    found = [one.strip() for one in protocols.decode("latin-1").split(",")]
    return [one.removeprefix(names.TOKEN_SUBPROTOCOL) for one in found if one.startswith(names.TOKEN_SUBPROTOCOL)]


def _check_target(caller: Caller) -> None:
    """Refuses a token in the query, or before the host of the URL, which clients make HTTP Basic of."""
    shown = caller.query and _TOKEN.search(unquote_to_bytes(caller.query))
    authorization = caller.authorization
    if not shown and authorization is not None and authorization[: len(_BASIC)].lower() == _BASIC:
        try:
            shown = _TOKEN.search(base64.b64decode(authorization[len(_BASIC) :]))
        except binascii.Error:
            shown = None
    if shown:
        raise problem(
            "credential_in_url",
            "a token was sent in the URL, where logs keep it: revoke it, and send the next in the header Authorization",
        )


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((found, _V6_PREFIX), strict=False))
