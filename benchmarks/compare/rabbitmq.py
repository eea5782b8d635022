"""A quorum queue of RabbitMQ, on one node."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import environ
from pathlib import Path

from benchmarks.compare.installing import rabbitmq_root
from benchmarks.compare.system import BULK_RECORDS, Missing, Reader, Running, System, child, free_port
from benchmarks.wires import amqp
from benchmarks.wires.caller import Caller


class RabbitMq(System):
    name = "RabbitMQ"
    protocol = "amqp"
    synced_by = "a quorum queue, confirms"
    bulk = f"pipelines of {BULK_RECORDS}"
    bulk_replies = BULK_RECORDS

    @contextmanager
    def running(self, folder: Path, cache: Path) -> Iterator[Running]:
        root = rabbitmq_root(cache)
        servers = sorted((root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
        if not servers:
            raise Missing("the package of RabbitMQ has no server where it is looked for")
        folder.mkdir()
        port, mapper, distribution = free_port(), free_port(), free_port()
        erlang = root / "usr/lib/erlang/bin"
        env = {
            "PATH": f"{erlang}:{environ.get('PATH', '')}",
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "compare@localhost",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

        def ready() -> None:
            with Caller(port, amqp.WIRE) as caller:
                caller.ask(amqp.declare_quorum(), amqp.frame_is_whole)

        # Erlang's map of ports goes on after what began it, unless it was there before.
        beside = folder / "epmd"
        beside.mkdir()
        with (
            child([str(erlang / "epmd")], mapper, beside, lambda: None, env),
            child([str(servers[-1] / "sbin/rabbitmq-server")], port, folder, ready, env) as pid,
        ):
            yield Running(port, pid, servers[-1].name.rpartition("-")[2])

    def single(self, port: int, value: bytes) -> Sequence[bytes]:
        return [amqp.publishes(value, 1)]

    def many(self, port: int, value: bytes) -> Sequence[bytes]:
        return [amqp.publishes(value, BULK_RECORDS)]

    def reader(self, port: int) -> Reader:
        return _Consumer(port)


class _Consumer(Reader):
    """Takes all that is in the queue, and what comes."""

    def __init__(self, port: int) -> None:
        self._caller = Caller(port, amqp.WIRE)
        self._caller.ask(amqp.consume(), amqp.frame_is_whole)
        self._left = b""

    def receive(self) -> int:
        count, self._left = amqp.deliveries(self._left + self._caller.receive())
        return count
