"""The grant of a request: what its caller may do, asked of the policy that holds at that moment."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from siltlog.infra import names
from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.security.access import CLUSTER, Cap, Decision, Kind, Policy, Right, Subject

if TYPE_CHECKING:
    from siltlog.infra.security.certificates import ClientCertificate
    from siltlog.infra.security.sessions import Session

GRANT = "grant"
"""Where a request's state has its grant."""
ANONYMOUS = "anonymous"
"""The principal of a caller who did not say who he is, or was not asked."""
DECISIONS_KEPT = 10_000
_AFTER_MS = 50


class Visit(NamedTuple):
    """What a browser says of a request with cookies, or of a login."""

    method: str
    path: str
    cookie: bytes = b""
    site: bytes | None = None
    """The header field Sec-Fetch-Site: where the page is that sends the request."""
    has_csrf: bool = False
    """A page sent the header field that no form can send."""
    prefix: str = ""
    """The path that a trusted proxy puts before those of this server."""

    def __repr__(self) -> str:
        return f"Visit({self.method} {self.path})"


class Caller(NamedTuple):
    """Where a request comes from: what it says, and what is known of its connection.

    `origin` is that of the page that a browser sends it for. `address` is empty, and `local` true, on the socket in the
    data directory. `certificate` was verified when the connection was made.
    """

    host: bytes
    scheme: str = "http"
    origin: bytes | None = None
    address: str = ""
    local: bool = False
    certificate: "ClientCertificate | None" = None
    authorization: bytes | None = None
    """The value of the header field."""
    query: bytes = b""
    protocols: bytes | None = None
    """The subprotocols that a WebSocket offers: a page can send its token nowhere else."""
    visit: Visit | None = None
    """None where there is no cookie, and where none counts."""

    @property
    def has_own_origin(self) -> bool:
        """A page of this very server sends it."""
        own = f"{self.scheme}://{self.host.decode('latin-1')}".lower()
        return self.origin is not None and self.origin.decode("latin-1") == own

    def __repr__(self) -> str:
        return f"Caller(host={self.host!r}, address={self.address!r})"


class Identity(NamedTuple):
    """A caller who proved who he is, by the credential with this id, until it ends."""

    subject: Subject
    credential_id: str = ""
    until_us: int | None = None
    address: str = ""
    session: "Session | None" = None
    """The session of the page, where that is the credential; `credential_id` is then of what he logged in with."""


def _stands(identity: Identity) -> None:
    return


def _as_told(identity: Identity) -> int | None:
    return identity.until_us


class Access:
    """The policy that holds now, under a version that each change raises. Used on one event loop."""

    def __init__(
        self,
        clock: Clock,
        policy: Policy | None = None,
        check: Callable[[Identity], None] = _stands,
        until: Callable[[Identity], int | None] = _as_told,
    ) -> None:
        """`check` raises SiltlogError for an identity whose credential does not count any more; `until` gives when it
        ends by what is known now, which may be sooner than was known when it was verified."""
        self.clock = clock
        self.version = 0
        self._policy = policy or Policy({}, {})
        self._check = check
        self.until_us = until
        self._decided: dict[tuple[Subject, Right, Kind, str], bool] = {}
        self._hear: dict[object, Callable[[], None]] = {}

    def change(self, policy: Policy) -> None:
        """Has `policy` hold from now on, and every identity looked at anew."""
        self._policy = policy
        self.look_again()

    def look_again(self) -> None:
        """Has every identity looked at anew: what verified one may not count any more."""
        self.version += 1
        self._decided.clear()
        self.ask_again()

    def ask_again(self) -> None:
        """Has what goes on for long ask again: an identity ended, and nothing else changed."""
        for hear in tuple(self._hear.values()):
            hear()

    def when_changed(self, hear: Callable[[], None]) -> Callable[[], None]:
        """Has `hear` called after each change, until what this returns is called."""
        key = object()
        self._hear[key] = hear
        return lambda: self._hear.pop(key, None) and None

    def decide(self, subject: Subject, right: Right, kind: Kind, name: str) -> Decision:
        return self._policy.decide(subject, right, kind, name)

    def cap(self, principal: str, of: Cap) -> int | None:
        return self._policy.cap(principal, of)

    def allows(self, subject: Subject, right: Right, kind: Kind, name: str) -> bool:
        if len(name) > names.TOPIC_CHARS_MAX:
            # As many of these as decisions are kept would fill the memory.
            return self._policy.decide(subject, right, kind, name).allowed
        asked = (subject, right, kind, name)
        allowed = self._decided.get(asked)
        if allowed is None:
            if len(self._decided) >= DECISIONS_KEPT:
                self._decided.clear()
            allowed = self._decided[asked] = self._policy.decide(subject, right, kind, name).allowed
        return allowed

    def check(self, identity: Identity) -> None:
        """Raises Refused `unauthenticated` where the credential has ended or does not count any more."""
        if identity.until_us is not None and self.clock.now_us() >= identity.until_us:
            raise unauthenticated("expired", "the credential has expired; use another")
        self._check(identity)


class Grant:
    """What one request may do. A grant without `access` allows everything: nobody is asked who he is."""

    __slots__ = ("_access", "_refusal", "_version", "asked", "identity")

    def __init__(
        self, access: Access | None, identity: Identity | None = None, refusal: SiltlogError | None = None
    ) -> None:
        """Without an identity it allows nothing, and `refusal` is why."""
        self.identity = identity
        self.asked = access is None
        """Something was asked of it."""
        self._access = access
        self._refusal = refusal
        self._version = access.version if access is not None else 0

    @property
    def refusal(self) -> SiltlogError | None:
        """Why its caller is not identified."""
        return self._refusal

    @property
    def principal(self) -> str:
        return ANONYMOUS if self.identity is None else self.identity.subject.principal

    def check(self) -> None:
        """Raises Refused `unauthenticated` when its caller is not, or no more, identified; what goes on for long asks
        at each change of access and when the identity ends."""
        if self._access is not None:
            self._access.check(self._identified())

    def seconds_left(self) -> float | None:
        """Seconds until the credential ends; None where it does not."""
        if self._access is None or self.identity is None:
            return None
        until_us = self._access.until_us(self.identity)
        return None if until_us is None else (until_us - self._access.clock.now_us()) / MICROS_PER_SECOND

    def within(self, wait_ms: int) -> int:
        """Cuts a wait: it ends just after the credential does, so that what was waited for is refused."""
        seconds = self.seconds_left()
        return wait_ms if seconds is None else min(wait_ms, max(int(seconds * 1000), 0) + _AFTER_MS)

    def when_changed(self, hear: Callable[[], None]) -> Callable[[], None]:
        """Has `hear` called after each change of access, until what this returns is called."""
        return (lambda: None) if self._access is None else self._access.when_changed(hear)

    def decide(self, right: Right, kind: Kind, name: str = CLUSTER) -> Decision:
        """Raises Refused `unauthenticated`."""
        self.asked = True
        if self._access is None:
            return Decision(True, "nobody is asked who he is")
        return self._access.decide(self._current(self._access).subject, right, kind, name)

    def may(self, right: Right, kind: Kind, name: str = CLUSTER) -> bool:
        """False also for a caller who is not identified."""
        self.asked = True
        if self._access is None:
            return True
        try:
            identity = self._current(self._access)
        except SiltlogError:
            return False
        return self._access.allows(identity.subject, right, kind, name)

    def require(self, right: Right, kind: Kind, name: str = CLUSTER) -> None:
        """Raises Refused `unauthenticated` or `forbidden`, which says nothing about whether the resource exists."""
        self.asked = True
        if self._access is None:
            return
        identity = self._current(self._access)
        if not self._access.allows(identity.subject, right, kind, name):
            raise forbidden(identity.subject.principal, right, kind, name)

    def cap(self, of: Cap) -> int | None:
        """How many there may be of something among the names that it may make; None where that has no bound."""
        return None if self._access is None else self._access.cap(self.principal, of)

    def check_room(self, of: Cap, there: int, more: int = 1) -> None:
        """Raises Refused `cap_reached` where `more` beside those that are `there` would be too many."""
        cap = self.cap(of)
        if cap is not None and there + more > cap:
            raise cap_reached(self.principal, of, there, cap)

    def sees(self, kind: Kind, found: Iterable[str]) -> list[str]:
        """Keeps of some names those that may be described. Raises Refused `unauthenticated`."""
        self.asked = True
        if self._access is None:
            return list(found)
        subject = self._current(self._access).subject
        return [name for name in found if self._access.allows(subject, "describe", kind, name)]

    def filter(self, kind: Kind) -> Callable[[str], bool] | None:
        """Gives what says of a name whether it may be described; None where all may. A list without names has asked."""
        self.asked = True
        return None if self._access is None else partial(self.may, "describe", kind)

    def _identified(self) -> Identity:
        if self.identity is None:
            raise self._refusal or missing()
        return self.identity

    def _current(self, access: Access) -> Identity:
        identity = self._identified()
        if identity.until_us is not None or self._version != access.version:
            access.check(identity)
            self._version = access.version
        return identity


EVERYTHING = Grant(None)
"""The grant of each request where authentication is off."""


def grant_of(scope: Mapping[str, Any]) -> Grant:
    """The grant of a request, by its scope or itself."""
    grant: Grant = scope["state"][GRANT]
    return grant


def unauthenticated(reason: str, detail: str) -> SiltlogError:
    return problem("unauthenticated", detail, reason=reason)


def missing() -> SiltlogError:
    return unauthenticated("missing", "this server asks who calls: send the header Authorization: Bearer TOKEN")


def cap_reached(principal: str, of: Cap, there: int, cap: int) -> SiltlogError:
    return problem(
        "cap_reached",
        f"{principal} may make no more {of}: of those that have a name it may make there are {there}, and its quota "
        f"{of}_max is {cap}; delete some, or have it raised",
        principal=principal,
        limit=f"{of}_max",
        value=cap,
    )


def forbidden(principal: str, right: Right, kind: Kind, name: str) -> SiltlogError:
    resource = "the cluster" if kind == "cluster" else f"the {kind} {name[:200]!r}"
    return problem(
        "forbidden",
        f"{principal} has no right to {right} {resource}; who administers access can grant it",
        principal=principal,
        right=right,
        kind=kind,
        name=name[:200],
    )
