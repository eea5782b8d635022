"""What it costs that others share the root: publishes of a node of a cluster beside those of a server alone, and of
several nodes of one machine beside those of one.

All servers run at the same time and are loaded by turns, so that what slows the machine slows all. Topics have
`acks=wal`, as a server alone acknowledges: what is compared is not what an acknowledgement is worth.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import NamedTuple

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.cluster.nodes import Node, Nodes, nodes_of
from benchmarks.figures.figure import Figure
from benchmarks.loads.load import Load
from benchmarks.loads.records import arrow_body, json_body, json_record, table
from siltlog import Admin
from siltlog.infra import names

NODES = 3
RECORD_BYTES = 100
PARTITIONS = 4
TURNS, QUICK_TURNS = 8, 2
ON_MIN = 0.95
"""The least share that one node in a cluster must reach of the rate of a server alone."""
SEVERAL_MIN = 0.9
"""The least share that several nodes together must reach of the rate of one of them."""


class _Flow(NamedTuple):
    label: str
    body: bytes
    media: str
    records: int
    connections: int


class _Turn(NamedTuple):
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


def cluster(bench: Bench) -> Iterator[Figure]:
    flows = [
        _Flow("one record", json_body(json_record(RECORD_BYTES), 1), names.MEDIA_JSON, 1, 48),
        _Flow(
            "1,000 records in Arrow",
            arrow_body(table(1_000, RECORD_BYTES, keyed=False)),
            names.MEDIA_ARROW,
            1_000,
            12,
        ),
    ]
    turns = QUICK_TURNS if bench.quick else TURNS
    yield from _on_and_off(bench, flows, turns)
    yield from _several(bench, flows, turns)


def _on_and_off(bench: Bench, flows: Sequence[_Flow], turns: int) -> Iterator[Figure]:
    config: dict[str, int | str] = {"acks": "wal"}
    with (
        bench.server(partitions=PARTITIONS, config=config) as off,
        nodes_of(bench.scratch / "one", 1) as (on,),
    ):
        with Admin(on.process.url) as admin:
            admin.create_topic(TOPIC, PARTITIONS, config)
        for flow in flows:
            taken: dict[str, list[_Turn]] = {"off": [], "on": []}
            for _ in range(turns):
                for label, server in (("off", off), ("on", on)):
                    taken[label].append(_together(bench, [server], [server], [TOPIC], flow))
            for label, some in taken.items():
                yield _figure(f"{flow.label}, SILT_CLUSTER={label}", some)
            yield _ratio(f"{flow.label}: the rate with on, of that with off", taken["on"], taken["off"], ON_MIN)


def _several(bench: Bench, flows: Sequence[_Flow], turns: int) -> Iterator[Figure]:
    topics = [f"{TOPIC}-{number}" for number in range(1, NODES + 1)]
    with nodes_of(bench.scratch / "nodes", NODES) as nodes:
        with nodes.admin() as admin:
            for topic in topics:
                admin.create_topic(topic, PARTITIONS, {"acks": "wal"})
        _place(nodes, topics)
        for flow in flows:
            taken: dict[int, list[_Turn]] = {count: [] for count in range(1, NODES + 1)}
            for _ in range(turns):
                for count in taken:
                    taken[count].append(_together(bench, nodes, nodes[:count], topics, flow))
            for count, some in taken.items():
                yield _figure(f"{flow.label}, {count} of {NODES} nodes at work", some)
            for count in range(2, NODES + 1):
                label = f"{flow.label}: the rate of {count} nodes together, of that of one"
                yield _ratio(label, taken[count], taken[1], SEVERAL_MIN)


def _place(nodes: Nodes, topics: Sequence[str]) -> None:
    """Has each node own one topic."""
    nodes.agreed(topics)
    wanted = {topic: node.name for topic, node in zip(topics, nodes, strict=True)}
    for topic, node in wanted.items():
        with nodes.admin() as admin:
            admin.move_topic(topic, node)
    nodes.until(lambda: nodes.owners(topics) == wanted, "each node owns a topic")


def _together(
    bench: Bench, there: Sequence[Server | Node], loaded: Sequence[Server | Node], topics: Sequence[str], flow: _Flow
) -> _Turn:
    """Loads some servers with the same number of connections in all, and measures the processor time of all of them."""

    def load_one(server: Server | Node, topic: str) -> Load:
        path = f"/v1/topics/{topic}/records"
        return bench.load(server.port, path, [flow.body], flow.media, flow.connections // len(loaded))

    before = sum(server.cpu_seconds() for server in there)
    with ThreadPoolExecutor(len(loaded)) as pool:
        loads = list(pool.map(load_one, loaded, topics))
    cpu = sum(server.cpu_seconds() for server in there) - before
    records = sum(load.replies_in_all for load in loads) * flow.records
    return _Turn(
        sum(load.per_second for load in loads) * flow.records,
        median(load.p50_ms for load in loads),
        max(load.p99_ms for load in loads),
        cpu / records * 1e6,
    )


def _figure(label: str, turns: Sequence[_Turn]) -> Figure:
    return Figure(
        label,
        median(turn.per_second for turn in turns),
        "records/s",
        p50_ms=median(turn.p50_ms for turn in turns),
        p99_ms=median(turn.p99_ms for turn in turns),
        cpu_us=median(turn.cpu_us for turn in turns),
    )


def _ratio(label: str, turns: Sequence[_Turn], others: Sequence[_Turn], at_least: float) -> Figure:
    ratios = [turn.per_second / other.per_second for turn, other in zip(turns, others, strict=True)]
    return Figure(label, median(ratios), "×", at_least=at_least)
