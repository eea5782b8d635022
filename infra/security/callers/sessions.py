"""The sessions of the page: their cookie, what of a request it counts for, and when it is issued anew.

A browser sends a cookie for whoever has it send a request, so that it counts for what the page itself sends, and for
nothing else: `SameSite` tells sites apart, and every port of a host is of one site.
"""

import re
import secrets
from collections.abc import Callable

import msgspec

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.security.access import Subject
from siltlog.infra.security.callers.sealing import Sealing
from siltlog.infra.security.grant import Caller, Identity, Visit, unauthenticated
from siltlog.infra.security.sessions import AHEAD_US, ATTEMPT_SECONDS, RENEWED_US, Attempt, Session

PURPOSE = "sessions"
"""The purpose for which their key is derived from the cluster's secret; the cluster's id follows."""
LOGIN_PATH = "/ui/login"
LOGOUT_PATH = "/ui/logout"
PROVIDER_PATH = f"{LOGIN_PATH}/oidc"
CALLBACK_PATH = f"{PROVIDER_PATH}/callback"
RENEW_PATH = f"{LOGIN_PATH}/renew"
OWN_PATHS = frozenset((LOGIN_PATH, LOGOUT_PATH, PROVIDER_PATH, CALLBACK_PATH, RENEW_PATH))
"""Paths of the login itself, which look at a request without a cookie too."""
_OWN_SITES = (b"same-origin", b"none")
_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
_READS = re.compile(r"/v1/(?:fetch|files|sql|access/check|topics/[^/]+/search)")
"""What only reads, and is a POST because what is asked for does not fit into a path."""
_JOINS = re.compile(r"/v1/groups/[^/]+/ws")
"""What opens by GET, and takes part in a group."""
_ID_BYTES = 16


class Sessions:
    """Used on one event loop; keeps nothing."""

    def __init__(
        self, key: bytes, check: Callable[[Identity], None], clock: Clock, *, only_shows: bool = False
    ) -> None:
        """`check` raises SiltlogError for an identity that has ended or does not count any more. A page that
        `only_shows` may change nothing."""
        self._sealing = Sealing(key, Session)
        self._attempts = Sealing(key, Attempt)
        self._check = check
        self._clock = clock
        self._only_shows = only_shows

    def cookie(self, caller: Caller) -> str | None:
        """The session's cookie of a request; None where it has none. Raises Refused `invalid_parameter`."""
        visit = caller.visit
        if visit is None or not visit.cookie or caller.local:
            return None
        return _cookie(visit, _name(caller, visit))

    def attempt(self, caller: Caller) -> Attempt | None:
        """The login by a provider that a browser has begun; None where it has none. Raises Refused."""
        visit = caller.visit
        sealed = None if visit is None else _cookie(visit, _name(caller, visit, names.LOGIN_COOKIE))
        try:
            return None if sealed is None else self._attempts.open(sealed)
        except ValueError:
            return None

    def attempted(self, attempt: Attempt, caller: Caller) -> bytes:
        """The field Set-Cookie by which a browser keeps what it has begun; it is led back from another site."""
        more = f"; Max-Age={ATTEMPT_SECONDS}"
        return _field(caller, self._attempts.seal(attempt), more, names.LOGIN_COOKIE, "Lax")

    def attempt_taken_back(self, caller: Caller) -> bytes:
        return _field(caller, "", "; Max-Age=0", names.LOGIN_COOKIE, "Lax")

    def check_sender(self, caller: Caller) -> None:
        """Raises Refused `csrf` for a request that the page itself did not send."""
        if not is_from_page(caller):
            raise problem(
                "csrf",
                "the login of the page counts for the page itself, and another page sent this; programs send a key in "
                "the header Authorization",
            )

    def check_act(self, caller: Caller) -> None:
        """Raises Refused `csrf` or `page_only_shows` for a request that changes something, unless the page may."""
        visit = caller.visit
        if visit is None:
            return
        is_safe = visit.method in _SAFE
        if not is_safe and not visit.has_csrf:
            raise problem(
                "csrf",
                f"by the login of the page a {visit.method} needs the header {names.HEADER_CSRF}, which it sends",
            )
        if self._only_shows and not _only_shows(visit, is_safe=is_safe):
            raise problem(
                "page_only_shows",
                f"the page of this server only shows (SILT_UI=read), so its login is not for {visit.method} "
                f"{visit.path[:200]}; use a key",
            )

    def identity(self, sealed: str, address: str) -> Identity:
        """Tells who has a session. Raises Refused `unauthenticated`, and what `check` raises."""
        try:
            session = self._sealing.open(sealed)
        except ValueError as error:
            raise unauthenticated("unknown", f"the session does not count: {error}; log in again") from None
        identity = _identity(session, address)
        now_us = self._clock.now_us()
        if now_us >= session.until_us:
            raise unauthenticated("expired", "the session has ended; log in again")
        if now_us + AHEAD_US < session.seen_us:
            raise unauthenticated("expired", "the session is of a time that is to come: a clock was set; log in again")
        self._check(identity)
        return identity

    def ending(self, caller: Caller) -> Identity | None:
        """Tells who has the session of a request, to end it, also while nobody knows whether it still counts; None
        where it has none, or one whose time is over. Raises Refused `invalid_parameter` or `csrf`."""
        sealed = self.cookie(caller)
        try:
            session = None if sealed is None else self._sealing.open(sealed)
        except ValueError:
            return None
        if session is None or self._clock.now_us() >= session.until_us:
            return None
        self.check_act(caller)
        return _identity(session, caller.address)

    def begin(self, identity: Identity, *, refresh_token: str = "", sub: str = "") -> Session:
        """A session for who has just proved who he is."""
        now_us = self._clock.now_us()
        return Session(
            secrets.token_urlsafe(_ID_BYTES),
            identity.subject.principal,
            identity.subject.groups,
            identity.credential_id,
            now_us,
            now_us,
            identity.until_us,
            refresh_token,
            sub,
        )

    def issued(self, session: Session, caller: Caller) -> bytes:
        """The field Set-Cookie with a session. Raises Refused `invalid_request` for one that no cookie can hold."""
        try:
            return _field(caller, self._sealing.seal(session))
        except ValueError:
            # Without it the session lasts until the groups would have been asked for again.
            session = msgspec.structs.replace(session, refresh_token="")
        try:
            return _field(caller, self._sealing.seal(session))
        except ValueError as error:
            raise problem(
                "invalid_request", f"this login cannot be kept in a cookie: {error}; its token has too many groups"
            ) from None

    def renewed(self, session: Session, caller: Caller) -> bytes | None:
        """The field Set-Cookie where the session's was issued a while ago."""
        now_us = self._clock.now_us()
        if now_us - session.seen_us < RENEWED_US:
            return None
        return self.issued(msgspec.structs.replace(session, seen_us=now_us), caller)

    def taken_back(self, caller: Caller) -> bytes:
        """The field Set-Cookie that has a browser forget the cookie."""
        return _field(caller, "", "; Max-Age=0")


def _cookie(visit: Visit, name: str) -> str | None:
    """Raises Refused `invalid_parameter` for a cookie that is sent twice."""
    pairs = (pair.strip().partition("=") for pair in visit.cookie.decode("latin-1").split(";"))
    found = [value for key, equals, value in pairs if key == name and equals]
    if len(found) > 1:
        raise problem("invalid_parameter", f"the cookie {name} is sent twice; send it once", parameter="Cookie")
    return found[0] if found else None


def is_from_page(caller: Caller) -> bool:
    """Whether the page itself sent a request, as far as its browser tells.

    Browsers say nothing of the site for a WebSocket, which has an origin, and for addresses without TLS.
    """
    if caller.origin is not None and not caller.has_own_origin:
        return False
    site = None if caller.visit is None else caller.visit.site
    return site in _OWN_SITES if site is not None else caller.has_own_origin or caller.scheme == "http"


def _only_shows(visit: Visit, *, is_safe: bool) -> bool:
    if is_safe:
        return _JOINS.fullmatch(visit.path) is None
    return visit.path in OWN_PATHS or (visit.method == "POST" and _READS.fullmatch(visit.path) is not None)


def _identity(session: Session, address: str) -> Identity:
    subject = Subject(session.principal, session.groups)
    return Identity(subject, session.credential_id, session.until_us, address, session)


def _name(caller: Caller, visit: Visit, name: str = names.SESSION_COOKIE) -> str:
    if caller.scheme == "https":
        return f"{'__Secure-' if visit.prefix else '__Host-'}{name}"
    # Cookies of one host go to all its ports: two servers on a machine would log each other out.
    port = caller.host.decode("latin-1").rpartition(":")[2]
    return f"{name}_{port}" if port.isdigit() else name


def _field(
    caller: Caller, value: str, more: str = "", named: str = names.SESSION_COOKIE, same_site: str = "Strict"
) -> bytes:
    assert caller.visit is not None
    path = f"{caller.visit.prefix}/"
    secure = "; Secure" if caller.scheme == "https" else ""
    name = _name(caller, caller.visit, named)
    return f"{name}={value}; Path={path}; HttpOnly; SameSite={same_site}{secure}{more}".encode("latin-1")


def refusal_of_two() -> SiltlogError:
    return problem("invalid_parameter", "the request has two credentials; send one", parameter="Authorization")
