"""Who holds which partition: sticky, balanced, and pure.

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
    eligible = {topic: tuple(subscribers[topic]) for topic in sorted(counts) if subscribers.get(topic)}
    spread = _Spread(subscriptions, eligible)
    free: list[Partition] = []
    for topic, members in eligible.items():
        allowed = set(members)
        for number in range(counts[topic]):
            holder = current.get((topic, number))
            if holder is not None and holder in allowed:
                spread.give((topic, number), holder)
            else:
                free.append((topic, number))
    # Partitions that few may hold come first: the others can still go elsewhere.
    free.sort(key=lambda partition: (len(eligible[partition[0]]), partition))
    for partition in free:
        spread.give(partition, spread.least(partition))
    spread.balance()
    return spread.holder


class _Spread:
    """An assignment in the making."""

    def __init__(self, members: Iterable[str], eligible: Mapping[str, tuple[str, ...]]) -> None:
        self.holder: dict[Partition, str] = {}
        self._held: dict[str, set[Partition]] = {member: set() for member in members}
        self._eligible = eligible
        self._heaps = {group: [(0, member) for member in group] for group in set(eligible.values())}
        self._heaps_of: dict[str, list[list[tuple[int, str]]]] = defaultdict(list)
        for group, heap in self._heaps.items():
            for member in group:
                self._heaps_of[member].append(heap)

    def give(self, partition: Partition, member: str) -> None:
        before = self.holder.get(partition)
        self.holder[partition] = member
        self._held[member].add(partition)
        if before is not None:
            self._held[before].discard(partition)
            for heap in self._heaps_of[before]:
                heapq.heappush(heap, (len(self._held[before]), before))

    def least(self, partition: Partition) -> str:
        """The member with the fewest partitions among those that may hold `partition`, the first by name of several."""
        heap = self._heaps[self._eligible[partition[0]]]
        while True:
            load, member = heap[0]
            if load == len(self._held[member]):
                return member
            # Loads that rose since are mended when they surface; a load that fell was pushed anew.
            heapq.heapreplace(heap, (len(self._held[member]), member))

    def balance(self) -> None:
        moved = True
        while moved:
            moved = False
            for donor in sorted(self._held, key=lambda member: (-len(self._held[member]), member)):
                moved = self._lighten(donor) or moved

    def _lighten(self, donor: str) -> bool:
        """Moves partitions of `donor` to members that hold at least two fewer; each lowers the sum of squared loads."""
        moved = False
        even: set[tuple[str, ...]] = set()
        for partition in sorted(self._held[donor], reverse=True):
            group = self._eligible[partition[0]]
            if group in even:
                continue
            receiver = self.least(partition)
            if len(self._held[receiver]) + 2 > len(self._held[donor]):
                even.add(group)
                continue
            self.give(partition, receiver)
            moved = True
        return moved
