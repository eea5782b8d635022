"""Publishes over gRPC beside the same over HTTP, at one server, by turns; and what HTTP feels of a load of gRPC."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figures.figure import Figure
from benchmarks.loads.load import counted
from benchmarks.loads.posting import post
from benchmarks.loads.records import ARROW_RECORDS, arrow_body, json_body, json_record, table
from siltlog.infra import names
from siltlog.infra.grpc.made import silt_pb2 as pb

ROUNDS = 3
CONNECTIONS = 64
THREADS = 4
RECORD_BYTES = 100
BULK_TARGET = 0.7
"""What is asked is a share of what HTTP reaches with bodies of so many records."""


@dataclass(frozen=True, slots=True)
class Calls:
    """A load of gRPC on a server."""

    bench: Bench
    port: int

    def begin(self, kind: str, workers: int, message: pb.PublishRequest, seconds: float) -> "subprocess.Popen[bytes]":
        path = self.bench.scratch / f"{kind}-{len(message.arrow_stream)}.bin"
        path.write_bytes(message.SerializeToString())
        given = (str(self.port), kind, str(workers), str(seconds), str(self.bench.warmup_seconds), str(path))
        arguments = [sys.executable, "-m", "benchmarks.protocols.grpc_load", *given]
        return subprocess.Popen(arguments, stdout=subprocess.PIPE)

    def run(self, kind: str, workers: int, message: pb.PublishRequest) -> dict[str, float]:
        return told(self.begin(kind, workers, message, self.bench.seconds / ROUNDS))


def told(process: "subprocess.Popen[bytes]") -> dict[str, float]:
    out, _ = process.communicate()
    if process.returncode:
        raise RuntimeError("the load of gRPC failed; it has said why")
    found: dict[str, float] = json.loads(out)
    return found


def grpc_calls(bench: Bench) -> Iterator[Figure]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with bench.server(grpc_listen=f"127.0.0.1:{port}") as server:
        calls = Calls(bench, port)
        yield from _singles(bench, server, calls)
        yield from _bodies(bench, server, calls)
        yield from _beside(bench, server, calls)


def _one() -> pb.PublishRequest:
    return pb.PublishRequest(topic=TOPIC, records=[pb.PublishRecord(value=json_record(RECORD_BYTES))])


def _http_singles(bench: Bench, server: Server, seconds: float) -> tuple[float, float]:
    body = json_body(json_record(RECORD_BYTES), 1)
    done = bench.load(server.port, server.publish_path, [body], names.MEDIA_JSON, CONNECTIONS, seconds=seconds)
    return done.per_second, done.p99_ms


def _singles(bench: Bench, server: Server, calls: Calls) -> Iterator[Figure]:
    turns = [
        (
            _http_singles(bench, server, bench.seconds / ROUNDS)[0],
            calls.run("singles", CONNECTIONS, _one())["per_second"],
            calls.run("stream", 4, _one())["per_second"],
        )
        for _ in range(ROUNDS)
    ]
    http, unary, streamed = (median(turn[at] for turn in turns) for at in range(3))
    what = f"one record of {RECORD_BYTES} B"
    yield Figure(f"{what}, HTTP, {counted(CONNECTIONS)}", http, "records/s", "limit")
    yield Figure(f"{what}, Publish, {CONNECTIONS} calls at once", unary, "records/s")
    yield Figure(f"{what}, PublishStream, 4 streams", streamed, "records/s")
    yield Figure(f"{what}: Publish, of HTTP", median(turn[1] / turn[0] for turn in turns), "×")
    yield Figure(f"{what}: PublishStream, of HTTP", median(turn[2] / turn[0] for turn in turns), "×")


def _bodies(bench: Bench, server: Server, calls: Calls) -> Iterator[Figure]:
    body = arrow_body(table(ARROW_RECORDS, RECORD_BYTES, keyed=False))
    turns = []
    for _ in range(ROUNDS):
        posted = post(
            server.pool,
            server.publish_path,
            [body],
            names.MEDIA_ARROW,
            threads=THREADS,
            seconds=bench.seconds / ROUNDS,
            warmup_seconds=bench.warmup_seconds,
        )
        called = calls.run("singles", THREADS, pb.PublishRequest(topic=TOPIC, arrow_stream=body))
        turns.append((posted.per_second, called["per_second"]))
    what = f"{ARROW_RECORDS:,} records in Arrow, {THREADS} at once"
    for label, at in (("HTTP", 0), ("Publish", 1)):
        yield Figure(f"{what}, {label}", median(turn[at] for turn in turns) * ARROW_RECORDS, "records/s")
    ratio = median(turn[1] / turn[0] for turn in turns)
    yield Figure(f"{what}: Publish, of HTTP", ratio, "×", at_least=BULK_TARGET)


def _beside(bench: Bench, server: Server, calls: Calls) -> Iterator[Figure]:
    """p99 of publishes over HTTP, alone and while others call by gRPC without a pause."""
    seconds = bench.seconds / ROUNDS
    turns = []
    for _ in range(ROUNDS):
        alone = _http_singles(bench, server, seconds)
        # Longer than what is measured: it must not end before.
        load = calls.begin("singles", 16, _one(), seconds + 3 * bench.warmup_seconds)
        beside = _http_singles(bench, server, seconds)
        told(load)
        turns.append((alone, beside))
    what = f"publishes over HTTP, {counted(CONNECTIONS)}"
    yield Figure(f"{what}: p99 alone", median(alone[1] for alone, _ in turns), "ms")
    yield Figure(f"{what}: p99 beside 16 calls of gRPC at once", median(beside[1] for _, beside in turns), "ms")
    yield Figure(f"{what}: p99 beside gRPC, of alone", median(b[1] / a[1] for a, b in turns), "×")
