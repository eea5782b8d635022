"""Assignments of replicas, by which clients of Kafka say which node is to lead a topic. Pure.

The first replica of a partition is its leader; here a node leads a topic in all partitions. The others are nowhere: the
object store keeps the copies, whatever their number.
"""

from collections.abc import Collection, Mapping, Sequence

UNSAID = -1
"""In place of a count: the assignment says it."""


class Misassigned(Exception):
    """An assignment that is not taken; the sentence says why."""


def leader_of(assigned: Mapping[int, Sequence[int]], nodes: Collection[int]) -> int:
    """The number of the node that leads all partitions of `assigned`, which has the replicas of each; `nodes` are those
    that clients can call.

    Raises Misassigned.
    """
    counts: set[int] = set()
    for partition, replicas in assigned.items():
        if not replicas:
            raise Misassigned(f"partition {partition} has no replica: name the node that is to lead it")
        if len(set(replicas)) < len(replicas):
            raise Misassigned(f"partition {partition} names a node twice: name it once")
        absent = next((node for node in replicas if node not in nodes), None)
        if absent is not None:
            there = ", ".join(map(str, sorted(nodes)))
            raise Misassigned(f"partition {partition} names node {absent}, and clients can call only {there}")
        counts.add(len(replicas))
    if len(counts) > 1:
        raise Misassigned("partitions have different numbers of replicas: name as many for each")
    firsts = sorted({replicas[0] for replicas in assigned.values()})
    if len(firsts) > 1:
        raise Misassigned(
            f"nodes {', '.join(map(str, firsts))} come first, and a topic has one node that leads all its partitions: "
            "name the same one first in each"
        )
    return firsts[0]


def by_partition(assignments: Sequence[Mapping[str, object]]) -> dict[int, Sequence[int]]:
    """What CreateTopics names, by the numbers of the partitions. Raises Misassigned."""
    found: dict[int, Sequence[int]] = {}
    for each in assignments:
        number, replicas = each["partition_index"], each["broker_ids"]
        assert isinstance(number, int) and isinstance(replicas, Sequence)
        if number in found:
            raise Misassigned(f"partition {number} is assigned twice: assign it once")
        found[number] = replicas
    if set(found) != set(range(len(found))):
        raise Misassigned("partitions are numbered from 0 on, and none is left out: assign them so")
    return found
