"""Clients of Kafka in many languages: each is a process (tests/clients/kafka) that does what it is told by lines."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pytest
from kafka_tools import VERSION as KAFKA_VERSION
from node_modules import NODE

from siltlog.infra.errors import ConfigError
from siltlog.pipelines.spark.jars import IN_SPARK, JarSet, resolve
from siltlog.pipelines.spark.java import Java, find_java

PROGRAMS = Path(__file__).parents[1] / "clients" / "kafka"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "siltlog" / "deploy"
TOOLS = "tests/deploy/tools clients"
"""Installs what they are made of; where it has not, the tests are skipped."""
PARTITIONS = 4
Command = list[str | Path]


class Said(NamedTuple):
    """What a player answers: records that it read, the partitions that a member holds, or the name of an error."""

    records: list[dict[str, Any]]
    held: set[int]
    error: str


class Player:
    """One process of a client."""

    def __init__(self, command: Command, log: Path) -> None:
        self._log = log
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, do: str, **fields: Any) -> Said:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the player has ended: {self._log.read_text()[-4_000:]}"
        told = json.loads(line)
        return Said(told.get("records") or [], set(told.get("held") or ()), told.get("error", ""))

    def do(self, do: str, **fields: Any) -> Said:
        """Asks for what must not fail."""
        said = self.ask(do, **fields)
        assert not said.error, f"{do}: {said.error}\n{self._log.read_text()[-4_000:]}"
        return said


def rows(first: int, count: int) -> list[dict[str, Any]]:
    """Records that are shared out among the partitions, some without a key or a value."""
    return [
        {
            "partition": number % PARTITIONS,
            "key": None if number % 5 == 4 else f"key {number % 3}",
            "value": None if number % 5 == 3 else f"value {number} žluťoučký",
            "headers": [["n", str(number)], ["empty", ""]] if number % 2 else [],
        }
        for number in range(first, first + count)
    ]


def without_offset(record: dict[str, Any]) -> str:
    return str(sorted((name, value) for name, value in record.items() if name != "offset"))


def places(records: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((record["partition"], record["offset"]) for record in records)


class Client(NamedTuple):
    """A client, and what is peculiar to it."""

    command: Callable[[Path], Command]
    """Takes a folder for what it builds; skips where what it needs is not there."""
    codecs: tuple[str, ...]
    unknown_topic: str = "UNKNOWN_TOPIC_OR_PARTITION"
    too_large: str = "MESSAGE_TOO_LARGE"
    makes_topics: bool = True
    not_logged_in: str = "(?i)sasl.?authentication"
    """Matches what it says where its login fails."""
    has_tokens: bool = True
    """Whether it logs in by a token that it is given."""
    administers_unheard: bool = False
    """Whether who administers by it is not told that a login failed, and cannot log in by a token."""
    not_reset: str = "UNKNOWN_MEMBER_ID"
    """What it says of a group with members that is to be reset; empty where it resets none."""


def installed(kind: str, *pins: str) -> Path:
    """The folder of the cache into which TOOLS has installed what the files of `pins` name, or built of them."""
    digest = hashlib.sha256(b"".join((PROGRAMS / each).read_bytes() for each in pins)).hexdigest()[:12]
    folder = CACHE / f"{kind}-{digest}"
    if not folder.is_dir():
        pytest.skip(f"{kind} is not installed: {TOOLS}")
    return folder


def _go(name: str) -> Callable[[Path], Command]:
    def build(folder: Path) -> Command:
        program = folder / name
        command = ["go", "build", "-o", program, f"./{name}"]
        # What TOOLS has fetched and built before is only linked.
        environment = os.environ | {
            "GOTOOLCHAIN": "local",
            "GOPROXY": "off",
            "GOFLAGS": "-mod=readonly -buildvcs=false",
        }
        try:
            done = subprocess.run(command, cwd=PROGRAMS / "go", env=environment, capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip("there is no Go: https://go.dev/dl")
        if "GOPROXY=off" in done.stderr or "go.mod requires go" in done.stderr:
            pytest.skip(f"{name} cannot be built: {TOOLS}")
        assert done.returncode == 0, done.stderr
        return [program]

    return build


def _aiokafka(_: Path) -> Command:
    python = installed("aiokafka", "aiokafka/requirements.txt") / "bin" / "python"
    return [python, PROGRAMS / "aiokafka" / "player.py"]


def _kafkajs(_: Path) -> Command:
    if NODE is None:
        pytest.skip("no Node.js is installed (Debian: apt-get install nodejs)")
    # Node.js looks for packages beside a program, and not where they are kept.
    path = installed("kafkajs", "kafkajs/package-lock.json") / "node_modules"
    return ["env", f"NODE_PATH={path}", NODE, PROGRAMS / "kafkajs" / "player.js"]


def _kcat(_: Path) -> Command:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed: apt-get install kcat")
    return [sys.executable, PROGRAMS / "kcat" / "player.py"]


def _rdkafka(_: Path) -> Command:
    return [installed("rdkafka", "rust/Cargo.toml", "rust/main.rs") / "player"]


def java_with(jars: JarSet, what: str) -> tuple[Java, str]:
    """Gives Java, and the path of the jars. Skips the test, in which `what` is not run, where they cannot be had."""
    try:
        java = find_java()
        return java, ":".join(map(str, resolve(jars, java)))
    except ConfigError as error:
        pytest.skip(f"{what} cannot be run: {error}")


def spark_player(folder: Path) -> Command:
    """A player whose session is for any server."""
    java, path = java_with(SPARK_JARS, "Spark's source of Kafka")
    own = [f"JAVA_HOME={java.home}"] if java.home else []
    return ["env", *own, sys.executable, PROGRAMS / "spark" / "player.py", path, folder]


def flink_player(folder: Path) -> Command:
    """A player for any server. Flink's own threads find its classes on the path alone, so it is compiled before."""
    java, jars = java_with(FLINK_JARS, "Flink")
    path = f"{folder}:{jars}"
    source = PROGRAMS / "flink" / "FlinkPlayer.java"
    compiler = [java.executable, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn"]
    subprocess.run([*compiler, "-d", folder, "-cp", path, source], capture_output=True, check=True)
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util")]
    return [java.executable, *LIGHT_JAVA, *opened, "-cp", path, "FlinkPlayer"]


def streams_command() -> Command:
    """An instance of an application of Kafka Streams; what follows says where, and what it reads and writes."""
    java, path = java_with(STREAMS_JARS, "Kafka Streams")
    return [java.executable, *LIGHT_JAVA, "-cp", path, PROGRAMS / "streams" / "WordCount.java"]


def _java(group_protocol: str) -> Callable[[Path], Command]:
    def command(_: Path) -> Command:
        java, path = java_with(JARS, "Kafka's client for Java")
        return [java.executable, *LIGHT_JAVA, "-cp", path, PROGRAMS / "java" / "Player.java", group_protocol]

    return command


LIGHT_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
JAVA_VERSION = "3.9.1"
JARS = JarSet(
    "kafka-player",
    JAVA_VERSION,
    (
        ("org.apache.kafka", "kafka-clients", JAVA_VERSION),
        ("com.fasterxml.jackson.core", "jackson-databind", "2.16.2"),
    ),
    (),
)
SPARK_VERSION = version("pyspark")
SPARK_JARS = JarSet(
    "spark-kafka",
    SPARK_VERSION,
    (("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),),
    IN_SPARK,
)
FLINK_VERSION, FLINK_CONNECTOR_VERSION = "2.2.1", "5.0.0-2.2"
FLINK_JARS = JarSet(
    "kafka-flink",
    FLINK_VERSION,
    (
        ("org.apache.flink", "flink-connector-kafka", FLINK_CONNECTOR_VERSION),
        *(
            ("org.apache.flink", module, FLINK_VERSION)
            for module in ("flink-connector-base", "flink-clients", "flink-streaming-java")
        ),
    ),
    (),
)
STREAMS_JARS = JarSet("kafka-streams", KAFKA_VERSION, (("org.apache.kafka", "kafka-streams", KAFKA_VERSION),), ())
_RUNNING = "KafkaJSNonRetriableError: The consumer group must have no running instances, current state: Stable"
# It does not read the answer to a token that does not count, and goes on.
_UNREAD = "SASLAuthenticationError|Closed connection"
_AWAY = "Broker transport failure"
_NOT_IN_METADATA = "not present in metadata after 15000 ms."

CLIENTS = {
    "franz-go": Client(_go("franz"), ("zstd", "snappy")),
    "java": Client(_java("classic"), ("zstd", "gzip"), _NOT_IN_METADATA),
    "java-consumer": Client(_java("consumer"), ("lz4", "snappy"), _NOT_IN_METADATA),
    "kafkajs": Client(_kafkajs, ("gzip", "snappy"), not_reset=_RUNNING, not_logged_in=_UNREAD),
    "kcat": Client(_kcat, ("lz4", "zstd"), makes_topics=False, has_tokens=False, not_reset="", not_logged_in=_AWAY),
    "rdkafka": Client(
        _rdkafka, ("lz4", "gzip", "snappy"), administers_unheard=True, not_logged_in="Authentication failure"
    ),
    "sarama": Client(_go("sarama"), ("zstd", "lz4")),
    "aiokafka": Client(
        _aiokafka,
        ("lz4", "gzip"),
        too_large="MESSAGE_SIZE_TOO_LARGE",
        not_reset="CommitFailedError",
        not_logged_in="KafkaConnectionError",
    ),
}
