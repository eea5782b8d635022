"""Sessions of the page: what a login leaves with its browser, and which of them were ended. Pure.

The server keeps no session: the cookie is all of it, so any node of a cluster reads it. What is kept is which were
ended before their time, until that time.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from siltlog.infra.clock import MICROS_PER_SECOND

SESSION_US = 12 * 3_600 * MICROS_PER_SECOND
"""A session ends so long after its login, whatever is done with it."""
IDLE_US = 3_600 * MICROS_PER_SECOND
"""And so long after its cookie was issued last: nobody has looked at the page since."""
RENEWED_US = 300 * MICROS_PER_SECOND
"""A cookie that is older is issued anew."""
AHEAD_US = 300 * MICROS_PER_SECOND
"""The clocks of nodes may be so far apart. A cookie that was issued later than that was issued before a clock was set
back, and would last for longer by as much."""
ENDED_MAX = 100
"""So many ended sessions of one principal are told apart; of more the oldest end whatever began before them."""
ATTEMPT_SECONDS = 600
"""A login by a provider may take so long from its beginning to the provider's answer."""
assert RENEWED_US < IDLE_US < SESSION_US


class Attempt(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A login by a provider that has begun, as the browser keeps it."""

    state: str
    nonce: str
    verifier: str
    begun_us: int

    def __repr__(self) -> str:
        return "Attempt(***)"


class Session(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A login: whose it is, and by which credential, with which it ends."""

    session_id: str
    principal: str
    groups: tuple[str, ...]
    credential_id: str
    begun_us: int
    seen_us: int
    """When its cookie was issued last."""
    login_until_us: int | None = None
    """When the credential ends; that of a provider's login until its groups are asked for again."""
    refresh_token: str = ""
    """By which the provider is asked for them."""
    sub: str = ""
    """The provider's own name for who logged in."""

    @property
    def until_us(self) -> int:
        """When it ends, unless it is ended before."""
        ends = min(self.begun_us + SESSION_US, self.seen_us + IDLE_US)
        return ends if self.login_until_us is None else min(ends, self.login_until_us)

    def __repr__(self) -> str:
        return f"Session(principal={self.principal!r})"


class EndedSession(msgspec.Struct, frozen=True):
    """A session that was ended before its time; it is kept until that."""

    principal: str
    begun_us: int


class Ends(NamedTuple):
    """What is kept of ended sessions: each by its id, and by principals up to when what began is ended too."""

    sessions: Mapping[str, EndedSession] = {}
    before_us: Mapping[str, int] = {}

    def has(self, session: Session) -> bool:
        return session.session_id in self.sessions or session.begun_us <= self.before_us.get(session.principal, -1)

    def with_more(self, more: Mapping[str, EndedSession], now_us: int) -> "Ends":
        """Adds some, and leaves out those whose time is over. Of each principal at most ENDED_MAX are told apart."""
        oldest_us = now_us - SESSION_US
        sessions = {each: ended for each, ended in {**self.sessions, **more}.items() if ended.begun_us > oldest_us}
        before_us = {principal: at_us for principal, at_us in self.before_us.items() if at_us > oldest_us}
        of: dict[str, list[int]] = {}
        for ended in sessions.values():
            of.setdefault(ended.principal, []).append(ended.begun_us)
        for principal, begun in of.items():
            if len(begun) > ENDED_MAX:
                last_us = sorted(begun)[-(ENDED_MAX // 2) - 1]
                before_us[principal] = max(before_us.get(principal, -1), last_us)
        left = {each: one for each, one in sessions.items() if one.begun_us > before_us.get(one.principal, -1)}
        return Ends(left, before_us)
