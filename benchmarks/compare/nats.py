"""A stream of JetStream, in files."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.compare.installing import nats_server
from benchmarks.compare.system import BULK_RECORDS, Reader, Running, System, child, free_port
from benchmarks.wires import nats
from benchmarks.wires.caller import Caller

DELIVERED = b"_DELIVERED.1"
READER = 999_999
STREAM = nats.SUBJECT.decode()


class Nats(System):
    name = "NATS JetStream"
    protocol = "nats"
    synced_by = "sync_interval: always"
    bulk = f"pipelines of {BULK_RECORDS}"
    bulk_replies = BULK_RECORDS

    @contextmanager
    def running(self, folder: Path, cache: Path) -> Iterator[Running]:
        binary = nats_server(cache)
        said = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=True).stdout
        folder.mkdir()
        port = free_port()
        config = folder / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder / "store"}", sync_interval: always }}\n'
        )

        def ready() -> None:
            with Caller(port, nats.WIRE) as caller:
                about = {"name": STREAM, "subjects": [STREAM], "storage": "file", "max_age": 0}
                caller.call(nats.call(f"$JS.API.STREAM.CREATE.{STREAM}", about))

        with child([str(binary), "-c", str(config)], port, folder, ready) as pid:
            yield Running(port, pid, said.rpartition("v")[2].strip())

    def single(self, port: int, value: bytes) -> Sequence[bytes]:
        return [nats.publishes(value, 1)]

    def many(self, port: int, value: bytes) -> Sequence[bytes]:
        return [nats.publishes(value, BULK_RECORDS)]

    def reader(self, port: int) -> Reader:
        return _Pushed(port)


class _Pushed(Reader):
    """A consumer without acknowledgements that is pushed what comes."""

    def __init__(self, port: int) -> None:
        self._caller = Caller(port, nats.WIRE, number=READER)
        config = {"deliver_subject": DELIVERED.decode(), "deliver_policy": "new", "ack_policy": "none"}
        # The subscription is there before the consumer, so that nothing is pushed to nobody.
        request = b"SUB %s 2\r\n" % DELIVERED
        request += nats.call(f"$JS.API.CONSUMER.CREATE.{STREAM}", {"stream_name": STREAM, "config": config})
        self._caller.call(request)
        self._left = b""

    def receive(self) -> int:
        data = self._left + self._caller.receive()
        whole = data.rfind(b"\r\n") + 2
        count = data[:whole].count(b"MSG bench 2 ")
        self._left = data[whole:]
        return count
