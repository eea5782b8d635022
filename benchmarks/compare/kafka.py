"""A broker of Kafka that is its own controller."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.compare.installing import KAFKA, KAFKA_BROKER, kafka_jars
from benchmarks.compare.system import BULK_RECORDS, PARTITIONS, Reader, Running, System, child, free_port
from benchmarks.wires import kafka
from benchmarks.wires.caller import Caller

CLUSTER_ID = "c2lsdGxvZy1pbi1iZW5jaA"
"""A random one begins with a dash once in 64 times, and Kafka's tool takes that for an option."""
HEAP = "-Xmx1g"
WAIT_MS = 500
SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
log.flush.interval.messages=1
log.retention.ms=-1
num.partitions={partitions}
offsets.topic.replication.factor=1
"""


class Kafka(System):
    name = "Kafka"
    protocol = "kafka"
    synced_by = "flush.messages=1"
    bulk = f"batches of {BULK_RECORDS}"

    def __init__(self, version: str = KAFKA, artifacts: Sequence[str] = KAFKA_BROKER) -> None:
        self._version = version
        self._artifacts = artifacts

    @contextmanager
    def running(self, folder: Path, cache: Path) -> Iterator[Running]:
        jars = kafka_jars(cache, self._version, self._artifacts)
        folder.mkdir()
        port = free_port()
        properties = folder / "server.properties"
        told = SETTINGS.format(port=port, controller=free_port(), folder=folder, partitions=PARTITIONS)
        properties.write_text(told)
        java = ["java", HEAP, "-cp", f"{jars}/*"]
        format_of = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
        subprocess.run(format_of, cwd=folder, capture_output=True, check=True)

        def ready() -> None:
            with Caller(port, kafka.WIRE) as caller:
                caller.ask(kafka.metadata(), kafka.frame_is_whole)
                for partition in range(PARTITIONS):
                    caller.call(kafka.produce([b"there"], partition))

        with child([*java, "kafka.Kafka", str(properties)], port, folder, ready) as pid:
            yield Running(port, pid, self._version)

    def single(self, port: int, value: bytes) -> Sequence[bytes]:
        return [kafka.produce([value], partition) for partition in range(PARTITIONS)]

    def many(self, port: int, value: bytes) -> Sequence[bytes]:
        return [kafka.produce([value] * BULK_RECORDS, partition) for partition in range(PARTITIONS)]

    def reader(self, port: int) -> Reader:
        return _Fetches(port)


class _Fetches(Reader):
    def __init__(self, port: int) -> None:
        self._caller = Caller(port, kafka.WIRE)
        self._offset = 0
        while self._read(0):
            pass

    def receive(self) -> int:
        return self._read(WAIT_MS)

    def _read(self, wait_ms: int) -> int:
        answer = self._caller.ask(kafka.fetch(0, self._offset, wait_ms), kafka.frame_is_whole)
        found = list(kafka.counts(kafka.fetched(answer)))
        if found:
            self._offset = found[-1][0]
        return sum(count for _, count in found)
