"""What a node says of a request it makes of another: what is signed is all that is asked, and counts once."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.errors import Refused
from siltlog.infra.peers import hop as hops
from siltlog.infra.peers.hop import Asked, Hop, Session

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
ASKING, ANSWERING = b"a" * 32, b"b" * 32
ASKED = Asked.of("POST", b"/v1/topics/t/records?acks=wal", [(b"content-type", b"text/plain")])
BODY = hops.digest(b"body")
text = st.text(max_size=20)
hop_of = st.builds(
    Hop, text, st.integers(1, 2**40), text, st.tuples(text, text), text, st.none() | st.integers(0), text
)


def session(n: int = 0) -> Session:
    return Session(ours=ANSWERING, theirs=ASKING, n=n)


@pytest.mark.rule("CR3")
@given(hop_of)
def test_what_is_signed_is_read_again(hop: Hop) -> None:
    said = hops.signed(KEY, ASKING, ANSWERING, hop, ASKED, BODY)
    assert hops.verified(KEY, session(), said, ASKED, hop.to) == (hop, BODY)


@pytest.mark.rule("CR3")
@pytest.mark.parametrize(
    ("key", "at", "asked", "journal"),
    [
        (OTHER_KEY, session(), ASKED, "j"),
        (KEY, Session(ours=ASKING, theirs=ANSWERING), ASKED, "j"),
        (KEY, Session(), ASKED, "j"),
        (KEY, session(n=1), ASKED, "j"),
        (KEY, session(), ASKED, "j2"),
        (KEY, session(), msgspec.structs.replace(ASKED, method="PUT"), "j"),
        (KEY, session(), msgspec.structs.replace(ASKED, target=b"/v1/topics/u/records?acks=wal"), "j"),
        (KEY, session(), Asked.of("POST", ASKED.target, [(b"content-type", b"text/html")]), "j"),
        (KEY, session(), Asked.of("POST", ASKED.target, []), "j"),
    ],
)
def test_anything_else_is_refused(key: bytes, at: Session, asked: Asked, journal: str) -> None:
    said = hops.signed(KEY, ASKING, ANSWERING, Hop("j", 1, "key:a"), ASKED, BODY)
    with pytest.raises(Refused) as refusal:
        hops.verified(key, at, said, asked, journal)
    assert refusal.value.status == 400


@pytest.mark.rule("CR3")
def test_all_groups_that_a_token_has_room_for_are_said() -> None:
    groups = tuple(f"group-{number:03d}-{'x' * 22}" for number in range(200))
    hop = Hop("to", 1, "user:" + "u" * 200, groups, "credential", 2**62, "::1", 2**40)
    session = Session(ours=b"o" * 32, theirs=b"t" * 32)
    said = hops.signed(b"k" * 32, session.theirs, session.ours, hop, Asked("GET", b"/", b""), hops.digest(b""))
    assert hops.verified(b"k" * 32, session, said, Asked("GET", b"/", b""), "to")[0].groups == groups
    with pytest.raises(Refused, match="it is too long"):
        hops.verified(b"k" * 32, session, said + "x" * hops.SAID_BYTES_MAX, Asked("GET", b"/", b""), "to")


@pytest.mark.rule("CR3")
@pytest.mark.parametrize("part", [0, 1])
def test_neither_what_is_said_nor_the_digest_of_the_body_is_put_into_another_proof(part: int) -> None:
    parts = hops.signed(KEY, ASKING, ANSWERING, Hop("j", 1, "key:a"), ASKED, BODY).split(" ")
    others = hops.signed(OTHER_KEY, ASKING, ANSWERING, Hop("j", 1, "key:b"), ASKED, hops.digest(b"other")).split(" ")
    parts[part] = others[part]
    with pytest.raises(Refused, match="not signed"):
        hops.verified(KEY, session(), " ".join(parts), ASKED, "j")


def test_a_request_counts_once_on_its_connection() -> None:
    at, said = session(), hops.signed(KEY, ASKING, ANSWERING, Hop("j", 1), ASKED, BODY)
    hops.verified(KEY, at, said, ASKED, "j")
    with pytest.raises(Refused, match="came before"):
        hops.verified(KEY, at, said, ASKED, "j")


@given(st.text(max_size=60) | st.text("hello abcdefghAZ-_= ", max_size=120))
def test_what_is_no_hop_is_refused(said: str) -> None:
    with pytest.raises(Refused):
        hops.verified(KEY, session(), said, ASKED, "j")
    with pytest.raises(Refused):
        hops.welcomed(KEY, ASKING, said)
    with pytest.raises(Refused):
        hops.challenge_of(said)


@pytest.mark.rule("CR3")
def test_who_answers_proves_that_it_is_a_node_too() -> None:
    assert hops.challenge_of(hops.hello(ASKING)) == ASKING
    assert hops.welcomed(KEY, ASKING, hops.welcome(KEY, ASKING, ANSWERING)) == ANSWERING
    for said in (hops.welcome(OTHER_KEY, ASKING, ANSWERING), hops.welcome(KEY, ANSWERING, ANSWERING)):
        with pytest.raises(Refused):
            hops.welcomed(KEY, ASKING, said)


@given(st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=5)), max_size=4))
def test_fields_are_signed_whatever_their_order_and_no_others_give_the_same(
    fields: list[tuple[bytes, bytes]],
) -> None:
    asked = Asked.of("GET", b"/", fields)
    assert Asked.of("GET", b"/", reversed(fields)) == asked
    assert Asked.of("GET", b"/", [*fields, (b"host", b"x"), (b"content-length", b"3")]) == asked
    assert Asked.of("GET", b"/", [*fields, (b"", b"")]) != asked
