"""A benchmark's surroundings: a folder on the disk to be measured, a duration, and servers to measure."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3

from benchmarks.loads.load import Load, Plan, http_request, resp_request, run_load
from benchmarks.servers.child import cpu_seconds
from siltlog import Admin
from siltlog.infra import names
from siltlog.server_process import ServerProcess

TOPIC = "bench"
TRIES = 100


@dataclass(frozen=True, slots=True)
class Bench:
    scratch: Path
    """An empty folder on the disk of the project; removed after the run."""
    seconds: float
    """How long one load is measured."""
    quick: bool
    tries: int = TRIES
    """How often a benchmark tries the same thing, where it does so again and again."""
    kept: Path | None = None
    """The folder where the tries of earlier calls lie; without one they are forgotten."""

    def tries_file(self, name: str) -> Path:
        return (self.kept or self.scratch) / f"{name}.jsonl"

    @property
    def warmup_seconds(self) -> float:
        return min(1.0, self.seconds / 3)

    @contextmanager
    def server(
        self, *, partitions: int = 4, config: dict[str, int | str] | None = None, ca: str | None = None, **settings: Any
    ) -> Iterator["Server"]:
        """A new server with the topic TOPIC; `ca` is the file of the authority of its certificate."""
        folder = self.scratch / f"node-{len(list(self.scratch.iterdir()))}"
        process = ServerProcess(folder, {"log_level": "warning", **settings})
        try:
            process.start()
            server = Server(process, ca, asks_who=settings.get("auth") == "on")
            server.admin.create_topic(TOPIC, partitions, config)
            yield server
        finally:
            process.stop()

    def load(
        self,
        port: int,
        path: str,
        bodies: Sequence[bytes],
        media: str,
        connections: int,
        *,
        headers: Mapping[str, str] | None = None,
        **plan: Any,
    ) -> Load:
        """Posts `bodies` again and again; `plan` are further fields of a Plan."""
        requests = [http_request(port, path, body, media, **(headers or {})) for body in bodies]
        return self._load("http", port, requests, connections, **plan)

    def load_stream(
        self, port: int, value: bytes, connections: int, *, pipeline: int = 1, streams: int = 1, **plan: Any
    ) -> Load:
        """Adds `value` to Valkey streams, by pipelines of so many; a `Load`'s replies are pipelines."""
        adds = [resp_request(b"XADD", b"stream-%05d" % stream, b"*", b"v", value) for stream in range(streams)]
        return self._load("resp", port, [add * pipeline for add in adds], connections, replies=pipeline, **plan)

    def _load(self, protocol: str, port: int, requests: Sequence[bytes], connections: int, **plan: Any) -> Load:
        timing = {"seconds": self.seconds, "warmup_seconds": self.warmup_seconds, **plan}
        return run_load(Plan(protocol, port, connections, **timing), requests)


def connection_pool(port: int, ca: str | None = None) -> urllib3.HTTPConnectionPool:
    if ca is not None:
        return urllib3.HTTPSConnectionPool("127.0.0.1", port, maxsize=16, retries=False, timeout=60, ca_certs=ca)
    return urllib3.HTTPConnectionPool("127.0.0.1", port, maxsize=16, retries=False, timeout=60)


class Server:
    """A server under measurement."""

    def __init__(self, process: ServerProcess, ca: str | None = None, *, asks_who: bool = False) -> None:
        self.process = process
        self.url = process.url
        self.port = urlsplit(process.url).port or 0
        self.admin = Admin(f"unix:{process.data_dir / names.SOCKET_FILE}" if asks_who else process.url, ca=ca)
        self.pool = connection_pool(self.port, ca)

    @property
    def publish_path(self) -> str:
        return f"/v1/topics/{TOPIC}/records"

    def sample_reply(self, body: bytes, media: str) -> bytes:
        """Gives its answer to a publish."""
        reply = self.pool.urlopen("POST", self.publish_path, body=body, headers={"Content-Type": media})
        assert reply.status == 200, reply.data
        return reply.data

    def cpu_seconds(self) -> float:
        """Processor time of the server so far, all its threads."""
        return cpu_seconds(self.process.pid)

    def memory_bytes(self) -> int:
        """Resident memory that is the process's own: without the pages of files it has mapped."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the kernel does not say how much memory a process has")

    def positions(self) -> tuple[int, int]:
        """How many records of the topic are acknowledged, and how many of them are in its table."""
        partitions = self.admin.offsets(TOPIC)
        acknowledged = sum(int(entry["high_watermark"]) for entry in partitions)
        return acknowledged, sum(int(entry["table_offset"]) for entry in partitions)

    def await_table(self, seconds_max: float = 60.0, topic: str = TOPIC) -> None:
        """Returns once everything of the topic that is acknowledged is in its table."""
        deadline = time.monotonic() + seconds_max
        while any(entry["table_offset"] < entry["high_watermark"] for entry in self.admin.offsets(topic)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the table was not complete within {seconds_max} s; see {self.process.log_path}")
            time.sleep(0.02)

    def wal_bytes(self) -> int:
        """Counts the bytes that the log takes on the disk."""
        total = 0
        for path in (self.process.data_dir / names.WAL_FOLDER).iterdir():
            # Segments are renamed when they are recycled.
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total
