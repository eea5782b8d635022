"""Siltlog, as it is by default."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.bench import TOPIC
from benchmarks.compare.system import BULK_RECORDS, PARTITIONS, Reader, Running, System
from benchmarks.loads.load import http_is_whole, http_request
from benchmarks.loads.records import arrow_body, json_body, table
from benchmarks.wires.caller import Caller
from benchmarks.wires.wire import Wire
from siltlog import Admin
from siltlog.infra import names
from siltlog.server_process import ServerProcess

PATH = f"/v1/topics/{TOPIC}/records"
WAIT_MS = 500


class Siltlog(System):
    name = "Siltlog"
    protocol = "http"
    synced_by = "acks=wal, the default"
    bulk = f"JSON bodies of {BULK_RECORDS}"

    @contextmanager
    def running(self, folder: Path, cache: Path) -> Iterator[Running]:
        server = ServerProcess(folder, {"log_level": "warning"})
        try:
            server.start()
            admin = Admin(server.url)
            admin.create_topic(TOPIC, PARTITIONS)
            version = str(admin.cluster()["version"])
            yield Running(urlsplit(server.url).port or 0, server.pid, version)
        finally:
            server.stop()

    def single(self, port: int, value: bytes) -> Sequence[bytes]:
        return [
            http_request(port, f"{PATH}?partition={partition}", json_body(value, 1), names.MEDIA_JSON)
            for partition in range(PARTITIONS)
        ]

    def many(self, port: int, value: bytes) -> Sequence[bytes]:
        return [http_request(port, PATH, json_body(value, BULK_RECORDS), names.MEDIA_JSON)]

    def reader(self, port: int) -> Reader:
        return _LongPoll(port)


class SiltlogArrow(Siltlog):
    """Differs in bulk alone: what a `Producer` sends."""

    name = "Siltlog, Arrow"
    bulk = f"bodies of {BULK_RECORDS}"

    def many(self, port: int, value: bytes) -> Sequence[bytes]:
        body = arrow_body(table(BULK_RECORDS, len(value), keyed=False))
        return [http_request(port, PATH, body, names.MEDIA_ARROW)]


class _LongPoll(Reader):
    def __init__(self, port: int) -> None:
        self._caller = Caller(port, Wire(lambda _: http_is_whole))
        self._port = port
        self._offset = self._read("latest", 0)

    def receive(self) -> int:
        before, self._offset = self._offset, self._read(str(self._offset), WAIT_MS)
        return self._offset - before

    def _read(self, offset: str, wait_ms: int) -> int:
        """Gives the offset after what was read."""
        path = f"/v1/topics/{TOPIC}/partitions/0/records?offset={offset}&wait_ms={wait_ms}"
        answer = self._caller.call(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n\r\n".encode())
        return int(json.loads(answer.partition(b"\r\n\r\n")[2])["next_offset"])
