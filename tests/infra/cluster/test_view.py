"""Views and beats come back as they were written, and what is none is told from one."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra import names
from siltlog.infra.cluster.beat import Beat, Report, TopicReport, Wish, decode_beat, encode_beat
from siltlog.infra.cluster.view import (
    FORMAT,
    ClusterView,
    NodeEntry,
    TermEntry,
    TopicEntry,
    decode_view,
    encode_view,
)
from siltlog.infra.errors import ConfigError, CorruptData

WORDS = st.text(max_size=8)
NUMBERS = st.integers(0, 2**62)
TERMS = st.builds(TermEntry, term=NUMBERS, node=WORDS, data_dir=WORDS, journal=WORDS, lost=st.booleans())
TOPICS = st.builds(
    TopicEntry, topic_id=WORDS, chain=st.lists(TERMS, min_size=1, max_size=3).map(tuple), to=st.none() | TERMS
)
NODES = st.builds(
    NodeEntry,
    data_dir=WORDS,
    place=WORDS,
    journal=WORDS,
    url=WORDS,
    zone=WORDS,
    state=st.sampled_from(("up", "draining", "away")),
    drain=st.sampled_from(("", "operator", "unready", "stop")),
    since_us=NUMBERS,
    unflushed_records=NUMBERS,
)
VIEWS = st.builds(
    ClusterView,
    number=NUMBERS,
    cluster_id=WORDS,
    controller=WORDS,
    journal=WORDS,
    nonce=WORDS,
    journal_root=WORDS,
    journal_root_id=WORDS,
    nodes=st.dictionaries(WORDS, NODES, max_size=3),
    topics=st.dictionaries(WORDS, TOPICS, max_size=3),
    removed=st.dictionaries(WORDS, WORDS, max_size=3),
    term=NUMBERS,
    balancing=st.booleans(),
    wishes=st.dictionaries(WORDS, WORDS, max_size=3),
)
REPORTS = st.builds(
    Report,
    ready=st.booleans(),
    unreachable=st.lists(WORDS, max_size=3).map(tuple),
    unlanded_ms=NUMBERS,
    unflushed_records=NUMBERS,
    redis=WORDS,
    topics=st.dictionaries(
        WORDS,
        st.builds(
            TopicReport,
            term=NUMBERS,
            state=st.sampled_from(("waiting", "claimed", "settled")),
            awaited=NUMBERS,
            unexplained=NUMBERS,
            floor=NUMBERS,
            kept=NUMBERS,
        ),
        max_size=3,
    ),
)
WISHES = st.builds(
    Wish, id=WORDS, kind=st.sampled_from(("drain", "move", "abandon", "adopt")), node=WORDS, topic=WORDS, topic_id=WORDS
)
BEATS = st.builds(
    Beat,
    beat=NUMBERS,
    node=WORDS,
    data_dir=WORDS,
    place=WORDS,
    journal=WORDS,
    ends=st.lists(WORDS, max_size=3).map(tuple),
    url=WORDS,
    zone=WORDS,
    version=WORDS,
    going=st.sampled_from(("on", "draining", "away")),
    view=NUMBERS,
    rounds=NUMBERS,
    wishes=st.lists(WISHES, max_size=3).map(tuple),
    report=REPORTS,
)


@given(VIEWS)
def test_a_view_comes_back_as_it_was_written(view: ClusterView) -> None:
    assert decode_view(encode_view(view), view.number) == view


@given(BEATS)
def test_a_beat_comes_back_as_it_was_written(beat: Beat) -> None:
    assert decode_beat(encode_beat(beat), beat.node) == beat


@given(VIEWS, st.data())
def test_what_was_cut_is_no_view(view: ClusterView, data: st.DataObject) -> None:
    content = encode_view(view)
    with pytest.raises(CorruptData, match=names.view_object(view.number)):
        decode_view(content[: data.draw(st.integers(0, len(content) - 1))], view.number)


@given(BEATS, st.data())
def test_what_was_cut_is_no_beat(beat: Beat, data: st.DataObject) -> None:
    content = encode_beat(beat)
    with pytest.raises(CorruptData, match="not a beat"):
        decode_beat(content[: data.draw(st.integers(0, len(content) - 1))], beat.node)


def _view(**changes: object) -> ClusterView:
    fields = {"number": 7, "cluster_id": "c", "controller": "a", "journal": "j", "nonce": "n", **changes}
    return msgspec.convert(fields, ClusterView)


def test_a_view_under_another_number_is_none() -> None:
    with pytest.raises(CorruptData, match="holds view 7"):
        decode_view(encode_view(_view()), 8)


def test_a_topic_without_an_owner_is_no_part_of_a_view() -> None:
    with pytest.raises(CorruptData, match="without an owner"):
        decode_view(encode_view(_view(topics={"t": {"topic_id": "i", "chain": []}})), 7)


def test_a_later_format_is_refused_whatever_else_it_has() -> None:
    content = msgspec.json.encode({"format": FORMAT + 1, "nodes": [1, 2]})
    with pytest.raises(ConfigError, match="upgrade this node"):
        decode_view(content, 7)
    with pytest.raises(ConfigError, match="upgrade this node"):
        decode_beat(content, "n")
    with pytest.raises(ConfigError, match="reads formats up to"):
        decode_beat(content, "a")


@pytest.mark.rule("CM11")
def test_a_wish_of_a_kind_that_nobody_knows_here_is_read() -> None:
    """It is the controller that says so: who asks for it beats, and is up."""
    beat = Beat(beat=1, node="a", data_dir="d", place="p", journal="j", url="u", wishes=(Wish(id="w", kind="cheer"),))
    assert decode_beat(encode_beat(beat), "a") == beat


def test_the_beat_of_another_node_is_none_of_this_one() -> None:
    beat = Beat(beat=1, node="a", data_dir="d", place="p", journal="j", url="u")
    with pytest.raises(CorruptData, match="the beat of node a"):
        decode_beat(encode_beat(beat), "b")


def test_the_owner_and_who_is_to_be_it_may_claim_and_nobody_else() -> None:
    first, second, third = (TermEntry(term=n, node=f"n{n}", data_dir="d", journal=f"j{n}") for n in (1, 2, 3))
    topic = TopicEntry(topic_id="i", chain=(first, second), to=third)
    assert topic.owner == second
    assert [topic.entitled(f"j{n}") for n in (1, 2, 3)] == [None, second, third]
    assert [topic.term(n) for n in (1, 3, 4)] == [first, third, None]


def test_objects_are_listed_in_the_order_of_their_numbers() -> None:
    paths = [names.view_object(number) for number in (9, 10, 2**62)]
    assert paths == sorted(paths)
    assert names.journal_object("n", "j", 0) == "wal/n/j/00000000000000000000"
    assert names.beat_object("n") == "cluster/nodes/n"
