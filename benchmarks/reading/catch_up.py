"""Latency of paced publishes while four consumers read a topic from its start, through the server or from its files."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from benchmarks.bench import Bench, Server
from benchmarks.figures.figure import Figure
from benchmarks.loads.load import Load
from benchmarks.loads.posting import post
from benchmarks.loads.records import ARROW_RECORDS, arrow_body, json_body, json_record, table
from benchmarks.servers.child import ending
from siltlog.consumers.library.sources.choice import Read
from siltlog.infra import names

CONNECTIONS = 64
PER_SECOND = 1_000
RECORD_BYTES = 100
READERS = 4
PAST_TOPIC = "past"
PAST_RECORDS = 2_000_000
RATIO_MAX = 2.0
READS: dict[Read, str] = {"server": "through the server", "table": "from the files"}


def catch_up(bench: Bench) -> Iterator[Figure]:
    records = PAST_RECORDS // 4 if bench.quick else PAST_RECORDS
    with bench.server() as server:
        server.admin.create_topic(PAST_TOPIC, READERS)
        body = arrow_body(table(ARROW_RECORDS, RECORD_BYTES, keyed=False))
        path = f"/v1/topics/{PAST_TOPIC}/records"
        post(server.pool, path, [body], names.MEDIA_ARROW, threads=1, seconds=60, posts_max=records // ARROW_RECORDS)
        # A stop flushes, and afterwards nothing of the topic is in the server's memory.
        server.process.restart()
        for read, how in READS.items():
            with _readers(server, read) as readers:
                beside = _publish(bench, server)
                rate = sum(_stopped(reader) for reader in readers)
            alone = _publish(bench, server)
            # Who reads the files asks next to nothing of the server: what that costs, the processors cost.
            limit = "" if read == "table" else _against(READS["table"])
            ratio, most = beside.p99_ms / alone.p99_ms, RATIO_MAX if limit else None
            yield _figure(f"no readers, after those {how}: p99", alone)
            yield _figure(f"{READERS} readers {how}: p99", beside)
            yield Figure(_against(how), ratio, "×", "siltlog" if limit else "limit", limit, at_most=most)
            yield Figure(
                f"what the readers had {how}", rate, "records/s", megabytes_per_second=rate * RECORD_BYTES / 1e6
            )


@contextmanager
def _readers(server: Server, read: Read) -> Iterator[Sequence["subprocess.Popen[str]"]]:
    """One for each partition, all of them reading."""
    with ExitStack() as stack:
        readers = [_started(stack, server, read, partition) for partition in range(READERS)]
        for reader in readers:
            assert reader.stdout is not None
            if reader.stdout.readline() != "ready\n":
                raise RuntimeError(f"a reader failed (exit status {reader.wait()})")
        yield readers


def _started(stack: ExitStack, server: Server, read: Read, partition: int) -> "subprocess.Popen[str]":
    arguments = [sys.executable, "-m", "benchmarks.reading.reader", server.url, PAST_TOPIC, str(partition), read]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.enter_context(ending(process))
    return process


def _stopped(reader: "subprocess.Popen[str]") -> float:
    """How many records it had in a second."""
    assert reader.stdin is not None and reader.stdout is not None
    reader.stdin.close()
    return float(reader.stdout.read())


def _against(how: str) -> str:
    return f"readers {how} against none: p99"


def _publish(bench: Bench, server: Server) -> Load:
    body = json_body(json_record(RECORD_BYTES), 1)
    return bench.load(server.port, server.publish_path, [body], names.MEDIA_JSON, CONNECTIONS, per_second=PER_SECOND)


def _figure(label: str, load: Load) -> Figure:
    return Figure(label, load.p99_ms, "ms", p50_ms=load.p50_ms, p99_ms=load.p99_ms)
