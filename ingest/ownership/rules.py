"""Whether this node may claim a topic now: by the table's snapshot, the newest view, and what its own WAL noted. Pure.

The view entitles and the claim takes. The rules are tried in the order of `Rule`; where none holds the topic waits for
who owns it. The claim is compare-and-set on the snapshot that was decided on.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from siltlog.infra.cluster.view import TERM_SHIFT, TopicEntry
from siltlog.infra.table.snapshot import TableSnapshot


class Rule(Enum):
    """Why a partition may be claimed."""

    RELEASED = "released"
    """Nobody has it: it was never claimed, or was handed back."""
    SHIPPED = "shipped"
    """Its owner's journal is lost, and nothing was acknowledged that is not in journals or in the table."""
    OWN = "own"
    """This node's WAL has what its last owner acknowledged."""
    ABANDONED = "abandoned"
    """An operator has given up what its last owner acknowledged and no table or journal has."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a snapshot of a table says of who owns it, by partition."""

    epochs: Mapping[int, int]
    released: Mapping[int, int]
    shipped: Mapping[int, int]

    @classmethod
    def of(cls, snapshot: TableSnapshot) -> "Facts":
        partitions = range(snapshot.partitions)
        return cls(
            snapshot.epochs,
            snapshot.released,
            {partition: snapshot.shipped(partition) for partition in partitions},
        )


@dataclass(frozen=True, slots=True)
class MayClaim:
    """Allows a claim under `term` once all of `seal` are sealed; what these journals have beyond the table is read."""

    term: int
    rules: Mapping[int, Rule]
    """The rule of each partition."""
    seal: tuple[str, ...] = ()
    """Journals, oldest term first. All of them are lost."""


@dataclass(frozen=True, slots=True)
class Waits:
    """It may not be claimed now."""

    reason: str
    awaited: int = 0
    """The term whose data directory has what nobody else may go past; 0 where none has."""
    unexplained: int = 0
    """The term of an epoch that nobody is known to have taken; 0 where there is none."""
    floor: int = 0
    """The term that this node's must be above; 0 where it is."""
    node: str = ""
    """The node that is waited for, as far as that is known."""
    held: int = 0
    """The term of the node that has claimed it and is not lost; 0 where it waits for something else."""


Decision = MayClaim | Waits
_HELD = "its owner has not let go of it"


def is_here_alone(facts: Facts, entry: TopicEntry, own_epochs: Collection[int]) -> bool:
    """Whether the WAL that noted `own_epochs` has what its owner acknowledged under an epoch that no term of the view
    explains: a server took it that was alone. Then nobody else may claim the topic."""
    return any(
        epoch in own_epochs and facts.released[partition] != epoch and entry.term(epoch >> TERM_SHIFT) is None
        for partition, epoch in facts.epochs.items()
    )


def decide(facts: Facts, entry: TopicEntry, journal: str, own_epochs: Collection[int]) -> Decision:
    """Decides about a topic that a view names, for the start of a node whose journal is `journal`.

    `own_epochs` are those that the WAL of its data directory has noted for the topic.
    """
    right = entry.entitled(journal)
    if right is None:
        return Waits("the newest view gives it to another node", node=entry.owner.node)
    floor = max((epoch >> TERM_SHIFT for epoch in facts.epochs.values()), default=0)
    if right.term <= floor:
        return Waits(f"term {right.term} is not above {floor}, that of its table", floor=floor)
    rules: dict[int, Rule] = {}
    seal: dict[int, str] = {}
    for partition, epoch in facts.epochs.items():
        rule = _rule(facts, partition, epoch, own_epochs)
        if isinstance(rule, Waits):
            waits = _named(rule, entry, epoch)
            if not _given_up(waits, entry):
                return waits
            rule = Rule.ABANDONED
        lost = _former_journals(facts, partition, epoch, rule, entry, journal)
        if isinstance(lost, Waits):
            if not _given_up(lost, entry):
                return lost
            rule, lost = Rule.ABANDONED, {}
        rules[partition] = rule
        seal |= lost
    return MayClaim(right.term, rules, tuple(seal[term] for term in sorted(seal)))


def _rule(facts: Facts, partition: int, epoch: int, own_epochs: Collection[int]) -> Rule | Waits:
    if epoch == 0 or facts.released[partition] == epoch:
        return Rule.RELEASED
    # Before the own WAL: that may have what a successor went past.
    if facts.shipped[partition] == epoch:
        return Rule.SHIPPED
    if epoch in own_epochs:
        return Rule.OWN
    return Waits("another data directory has records of it that were acknowledged", awaited=epoch >> TERM_SHIFT)


def _named(waits: Waits, entry: TopicEntry, epoch: int) -> Waits:
    owner = entry.term(epoch >> TERM_SHIFT)
    if owner is None:
        return _unexplained(epoch)
    if not owner.lost:
        return Waits(_HELD, node=owner.node, held=owner.term)
    return Waits(waits.reason, awaited=owner.term, node=owner.node)


def _unexplained(epoch: int) -> Waits:
    reason = f"no node of the cluster is known to have taken epoch {epoch}, which its table has"
    return Waits(reason, unexplained=epoch >> TERM_SHIFT)


def _given_up(waits: Waits, entry: TopicEntry) -> bool:
    """Whether an operator has said that nobody waits for that any more. Of an owner that is not lost nobody can."""
    return 0 < max(waits.awaited, waits.unexplained) <= entry.abandon


def _former_journals(
    facts: Facts, partition: int, epoch: int, rule: Rule, entry: TopicEntry, journal: str
) -> Mapping[int, str] | Waits:
    """The journals, by term, that may hold something that the claim must not lose, and that somebody may still write.

    Those of this node's present start are not among them: it knows what it wrote.
    """
    if rule is Rule.RELEASED:
        return {}
    last = epoch >> TERM_SHIFT
    if rule is Rule.OWN or rule is Rule.ABANDONED:
        needed = [one for one in entry.chain if one.term == last]
    else:
        settled = max(facts.released[partition], 0) >> TERM_SHIFT
        needed = [one for one in entry.chain if settled < one.term <= last]
        if all(one.term != last for one in needed):
            return _unexplained(epoch)
    others = [one for one in needed if one.journal != journal]
    # Who claimed over an epoch that was not released needed its journal to be lost: one before the last that is not
    # lost has never claimed, and cannot any more.
    holding = next((one for one in others if one.term == last and not one.lost), None)
    if holding is not None:
        return Waits(_HELD, node=holding.node, held=holding.term)
    return {one.term: one.journal for one in others if one.lost}
