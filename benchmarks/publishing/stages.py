"""Where the server's time goes: each stage of a publish under load, for single records, JSON bodies and Arrow bodies.

The server is a real one whose stages are timed from outside (benchmarks/servers/staged_server.py). What is not in a
stage is the event loop, receiving, and, for what is not answered by the protocol itself, a task and an application for
each.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from benchmarks.bench import TOPIC, Bench
from benchmarks.figures.figure import Figure
from benchmarks.loads.load import Load
from benchmarks.loads.records import ARROW_RECORDS, arrow_body, json_body, json_record, table
from benchmarks.servers.child import cpu_seconds
from benchmarks.servers.staged_server import REST, STAGES, SYNC, staged_server, told
from siltlog import Admin
from siltlog.infra import names

RECORD_BYTES = 100
PARTITIONS = 4
PUBLISH_PATH = f"/v1/topics/{TOPIC}/records"


@dataclass(frozen=True, slots=True)
class Work:
    name: str
    records: int
    connections: int
    media: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Staged:
    """The cost of a load to a server with timed stages."""

    load: Load
    cpu_seconds: float
    stages: Mapping[str, Mapping[str, float]]


def stages(bench: Bench) -> Iterator[Figure]:
    for work in _works():
        yield from _figures(work, _staged(bench, work), _plain_cpu_us(bench, work))


def _works() -> list[Work]:
    value = json_record(RECORD_BYTES)
    return [
        Work("single", 1, 64, names.MEDIA_JSON, json_body(value, 1)),
        Work("JSON 500", 500, 4, names.MEDIA_JSON, json_body(value, 500)),
        Work(
            "Arrow 10,000",
            ARROW_RECORDS,
            4,
            names.MEDIA_ARROW,
            arrow_body(table(ARROW_RECORDS, RECORD_BYTES, keyed=False)),
        ),
    ]


def _figures(work: Work, staged: Staged, plain_cpu_us: float) -> Iterator[Figure]:
    requests = staged.load.replies_in_all
    columns = {f"{work.name}: a request": requests}
    if work.records > 1:
        columns[f"{work.name}: a record"] = requests * work.records
    in_stages = sum(stage["cpu"] for stage in staged.stages.values())
    for column, count in columns.items():
        for name in STAGES:
            yield Figure(name, staged.stages[name]["cpu"] / count * 1e6, "µs", column=column)
        yield Figure(REST, (staged.cpu_seconds - in_stages) / count * 1e6, "µs", column=column)
        yield Figure("all of it", staged.cpu_seconds / count * 1e6, "µs", column=column)
        yield Figure("all of it, without timers", plain_cpu_us * requests / count, "µs", column=column)
    first = next(iter(columns))
    syncs = staged.stages[SYNC]
    yield Figure("requests that one sync serves", requests / syncs["calls"], "", column=first)
    yield Figure("a sync takes, µs of time", syncs["wall"] / syncs["calls"] * 1e6, "µs", column=first)
    yield Figure("requests/s meanwhile", staged.load.per_second, "", column=first)
    yield Figure("p50, µs of time", staged.load.p50_ms * 1000, "µs", column=first)


def _plain_cpu_us(bench: Bench, work: Work) -> float:
    """Processor time of a request, the drain's flush included, on a server as it always is."""
    with bench.server(partitions=PARTITIONS) as server:
        before = server.cpu_seconds()
        load = _load(bench, work, server.port)
        server.await_table()
        return (server.cpu_seconds() - before) / load.replies_in_all * 1e6


def _staged(bench: Bench, work: Work) -> Staged:
    with staged_server(bench.scratch / f"staged-{work.records}", "publish") as (url, process):
        Admin(url).create_topic(TOPIC, PARTITIONS)
        before = cpu_seconds(process.pid)
        load = _load(bench, work, urlsplit(url).port or 0)
        document = told(process)
    return Staged(load, document["cpu"] - before, document["stages"])


def _load(bench: Bench, work: Work, port: int) -> Load:
    return bench.load(port, PUBLISH_PATH, [work.body], work.media, work.connections)
