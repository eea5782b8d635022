"""Assigns partitions to members: sticky, balanced, and pure.

A partition stays where it is unless its member is gone, no longer subscribes to the topic, or holds at least two more
than another subscriber. So a member that leaves moves only its own partitions, and one that joins takes only its share.
"""

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

Partition = tuple[str, int]
"""A topic and the number of one of its partitions."""


def assign(
    subscriptions: Mapping[str, Collection[str]],
    counts: Mapping[str, int],
    current: Mapping[Partition, str],
) -> dict[Partition, str]:
    """The member that is to hold each partition of each topic that somebody subscribes to.

    `subscriptions`: member -> topics; `counts`: topic -> partitions; `current`: who holds what now. No member could
    give one of its partitions to another subscriber and leave the two closer. Where all subscribe to the same topics,
    loads differ by at most one and no fewer partitions could have moved. The same arguments give the same result.
    """
    subscribers: dict[str, list[str]] = defaultdict(list)
    for member in sorted(subscriptions):
        for topic in subscriptions[member]:
            subscribers[topic].append(member)
    spread = _Spread(
        subscriptions, {topic: tuple(subscribers[topic]) for topic in sorted(counts) if topic in subscribers}
    )
    free: list[Partition] = []
    for topic in spread.topics:
        allowed = set(subscribers[topic])
        for number in range(counts[topic]):
            holder = current.get((topic, number))
            if holder is not None and holder in allowed:
                spread.give((topic, number), holder)
            else:
                free.append((topic, number))
    # Partitions that few may hold come first: the others can still go elsewhere.
    free.sort(key=lambda partition: (len(subscribers[partition[0]]), partition))
    for partition in free:
        spread.give(partition, spread.least(spread.topics[partition[0]]))
    spread.balance()
    return spread.holder


class _Spread:
    """An assignment in the making. Topics with the same subscribers form a kind; loads are numbers of partitions."""

    def __init__(self, members: Iterable[str], eligible: Mapping[str, tuple[str, ...]]) -> None:
        kinds = {group: kind for kind, group in enumerate(dict.fromkeys(eligible.values()))}
        self.holder: dict[Partition, str] = {}
        self.topics = {topic: kinds[group] for topic, group in eligible.items()}
        self._load = dict.fromkeys(members, 0)
        self._held: dict[str, list[list[Partition]]] = {member: [[] for _ in kinds] for member in self._load}
        self._heaps = [[(0, member) for member in group] for group in kinds]
        self._heaps_of: dict[str, list[list[tuple[int, str]]]] = defaultdict(list)
        for group, kind in kinds.items():
            for member in group:
                self._heaps_of[member].append(self._heaps[kind])

    def give(self, partition: Partition, member: str) -> None:
        self.holder[partition] = member
        self._held[member][self.topics[partition[0]]].append(partition)
        self._load[member] += 1

    def least(self, kind: int) -> str:
        """The member with the lowest load among those that may hold a partition of `kind`; of several one of them."""
        heap = self._heaps[kind]
        while True:
            load, member = heap[0]
            if load == self._load[member]:
                return member
            # Loads that rose since are mended when they surface; a load that fell was pushed anew.
            heapq.heapreplace(heap, (self._load[member], member))

    def balance(self) -> None:
        """Always from the highest load that can be lowered; each move lowers the sum of squared loads."""
        moved = True
        while moved:
            moved = False
            donors = [(-load, member) for member, load in self._load.items()]
            heapq.heapify(donors)
            while donors:
                load, donor = heapq.heappop(donors)
                if -load != self._load[donor]:
                    heapq.heappush(donors, (-self._load[donor], donor))
                elif self._pass_one_on(donor):
                    moved = True
                    heapq.heappush(donors, (-self._load[donor], donor))

    def _pass_one_on(self, donor: str) -> bool:
        """Moves one partition to a member that holds at least two fewer; False when there is none such."""
        for kind, partitions in enumerate(self._held[donor]):
            if not partitions:
                continue
            receiver = self.least(kind)
            if self._load[receiver] + 2 <= self._load[donor]:
                self._load[donor] -= 1
                for heap in self._heaps_of[donor]:
                    heapq.heappush(heap, (self._load[donor], donor))
                self.give(partitions.pop(), receiver)
                return True
        return False
