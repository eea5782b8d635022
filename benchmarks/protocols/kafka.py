"""Clients of Kafka at Siltlog, and at a broker of Kafka beside it, by turns: both sync before they acknowledge.

Bulk and reading go by Kafka's own programs, `kafka-producer-perf-test` and `kafka-consumer-perf-test`.
"""

import random
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.compare.installing import KAFKA_BROKER, kafka_jars
from benchmarks.compare.kafka import Kafka
from benchmarks.compare.system import PARTITIONS, free_port
from benchmarks.figures.figure import Figure, Kind
from benchmarks.loads.load import Plan, counted, run_load
from benchmarks.loads.records import json_record
from benchmarks.servers.child import cpu_seconds
from benchmarks.wires import kafka as wire
from siltlog.infra import names
from siltlog.infra.client.increasing import stream_of
from siltlog.infra.kafka.frames import decode_response, encode_request

VERSION = "4.3.0"
ARTIFACTS = (*KAFKA_BROKER, "kafka-tools")
CACHE = Path.home() / ".cache" / "siltlog" / "compare"
RECORD_BYTES = 100
SINGLE_CONNECTIONS = {1: None, 64: 25_000}
"""How many connections send one record at a time, and the target of each."""
BATCH_BYTES = {16 * 1024: 1_500_000, 1024 * 1024: 2_500_000}
RECORDS, QUICK_RECORDS = 1_000_000, 50_000
BULK_TIMES = 3
"""So many times more are sent in batches: one million takes two seconds, most of which Java makes machine code."""
LONG_TIMES = 20
"""So many times more go on for longer than a burst may: the files of a table are written beside then, and count."""
SHARED_PART = 10
"""Records that travel one by one take so much longer: fewer are sent."""
LINGER_MS = 5
WARMUP_PART = 5
"""The first fifth of the records that Java's producer sends does not count: its machine code is made meanwhile."""
READ_TARGET = 3_000_000
PACE_PER_SECOND = 1_000
AGE_TARGET_MS = 3.0
COME_SECONDS_MAX = 60.0
CODECS = ("none", "lz4", "snappy", "zstd", "gzip")
FETCH, FETCH_VERSION = 1, 11
FETCH_BYTES = 1024 * 1024
_RATE = re.compile(r"([\d.]+) records/sec")
_PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
_CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"


class Side(NamedTuple):
    """One of the two that are measured."""

    name: str
    kind: Kind
    port: int
    pid: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


def kafka(bench: Bench) -> Iterator[Figure]:
    jars = kafka_jars(CACHE, VERSION, ARTIFACTS)
    port = free_port()
    broker = Kafka(VERSION, ARTIFACTS)
    with (
        bench.server(kafka_listen=f"127.0.0.1:{port}", auto_create_partitions=PARTITIONS) as server,
        broker.running(bench.scratch / "kafka", CACHE) as running,
    ):
        peer = Side(f"Kafka {VERSION}, flush.messages=1", "peer", running.port, running.pid)
        sides = (peer, Side("Siltlog", "siltlog", port, server.process.pid))
        yield from _singles(bench, sides)
        yield from _sent_by_java(bench, server, sides, jars)
        yield from _read_by_java(bench, server, sides, jars)
        yield from _ages(bench, sides)
        yield from _compressed(bench, server, sides[1])


def _records(bench: Bench) -> int:
    return QUICK_RECORDS if bench.quick else RECORDS


def _figure(side: Side, sides: Sequence[Side], what: str, value: float, unit: str, **more: Any) -> Figure:
    """Siltlog's has the other's as its limit, and alone a target."""
    if side.kind == "siltlog":
        return Figure(f"{what}: {side.name}", value, unit, limit=f"{what}: {sides[0].name}", **more)
    targets = ("at_least", "at_most")
    return Figure(
        f"{what}: {side.name}", value, unit, side.kind, **{name: more[name] for name in more if name not in targets}
    )


def _singles(bench: Bench, sides: Sequence[Side]) -> Iterator[Figure]:
    value = json_record(RECORD_BYTES)
    requests = [wire.produce([value], partition) for partition in range(PARTITIONS)]
    for connections, target in SINGLE_CONNECTIONS.items():
        for side in sides:
            before = cpu_seconds(side.pid)
            plan = Plan("kafka", side.port, connections, bench.seconds, bench.warmup_seconds)
            load = run_load(plan, requests)
            used = (cpu_seconds(side.pid) - before) / load.replies_in_all * 1e6
            what = f"one record a request, {counted(connections)}"
            yield _figure(
                side, sides, what, load.per_second, "records/s",
                at_least=target, p50_ms=load.p50_ms, p99_ms=load.p99_ms, cpu_us=used,
            )  # fmt: skip


def _sent_by_java(bench: Bench, server: Server, sides: Sequence[Side], jars: Path) -> Iterator[Figure]:
    """One idempotent producer, as it is by default: of records that travel alone, and in batches."""
    count = _records(bench)
    sent = {"each record a batch": (count // SHARED_PART, 0, 0, 25_000)}
    for size, target in BATCH_BYTES.items():
        sent[f"batches of up to {size // 1024} KiB"] = (count * BULK_TIMES, size, LINGER_MS, target)
    largest, target = max(BATCH_BYTES.items())
    sent[f"the same, {count * LONG_TIMES:,} records"] = (count * LONG_TIMES, largest, LINGER_MS, target)
    for what, (records, size, linger_ms, target) in sent.items():
        for side in sides:
            before = cpu_seconds(side.pid)
            rate = _send(jars, side, TOPIC, records, size, linger_ms)
            _await_table(server, side, TOPIC)
            used = (cpu_seconds(side.pid) - before) / records * 1e6
            label = f"kafka-producer-perf-test, {what}"
            yield _figure(side, sides, label, rate, "records/s", at_least=target, cpu_us=used)


def _await_table(server: Server, side: Side, topic: str) -> None:
    """Has files that are written later count as work of who writes them, and not slow the other's turn."""
    if side.kind == "siltlog":
        server.await_table(topic=topic)


def _send(jars: Path, side: Side, topic: str, records: int, batch_bytes: int, linger_ms: int) -> float:
    """Gives the records a second."""
    properties = (f"batch.size={batch_bytes}", f"linger.ms={linger_ms}", "acks=all", "max.request.size=4000000")
    said = _java(
        jars, _PRODUCER, "--bootstrap-server", side.address, "--topic", topic, "--num-records", str(records),
        "--record-size", str(RECORD_BYTES), "--throughput", "-1", "--warmup-records", str(records // WARMUP_PART),
        "--command-property", *properties,
    )  # fmt: skip
    return float(_RATE.findall(said)[-1])


def _read_by_java(bench: Bench, server: Server, sides: Sequence[Side], jars: Path) -> Iterator[Figure]:
    records = _records(bench)
    for side in sides:
        _send(jars, side, "read", records, FETCH_BYTES, LINGER_MS)
        _await_table(server, side, "read")
        before = cpu_seconds(side.pid)
        said = _java(
            jars, _CONSUMER, "--bootstrap-server", side.address, "--topic", "read", "--num-records", str(records),
            "--hide-header",
        )  # fmt: skip
        used = (cpu_seconds(side.pid) - before) / records * 1e6
        # The last column: records a second without the time in which the group is made.
        rate = float(said.strip().splitlines()[-1].rpartition(",")[2])
        what = f"kafka-consumer-perf-test, {records:,} records"
        yield _figure(side, sides, what, rate, "records/s", at_least=READ_TARGET, cpu_us=used)


def _java(jars: Path, program: str, *arguments: str) -> str:
    done = subprocess.run(
        ["java", "-Xmx512m", "-cp", f"{jars}/*", program, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{program} failed: {(done.stderr or done.stdout)[-600:]}")
    return done.stdout


def _ages(bench: Bench, sides: Sequence[Side]) -> Iterator[Figure]:
    """How old records are when a consumer has them that reads all the time; both are librdkafka's."""
    for side in sides:
        ages = np.array(_paced(bench, side)) / 1e6
        for percent, target in ((50, None), (99, AGE_TARGET_MS)):
            what = f"end to end at {PACE_PER_SECOND:,} records/s, p{percent}"
            yield _figure(side, sides, what, float(np.percentile(ages, percent)), "ms", at_most=target)


def _paced(bench: Bench, side: Side) -> list[int]:
    """The age of each record in nanoseconds, without those of the warm-up."""
    count = int((bench.warmup_seconds + bench.seconds) * PACE_PER_SECOND)
    producer = Producer({"bootstrap.servers": side.address, "linger.ms": 0, "enable.idempotence": True})
    producer.produce("paced", b"made")
    producer.flush(COME_SECONDS_MAX)
    consumer = Consumer(
        {"bootstrap.servers": side.address, "group.id": "none", "enable.auto.commit": False, "fetch.wait.max.ms": 500}
    )
    consumer.assign([TopicPartition("paced", partition, 0) for partition in range(PARTITIONS)])
    ages: list[int] = []
    filler = bytes(RECORD_BYTES - 8)

    def read() -> None:
        deadline = time.monotonic() + COME_SECONDS_MAX + count / PACE_PER_SECOND
        while len(ages) < count and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None or message.error() is not None:
                continue
            value = message.value() or b""
            if len(value) == RECORD_BYTES:
                ages.append(time.monotonic_ns() - int.from_bytes(value[:8]))

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / PACE_PER_SECOND - time.monotonic()))
        producer.produce("paced", time.monotonic_ns().to_bytes(8) + filler, partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush(COME_SECONDS_MAX)
    reading.join()
    consumer.close()
    if len(ages) < count:
        raise RuntimeError(f"{side.name}: {count - len(ages)} of {count} records did not come")
    return ages[int(bench.warmup_seconds * PACE_PER_SECOND) :]


def _compressed(bench: Bench, server: Server, side: Side) -> Iterator[Figure]:
    """What `fetch.compression` costs the server, and saves."""
    records = _records(bench)
    body = stream_of(pa.table({"value": _events(min(records, 50_000))}), "lz4")
    for codec in CODECS:
        topic = f"read-{codec}"
        server.admin.create_topic(topic, 1, {"fetch.compression": codec})
        for _ in range(max(records // 50_000, 1)):
            path = f"/v1/topics/{topic}/records"
            reply = server.pool.urlopen("POST", path, body=b"".join(body), headers={"Content-Type": names.MEDIA_ARROW})
            assert reply.status == 200, reply.data
        before, began = cpu_seconds(side.pid), time.perf_counter()
        count, nbytes = _read_all(side.port, topic)
        took, used = time.perf_counter() - began, cpu_seconds(side.pid) - before
        what = f"fetch.compression={codec}, one reader that inflates nothing"
        yield Figure(what, count / took, "records/s", column="records/s")
        yield Figure(what, used / count * 1e6, "µs", column="server µs a record")
        yield Figure(what, nbytes / count, "B", column="bytes a record")


def _events(count: int) -> pa.Array:
    """Values of about 100 B that differ as those of events do."""
    chance = random.Random(1)
    cities = ("Paris", "London", "Roma", "Oslo", "Wien", "Praha")
    return pa.array(
        [
            b'{"id":%d,"user":"u%d","city":"%s","price":%.2f,"paid":%s,"at":%d}'
            % (
                chance.randrange(10**9), chance.randrange(10_000), chance.choice(cities).encode(),
                chance.random() * 100, chance.choice((b"true", b"false")), 1_700_000_000_000 + number,
            )
            for number in range(count)
        ],
        pa.binary(),
    )  # fmt: skip


def _read_all(port: int, topic: str) -> tuple[int, int]:
    """Reads a topic of one partition to its end: how many records there are, and in how many bytes they came."""
    count = nbytes = offset = 0
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answers:
        while True:
            parts = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}]
            asked = {"max_wait_ms": 0, "min_bytes": 1, "topics": [{"topic": topic, "partitions": parts}]}
            frame = encode_request(FETCH, FETCH_VERSION, 1, "bench", asked)
            connection.sendall(len(frame).to_bytes(4) + frame)
            length = int.from_bytes(answers.read(4))
            body = decode_response(FETCH, FETCH_VERSION, answers.read(length)).body
            records = bytes(body["responses"][0]["partitions"][0]["records"])
            if not records:
                return count, nbytes
            nbytes += len(records)
            for offset, rows in wire.counts(records):  # noqa: B007 - the offset after the last one is where it goes on
                count += rows
