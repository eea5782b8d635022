"""The rules say who may claim a topic, for every snapshot, view and WAL."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.cluster.view import TermEntry, TopicEntry
from siltlog.ingest.ownership.rules import Facts, MayClaim, Rule, Waits, decide, is_here_alone

JOURNALS = ("a1", "a2", "b1", "c1")
"""Journals by node: this node is `a`, and its present journal `a2`."""
HERE = "a2"


def term(number: int, journal: str, *, lost: bool = False) -> TermEntry:
    return TermEntry(term=number, node=journal[0], data_dir=journal[0], journal=journal, lost=lost)


def entry(*chain: TermEntry, to: TermEntry | None = None, abandon: int = 0) -> TopicEntry:
    return TopicEntry(topic_id="t", chain=chain, to=to, abandon=abandon)


def epoch(number: int) -> int:
    return (number << 32) + 7


def facts(of: int, *, released: int = -1, shipped: int = 0) -> Facts:
    return Facts({0: of}, {0: released}, {0: shipped})


@dataclass
class Case:
    facts: Facts
    entry: TopicEntry
    own: frozenset[int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 5))
    lost = {journal: draw(st.booleans()) for journal in JOURNALS} | {HERE: False}
    numbers = draw(st.lists(st.integers(1, 8), min_size=count, max_size=count, unique=True))
    chain = [term(number, draw(st.sampled_from(JOURNALS))) for number in sorted(numbers)]
    chain = [term(one.term, one.journal, lost=lost[one.journal]) for one in chain]
    to = term(9, draw(st.sampled_from(("a2", "b1")))) if draw(st.booleans()) else None
    epochs = st.one_of(st.just(0), st.integers(1, 9).map(epoch))
    partitions = range(draw(st.integers(1, 2)))

    def numbers_of(*others: int) -> Mapping[int, int]:
        # Of an epoch that nobody claimed yet nothing was released or shipped.
        drawn = {at: draw(st.one_of(st.just(table[at]), st.sampled_from(others), epochs)) for at in partitions}
        return {at: min(number, table[at]) for at, number in drawn.items()}

    table = {at: draw(epochs) for at in partitions}
    found = Facts(table, numbers_of(-1), numbers_of(0))
    own = draw(st.frozensets(st.sampled_from([*table.values(), epoch(1), epoch(2)])))
    return Case(found, entry(*chain, to=to, abandon=draw(st.one_of(st.just(0), st.integers(1, 9)))), own)


@pytest.mark.rule("CO1", "CO3", "CO5", "CO6", "CO7", "CO13")
@given(cases())
def test_a_claim_passes_nothing_over(case: Case) -> None:
    decision = decide(case.facts, case.entry, HERE, case.own)
    if isinstance(decision, Waits):
        return
    right = case.entry.entitled(HERE)
    assert right is not None and decision.term == right.term
    by_term = {one.term: one for one in case.entry.chain}
    lost = {one.journal for one in case.entry.chain if one.lost}
    assert set(decision.seal) <= lost
    for partition, claimed in case.facts.epochs.items():
        last = claimed >> 32
        assert decision.term > last
        rule = decision.rules[partition]
        if rule is Rule.ABANDONED:
            assert 0 < last <= case.entry.abandon and claimed != case.facts.released[partition]
            assert last not in by_term or (by_term[last].lost and claimed != case.facts.shipped[partition])
            continue
        if claimed == 0 or case.facts.released[partition] == claimed:
            assert rule is Rule.RELEASED
            continue
        if case.facts.shipped[partition] == claimed:
            assert rule is Rule.SHIPPED and last in by_term
            settled = max(case.facts.released[partition], 0) >> 32
            needed = {one.journal for one in case.entry.chain if settled < one.term <= last}
            assert by_term[last].journal in {HERE, *lost} and needed & lost <= set(decision.seal)
            continue
        assert rule is Rule.OWN and claimed in case.own
        assert last not in by_term or by_term[last].journal in {HERE, *lost}


@given(cases())
def test_who_waits_is_told_for_whom(case: Case) -> None:
    decision = decide(case.facts, case.entry, HERE, case.own)
    if isinstance(decision, Waits) and decision.awaited:
        awaited = case.entry.term(decision.awaited)
        assert awaited is not None and awaited.lost
        assert decision.awaited in {claimed >> 32 for claimed in case.facts.epochs.values()}
    if isinstance(decision, Waits) and decision.floor:
        right = case.entry.entitled(HERE)
        assert right is not None and decision.floor >= right.term


@pytest.mark.rule("CO1", "CO2", "CO3", "CO5", "CO6", "CO7")
def test_each_rule_as_it_is_written() -> None:
    mine, lost = term(5, HERE), term(3, "b1", lost=True)

    def told(found: Facts, *chain: TermEntry, own: frozenset[int] = frozenset()) -> MayClaim | Waits:
        return decide(found, entry(*chain), HERE, own)

    assert told(facts(0), mine) == MayClaim(5, {0: Rule.RELEASED})
    assert told(facts(epoch(3), released=epoch(3)), term(3, "b1"), mine) == MayClaim(5, {0: Rule.RELEASED})
    shipped = facts(epoch(3), shipped=epoch(3))
    assert told(shipped, lost, mine) == MayClaim(5, {0: Rule.SHIPPED}, ("b1",))
    assert isinstance(told(shipped, term(3, "b1"), mine), Waits)
    # One before it that may have something is needed, too; one that never claimed is not: it is not lost, or above.
    before = term(2, "c1", lost=True)
    assert told(shipped, before, lost, mine) == MayClaim(5, {0: Rule.SHIPPED}, ("c1", "b1"))
    assert told(shipped, term(2, "c1"), lost, mine) == MayClaim(5, {0: Rule.SHIPPED}, ("b1",))
    assert told(shipped, lost, term(4, "c1"), mine) == MayClaim(5, {0: Rule.SHIPPED}, ("b1",))
    between = facts(epoch(3), released=epoch(2), shipped=epoch(3))
    assert told(between, term(2, "c1"), lost, mine) == MayClaim(5, {0: Rule.SHIPPED}, ("b1",))
    # What it wrote itself in this start needs no seal.
    assert told(shipped, term(3, HERE), mine) == MayClaim(5, {0: Rule.SHIPPED})
    own = frozenset({epoch(3)})
    former = term(3, "a1", lost=True)
    assert told(facts(epoch(3)), former, mine, own=own) == MayClaim(5, {0: Rule.OWN}, ("a1",))
    assert told(shipped, term(3, "a1"), mine, own=own) == Waits("its owner has not let go of it", node="a", held=3)
    assert told(facts(epoch(3)), mine, own=own) == MayClaim(5, {0: Rule.OWN}), "of a time before the cluster"
    waits = told(facts(epoch(3)), lost, mine)
    assert isinstance(waits, Waits) and (waits.awaited, waits.node) == (3, "b")
    waits = told(facts(epoch(3)), term(3, "b1"), mine)
    assert isinstance(waits, Waits) and (waits.awaited, waits.node) == (0, "b"), "it is there, and hands over"
    for found in (facts(epoch(3)), shipped):
        unexplained = told(found, mine)
        assert isinstance(unexplained, Waits) and not unexplained.awaited and str(epoch(3)) in unexplained.reason
    low = told(facts(epoch(6), released=epoch(6)), mine)
    assert isinstance(low, Waits) and low.floor == 6
    assert isinstance(told(facts(0), term(5, "b1")), Waits)
    assert decide(facts(0), entry(term(5, "b1"), to=term(6, HERE)), HERE, ()) == MayClaim(6, {0: Rule.RELEASED})


@pytest.mark.rule("CO13")
def test_an_operators_word_passes_over_what_is_lost_and_no_more() -> None:
    mine, lost = term(5, HERE), term(3, "b1", lost=True)
    at_wal, shipped = facts(epoch(3)), facts(epoch(3), shipped=epoch(3))

    def told(found: Facts, *chain: TermEntry, abandon: int = 3, own: frozenset[int] = frozenset()) -> MayClaim | Waits:
        return decide(found, entry(*chain, abandon=abandon), HERE, own)

    assert told(at_wal, lost, mine) == MayClaim(5, {0: Rule.ABANDONED}, ("b1",))
    later = told(at_wal, lost, mine, abandon=2)
    assert isinstance(later, Waits) and later.awaited == 3, "what was acknowledged since was not meant"
    assert isinstance(told(at_wal, term(3, "b1"), mine), Waits), "its node is there"
    for found in (at_wal, shipped):
        assert told(found, mine) == MayClaim(5, {0: Rule.ABANDONED}), "nobody is known to have taken it"
        unexplained = told(found, mine, abandon=0)
        assert isinstance(unexplained, Waits) and unexplained.unexplained == 3
    # Where nothing is to be given up nothing is.
    assert told(shipped, lost, mine) == MayClaim(5, {0: Rule.SHIPPED}, ("b1",))
    assert told(at_wal, lost, mine, own=frozenset({epoch(3)})) == MayClaim(5, {0: Rule.OWN}, ("b1",))


@pytest.mark.rule("CO5")
@pytest.mark.parametrize(
    ("found", "chain", "own", "alone"),
    [
        (facts(epoch(1)), (term(2, "b1"),), {epoch(1)}, True),
        (facts(epoch(1)), (term(1, "b1"), term(2, "b1")), {epoch(1)}, False),
        (facts(epoch(1), released=epoch(1)), (term(2, "b1"),), {epoch(1)}, False),
        (facts(epoch(1)), (term(2, "b1"),), {epoch(3)}, False),
        (facts(0), (term(2, "b1"),), {epoch(1)}, False),
    ],
    ids=["of before", "a term's", "handed back", "another's", "never claimed"],
)
def test_what_a_server_took_that_was_alone_is_where_its_wal_is(
    found: Facts, chain: tuple[TermEntry, ...], own: set[int], alone: bool
) -> None:
    assert is_here_alone(found, entry(*chain), own) is alone
