"""A stream of the Valkey that Siltlog brings."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.compare.system import BULK_RECORDS, Reader, Running, System
from benchmarks.loads.load import resp_request
from benchmarks.loads.stream_reader import STREAM, StreamReader
from benchmarks.servers.child import valkey_server
from siltlog.infra.redis.embedded import valkey_binary

VALUE_BYTES = 100
WAIT_MS = 500
READ_RECORDS_MAX = 500


class Valkey(System):
    name = "Valkey streams"
    protocol = "resp"
    synced_by = "appendfsync always"
    bulk = f"pipelines of {BULK_RECORDS}"
    bulk_replies = BULK_RECORDS

    @contextmanager
    def running(self, folder: Path, cache: Path) -> Iterator[Running]:
        said = subprocess.run([str(valkey_binary()), "--version"], capture_output=True, text=True, check=True).stdout
        found = re.search(r"v=(\S+)", said)
        with valkey_server(folder) as server:
            yield Running(server.port, server.pid, found[1] if found else "")

    def single(self, port: int, value: bytes) -> Sequence[bytes]:
        return [resp_request(b"XADD", STREAM, b"*", b"v", value)]

    def many(self, port: int, value: bytes) -> Sequence[bytes]:
        return [request * BULK_RECORDS for request in self.single(port, value)]

    def reader(self, port: int) -> Reader:
        return _Group(port)


class _Group(Reader):
    """A member of a group that begins with the next entry."""

    def __init__(self, port: int) -> None:
        self._stream = StreamReader(port, "compare", VALUE_BYTES, acknowledging=False)
        while self._stream.read(READ_RECORDS_MAX, 1):
            pass

    def receive(self) -> int:
        return len(self._stream.read(READ_RECORDS_MAX, WAIT_MS))
