"""Real nodes over one root: `silt serve` processes with a data directory each, one Valkey, and doors that can be cut.

with cluster(folder, 3) as nodes:
    nodes["n1"].kill()           # SIGKILL
    nodes["n2"].pause()          # SIGSTOP; resume()
    nodes["n3"].peers.cut()      # no other node reaches it
    nodes["n3"].store.cut()      # it does not reach S3 (with `s3=`)
    nodes.storm.raging = True    # S3 answers everybody with 503
"""

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import urllib3
from cut_door import CutDoor
from groups_rig import embedded
from history import Ack, Read, Row
from publishers import LOST, Wire
from s3_server import S3Server
from s3_storm import Storm

from siltlog.infra import names
from siltlog.server_process import ServerProcess

LEASE_MS = 2_000
HEARTBEAT_MS = 500
SETTINGS: dict[str, Any] = {
    "cluster": "on",
    "lease_ms": LEASE_MS,
    "heartbeat_ms": HEARTBEAT_MS,
    "flush_ms": 100,
    "flush_files_per_hour": -1,
    "wal_bytes_max": 8 * 1024 * 1024,
}
READY_SECONDS = 60.0
PAUSE_SECONDS = 0.03
VIEW_FIELD = "Silt-View"
CALL_SECONDS = 5.0
"""How long a caller waits for a node that may have stopped: it says so itself where it still runs."""


class ClusterNode:
    """One node; `peers` is the door that its advertised address leads to, `store` the one to S3."""

    def __init__(self, name: str, server: ServerProcess, peers: CutDoor, store: CutDoor | None) -> None:
        self.name = name
        self.server = server
        self.peers = peers
        self._store = store
        self.paused = False

    @property
    def url(self) -> str:
        """Where clients call it."""
        return self.server.url

    @property
    def wire(self) -> Wire:
        return Wire(self.url)

    @property
    def store(self) -> CutDoor:
        assert self._store is not None, "a root on a disk has no network before it"
        return self._store

    def start(self, *arguments: str) -> None:
        self.server.start(*arguments)
        self.peers.target = int(self.server.url.rpartition(":")[2])

    def kill(self) -> None:
        self.resume()
        self.server.kill()

    def stop(self) -> int:
        return self.server.stop()

    def pause(self) -> None:
        os.kill(self.server.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        if self.paused and self.server.running:
            os.kill(self.server.pid, signal.SIGCONT)
        self.paused = False

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = self.wire.call("GET", "/v1/cluster").document
        return document

    def log(self) -> str:
        path = self.server.log_path
        return path.read_text("utf-8", "replace") if path.exists() else ""


class Nodes(dict[str, ClusterNode]):
    """By name. `storm` stands before S3."""

    root = ""
    redis_url = ""
    storage_options: Mapping[str, str] | None = None
    storm: Storm

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.values() if node.server.running]

    def until(self, condition: Callable[[], object], what: str, seconds: float = READY_SECONDS) -> float:
        """The seconds that it took."""
        began = time.monotonic()
        while True:
            with suppress(*LOST):
                if condition():
                    return time.monotonic() - began
            assert time.monotonic() < began + seconds, f"not within {seconds:.0f} s: {what}"
            time.sleep(PAUSE_SECONDS)

    def owner(self, topic: str, asked: str = "") -> str:
        """The name of the node that owns a topic, as any node says; empty while none does."""
        for node in [self[asked]] if asked else self.values():
            if not node.server.running or node.paused:
                continue
            try:
                reply = Wire(node.url, 5).call("GET", f"/v1/topics/{topic}")
            except LOST:
                continue
            if reply.status == 200:
                return str(reply.document.get("owner") or "")
        return ""


@contextmanager
def cluster(folder: Path, count: int = 3, *, s3: S3Server | None = None, **settings: Any) -> Iterator[Nodes]:
    """Nodes `n1`, `n2`, … that all have come up, over a root of `folder` or of S3."""
    nodes = Nodes()
    doors: list[CutDoor] = []
    folder.mkdir(parents=True, exist_ok=True)
    secret = folder / "secret"
    secret.write_text("0123456789abcdef" * 4 + "\n")
    secret.chmod(0o600)
    nodes.root = s3.root_uri(folder.name) if s3 is not None else (folder / "lake").as_uri()
    if s3 is not None:
        nodes.storm = Storm(s3.endpoint)
    valkey = embedded(folder / "redis")
    try:
        redis_url = nodes.redis_url = valkey.start()
        for number in range(1, count + 1):
            nodes[f"n{number}"] = _node(folder, f"n{number}", nodes, s3, {"redis_url": redis_url, **settings})
            doors.append(nodes[f"n{number}"].peers)
            if s3 is not None:
                doors.append(nodes[f"n{number}"].store)
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(ClusterNode.start, nodes.values()))
        yield nodes
    finally:
        for node in nodes.values():
            node.resume()
            if node.server.running:
                node.server.kill()
            print(f"--- {node.name}\n{node.log()[-4_000:]}")
        valkey.stop()
        for door in doors:
            door.close()
        if s3 is not None:
            nodes.storm.close()


def _node(folder: Path, name: str, nodes: Nodes, s3: S3Server | None, settings: Mapping[str, Any]) -> ClusterNode:
    peers = CutDoor()
    store = CutDoor(int(nodes.storm.endpoint.rpartition(":")[2])) if s3 is not None else None
    given = {
        **SETTINGS,
        "root": nodes.root,
        "node_id": name,
        "advertise_url": peers.url,
        "secret_file": str(folder / "secret"),
        **({"s3_endpoint": store.url, "s3_region": s3.region} if s3 is not None and store is not None else {}),
        **settings,
    }
    return ClusterNode(name, ServerProcess(folder / name, given, log=folder / f"{name}.log"), peers, store)


class Caller(threading.Thread):
    """Calls one node after another: what is not answered, or not now, is asked of the next. Notes all it is told."""

    def __init__(self, nodes: Nodes, topic: str, name: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.acks: list[Ack] = []
        self.reads: list[Read] = []
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self.complaints: list[str] = []
        self.stalls: list[tuple[float, float]] = []
        """When a record was first sent, and the seconds until it was acknowledged, of those that took long."""
        self.topic = topic
        self.rng = random.Random(seed)
        self._nodes = nodes
        self._at = self.rng.randrange(len(nodes))
        self._wires = {name: Wire(node.url, CALL_SECONDS) for name, node in nodes.items()}
        self._stopping = threading.Event()

    def finish(self) -> None:
        self._stopping.set()
        self.join(120)
        assert not self.is_alive(), f"{self.name} cannot finish"

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.step()
        except BaseException as error:
            self.complaints.append(f"{self.name}: {type(error).__name__}: {error}")

    def step(self) -> None:
        raise NotImplementedError

    @property
    def asked(self) -> str:
        """The node that is asked now."""
        return list(self._wires)[self._at % len(self._wires)]

    def raw(self, method: str, path: str, body: bytes | None = None, **headers: str) -> urllib3.BaseHTTPResponse | None:
        """None where nothing was answered; the next call is of another node then."""
        wire = self._wires[self.asked]
        try:
            return wire.raw(method, path, body, **headers)
        except LOST:
            self.turn()
            return None

    def turn(self) -> None:
        self._at += 1
        time.sleep(PAUSE_SECONDS)


class ClusterPublisher(Caller):
    """Publishes with sequences and repeats until it is acknowledged, or with `once` sends each request once."""

    def __init__(
        self,
        nodes: Nodes,
        topic: str,
        name: str,
        seed: int,
        *,
        acks: str = "table",
        partitions: int = 2,
        once: bool = False,
    ) -> None:
        super().__init__(nodes, topic, name, seed)
        self.acks_level = acks
        self.partitions = partitions
        self.once = once
        self.errors: list[str] = []
        self.longest = 0.0
        """Seconds from when a record was first sent until it was acknowledged."""
        self._sequences = [0] * partitions
        self._count = 0
        self._producer_id = f"0b6ce8e0-9b0e-4b5a-8d3c-{seed:012x}"

    def step(self) -> None:
        records, values = [], []
        taken = list(self._sequences)
        for _ in range(self.rng.choice((1, 3, 20))):
            partition = self.rng.randrange(self.partitions)
            value = f"{self.name}:{self._count}"
            self._count += 1
            values.append(value)
            records.append({"value": value, "partition": partition})
            if not self.once:
                records[-1]["sequence"] = taken[partition]
                taken[partition] += 1
        body = json.dumps({"records": records}).encode()
        first = time.monotonic()
        while True:
            began = time.monotonic()
            headers = {} if self.once else {"Silt_Producer_Id": self._producer_id}
            path = f"/v1/topics/{self.topic}/records?acks={self.acks_level}"
            reply = self.raw("POST", path, body, Content_Type=names.MEDIA_JSON, **headers)
            if reply is not None and reply.status == 200:
                self._acknowledged(values, json.loads(reply.data), first if not self.once else began)
                self._sequences = taken
                break
            self._not_acknowledged(reply, values)
            if self.once:
                break
            self.turn()
        waited = time.monotonic() - first
        self.longest = max(self.longest, waited)
        if waited > 1.0:
            self.stalls.append((first, waited))

    def _acknowledged(self, values: list[str], document: dict[str, Any], began: float) -> None:
        ended = time.monotonic()
        for value, (partition, offset) in zip(values, document["records"], strict=True):
            if offset is not None:
                self.acks.append(Ack(self.name, value, partition, offset, began, ended))

    def _not_acknowledged(self, reply: urllib3.BaseHTTPResponse | None, values: list[str]) -> None:
        said = {} if reply is None else json.loads(reply.data or b"{}")
        status = 0 if reply is None else reply.status
        self.errors.append(f"{status} {said.get('error_code', '')}")
        if status not in (0, 503, 504):
            self.complaints.append(f"{self.name}: {status} {said}")
            self._stopping.set()
        if self.once:
            (self.refused if said.get("retryable") == "yes" else self.unknown).update(values)


class ClusterReader(Caller):
    """Reads on from where it is, at one node after another."""

    def __init__(self, nodes: Nodes, topic: str, name: str, seed: int, *, partitions: int = 2) -> None:
        super().__init__(nodes, topic, name, seed)
        self._offsets = [0] * partitions
        self._view = 0
        """The newest that a reply has told of."""

    def step(self) -> None:
        import pyarrow as pa

        if self.rng.random() < 0.1:
            self._at += 1
        partition = self.rng.randrange(len(self._offsets))
        offset = self._offsets[partition]
        began = time.monotonic()
        path = f"/v1/topics/{self.topic}/partitions/{partition}/records?offset={offset}&wait_ms=50"
        reply = self.raw("GET", path, Accept=names.MEDIA_ARROW)
        ended = time.monotonic()
        if reply is None:
            return
        view = int(reply.headers.get(VIEW_FIELD, 0))
        # Who slept does not know yet that it owns nothing: its bounds are low, and count for nobody who knows better.
        is_behind = reply.status == 416 and view < self._view
        self._view = max(self._view, view)
        if reply.status != 200:
            if reply.status not in (503, 504) and not is_behind:
                self.complaints.append(f"{self.name}: {reply.status} {reply.data!r}")
                self._stopping.set()
            self.turn()
            return
        table = pa.ipc.open_stream(reply.data).read_all()
        rows = zip(table.column("offset").to_pylist(), table.column("value").cast(pa.string()).to_pylist(), strict=True)
        self._offsets[partition] = int(reply.headers[names.HEADER_NEXT_OFFSET])
        watermark = int(reply.headers[names.HEADER_HIGH_WATERMARK])
        self.reads.append(
            Read(
                self.name, partition, offset, self._offsets[partition], watermark, tuple(rows), began, ended, self.asked
            )
        )


def rows_of(found: list[Any]) -> list[Row]:
    return [Row(row.partition, row.offset, row.value) for row in found]
