"""Where a request for a topic goes, by the view and by what this node has of the topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.cluster.router import HERE, UNKNOWN, WAIT, Away, Held, Here, Member, Place, There, where

THIS, OTHER, THIRD = (Member(name, f"{name}-7", f"http://{name}:7070") for name in ("this", "other", "third"))
members = st.one_of(st.none(), st.sampled_from((THIS, OTHER, THIRD)))
places = st.one_of(st.none(), st.builds(Place, members, members, st.one_of(st.none(), st.just(5))))
journals = st.frozensets(st.sampled_from([member.journal for member in (THIS, OTHER, THIRD)]))


@pytest.mark.rule("CR1")
@given(places, st.sampled_from(Held), st.booleans(), journals)
def test_an_owner_answers_whatever_the_view_says_and_nobody_else_does(
    place: Place | None, held: Held, fresh: bool, denied: frozenset[str]
) -> None:
    found = where(place, held, THIS.journal, fresh=fresh, denied=denied)
    assert isinstance(found, Here) == (held is Held.OPEN and fresh)
    if isinstance(found, There):
        assert held in (Held.NOT, Held.RELEASED)
        assert place is not None
        assert found.member in (place.owner, place.to)
        assert found.member.journal not in denied | {THIS.journal}
    if found == UNKNOWN:
        assert place is None


@pytest.mark.rule("CR1")
@given(places, st.sampled_from((Held.TAKING, Held.HOLDING)), journals)
def test_a_claim_and_a_hand_over_under_way_are_waited_for(
    place: Place | None, held: Held, denied: frozenset[str]
) -> None:
    assert where(place, held, THIS.journal, denied=denied) == WAIT


def test_a_move_is_followed_once_the_owner_has_let_go() -> None:
    place = Place(OTHER, to=THIRD)
    assert where(place, Held.NOT, THIS.journal) == There(OTHER)
    assert where(place, Held.NOT, THIS.journal, denied=frozenset({OTHER.journal})) == There(THIRD)
    assert where(place, Held.NOT, THIS.journal, denied=frozenset({OTHER.journal, THIRD.journal})) == WAIT
    from_here = Place(THIS, to=THIRD)
    assert where(from_here, Held.OPEN, THIS.journal) == HERE
    assert where(from_here, Held.RELEASED, THIS.journal) == There(THIRD)
    assert where(Place(OTHER, to=THIS), Held.NOT, THIS.journal, denied=frozenset({OTHER.journal})) == WAIT


@pytest.mark.rule("CR2")
def test_an_owner_that_may_have_been_taken_for_lost_does_not_count() -> None:
    assert where(Place(THIS), Held.OPEN, THIS.journal, fresh=False) == WAIT


def test_an_owner_that_is_away_is_named() -> None:
    assert where(Place(OTHER, None, 5), Held.NOT, THIS.journal) == Away("other", 5)
    assert where(Place(THIS, None, 5), Held.OPEN, THIS.journal) == HERE


def test_an_earlier_start_of_this_node_is_another_node() -> None:
    before = Member("this", "this-6", THIS.url)
    assert where(Place(before), Held.NOT, THIS.journal) == There(before)
