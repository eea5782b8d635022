import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwe import encrypt_compact
from joserfc.jwk import OctKey

from siltlog.infra.security.callers.sealing import SEALED_CHARS_MAX, Sealing
from siltlog.infra.security.sessions import Session

KEY = bytes(range(32))
TIMES = st.integers(0, 2**53)
TEXTS = st.text(max_size=40)
SESSIONS = st.builds(
    Session,
    session_id=TEXTS,
    principal=TEXTS,
    groups=st.lists(TEXTS, max_size=5).map(tuple),
    credential_id=TEXTS,
    begun_us=TIMES,
    seen_us=TIMES,
    login_until_us=st.none() | TIMES,
)
ANA = Session("id", "key:ana", ("a",), "k", 1, 2, None)


@pytest.mark.rule("A55")
@given(SESSIONS)
def test_a_session_is_what_was_sealed(session: Session) -> None:
    assert Sealing(KEY, Session).open(Sealing(KEY, Session).seal(session)) == session


@pytest.mark.rule("A55")
@given(SESSIONS, st.data())
def test_one_changed_character_opens_nothing(session: Session, data: st.DataObject) -> None:
    sealed = Sealing(KEY, Session).seal(session)
    at = data.draw(st.integers(0, len(sealed) - 1))
    other = data.draw(st.sampled_from("AQgw-_.e").filter(lambda each: each != sealed[at]))
    changed = sealed[:at] + other + sealed[at + 1 :]
    try:
        opened = Sealing(KEY, Session).open(changed)
    except ValueError:
        return
    # The last character of a part has bits that mean nothing.
    assert opened == session


@pytest.mark.rule("A55")
@given(st.text(max_size=200) | st.from_regex(r"\A(?:[A-Za-z0-9_-]{0,40}\.){4}[A-Za-z0-9_-]{0,40}\Z"))
def test_what_is_no_session_is_refused_and_nothing_worse(text: str) -> None:
    with pytest.raises(ValueError, match="not sealed"):
        Sealing(KEY, Session).open(text)


@pytest.mark.rule("A55")
def test_another_secret_opens_nothing() -> None:
    with pytest.raises(ValueError, match="not sealed with the key of this cluster"):
        Sealing(bytes(32), Session).open(Sealing(KEY, Session).seal(ANA))


@pytest.mark.rule("A55")
@pytest.mark.parametrize(
    ("algorithm", "coding"), [("A256KW", "A256GCM"), ("dir", "A128CBC-HS256"), ("A256GCMKW", "A256GCM")]
)
def test_a_cookie_does_not_choose_its_algorithm(algorithm: str, coding: str) -> None:
    header = {"alg": algorithm, "enc": coding}
    sealed = encrypt_compact(header, b"[]", OctKey.import_key(KEY), algorithms=[algorithm, coding])
    with pytest.raises(ValueError, match="not sealed"):
        Sealing(KEY, Session).open(sealed)


def test_a_session_that_no_browser_would_keep_is_not_begun() -> None:
    long = Session("id", "user:ana", ("g" * 256,) * 20, "k", 1, 2)
    with pytest.raises(ValueError, match=f"room for {SEALED_CHARS_MAX}"):
        Sealing(KEY, Session).seal(long)
    assert "ana" not in repr(Sealing(KEY, Session).seal(ANA))
