"""A whole cluster under seeded faults: what clients are told is one log's history, and a mutant of each rule is caught.

The mutants are of the product's own code wherever the simulation runs it; `OF_THE_MODEL` are of what carries it out.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from chaos import CHAOS, only_with_chaos, seeds
from cluster_process import Held, Journal, Process
from cluster_simulation import ClusterWorld
from msgspec.structs import replace

from siltlog.infra.cluster.planning.draft import Draft
from siltlog.infra.cluster.view import TopicEntry
from siltlog.infra.errors import CorruptData
from siltlog.infra.store.store import ObjectStore, Put
from siltlog.ingest.journal import reader, seal, writer
from siltlog.ingest.journal.codec import Header
from siltlog.ingest.journal.pins import Pins
from siltlog.ingest.journal.seal import Sealed
from siltlog.ingest.journal.writer import Landing, Shipment, Writer
from siltlog.ingest.ownership import rules
from siltlog.ingest.ownership.rules import Facts, Rule, Waits

MUTANT_SEEDS = 60
"""So many from the one on that is known to catch a mutant; what changes elsewhere changes what a seed does."""
ATTACKS = (
    "a claim met another's",
    "a copy of a journal's PUT came after its number had been deleted",
    "a data directory went on with what it alone had",
    "a flush of who was fenced was refused",
    "a hand-over was given up before the release was sent",
    "a journal was lost while its node was alive",
    "a journal was sealed that is written on",
    "a journal was trimmed while a successor ended or read it",
    "a release was taken back",
    "a release whose answer was lost had landed",
    "a seal was met while somebody waited for an acknowledgement",
    "a successor died unsettled",
    "a topic was taken again by the journal that has its records",
    "an owner died before its release was answered",
    "an owner died with objects under way",
    "objects stood above the seal of their journal",
    "records were recovered by a second successor",
    "the answer of a claim was lost, landed: False",
    "the answer of a claim was lost, landed: True",
    "the answer of a release was lost",
    "two successors sealed one journal at once",
)


@pytest.mark.rule("CM1", "CM8", "CO1", "CO2", "CO3", "CO4", "CO5", "CO6", "CO7", "CH4", "CJ3", "CJ12")
@pytest.mark.chaos
@pytest.mark.parametrize("block", range(4))
def test_a_cluster_is_one_log_whatever_happens(block: int) -> None:
    for number in seeds(5):
        with named(seed := 4 * number + block):
            ClusterWorld(seed).simulate()


@pytest.mark.chaos
@only_with_chaos
def test_every_attack_happens() -> None:
    counts: Counter[str] = Counter()
    for seed in range(min(100 * CHAOS, 1_000)):
        world = ClusterWorld(seed)
        with named(seed):
            world.simulate()
        counts.update(world.counts.keys())
    print("\n".join(f"{counts[attack]:6} {attack}" for attack in ATTACKS))
    assert [attack for attack in ATTACKS if not counts[attack]] == []


@contextmanager
def named(seed: int) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        raise AssertionError(f"seed {seed}") from error


Patch = pytest.MonkeyPatch


def _anybody_is_entitled(patch: Patch) -> None:
    patch.setattr(TopicEntry, "entitled", lambda self, journal: self.owner)


def _anybodys_is_free(patch: Patch) -> None:
    def mutant(facts: Facts, partition: int, epoch: int, own_epochs: Collection[int]) -> Rule:
        return Rule.RELEASED

    patch.setattr(rules, "_rule", mutant)


def _own_before_shipped(patch: Patch) -> None:
    rule = rules._rule

    def mutant(facts: Facts, partition: int, epoch: int, own_epochs: Collection[int]) -> Rule | Waits:
        return Rule.OWN if epoch in own_epochs else rule(facts, partition, epoch, own_epochs)

    patch.setattr(rules, "_rule", mutant)


def _nobody_is_waited_for(patch: Patch) -> None:
    former = rules._former_journals

    def mutant(
        facts: Facts, partition: int, epoch: int, rule: Rule, entry: TopicEntry, journal: str
    ) -> Mapping[int, str] | Waits:
        lost = replace(entry, chain=tuple(replace(one, lost=True) for one in entry.chain))
        return former(facts, partition, epoch, rule, lost, journal)

    patch.setattr(rules, "_former_journals", mutant)


def _terms_fall(patch: Patch) -> None:
    decide = rules.decide

    def mutant(facts: Facts, entry: TopicEntry, journal: str, own_epochs: Collection[int]) -> rules.Decision:
        decision = decide(facts, entry, journal, own_epochs)
        right = entry.entitled(journal)
        if isinstance(decision, Waits) and decision.floor and right is not None:
            return rules.MayClaim(right.term, {0: Rule.SHIPPED})
        return decision

    patch.setattr(rules, "decide", mutant)


def _acks_before_the_table(patch: Patch) -> None:
    publish = Process.publish

    def mutant(self: Process, name: str, value: str, answer: Callable[[int | None], None]) -> None:
        publish(self, name, value, answer)
        held = self.held.get(name)
        if held is not None and held.kind == "table":
            held.show(held.next_offset)

    patch.setattr(Process, "publish", mutant)


def _it_appends_after_the_release(patch: Patch) -> None:
    patch.setattr(Held, "owns", property(lambda self: not self.gone))
    patch.setattr(Process, "_drop", _dropped_quietly)


def _dropped_quietly(self: Process, held: Held) -> None:
    held.gone = True
    self.held.pop(held.name, None)


def _exists_is_landed(patch: Patch) -> None:
    def landing(own: Header, put: Put, found: Header | None) -> Landing:
        return Landing.AGAIN if found is None and put is not Put.WRITTEN else Landing.LANDED

    patch.setattr(writer, "landing", landing)


def _acked_behind_a_hole(patch: Patch) -> None:
    landed_one = Writer.landed_one

    def each(self: Writer[list[object]], number: int) -> list[Shipment[list[object]]]:
        one = self._flying[number]
        landed_one(self, number)
        return [one]

    patch.setattr(Writer, "landed_one", each)


def _trimmed_before_the_table(patch: Patch) -> None:
    patch.setattr(Pins, "flushed_below", lambda self, next_number, offset, claims: next_number)


def _deleted_before_first_landed(patch: Patch) -> None:
    patch.setattr(Writer, "deletable", lambda self: range(self._deleted, self._landed))
    patch.setattr(Writer, "deleted", lambda self, number: setattr(self, "_deleted", number + 1))


def _read_and_not_sealed(patch: Patch) -> None:
    def mutant(store: ObjectStore, cluster_id: str, journal: str, nonce: bytes) -> Sealed:
        end = seal._end(store, cluster_id, journal, seal.listed(store, journal))
        assert end is not None
        return Sealed(journal, end.first, end.number)

    patch.setattr(seal, "seal", mutant)


def _goes_on_over_a_seal(patch: Patch) -> None:
    def mutant(self: Process, journal: Journal) -> None:
        for number in [*journal.flying]:
            journal.flying.pop(number)
            self.landed(journal, journal.writer.landed_one(number))

    patch.setattr(Process, "met_seal", mutant)


def _holes_are_the_end(patch: Patch) -> None:
    kept = reader.kept

    def mutant(frames: Any, topic: str, topic_id: bytes, partition: int, epochs: Any, table_offset: int) -> Any:
        try:
            return kept(frames, topic, topic_id, partition, epochs, table_offset)
        except CorruptData:
            return []

    patch.setattr(reader, "kept", mutant)
    _trimmed_before_the_table(patch)


def _only_the_last_journal_is_read(patch: Patch) -> None:
    ended = Process.ended

    def mutant(self: Process, name: str, chain: Any) -> Any:
        return (yield from ended(self, name, chain[-1:]))

    patch.setattr(Process, "ended", mutant)


def _recovered_is_not_journaled(patch: Patch) -> None:
    begin = Process.begin

    def mutant(self: Process, held: Held, chain: Any, frames: Any) -> None:
        ship = self._ship
        self._ship = lambda *_: None  # type: ignore[method-assign]
        begin(self, held, chain, frames)
        held.settled_at = 0
        self._ship = ship  # type: ignore[method-assign]

    patch.setattr(Process, "begin", mutant)


def _cut_before_it_landed(patch: Patch) -> None:
    begin = Process.begin

    def mutant(self: Process, held: Held, chain: Any, frames: Any) -> None:
        begin(self, held, chain, frames)
        held.settled_at = 0

    patch.setattr(Process, "begin", mutant)


def _a_term_is_given_again(patch: Patch) -> None:
    granted = Draft._granted

    def mutant(draft: Draft, node: str, floor: int) -> Any:
        draft._term -= 1
        return granted(draft, node, floor)

    patch.setattr(Draft, "_granted", mutant)


def _the_chain_is_the_owner(patch: Patch) -> None:
    give = Draft.give

    def mutant(draft: Draft, name: str, node: str, floor: int = 0) -> None:
        give(draft, name, node, floor)
        draft.topics[name] = replace(draft.topics[name], chain=draft.topics[name].chain[-1:])

    patch.setattr(Draft, "give", mutant)


MUTANTS: dict[str, tuple[Callable[[Patch], None], int]] = {
    "CO1 anybody is entitled": (_anybody_is_entitled, 0),
    "CO2 acknowledged before the table has it": (_acks_before_the_table, 4),
    "CO3 a WAL goes before what shipped": (_own_before_shipped, 0),
    "CO5 what anybody has is free": (_anybodys_is_free, 0),
    "CO6 nobody is waited for": (_nobody_is_waited_for, 1),
    "CO7 terms fall": (_terms_fall, 0),
    "CH4 it appends after the release": (_it_appends_after_the_release, 41),
    "CM8 a term is given again": (_a_term_is_given_again, 0),
    "CM8 the chain is the owner": (_the_chain_is_the_owner, 0),
    "CJ2 what exists has landed": (_exists_is_landed, 0),
    "CJ3 acknowledged behind a hole": (_acked_behind_a_hole, 0),
    "CJ4 trimmed before the table has it": (_trimmed_before_the_table, 8),
    "CJ4 deleted before first has landed": (_deleted_before_first_landed, 0),
    "CJ5 read and not sealed": (_read_and_not_sealed, 7),
    "CJ6 it goes on over a seal": (_goes_on_over_a_seal, 0),
    "CJ12 a hole is the end": (_holes_are_the_end, 8),
    "CJ12 only the last journal is read": (_only_the_last_journal_is_read, 0),
    "CJ12 what was recovered is not journaled": (_recovered_is_not_journaled, 31),
    "CJ12 the chain is cut before it landed": (_cut_before_it_landed, 474),
}


@pytest.mark.rule("CO1", "CO2", "CO3", "CO4", "CO5", "CO6", "CO7", "CH4", "CM8", "CJ2", "CJ4", "CJ5", "CJ6")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate, first = MUTANTS[name]
    mutate(monkeypatch)
    with pytest.raises((AssertionError, CorruptData, KeyError)):
        for seed in range(first, first + MUTANT_SEEDS):
            ClusterWorld(seed).simulate()
