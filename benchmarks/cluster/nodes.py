"""Nodes of a cluster: `silt serve` processes over one root, each behind a door that can be cut."""

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3

from benchmarks.servers.child import cpu_seconds, valkey_server
from benchmarks.servers.s3 import s3_server
from benchmarks.servers.warden import guarded
from siltlog import Admin
from siltlog.infra.errors import SiltlogError
from siltlog.server_process import ServerProcess
from tests.rigs.cut_door import CutDoor
from tests.rigs.s3_server import S3Server

REST_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.1
LOOKS_ALIKE = 5
UNREACHED = (SiltlogError, urllib3.exceptions.HTTPError, OSError)


class Node:
    """One node. Clients and the other nodes reach it through a door; one to S3 leads from it."""

    def __init__(self, name: str, process: ServerProcess, door: CutDoor, store: CutDoor | None) -> None:
        self.name = name
        self.process = process
        self.url = door.url
        self._doors = [door, *([store] if store is not None else [])]
        self._paused = False

    @property
    def port(self) -> int:
        """Where it listens, without a door."""
        return urlsplit(self.process.url).port or 0

    def start(self) -> None:
        self._doors[0].listen()  # as a server does before it does anything else
        self.process.start()
        self._doors[0].target = self.port

    def stop(self) -> None:
        """SIGTERM: it hands over what it has, and ends."""
        self.process.stop()

    def kill(self) -> None:
        """Kills the process, whose machine refuses connections from then on."""
        self.process.kill()
        self._doors[0].refuse()

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            os.kill(self.process.pid, signal.SIGCONT)
        self._paused = False

    def cut(self) -> None:
        """Neither clients nor nodes reach it, and it does not reach S3; a root in a folder it still does. Connections
        stay, and nothing comes through: as in a network that drops everything."""
        for door in self._doors:
            door.stop_up()

    def mend(self) -> None:
        for door in self._doors:
            door.open()

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def end(self) -> None:
        """Ends the node at once, whatever state it is in."""
        if self.process.running:
            self.resume()
            self.process.kill()
        for door in self._doors:
            door.close()


class Nodes(list[Node]):
    @property
    def urls(self) -> list[str]:
        return [node.url for node in self]

    def named(self, name: str) -> Node:
        return next(node for node in self if node.name == name)

    def admin(self, node: Node | None = None) -> Admin:
        """Asks one node, without its door."""
        return Admin((node or self[0]).process.url)

    def owners(self, topics: Sequence[str]) -> dict[str, str]:
        """Each topic's owner where all nodes name the same one, empty where they do not."""
        told = []
        for node in self:
            with self.admin(node) as admin:
                told.append([str(admin.topic(topic).get("owner") or "") for topic in topics])
        return {
            topic: said[0] if len(set(said)) == 1 else ""
            for topic, said in zip(topics, zip(*told, strict=True), strict=True)
        }

    def agreed(self, topics: Sequence[str]) -> dict[str, str]:
        """Waits until all nodes name the same owner of each topic; who that is."""
        found: list[dict[str, str]] = []

        def agree() -> bool:
            found.append(self.owners(topics))
            return all(found[-1].values())

        self.until(agree, "all nodes name the same owners")
        return found[-1]

    def at_rest(self, topics: Sequence[str]) -> dict[str, str]:
        """Waits until all nodes are up and topics have settled, each node with one at least; who owns which."""
        alike: list[dict[str, str]] = []

        def rests() -> bool:
            with self.admin() as admin:
                up = [node for node in admin.nodes() if node["state"] == "up"]
                moves = admin.balance(dry_run=True)
            alike.append(self.owners(topics))
            last = alike[-LOOKS_ALIKE:]
            return (
                len(up) == len(self)
                and not moves
                and len(last) == LOOKS_ALIKE
                and all(owners == last[0] for owners in last)
                and set(last[0].values()) == {node.name for node in self}
            )

        self.until(rests, "all nodes are up and share the topics")
        return alike[-1]

    def until(self, condition: Callable[[], object], what: str, seconds_max: float = REST_SECONDS_MAX) -> None:
        deadline = time.monotonic() + seconds_max
        while True:
            with suppress(*UNREACHED):
                if condition():
                    return
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {seconds_max:.0f} s: {what}")
            time.sleep(LOOK_SECONDS)


@contextmanager
def nodes_of(folder: Path, count: int, *, on_s3: bool = False, **settings: Any) -> Iterator[Nodes]:
    """Nodes `n1`, `n2`, … that have come up, over a root in `folder`, which is made, or on an S3 server.

    Where this process is killed they end with it.
    """
    folder.mkdir(parents=True)
    secret = folder / "secret"
    secret.write_text(secrets.token_hex(32) + "\n")
    secret.chmod(0o600)
    with guarded(folder), valkey_server(folder / "valkey") as valkey:
        shared = {"redis_url": f"redis://127.0.0.1:{valkey.port}", "secret_file": str(secret), **settings}
        if on_s3:
            with s3_server(folder / "s3") as s3:
                yield from _run(folder, count, shared, s3)
        else:
            yield from _run(folder, count, shared, None)


def _run(folder: Path, count: int, shared: dict[str, Any], s3: S3Server | None) -> Iterator[Nodes]:
    nodes = Nodes(_node(folder, f"n{number}", shared, s3) for number in range(1, count + 1))
    try:
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(Node.start, nodes))
        yield nodes
    finally:
        for node in nodes:
            node.end()


def _node(folder: Path, name: str, shared: dict[str, Any], s3: S3Server | None) -> Node:
    door, store = CutDoor(), None
    root: dict[str, Any] = {"root": (folder / "lake").as_uri()}
    if s3 is not None:
        store = CutDoor(urlsplit(s3.endpoint).port or 0)
        root = {"root": s3.root_uri("lake"), "s3_endpoint": store.url, "s3_region": s3.region}
    own = {"cluster": "on", "node_id": name, "advertise_url": door.url, "log_level": "warning"}
    process = ServerProcess(folder / name, {**own, **root, **shared}, log=folder / f"{name}.log")
    return Node(name, process, door, store)
