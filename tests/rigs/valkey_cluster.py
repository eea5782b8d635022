"""A real cluster of three Valkeys, each with a third of the slots."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from siltlog.infra.redis.embedded import valkey_binary

NODES = 3
SLOTS = 16_384
START_S_MAX = 60.0
BUS_OFFSET = 10_000


class Cluster:
    def __init__(self, ports: list[int], processes: list[subprocess.Popen[bytes]]) -> None:
        self.ports = ports
        self._processes = processes
        self.clients = [redis.Redis(port=port, socket_timeout=5) for port in ports]

    @property
    def url(self) -> str:
        """The address of one of its nodes: the others are found from there."""
        return f"redis://127.0.0.1:{self.ports[0]}/0"

    def node_of(self, key: str) -> int:
        slot = int(self.clients[0].execute_command("CLUSTER", "KEYSLOT", key))
        return slot * NODES // SLOTS

    def kill(self, node: int) -> None:
        self._processes[node].kill()
        self._processes[node].wait()

    def clear(self) -> None:
        for client in self.clients:
            client.flushall()


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    ports = _free_ports()
    processes = []
    try:
        for port in ports:
            (folder / str(port)).mkdir()
            arguments = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder / str(port)), "--save", ""]
            arguments += ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
            arguments += ["--cluster-require-full-coverage", "no"]
            processes.append(subprocess.Popen([str(valkey_binary()), *arguments], stdout=subprocess.DEVNULL))
        nodes = Cluster(ports, processes)
        _until(lambda: all(_answers(client) for client in nodes.clients))
        for node, client in enumerate(nodes.clients):
            first, last = -(-node * SLOTS // NODES), -(-(node + 1) * SLOTS // NODES) - 1
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[0])
        _until(lambda: all(_knows_all(client) for client in nodes.clients))
        yield nodes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _free_ports() -> list[int]:
    """A node takes another port, 10,000 above its own."""
    found: list[int] = []
    for port in range(20_000 + time.monotonic_ns() % 10_000, 50_000):
        with socket.socket() as client, socket.socket() as bus:
            try:
                client.bind(("127.0.0.1", port))
                bus.bind(("127.0.0.1", port + BUS_OFFSET))
            except OSError:
                continue
        found.append(port)
        if len(found) == NODES:
            break
    return found


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


def _knows_all(client: redis.Redis) -> bool:
    info = client.execute_command("CLUSTER INFO")
    return info["cluster_state"] == "ok" and int(info["cluster_slots_ok"]) == SLOTS


def _until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + START_S_MAX
    while not condition():
        assert time.monotonic() < deadline, "the cluster did not come up"
        time.sleep(0.05)
