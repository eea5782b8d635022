"""Memory while 5 GB flow through a server that was given little of it, and are read at the same time."""

import threading
import time
from collections.abc import Iterator

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figures.figure import Figure
from benchmarks.loads.posting import post
from benchmarks.loads.records import ARROW_RECORDS, arrow_body, table
from siltlog.infra import names

MIB = 1024 * 1024
FLOW_BYTES = 5_000_000_000
QUICK_FLOW_BYTES = 500_000_000
HEAD_BYTES = 64 * MIB
WAL_BYTES = 1024 * MIB
RECORD_BYTES = 100
SECONDS_MAX = 240.0
SAMPLE_SECONDS = 0.02
READ_BYTES = 4 * MIB


def memory(bench: Bench) -> Iterator[Figure]:
    flow = QUICK_FLOW_BYTES if bench.quick else FLOW_BYTES
    body = arrow_body(table(ARROW_RECORDS, RECORD_BYTES, keyed=False))
    posts = flow // len(body)
    with bench.server(head_bytes_max=HEAD_BYTES, wal_bytes_max=WAL_BYTES) as server:
        sampler = _Sampler(server)
        reader = _Reader(server)
        started = time.perf_counter()
        post(
            server.pool, server.publish_path, [body], names.MEDIA_ARROW, threads=2, seconds=SECONDS_MAX, posts_max=posts
        )
        published = time.perf_counter() - started
        server.await_table(SECONDS_MAX)
        settled = time.perf_counter() - started
        read_bytes = reader.stop()
        highest = sampler.stop()
        at_rest = server.memory_bytes()
        head, wal = HEAD_BYTES // MIB, WAL_BYTES // MIB
        what = f"{flow / 1e9:.1f} GB, head of {head} MiB, log of {wal} MiB"
        yield Figure(f"{what}: most memory", highest / MIB, "MiB")
        yield Figure("memory before", sampler.before / MIB, "MiB")
        yield Figure("memory when all is settled", at_rest / MIB, "MiB")
        yield Figure("most disk of the log", sampler.wal_bytes / MIB, "MiB", at_most=float(wal))
    records = posts * ARROW_RECORDS
    yield _rate("published, sustained", records, published)
    yield _rate("settled in the table, sustained", records, settled)
    yield Figure("read meanwhile", read_bytes / settled / 1e6, "MB/s")


def _rate(label: str, records: int, seconds: float) -> Figure:
    megabytes = records / seconds * RECORD_BYTES / 1e6
    return Figure(label, records / seconds, "records/s", megabytes_per_second=megabytes)


class _Sampler:
    """Looks at the server's memory all the time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.before = self._highest = server.memory_bytes()
        self.wal_bytes = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(SAMPLE_SECONDS):
            self._highest = max(self._highest, self._server.memory_bytes())
            self.wal_bytes = max(self.wal_bytes, self._server.wal_bytes())

    def stop(self) -> int:
        self._ending.set()
        self._thread.join()
        return self._highest


class _Reader:
    """Reads everything from the beginning, partition after partition, as fast as it can."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._bytes = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        offsets = {entry["partition"]: 0 for entry in self._server.admin.offsets(TOPIC)}
        while not self._ending.is_set():
            for partition, offset in offsets.items():
                path = f"/v1/topics/{TOPIC}/partitions/{partition}/records?offset={offset}&max_bytes={READ_BYTES}"
                reply = self._server.pool.urlopen("GET", path, headers={"Accept": names.MEDIA_ARROW})
                assert reply.status == 200, reply.data[:300]
                self._bytes += len(reply.data)
                offsets[partition] = int(reply.headers[names.HEADER_NEXT_OFFSET])

    def stop(self) -> int:
        self._ending.set()
        self._thread.join()
        return self._bytes
