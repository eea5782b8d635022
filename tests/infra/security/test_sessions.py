import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.security.sessions import ENDED_MAX, IDLE_US, SESSION_US, EndedSession, Ends, Session

NOW_US = 10 * SESSION_US
AGES = st.integers(0, 2 * SESSION_US)


def began(session_id: str, principal: str, begun_us: int, seen_us: int | None = None) -> Session:
    return Session(session_id, principal, (), "k", begun_us, begun_us if seen_us is None else seen_us)


@pytest.mark.rule("A56")
@given(st.integers(0, 2**50), st.integers(0, SESSION_US), st.none() | st.integers(0, 2 * SESSION_US))
def test_a_session_ends_by_what_ends_it_first(begun_us: int, seen: int, login: int | None) -> None:
    login_until_us = None if login is None else begun_us + login
    session = Session("i", "key:a", (), "k", begun_us, begun_us + seen, login_until_us)
    ends = [begun_us + 12 * 3_600_000_000, begun_us + seen + 3_600_000_000]
    assert session.until_us == min([*ends, *([] if login_until_us is None else [login_until_us])])
    assert IDLE_US == 3_600_000_000


@pytest.mark.rule("A57")
@given(st.lists(st.tuples(st.sampled_from(["key:a", "key:b"]), AGES, st.booleans()), max_size=3 * ENDED_MAX))
def test_what_was_ended_stays_so_for_its_time_and_no_longer(given_sessions: list[tuple[str, int, bool]]) -> None:
    """Whatever is left out to make room, none that was ended counts again before its time is over."""
    ends = Ends()
    sessions = []
    for number, (principal, age, is_ended) in enumerate(given_sessions):
        session = began(str(number), principal, NOW_US - age)
        if is_ended:
            sessions.append(session)
            ends = ends.with_more({session.session_id: EndedSession(principal, session.begun_us)}, NOW_US)
    for session in sessions:
        assert ends.has(session) or session.begun_us + SESSION_US <= NOW_US
    for principal in ("key:a", "key:b"):
        assert sum(ended.principal == principal for ended in ends.sessions.values()) <= ENDED_MAX
    assert not ends.has(began("another", "key:c", NOW_US - 2 * SESSION_US))
    assert not ends.has(began("later", "key:a", NOW_US + 1))
    assert ends.with_more({}, NOW_US + SESSION_US) == Ends()


@pytest.mark.rule("A57")
def test_few_of_one_principal_are_told_apart() -> None:
    ends = Ends()
    for number in range(ENDED_MAX):
        ends = ends.with_more({str(number): EndedSession("key:a", NOW_US - number)}, NOW_US)
    assert ends.before_us == {}
    assert not ends.has(began("open", "key:a", NOW_US - ENDED_MAX))
    ends = ends.with_more({"one more": EndedSession("key:a", NOW_US)}, NOW_US)
    assert ends.has(began("open", "key:a", NOW_US - ENDED_MAX)), "it is ended with those that began after it"
    assert not ends.has(began("open", "key:b", NOW_US - ENDED_MAX))
