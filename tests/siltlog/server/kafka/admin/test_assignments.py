"""Assignments of replicas: which are taken, and which node they name."""

from typing import Any

import pytest

from siltlog.server.kafka.admin.assignments import Misassigned, by_partition, leader_of

NODES = {1, 2, 3}


def created(*replicas: list[int]) -> list[dict[str, Any]]:
    return [{"partition_index": number, "broker_ids": each} for number, each in enumerate(replicas)]


@pytest.mark.rule("KF27")
@pytest.mark.parametrize("replicas", [[[2]], [[2], [2]], [[2, 1], [2, 3]], [[2, 3, 1]]])
def test_the_node_that_comes_first_in_all_partitions_leads(replicas: list[list[int]]) -> None:
    assert leader_of(by_partition(created(*replicas)), NODES) == 2
    assert leader_of(by_partition(created(*replicas)[::-1]), NODES) == 2


@pytest.mark.rule("KF27")
@pytest.mark.parametrize(
    ("replicas", "sentence"),
    [
        ([[]], "partition 0 has no replica"),
        ([[1], [1, 1]], "partition 1 names a node twice"),
        ([[1], [1, 7]], "partition 1 names node 7, and clients can call only 1, 2, 3"),
        ([[1, 2], [1]], "different numbers"),
        ([[1], [2]], "nodes 1, 2 come first"),
    ],
)
def test_others_are_refused_with_a_sentence(replicas: list[list[int]], sentence: str) -> None:
    with pytest.raises(Misassigned, match=sentence):
        leader_of(by_partition(created(*replicas)), NODES)


@pytest.mark.parametrize(("numbers", "sentence"), [([0, 0], "0 is assigned twice"), ([0, 2], "none is left out")])
def test_partitions_are_numbered_from_0_on(numbers: list[int], sentence: str) -> None:
    with pytest.raises(Misassigned, match=sentence):
        by_partition([{"partition_index": number, "broker_ids": [1]} for number in numbers])
