"""The numbers of nodes, by which Kafka's clients know them."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.cluster.beat import Beat, Wish
from siltlog.infra.cluster.planning.controller import Seen, plan
from siltlog.infra.cluster.view import ClusterView

NAMES = st.sampled_from(("a", "b", "c"))


@dataclass
class Cluster:
    """Views, one after another, of nodes that start, are lost and are removed."""

    view: ClusterView = field(
        default_factory=lambda: ClusterView(number=0, cluster_id="c", controller="z", journal="z1", nonce="0")
    )
    beats: dict[str, Beat] = field(default_factory=dict)
    starts: int = 0

    def start(self, name: str) -> None:
        self.starts += 1
        self.beats[name] = Beat(
            beat=1,
            node=name,
            data_dir=name,
            place=name,
            journal=f"{name}{self.starts}",
            ends=tuple(f"{name}{number}" for number in range(1, self.starts)),
            url=f"http://{name}",
            kafka=f"{name}:{9000 + self.starts}",
            kafka_proof=f"of {self.starts}",
            view=self.view.number,
        )
        self.plan()

    def lose(self, name: str) -> None:
        self.plan(lost=[name] if name in dict(self.view.members()) else [])

    def remove(self, name: str) -> None:
        self.lose(name)
        self.beats.pop(name, None)
        wish = Wish(id=f"w{self.view.number}", kind="remove", node=name)
        asked = Beat(beat=1, node="z", data_dir="z", place="z", journal="z1", url="", going="away", wishes=(wish,))
        self.plan(asked=asked)

    def plan(self, lost: list[str] | None = None, asked: Beat | None = None) -> None:
        beats = {**self.beats, **({} if asked is None else {"z": asked})}
        self.view = plan(self.view, Seen(beats, lost or ()), "z", "z1", f"{self.view.number}") or self.view


@pytest.mark.rule("KF24")
@given(st.lists(st.tuples(st.sampled_from(("start", "lose", "remove")), NAMES), max_size=20))
def test_a_node_keeps_its_number_and_no_other_is_given_it(steps: list[tuple[str, str]]) -> None:
    cluster = Cluster()
    holders: dict[int, str] = {}
    numbers: dict[str, int] = {}
    for step, name in steps:
        getattr(cluster, step)(name)
        for node, entry in cluster.view.nodes.items():
            assert entry.number > 0
            assert holders.setdefault(entry.number, node) == node
            assert numbers.setdefault(node, entry.number) == entry.number
        # Who was removed and comes back is another.
        numbers = {node: number for node, number in numbers.items() if node in cluster.view.nodes}
        assert cluster.view.node_number == max(holders, default=0)


@pytest.mark.rule("KF24")
def test_the_address_is_that_of_the_present_start_and_is_told_of_once() -> None:
    cluster = Cluster()
    cluster.start("a")
    cluster.start("a")
    entry = cluster.view.nodes["a"]
    assert (entry.journal, entry.number, entry.kafka, entry.kafka_proof) == ("a2", 1, "a:9002", "of 2")
    before = cluster.view
    cluster.plan()
    assert cluster.view is before
