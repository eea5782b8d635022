from typing import Any

import msgspec
import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.security.access import Subject
from siltlog.infra.security.callers.sessions import Sessions, is_from_page
from siltlog.infra.security.grant import Caller, Identity, Visit, unauthenticated
from siltlog.infra.security.sessions import AHEAD_US, IDLE_US, RENEWED_US, SESSION_US

KEY = bytes(32)
ANA = Identity(Subject("user:ana", ("writers",)), "k1", None)
HOST, OWN = b"silt.example", b"https://silt.example"


class SteppedClock(SystemClock):
    us = 1_000 * SESSION_US

    def now_us(self) -> int:
        return self.us


def counts(identity: Identity) -> None:
    return


def visiting(cookie: str = "", method: str = "GET", **more: Any) -> Caller:
    said: dict[str, Any] = {"site": b"same-origin", "has_csrf": True, **more}
    origin = said.pop("origin", None)
    scheme = said.pop("scheme", "https")
    host = said.pop("host", HOST)
    visit = Visit(method, said.pop("path", "/v1/topics"), cookie.encode(), **said)
    return Caller(host, scheme, origin, "192.0.2.1", visit=visit)


def pair_of(field: bytes) -> str:
    return field.decode().partition(";")[0]


@pytest.mark.rule("A56")
def test_a_session_ends_when_it_is_old_and_when_nobody_used_it() -> None:
    clock = SteppedClock()
    sessions = Sessions(KEY, counts, clock)
    session = sessions.begin(ANA)
    begun = clock.us
    cookie = pair_of(sessions.issued(session, visiting())).partition("=")[2]
    clock.us = begun + IDLE_US - 1
    assert sessions.identity(cookie, "").subject == ANA.subject
    clock.us = begun + IDLE_US
    with pytest.raises(SiltlogError, match="has ended") as refused:
        sessions.identity(cookie, "")
    assert refused.value.members["reason"] == "expired"
    clock.us = begun
    while clock.us < begun + SESSION_US:
        identity = sessions.identity(cookie, "")
        assert identity.session is not None
        assert identity.until_us == min(begun + SESSION_US, clock.us + IDLE_US)
        clock.us += IDLE_US - 1
        if clock.us < begun + SESSION_US:
            field = sessions.renewed(sessions.identity(cookie, "").session or session, visiting())
            assert field is not None
            cookie = pair_of(field).partition("=")[2]
    with pytest.raises(SiltlogError, match="has ended"):
        sessions.identity(cookie, "")


@pytest.mark.rule("A56")
def test_a_session_that_began_before_the_clock_was_set_back_lasts_no_longer_for_that() -> None:
    clock = SteppedClock()
    sessions = Sessions(KEY, counts, clock)
    cookie = pair_of(sessions.issued(sessions.begin(ANA), visiting())).partition("=")[2]
    # Clocks of nodes may be so far apart.
    clock.us -= AHEAD_US
    assert sessions.identity(cookie, "").subject == ANA.subject
    clock.us -= 1
    with pytest.raises(SiltlogError, match="time that is to come") as refused:
        sessions.identity(cookie, "")
    assert refused.value.members["reason"] == "expired"


@pytest.mark.rule("A61")
def test_a_cookie_is_issued_anew_once_it_is_a_while_old() -> None:
    clock = SteppedClock()
    sessions = Sessions(KEY, counts, clock)
    session = sessions.begin(ANA)
    clock.us += RENEWED_US - 1
    assert sessions.renewed(session, visiting()) is None
    clock.us += 1
    field = sessions.renewed(session, visiting())
    assert field is not None
    found = sessions.identity(pair_of(field).partition("=")[2], "").session
    assert found == msgspec.structs.replace(session, seen_us=clock.us)


@pytest.mark.rule("A56")
def test_a_session_ends_with_what_it_was_begun_by() -> None:
    clock = SteppedClock()
    refusals: list[SiltlogError] = []

    def check(identity: Identity) -> None:
        assert identity.credential_id == "k1"
        if refusals:
            raise refusals[0]

    sessions = Sessions(KEY, check, clock)
    ends = ANA._replace(until_us=clock.us + 60_000_000)
    cookie = pair_of(sessions.issued(sessions.begin(ends), visiting())).partition("=")[2]
    assert sessions.identity(cookie, "192.0.2.1").address == "192.0.2.1"
    for refusal in (unauthenticated("unknown", "revoked"), problem("access_unavailable", "away")):
        refusals[:] = [refusal]
        with pytest.raises(SiltlogError) as refused:
            sessions.identity(cookie, "")
        assert refused.value is refusal
    refusals.clear()
    clock.us += 60_000_000
    with pytest.raises(SiltlogError, match="has ended"):
        sessions.identity(cookie, "")


@pytest.mark.parametrize(
    ("caller", "attributes"),
    [
        (visiting(), "__Host-silt_session=; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=0"),
        (visiting(prefix="/logs"), "__Secure-silt_session=; Path=/logs/; HttpOnly; SameSite=Strict; Secure; Max-Age=0"),
        (visiting(scheme="http"), "silt_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"),
        (
            visiting(scheme="http", host=b"127.0.0.1:7070"),
            "silt_session_7070=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0",
        ),
    ],
)
def test_a_cookie_says_where_it_is_sent_and_that_no_script_reads_it(caller: Caller, attributes: str) -> None:
    sessions = Sessions(KEY, counts, SteppedClock())
    assert sessions.taken_back(caller).decode() == attributes
    name = attributes.partition("=")[0]
    own = caller._replace(visit=caller.visit and caller.visit._replace(cookie=f"a=b; {name}=x=y ;c".encode()))
    assert sessions.cookie(own) == "x=y"
    assert sessions.cookie(own._replace(local=True)) is None
    other = caller._replace(visit=caller.visit and caller.visit._replace(cookie=f"x{name}=x; {name}".encode()))
    assert sessions.cookie(other) is None
    twice = caller._replace(visit=caller.visit and caller.visit._replace(cookie=f"{name}=x; {name}=y".encode()))
    with pytest.raises(SiltlogError, match="is sent twice"):
        sessions.cookie(twice)


@pytest.mark.rule("A58")
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("origin", [None, "own", b"https://evil.example", b"null", b"https://silt.example:444"])
@pytest.mark.parametrize("site", [None, b"same-origin", b"none", b"same-site", b"cross-site", b""])
def test_the_page_itself_is_told_from_all_others(scheme: str, origin: Any, site: bytes | None) -> None:
    own = f"{scheme}://silt.example".encode()
    caller = visiting(origin=own if origin == "own" else origin, site=site, scheme=scheme)
    fits = origin in (None, "own") and site in (None, b"same-origin", b"none")
    # Without either nothing says that it is not another's, but that browsers say nothing where there is no TLS.
    assert is_from_page(caller) == (fits and (site is not None or origin == "own" or scheme == "http"))


@pytest.mark.rule("A59")
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "get"])
@pytest.mark.parametrize("only_shows", [False, True])
def test_what_may_change_something_needs_the_header(method: str, only_shows: bool) -> None:
    sessions = Sessions(KEY, counts, SteppedClock(), only_shows=only_shows)
    is_safe = method in ("GET", "HEAD", "OPTIONS")
    for has_csrf in (False, True):
        said = ""
        try:
            sessions.check_act(visiting(method=method, has_csrf=has_csrf))
        except SiltlogError as error:
            said = error.error_code
        assert said == ("" if is_safe else "csrf" if not has_csrf else "page_only_shows" if only_shows else "")
    sessions.check_act(visiting(method="POST", path="/ui/logout"))
