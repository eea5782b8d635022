"""Kafka's own tools, all in one process of Java (KafkaTools.java), and a broker of Kafka from the same jars."""

import base64
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from kafka_rig import Tape, free_port

from siltlog.pipelines.spark.jars import JarSet, resolve
from siltlog.pipelines.spark.java import find_java

VERSION = "4.3.0"
MODULES = ("kafka-tools", "kafka_2.13", "connect-file")
JARS = JarSet("kafka-tools", VERSION, tuple(("org.apache.kafka", module, VERSION) for module in MODULES), ())
SOURCE = Path(__file__).with_name("KafkaTools.java")
CLUSTER_ID = "c2lsdGxvZy1pbi10ZXN0cw"
"""A random one begins with a dash once in 64 times, and Kafka's tool takes that for an option."""
START_SECONDS_MAX = 200.0
"""A broker takes a dozen seconds of a processor to start."""
PLACES = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
}
"""The class of each tool, by the name of its script."""
_BROKER = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
"""


class Printed(NamedTuple):
    """What a tool printed, and with which status it ended."""

    status: int
    text: str


class KafkaTools:
    """Raises ConfigError at its start where there is no Java, or the jars cannot be downloaded."""

    def __init__(self, bootstrap: str, *options: str) -> None:
        """`options` are of Java."""
        self._bootstrap = bootstrap
        command = [*java_command("-Xmx256m", *options), SOURCE]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(self, tool: str, *arguments: str) -> Printed:
        """Runs a tool of PLACES at the server."""
        verb = [each for each in arguments[:1] if not each.startswith("-")]
        told = (*verb, "--bootstrap-server", self._bootstrap, *arguments[len(verb) :])
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join((PLACES[tool], *told)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process of Java has ended"
        status, _, text = answer.rstrip("\n").partition("\t")
        lines = base64.b64decode(text).decode().splitlines(keepends=True)
        # Of the jars none is a logger, which is told once.
        return Printed(int(status), "".join(line for line in lines if not line.startswith("SLF4J:")))


@contextmanager
def kafka_broker(folder: Path, *settings: str, also: Sequence[str] = ()) -> Iterator[str]:
    """A broker of Kafka that is its own controller; gives its address. `settings` are `name=value`.

    It listens at `also`, too, such as `SASL_SSL://127.0.0.1:9093`, which the settings are to explain.

    Raises what KafkaTools does.
    """
    port = free_port()
    listeners = ",".join((f"PLAINTEXT://127.0.0.1:{port}", *also))
    properties = folder / "server.properties"
    properties.write_text(
        _BROKER.format(listeners=listeners, controller=free_port(), folder=folder) + "\n".join(settings)
    )
    java = java_command("-Xmx512m")
    format_of = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
    subprocess.run(format_of, cwd=folder, capture_output=True, check=True)
    with (folder / "broker.log").open("w") as log:
        broker = subprocess.Popen([*java, "kafka.Kafka", str(properties)], cwd=folder, stdout=log, stderr=log)
        try:
            bootstrap = f"127.0.0.1:{port}"
            end = time.monotonic() + START_SECONDS_MAX
            while not _answers(bootstrap):
                assert broker.poll() is None and time.monotonic() < end, (folder / "broker.log").read_text()[-2000:]
                time.sleep(0.1)
            yield bootstrap
        finally:
            broker.kill()
            broker.wait()


def _answers(bootstrap: str) -> bool:
    try:
        with Tape(bootstrap) as tape:
            return bool(tape.ask(3, 9, topics=[])["brokers"])
    except (OSError, AssertionError):
        return False


def java_command(*options: str) -> list[str]:
    java = find_java()
    path = ":".join(map(str, resolve(JARS, java)))
    return [str(java.executable), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options, "-cp", path]
