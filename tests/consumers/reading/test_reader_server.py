"""Readers of a running server that flushes and lets go of its head: every offset, once, in order, with its value."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
import urllib3

from siltlog.infra import names
from siltlog.infra.settings.settings import MIB
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

RECORDS = 60_000
BATCH = 500
FILLER = b"." * 150


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """Its head holds 1 MiB, a tenth of what is published; it flushes all the time."""
    with running_server(flush_ms=20, flush_bytes=200_000, head_bytes_max=MIB) as server:
        yield server


class Client:
    def __init__(self, url: str) -> None:
        self._url = url
        self._http = urllib3.PoolManager(retries=False)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> urllib3.BaseHTTPResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = self._http.request(method, self._url + path, body=body, headers=named, timeout=60)
        assert reply.status < 300, reply.data
        return reply

    def publish(self, topic: str, first: int, count: int) -> None:
        values = pa.array([b"%d " % offset + FILLER for offset in range(first, first + count)], pa.binary())
        batch = pa.record_batch([values, pa.array([0] * count, pa.int32())], names=["value", "partition"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        self.call("POST", f"/v1/topics/{topic}/records", sink.getvalue().to_pybytes(), Content_Type=names.MEDIA_ARROW)

    def arrow(self, topic: str, offset: int, query: str) -> tuple[list[int], list[bytes], int]:
        path = f"/v1/topics/{topic}/partitions/0/records?offset={offset}&wait_ms=2000&{query}"
        reply = self.call("GET", path, Accept=names.MEDIA_ARROW)
        table = pa.ipc.open_stream(reply.data).read_all()
        next_offset = int(reply.headers[names.HEADER_NEXT_OFFSET])
        return table.column("offset").to_pylist(), table.column("value").to_pylist(), next_offset

    def fetch(self, topic: str, offset: int, query: str) -> tuple[list[int], list[bytes], int]:
        asked = {"partitions": [{"topic": topic, "partition": 0, "offset": offset}], "wait_ms": 2_000}
        found = json.loads(self.call("POST", "/v1/fetch", json.dumps(asked).encode()).data)
        records = found["records"]
        values = [record["value"].encode() for record in records]
        return [record["offset"] for record in records], values, found["partitions"][0]["next_offset"]


Read = Callable[[str, int, str], tuple[list[int], list[bytes], int]]


def read_all(read: Read, topic: str, query: str = "") -> None:
    offset = 0
    while offset < RECORDS:
        offsets, values, next_offset = read(topic, offset, query)
        assert offsets == list(range(offset, next_offset))
        assert values == [b"%d " % number + FILLER for number in offsets]
        offset = next_offset


def test_nothing_is_skipped_at_the_seam_nor_after_a_kill(server: ServerProcess) -> None:
    client = Client(server.url)
    body = json.dumps({"name": "seam", "partitions": 1}).encode()
    client.call("POST", "/v1/topics", body, Content_Type=names.MEDIA_JSON)

    def publish() -> None:
        for first in range(0, RECORDS, BATCH):
            client.publish("seam", first, BATCH)

    readers: list[tuple[Read, str]] = [
        (Client(server.url).arrow, "max_records=700"),
        (Client(server.url).arrow, "max_records=7000&isolation=table"),
        (Client(server.url).fetch, ""),
    ]
    with ThreadPoolExecutor(len(readers) + 1) as threads:
        publishing = threads.submit(publish)
        reading = [threads.submit(read_all, read, "seam", query) for read, query in readers]
        for future in [publishing, *reading]:
            future.result()

    server.kill()
    server.restart()
    for read, query in ((Client(server.url).arrow, ""), (Client(server.url).fetch, "")):
        read_all(read, "seam", query)
