"""Where the time of a read goes: each stage in the server, for one record, 500 as JSON and 10,000 as Arrow from the
head; and each stage in the `Consumer`, for records one by one and for Arrow.

A load asks for the same records again and again, so that nothing but reading is measured. The consumer reads on.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from benchmarks.bench import TOPIC, Bench, connection_pool
from benchmarks.figures.figure import Figure
from benchmarks.loads.load import Plan, http_request, run_load
from benchmarks.loads.posting import post
from benchmarks.loads.records import ARROW_RECORDS, arrow_body, table
from benchmarks.servers.child import cpu_seconds
from benchmarks.servers.staged_server import READ_STAGES, REST, calibrate, installed, staged_server, told
from siltlog import Admin, Consumer, TopicPartition
from siltlog.infra import names

RECORD_BYTES = 100
RECORDS = 500_000
CLIENT_STAGES: dict[str, tuple[str, ...]] = {
    "ask, and wait for the reply": ("siltlog.infra.client.transport:HttpTransport.send",),
    "take the reply apart": ("siltlog.consumers.library.sources.server:fetched_of",),
    "buffer and hand out": (
        "siltlog.consumers.library.positions:Positions.land",
        "siltlog.consumers.library.positions:Positions.take",
    ),
    "make records": ("siltlog.consumers.library.consumer:records_in",),
}
Poll = Literal["poll(500)", "poll_arrow()"]


@dataclass(frozen=True, slots=True)
class Work:
    name: str
    records: int
    media: str


WORKS = (
    Work("one record", 1, names.MEDIA_ARROW),
    Work("JSON 500", 500, names.MEDIA_JSON),
    Work("Arrow 10,000", ARROW_RECORDS, names.MEDIA_ARROW),
)


def read_stages(bench: Bench) -> Iterator[Figure]:
    for work in WORKS:
        yield from _server(bench, work)
    for poll in ("poll(500)", "poll_arrow()"):
        yield from _client(bench, poll)


def _server(bench: Bench, work: Work) -> Iterator[Figure]:
    document = {
        "partitions": [{"topic": TOPIC, "partition": 0, "offset": 0}],
        "max_records": work.records,
        "max_bytes": 16 * 1024 * 1024,
    }
    body = json.dumps(document).encode()
    with staged_server(bench.scratch / f"staged-{work.records}", "read") as (url, process):
        port = urlsplit(url).port or 0
        _publish(url, ARROW_RECORDS)
        request = http_request(port, "/v1/fetch", body, names.MEDIA_JSON, Accept=work.media)
        before = cpu_seconds(process.pid)
        load = run_load(Plan("http", port, 1, bench.seconds, bench.warmup_seconds), [request])
        measured = told(process)
    requests = load.replies_in_all
    cpu = measured["cpu"] - before
    stages = {name: stage["cpu"] for name, stage in measured["stages"].items()}
    columns = {f"{work.name}: a fetch": requests}
    if work.records > 1:
        columns[f"{work.name}: a record"] = requests * work.records
    for column, count in columns.items():
        for name in READ_STAGES:
            yield Figure(name, stages[name] / count * 1e6, "µs", column=column)
        yield Figure(REST, (cpu - sum(stages.values())) / count * 1e6, "µs", column=column)
        yield Figure("all of it", cpu / count * 1e6, "µs", column=column)
    yield Figure("a fetch takes, µs of time", load.p50_ms * 1000, "µs", column=next(iter(columns)))


def _client(bench: Bench, poll: Poll) -> Iterator[Figure]:
    calibrate()
    records = RECORDS // 5 if bench.quick else RECORDS
    with bench.server(partitions=1) as server:
        _publish(server.url, records)
        with (
            installed(CLIENT_STAGES) as stages,
            Consumer(server.url, assign=[TopicPartition(TOPIC, 0)], read="server") as consumer,
        ):
            before, started, count = time.process_time(), time.perf_counter(), 0
            while count < records:
                came = len(consumer.poll(500)) if poll == "poll(500)" else consumer.poll_arrow().num_rows
                assert came, f"no more than {count} of {records} records came"
                count += came
            cpu, seconds = time.process_time() - before, time.perf_counter() - started
            took = {name: stage.document()["cpu"] for name, stage in stages.items()}
    column = f"Consumer.{poll}: a record"
    for name, each in took.items():
        yield Figure(name, each / records * 1e6, "µs", column=column)
    yield Figure("the consumer: the rest", (cpu - sum(took.values())) / records * 1e6, "µs", column=column)
    yield Figure("the consumer: all of it", cpu / records * 1e6, "µs", column=column)
    yield Figure("a record takes, µs of time", seconds / records * 1e6, "µs", column=column)


def _publish(url: str, records: int) -> None:
    with Admin(url) as admin:
        admin.create_topic(TOPIC, 1, exist_ok=True)
    body = arrow_body(table(ARROW_RECORDS, RECORD_BYTES, keyed=False))
    pool = connection_pool(urlsplit(url).port or 0)
    path = f"/v1/topics/{TOPIC}/records"
    post(pool, path, [body], names.MEDIA_ARROW, threads=1, seconds=60, posts_max=records // ARROW_RECORDS)
    pool.close()
