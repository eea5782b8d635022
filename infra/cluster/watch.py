"""Tells which nodes have stopped beating, as far as one watcher can tell by its own clock. Pure.

A beat stands still when look after look finds no higher one. What a look cannot tell from an outage of the store, or
from a sleep of the watcher, it takes for that, and counts from then on.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from siltlog.infra.cluster.beat import Beat

LOOKS_MIN = 3
PAUSES_A_LEASE = 2
"""A look, or a gap between two, that takes longer than the lease divided by this is a pause of the watcher."""
REFUSED_HEARTBEATS = 1.5
"""How many heartbeats a beat stands still, of a node at whose address nobody listens, before it counts as a lease."""
SHARE_MAX = 3
"""Among how many members one may be lost in a lease."""


class _Standing(NamedTuple):
    journal: str
    beat: int
    rounds: int
    beat_since: float
    """When the look ended that found this beat first."""
    rounds_since: float
    looks: int
    """How many have found it, the first included."""


class Watch:
    def __init__(self, lease_ms: int, heartbeat_ms: int) -> None:
        self._lease_s = lease_ms / 1000
        self._heartbeat_s = heartbeat_ms / 1000
        self._refused_s = min(self._lease_s, REFUSED_HEARTBEATS * self._heartbeat_s)
        self._pause_s = self._lease_s / PAUSES_A_LEASE
        self._standings: dict[str, _Standing] = {}
        self._began = self._ended = float("-inf")
        self._buried: list[float] = []

    def looked(
        self, began: float, ended: float, journals: Mapping[str, str], beats: Mapping[str, Beat], own_beat: float
    ) -> bool:
        """Takes what a look found that succeeded; times in seconds. Whether it went on from the look before it.

        `journals` are those that were looked for, by node, `own_beat` is when the watcher's own newest beat was begun
        that has landed: while the store takes none of its own, it judges nobody.
        """
        goes_on = max(ended - began, began - self._ended) <= self._pause_s
        fresh = began - own_beat <= self._pause_s
        if not (goes_on and fresh):
            self._standings.clear()
        self._began, self._ended = began, ended
        self._standings = {node: self._standing(node, journals[node], beats.get(node)) for node in journals}
        return goes_on and fresh

    def failed(self) -> None:
        """A look did not succeed: the store may be away for others, too."""
        self._standings.clear()

    def _standing(self, node: str, journal: str, beat: Beat | None) -> _Standing:
        """A copy of an old beat that arrives late is no sign of life, and the beat of another journal is none of it."""
        seen = beat is not None and beat.journal == journal
        number, rounds = (beat.beat, beat.rounds) if seen and beat is not None else (-1, -1)
        former = self._standings.get(node)
        if former is None or former.journal != journal:
            return _Standing(journal, number, rounds, self._ended, self._ended, 1)
        return _Standing(
            journal,
            max(number, former.beat),
            max(rounds, former.rounds),
            self._ended if number > former.beat else former.beat_since,
            self._ended if rounds > former.rounds else former.rounds_since,
            1 if number > former.beat else former.looks + 1,
        )

    def beat_stood_s(self, node: str) -> float:
        """For how long its beat has stood still at least; 0 for what was looked at too few times."""
        standing = self._standings.get(node)
        if standing is None or standing.looks < LOOKS_MIN:
            return 0.0
        return max(0.0, self._began - standing.beat_since)

    def outlived_s(self, node: str, refused: bool) -> float:
        """For how long it has been gone, as far as its beats tell; negative where they do not tell it yet.

        `refused`: nobody listens at its address, so that much less of a silence will do.
        """
        return self.beat_stood_s(node) - (self._refused_s if refused else self._lease_s)

    def overdue_s(self, node: str, refused: bool) -> float:
        """For how long it should have been replaced as the controller; negative where it should not."""
        return max(self.rounds_stood_s(node) - self._lease_s, self.outlived_s(node, refused))

    def suspects(self) -> list[str]:
        """The nodes whose beats are late."""
        return [node for node in self._standings if self.beat_stood_s(node) > self._heartbeat_s]

    def rounds_stood_s(self, node: str) -> float:
        """For how long it has planned nothing at least, as the controller."""
        standing = self._standings.get(node)
        return 0.0 if standing is None else max(0.0, self._began - standing.rounds_since)

    def ends_at(self, now: float, refused: Collection[str] = (), wait_s: float = 0.0) -> float:
        """When the next lease ends of a beat, or of rounds, that go on standing still, and `wait_s` after it; infinity
        where all that stand still have been looked at since theirs ended."""
        ends = []
        for node, standing in self._standings.items():
            least_s = self._refused_s if node in refused else self._lease_s
            ends += [standing.beat_since + least_s + wait_s, standing.rounds_since + self._lease_s + wait_s]
        return min((end for end in ends if end > now), default=float("inf"))

    def lost(self, members: int, refused: Collection[str] = ()) -> list[str]:
        """The nodes whose journals are lost, of so many members: no more than a third in a lease, or one.

        `refused` are nodes at whose addresses nobody listens.
        """
        outlived = {node: self.outlived_s(node, node in refused) for node in self._standings}
        still = sorted((node for node in outlived if outlived[node] >= 0), key=lambda node: (-outlived[node], node))
        recent = sum(self._began - at < self._lease_s for at in self._buried)
        return still[: max(0, max(1, members // SHARE_MAX) - recent)]

    def buried(self, count: int) -> None:
        """A view says of so many that they are lost."""
        self._buried = [at for at in self._buried if self._began - at < self._lease_s] + [self._began] * count
