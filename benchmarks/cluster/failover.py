"""An owner is lost: for how long can nobody publish to its topics, and what do clients hear of it?

Three nodes share a root. A `Producer` publishes to all topics, and plain HTTP to each through a node that stays. Then
the node that owns some of them is killed, stopped or cut off. What counts is the longest time without an
acknowledgement of a topic that it owned; afterwards everything that was acknowledged is looked for, and whether
anything is there twice. Each try is appended to a file: what it has of tries under the same conditions counts, so that
a benchmark that was ended goes on from there.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bench import Bench
from benchmarks.cluster.nodes import Node, Nodes, nodes_of
from benchmarks.cluster.streams import LibraryStream, WireStream, damage, publishing, rows_from, told, watermark
from benchmarks.figures.figure import Figure
from siltlog.infra.settings.settings import ServerSettings

NODES = 3
TOPICS = tuple(f"failover-{number}" for number in range(6))
PERIOD_SECONDS = 0.05
WARMUP_SECONDS = 2.0
BACK_AFTER_LEASE_SECONDS = 3.0
"""How long after the end of its lease a node comes back that was stopped or cut off."""
AFTER_SECONDS = 2.0
AWAITED_SECONDS_MAX = 90.0
HEARD_SECONDS_MAX = 20.0
"""A node that was cut off from an owner asks it anew within seconds of its return; until then it shows less."""
QUICK_TRIES = 1
CLIENTS = ("Producer", "plain HTTP")


class Kind(NamedTuple):
    label: str
    strike: Callable[[Node], None]
    mend: Callable[[Node], None]
    comes_back: bool
    """It is there again while others have what it had, and does not know that."""
    tries_share: float = 1.0
    p50_at_most: float | None = None
    p99_at_most: float | None = 10.0


KILL = Kind("SIGKILL", Node.kill, Node.start, False, p50_at_most=3.0)
STOP = Kind("SIGSTOP, until after its lease", Node.pause, Node.resume, True)
CUT = Kind("cut off from nodes, clients and the store", Node.cut, Node.mend, True)
CUT_FROM_NODES = Kind(
    "cut off from nodes and clients, not from the store", Node.cut, Node.mend, False, tries_share=0.1, p99_at_most=None
)


@dataclass(slots=True)
class Try:
    """A line of the file."""

    root: str
    lease_ms: int
    heartbeat_ms: int
    kind: str
    controller: bool
    """Whether the lost node wrote the views."""
    topics: int
    """How many topics the lost node owned."""
    outage_seconds: dict[str, float]
    """The longest of its topics, by client."""
    errors: dict[str, dict[str, int]]
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0


@dataclass(slots=True)
class Tries:
    """The file, and what it has of tries under the same conditions."""

    path: Path
    conditions: dict[str, Any]
    found: list[Try] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                document = json.loads(line)
                if all(document[name] == value for name, value in self.conditions.items()):
                    self.found.append(Try(**document))

    def of(self, kind: Kind) -> list[Try]:
        return [each for each in self.found if each.kind == kind.label]

    def add(self, made: Try) -> None:
        # One write: who is killed leaves whole lines.
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(made)) + "\n")
        self.found.append(made)


def failover(bench: Bench) -> Iterator[Figure]:
    """Measures failovers over a folder, which a node that is cut off still reaches."""
    yield from _failover(bench, "folder", (KILL, STOP, CUT_FROM_NODES))


def failover_s3(bench: Bench) -> Iterator[Figure]:
    yield from _failover(bench, "S3", (KILL, STOP, CUT))


def _failover(bench: Bench, root: str, kinds: Sequence[Kind]) -> Iterator[Figure]:
    defaults = ServerSettings.model_fields
    times = {name: int(defaults[name].default) for name in ("lease_ms", "heartbeat_ms")}
    tries = Tries(bench.tries_file("failover"), {"root": root, **times})
    wanted = {kind: _count(bench, kind) for kind in kinds}
    if any(len(tries.of(kind)) < count for kind, count in wanted.items()):
        with nodes_of(bench.scratch / "nodes", NODES, on_s3=root == "S3", **times) as nodes:
            with nodes.admin() as admin:
                for topic in TOPICS:
                    admin.create_topic(topic, 1)
            # By turns, so that what was measured when it ended early tells of all.
            while missing := [kind for kind, count in wanted.items() if len(tries.of(kind)) < count]:
                for kind in missing:
                    tries.add(_tried(nodes, kind, tries.conditions))
    for kind in kinds:
        yield from _figures(kind, tries.of(kind)[: wanted[kind]])


def _count(bench: Bench, kind: Kind) -> int:
    return QUICK_TRIES if bench.quick else max(1, round(bench.tries * kind.tries_share))


def _tried(nodes: Nodes, kind: Kind, conditions: dict[str, Any]) -> Try:
    owners = nodes.at_rest(TOPICS)
    victim = random.choice(nodes)
    others = [node for node in nodes if node is not victim]
    mine = [topic for topic, owner in owners.items() if owner == victim.name]
    with nodes.admin(others[0]) as admin:
        controls = next(bool(node["controller"]) for node in admin.nodes() if node["id"] == victim.name)
    starts = {topic: watermark(others[0].process.url, topic) for topic in TOPICS}
    producer = LibraryStream(nodes.urls, TOPICS, PERIOD_SECONDS)
    wires = {topic: WireStream(random.choice(others).url, topic, PERIOD_SECONDS) for topic in TOPICS}
    with publishing([producer, *wires.values()]):
        # At any time between two beats.
        time.sleep(WARMUP_SECONDS + random.random() * conditions["heartbeat_ms"] / 1000)
        began = time.monotonic()
        try:
            kind.strike(victim)
            nodes.until(
                lambda: all(
                    stream.acknowledged_since(topic, began + PERIOD_SECONDS)
                    for topic in mine
                    for stream in (producer, wires[topic])
                ),
                "somebody can publish to the topics of the node that was lost",
                AWAITED_SECONDS_MAX,
            )
            if kind.comes_back:
                back_at = began + conditions["lease_ms"] / 1000 + BACK_AFTER_LEASE_SECONDS
                time.sleep(max(0.0, back_at - time.monotonic()))
        finally:
            kind.mend(victim)
        time.sleep(AFTER_SECONDS)
        ended = time.monotonic()
    outages = {
        CLIENTS[0]: max(producer.longest_gap(topic, began, ended) for topic in mine),
        CLIENTS[1]: max(wires[topic].longest_gap(topic, began, ended) for topic in mine),
    }
    errors = {CLIENTS[0]: dict(producer.errors), CLIENTS[1]: dict(sum((w.errors for w in wires.values()), Counter()))}
    made = Try(
        **conditions, kind=kind.label, controller=controls, topics=len(mine), outage_seconds=outages, errors=errors
    )
    nodes.at_rest(TOPICS)
    for topic in TOPICS:
        acks = [*producer.acks[topic], *wires[topic].acks[topic]]
        found = damage(acks, _rows(nodes, topic, starts[topic], max((ack.offset or 0 for ack in acks), default=0)))
        made.acknowledged += len(acks)
        made.lost += found.lost
        made.doubled += found.doubled
    return made


def _rows(nodes: Nodes, topic: str, start: int, last: int) -> dict[int, str]:
    """What a node has of a topic, once it has heard of the offset `last`, or was asked for a while."""
    node = random.choice(nodes)
    until = time.monotonic() + HEARD_SECONDS_MAX
    found: list[dict[int, str]] = []

    def read() -> bool:
        found.append(rows_from(node.process.url, topic, start))
        return last in found[-1] or time.monotonic() > until

    nodes.until(read, f"topic {topic} can be read")
    return found[-1]


def _figures(kind: Kind, tries: Sequence[Try]) -> Iterator[Figure]:
    yield Figure(f"{kind.label}: tries", len(tries), "")
    for client in CLIENTS:
        outages = [each.outage_seconds[client] for each in tries]
        for percent, at_most in ((50, kind.p50_at_most), (99, kind.p99_at_most)):
            value = float(np.percentile(outages, percent))
            yield Figure(f"{kind.label}, {client}: p{percent}", value, "s", at_most=at_most)
    for client, errors_max in zip(CLIENTS, (0, None), strict=True):
        counts = Counter[str]()
        for each in tries:
            counts.update(each.errors[client])
        yield Figure(f"{kind.label}, {client}: errors{told(counts)}", counts.total(), "", at_most=errors_max)
    acknowledged = sum(each.acknowledged for each in tries)
    yield Figure(f"{kind.label}: acknowledged", acknowledged, "records")
    yield Figure(f"{kind.label}: of these lost", sum(each.lost for each in tries), "records", at_most=0)
    yield Figure(f"{kind.label}: there twice", sum(each.doubled for each in tries), "records", at_most=0)
