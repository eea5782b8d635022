"""The cost of asking who calls: single publishes at 64 connections, without authentication and with a key."""

from collections.abc import Iterator
from statistics import median

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figures.figure import Figure
from benchmarks.loads.load import Load
from benchmarks.loads.records import json_body, json_record
from siltlog.infra import names
from siltlog.infra.client.calls import document_of
from siltlog.infra.client.credentials.authorized import open_transport
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.transport import Caller
from siltlog.infra.clock import SystemClock

CONNECTIONS = 64
RECORD_BYTES = 100
ENTRIES = 100
TURNS, QUICK_TURNS = 8, 2
OFF = "nobody is asked who he is"
ON = f"a key, and {ENTRIES} entries"
RATIO_MIN = 0.95


def access(bench: Bench) -> Iterator[Figure]:
    """Measures with and without access control by turns, so that what slows the machine slows both."""
    body = json_body(json_record(RECORD_BYTES), 1)
    with bench.server() as off, bench.server(auth="on") as on:
        headers = {OFF: {}, ON: {"Authorization": f"Bearer {_key(on)}"}}
        loads: dict[str, list[tuple[Load, float]]] = {OFF: [], ON: []}
        for _ in range(QUICK_TURNS if bench.quick else TURNS):
            for label, server in ((OFF, off), (ON, on)):
                before = server.cpu_seconds()
                load = bench.load(
                    server.port, server.publish_path, [body], names.MEDIA_JSON, CONNECTIONS, headers=headers[label]
                )
                loads[label].append((load, (server.cpu_seconds() - before) / load.replies_in_all * 1e6))
    for label, turns in loads.items():
        yield Figure(
            label,
            median(load.per_second for load, _ in turns),
            "records/s",
            limit="" if label == OFF else OFF,
            p50_ms=median(load.p50_ms for load, _ in turns),
            p99_ms=median(load.p99_ms for load, _ in turns),
            cpu_us=median(cpu_us for _, cpu_us in turns),
        )
    ratios = [
        on_load.per_second / off_load.per_second for (off_load, _), (on_load, _) in zip(*loads.values(), strict=True)
    ]
    yield Figure("the rate with a key, of that without", median(ratios), "", at_least=RATIO_MIN)


def _key(server: Server) -> str:
    """Makes a key that may write the topic, behind entries of others and of its own."""
    endpoints, clock = Endpoints(f"unix:{server.process.data_dir / names.SOCKET_FILE}"), SystemClock()
    transport = open_transport(endpoints, clock)
    caller = Caller(endpoints, transport, clock, retry_timeout_ms=0)
    made = caller.run(document_of("POST", "/v1/access/keys", {"name": "load"}))
    for number in range(ENTRIES):
        entry = {
            "principal": "key:load" if number % 10 == 9 else f"key:other-{number}",
            "kind": "topic",
            "name": TOPIC if number == ENTRIES - 1 else f"topic-{number}",
            "operations": ["write"],
        }
        caller.run(document_of("PUT", f"/v1/access/acls/e{number}", entry))
    transport.close()
    return str(made["key"])
