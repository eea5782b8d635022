"""Publishes with TLS and without, in turns, at two servers that run side by side."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median

import trustme

from benchmarks.bench import Bench, Server
from benchmarks.figures.figure import Figure
from benchmarks.loads.load import counted
from benchmarks.loads.posting import post
from benchmarks.loads.records import ARROW_RECORDS, arrow_body, json_body, json_record, table
from siltlog.infra import names

ROUNDS = 3
CONNECTIONS = 64
THREADS = 4
RECORD_BYTES = 100
SINGLES_TARGET = 0.8
BODIES_TARGET = 0.7
"""The least share, with TLS, of the rate that is reached without it."""

Turn = tuple[float, float]
"""Records a second, and the server's processor time for a record, in microseconds."""


def tls(bench: Bench) -> Iterator[Figure]:
    folder = bench.scratch / "certificates"
    folder.mkdir()
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    ca, certificate, key = (str(folder / name) for name in ("ca.pem", "server.pem", "server.key"))
    authority.cert_pem.write_to_path(ca)
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    turns = replace(bench, seconds=bench.seconds / ROUNDS)
    with bench.server() as plain, bench.server(ca=ca, tls_cert=certificate, tls_key=key) as covered:
        singles = [_singles(turns, server, its) for _ in range(ROUNDS) for server, its in ((plain, ""), (covered, ca))]
        yield from _figures(f"one record of {RECORD_BYTES} B, {counted(CONNECTIONS)}", singles, SINGLES_TARGET)
        bodies = [_bodies(turns, server) for _ in range(ROUNDS) for server in (plain, covered)]
        yield from _figures(f"{ARROW_RECORDS:,} records in Arrow, {counted(THREADS)}", bodies, BODIES_TARGET)


def _figures(what: str, turns: Sequence[Turn], target: float) -> Iterator[Figure]:
    """`turns` are without and with TLS by turns."""
    plain, covered = turns[::2], turns[1::2]
    for label, some in (("without TLS", plain), ("with TLS", covered)):
        speed, cpu_us = median(speed for speed, _ in some), median(cpu for _, cpu in some)
        yield Figure(f"{what}, {label}", speed, "records/s", cpu_us=cpu_us)
    ratio = median(fast / slow for (slow, _), (fast, _) in zip(plain, covered, strict=True))
    yield Figure(f"{what}: with TLS, of what it is without", ratio, "×", at_least=target)


def _singles(bench: Bench, server: Server, ca: str) -> Turn:
    body = json_body(json_record(RECORD_BYTES), 1)

    def load() -> tuple[float, int]:
        done = bench.load(server.port, server.publish_path, [body], names.MEDIA_JSON, CONNECTIONS, ca=ca)
        return done.per_second, done.replies_in_all

    return _measured(server, load)


def _bodies(bench: Bench, server: Server) -> Turn:
    body = arrow_body(table(ARROW_RECORDS, RECORD_BYTES, keyed=False))

    def load() -> tuple[float, int]:
        done = post(
            server.pool,
            server.publish_path,
            [body],
            names.MEDIA_ARROW,
            threads=THREADS,
            seconds=bench.seconds,
            warmup_seconds=bench.warmup_seconds,
        )
        return done.per_second * ARROW_RECORDS, done.posts_in_all * ARROW_RECORDS

    return _measured(server, load)


def _measured(server: Server, load: Callable[[], tuple[float, int]]) -> Turn:
    before = server.cpu_seconds()
    per_second, records = load()
    return per_second, (server.cpu_seconds() - before) / records * 1e6
