"""Real nodes over one root: `silt serve` processes with a data directory each, one Valkey, and doors that can be cut.

with cluster(folder, 3) as nodes:
    nodes["n1"].kill()           # SIGKILL
    nodes["n2"].pause()          # SIGSTOP; resume()
    nodes["n3"].peers.cut()      # no other node reaches it
    nodes["n3"].store.cut()      # it does not reach S3 (with `s3=`)
    nodes["n3"].calls.cut()      # no client of `Caller` reaches it
    nodes["n3"].storm.raging = True  # S3 answers it with 503; nodes.rage(): everybody
    nodes["n3"].clock_off_by(3600)   # its wall clock jumps (with `clocks`)
    nodes["n3"].release(folder)  # another release of the package starts there
    nodes.heal()                 # all of it is over
"""

import os
import signal
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from chaos import CHAOS
from cut_door import CutDoor
from forked import NODE_SITE
from groups_rig import embedded
from publishers import LOST, Wire
from s3_server import S3Server
from s3_storm import Storm

from siltlog.server_process import ServerProcess

LEASE_MS = 2_000
HEARTBEAT_MS = 500
STEADY_MS = 60_000
"""A lease that no node loses because its machine stops for some seconds: where none has to be lost."""
SETTINGS: dict[str, Any] = {
    "cluster": "on",
    "lease_ms": LEASE_MS,
    "heartbeat_ms": HEARTBEAT_MS,
    "flush_ms": 100,
    "flush_files_per_hour": -1,
    "wal_bytes_max": 8 * 1024 * 1024,
}
READY_SECONDS = 60.0
PAUSE_SECONDS = 0.03 if CHAOS > 1 else 0.1
"""Between one question and the next, which costs a node, or S3, more than who asks."""


class NodeProcess(ServerProcess):
    """Its Python imports `node_site` as it starts, where a test says something of this process alone."""

    def said(self, what: str) -> Path:
        """What `node_site` reads."""
        return self.data_dir.with_name(f"{self.data_dir.name}.{what}")

    def _environment(self) -> dict[str, str]:
        environment = super()._environment()
        if any(self.said(what).exists() for what in ("clock", "release", "syncs")):
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(NODE_SITE), environment.get("PYTHONPATH"))))
        return environment


class ClusterNode:
    """One node; `peers` is the door that its advertised address leads to, `calls` the one for clients, `store` the one
    to `storm`, behind which S3 is."""

    def __init__(
        self, name: str, server: NodeProcess, peers: CutDoor, store: CutDoor | None, storm: Storm | None
    ) -> None:
        self.name = name
        self.server = server
        self.peers = peers
        self.calls = CutDoor()
        self._store = store
        self._storm = storm
        self.paused = False

    @property
    def url(self) -> str:
        """Where it is, without a door."""
        return self.server.url

    @property
    def wire(self) -> Wire:
        return Wire(self.url)

    @property
    def store(self) -> CutDoor:
        assert self._store is not None, "a root on a disk has no network before it"
        return self._store

    @property
    def storm(self) -> Storm:
        assert self._storm is not None, "a root on a disk is nobody's service"
        return self._storm

    def start(self, *arguments: str) -> None:
        for door in (self.peers, self.calls):
            door.listen()  # as a server does before it does anything else
        self.server.start(*arguments)
        for door in (self.peers, self.calls):
            door.target = int(self.server.url.rpartition(":")[2])

    def heal(self) -> None:
        """It runs, and whatever is between it and others is as it should be."""
        self.resume()
        for door in (self.peers, self.calls, self._store):
            if door is not None:
                door.open()
                door.slow_seconds = 0.0
        if self._storm is not None:
            self._storm.calm()
        if self.server.said("clock").exists():
            self.clock_off_by(0)
        if not self.server.running:
            self.start()

    def close(self) -> None:
        self.resume()
        if self.server.running:
            self.server.kill()
        for door in (self.peers, self.calls, self._store):
            if door is not None:
                door.close()
        if self._storm is not None:
            self._storm.close()

    def kill(self) -> None:
        self.resume()
        self.server.kill()
        for door in (self.peers, self.calls):
            door.refuse()

    def stop(self) -> int:
        return self.server.stop()

    def pause(self) -> None:
        os.kill(self.server.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        if self.paused and self.server.running:
            os.kill(self.server.pid, signal.SIGCONT)
        self.paused = False

    def own_clock(self) -> None:
        """Its wall clock may jump from its next start on."""
        self.server.said("clock").write_bytes(bytes(8))

    def clock_off_by(self, seconds: float) -> None:
        with self.server.said("clock").open("r+b") as file:
            file.write(struct.pack("<q", int(seconds * 1e9)))

    def release(self, folder: Path | None) -> None:
        """It is of another release from its next start on, which is in a folder, or of this one."""
        path = self.server.said("release")
        if folder is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(str(folder), "utf-8")

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = self.wire.call("GET", "/v1/cluster").document
        return document

    def log(self) -> str:
        path = self.server.log_path
        return path.read_text("utf-8", "replace") if path.exists() else ""


class Nodes(dict[str, ClusterNode]):
    """Each node under its name."""

    root = ""
    redis_url = ""
    storage_options: Mapping[str, str] | None = None

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.values() if node.server.running]

    def rage(self, raging: bool = True) -> None:
        """S3 answers everybody with 503."""
        for node in self.values():
            node.storm.raging = raging

    def heal(self) -> None:
        with ThreadPoolExecutor(len(self)) as pool:
            list(pool.map(ClusterNode.heal, self.values()))

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


Each = Callable[[str, CutDoor], Mapping[str, Any]]


@contextmanager
def cluster(
    folder: Path,
    count: int = 3,
    *,
    s3: S3Server | None = None,
    each: Each | None = None,
    clocks: bool = False,
    **settings: Any,
) -> Iterator[Nodes]:
    """Nodes `n1`, `n2`, … that all have come up, over a root of `folder` or of S3; `each` gives settings of a node.
    With `clocks` each has a clock of its own."""
    nodes = Nodes()
    folder.mkdir(parents=True, exist_ok=True)
    secret = folder / "secret"
    secret.write_text("0123456789abcdef" * 4 + "\n")
    secret.chmod(0o600)
    nodes.root = s3.root_uri(folder.name) if s3 is not None else (folder / "lake").as_uri()
    valkey = embedded(folder / "redis")
    try:
        redis_url = nodes.redis_url = valkey.start()
        for number in range(1, count + 1):
            given = {"redis_url": redis_url, **settings}
            nodes[f"n{number}"] = _node(folder, f"n{number}", nodes, s3, given, each)
            if clocks:
                nodes[f"n{number}"].own_clock()
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(ClusterNode.start, nodes.values()))
        yield nodes
    finally:
        for node in nodes.values():
            node.close()
            print(f"--- {node.name}\n{node.log()[-4_000:]}")
        valkey.stop()


def _node(
    folder: Path, name: str, nodes: Nodes, s3: S3Server | None, settings: Mapping[str, Any], each: Each | None
) -> ClusterNode:
    peers = CutDoor()
    storm = Storm(s3.endpoint) if s3 is not None else None
    store = CutDoor(int(storm.endpoint.rpartition(":")[2])) if storm is not None else None
    given = {
        **SETTINGS,
        "root": nodes.root,
        "node_id": name,
        "advertise_url": peers.url,
        "secret_file": str(folder / "secret"),
        **({"s3_endpoint": store.url, "s3_region": s3.region} if s3 is not None and store is not None else {}),
        **settings,
        **(each(name, peers) if each is not None else {}),
    }
    return ClusterNode(name, NodeProcess(folder / name, given, log=folder / f"{name}.log"), peers, store, storm)
