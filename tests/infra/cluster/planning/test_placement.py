"""Topics stay where they are, and those that must go spread by count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.cluster.planning.placement import balance, counts, least, place, unit_of

NODES = st.lists(st.sampled_from("abcde"), min_size=1, unique=True)
TOPICS = st.sampled_from([f"t{number}{end}" for number in range(12) for end in ("", ".dlq", ".dlq.dlq")])
PLACES = st.dictionaries(TOPICS, st.sampled_from("abcdef"), max_size=20)


@pytest.mark.rule("CM7")
@given(NODES, PLACES, st.data())
def test_topics_move_as_few_times_as_it_takes(nodes: list[str], places: dict[str, str], data: st.DataObject) -> None:
    movable = data.draw(st.sets(st.sampled_from(sorted(places)))) if places else set()
    moves = balance(nodes, places, movable)
    assert moves.keys() <= movable
    assert all(unit_of(topic) == topic and places[topic] != node for topic, node in moves.items())
    before, after = counts(nodes, places), counts(nodes, places | moves)
    assert sum(before.values()) == sum(after.values())
    # Nobody gives who is to be given something, and nobody ends with more than who had the most.
    assert {places[topic] for topic in moves}.isdisjoint(moves.values())
    assert max(after.values()) <= max(before.values())
    assert balance(nodes, places | moves, movable) == {}
    if movable >= {topic for topic in places if unit_of(topic) == topic}:
        assert max(after.values()) - min(after.values()) <= 1


@given(NODES, PLACES)
def test_what_is_even_stays(nodes: list[str], places: dict[str, str]) -> None:
    even = places | balance(nodes, places, places)
    assert balance(nodes, even, even) == {}


@given(NODES, PLACES, TOPICS)
def test_a_topic_goes_to_what_it_goes_with_and_else_to_the_fewest(
    nodes: list[str], places: dict[str, str], topic: str
) -> None:
    chosen = place(topic, nodes, places)
    home = places.get(unit_of(topic))
    if unit_of(topic) != topic and home in nodes:
        assert chosen == home
    else:
        found = counts(nodes, places)
        assert chosen == least(nodes, places)
        assert chosen is not None
        assert found[chosen] == min(found.values())


def test_without_nodes_there_is_no_place() -> None:
    assert place("t", [], {"t.dlq": "a"}) is None
    assert balance([], {"t": "a"}, ["t"]) == {}
