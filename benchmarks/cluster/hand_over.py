"""Topics are moved, and nodes drained, while they are published to: for how long is nothing acknowledged, and what do
clients hear of it?

A `Producer` publishes to all topics of three nodes, and plain HTTP to each through a node that stays. What counts is
the longest time without an acknowledgement of a topic that is handed over, from the operator's word on.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.bench import Bench
from benchmarks.cluster.nodes import Node, Nodes, nodes_of
from benchmarks.cluster.streams import LibraryStream, WireStream, damage, publishing, rows_from, told
from benchmarks.figures.figure import Figure

NODES = 3
TOPICS = tuple(f"moved-{number}" for number in range(6))
PERIOD_SECONDS = 0.02
BURST = 10
"""Records of the `Producer` to each topic in a period."""
WARMUP_SECONDS = 1.0
AFTER_SECONDS = 0.5
MOVES_A_DRAIN = 10
QUICK_MOVES = 4
TARGET_MS = 1_000.0
HANDED_OVER_SECONDS_MAX = 60.0
CLIENTS = ("Producer", "plain HTTP")


class _Load:
    """The publishers, and the pauses of their topics."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.producer = LibraryStream(nodes.urls, TOPICS, PERIOD_SECONDS, BURST)
        self.wires = {topic: WireStream(nodes[0].url, topic, PERIOD_SECONDS) for topic in TOPICS}

    def stay_away_from(self, node: Node) -> None:
        others = [other for other in self._nodes if other is not node]
        for wire in self.wires.values():
            wire.entry = random.choice(others).url

    def pauses(self, moving: Callable[[], dict[str, str]]) -> dict[str, list[float]]:
        """Gives each client's pauses of the topics that `moving()` hands over, once they are at the nodes it says."""
        began = time.monotonic()
        targets = moving()
        self._nodes.until(
            lambda: all(
                owner and owner == (targets[topic] or owner)
                for topic, owner in self._nodes.owners(list(targets)).items()
            ),
            "what was to be handed over is at its next owner",
            HANDED_OVER_SECONDS_MAX,
        )
        time.sleep(AFTER_SECONDS)
        ended = time.monotonic()
        return {
            CLIENTS[0]: [self.producer.longest_gap(topic, began, ended) for topic in targets],
            CLIENTS[1]: [self.wires[topic].longest_gap(topic, began, ended) for topic in targets],
        }


def hand_over(bench: Bench) -> Iterator[Figure]:
    moves = QUICK_MOVES if bench.quick else bench.tries
    drains = max(1, moves // MOVES_A_DRAIN)
    pauses: dict[str, list[dict[str, list[float]]]] = {"move": [], "drain": []}
    with nodes_of(bench.scratch / "nodes", NODES) as nodes:
        with nodes.admin() as admin:
            for topic in TOPICS:
                admin.create_topic(topic, 1)
        nodes.at_rest(TOPICS)
        load = _Load(nodes)
        with publishing([load.producer, *load.wires.values()]):
            time.sleep(WARMUP_SECONDS)
            for number in range(moves):
                pauses["move"].append(_moved(nodes, load))
                if number % (moves // drains) == 0 and len(pauses["drain"]) < drains:
                    pauses["drain"].append(_drained(nodes, load))
        nodes.agreed(TOPICS)
        acks = {topic: [*load.producer.acks[topic], *load.wires[topic].acks[topic]] for topic in TOPICS}
        found = [damage(acks[topic], rows_from(nodes[0].process.url, topic, 0)) for topic in TOPICS]
    seconds = max(ack.at for some in acks.values() for ack in some) - min(
        ack.at for some in acks.values() for ack in some
    )
    acknowledged = sum(map(len, acks.values()))
    yield Figure("published meanwhile", acknowledged / seconds, "records/s")
    for what, tries in pauses.items():
        for client in CLIENTS:
            took = [pause * 1000 for each in tries for pause in each[client]]
            for percent, at_most in ((50, None), (99, TARGET_MS)):
                label = f"{len(tries)} × {what}, {client}: pause of a topic, p{percent} of {len(took)}"
                yield Figure(label, float(np.percentile(took, percent)), "ms", at_most=at_most)
    yield _errors(CLIENTS[0], load.producer.errors)
    yield _errors(CLIENTS[1], sum((wire.errors for wire in load.wires.values()), Counter()))
    yield Figure(f"lost, of {acknowledged:,} acknowledged", sum(each.lost for each in found), "records", at_most=0)
    yield Figure("there twice", sum(each.doubled for each in found), "records", at_most=0)


def _errors(client: str, errors: Counter[str]) -> Figure:
    return Figure(f"{client}: errors{told(errors)}", errors.total(), "", at_most=0)


def _moved(nodes: Nodes, load: _Load) -> dict[str, list[float]]:
    topic = random.choice(TOPICS)
    (owner,) = nodes.agreed([topic]).values()
    target = random.choice([node for node in nodes if node.name != owner])
    load.stay_away_from(random.choice(nodes))

    def move() -> dict[str, str]:
        with nodes.admin(random.choice(nodes)) as admin:
            admin.move_topic(topic, target.name)
        return {topic: target.name}

    return load.pauses(move)


def _drained(nodes: Nodes, load: _Load) -> dict[str, list[float]]:
    """Drains a node, and has it come back with topics; pauses are those of the drain."""
    owners = nodes.agreed(TOPICS)
    node = nodes.named(random.choice(list(owners.values())))
    load.stay_away_from(node)

    def drain() -> dict[str, str]:
        with nodes.admin() as admin:
            admin.drain_node(node.name)
            nodes.until(lambda: node.name not in nodes.owners(TOPICS).values(), "a node that drains owns nothing")
        return {topic: "" for topic, owner in owners.items() if owner == node.name}

    found = load.pauses(drain)
    # Only its next start takes it in again.
    node.stop()
    node.start()
    nodes.at_rest(TOPICS)
    return found
