"""What the pages on Kafka's clients show: a topic's history comes over once, and an application moves."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import doc_page
import kafka_oracle
import kafka_tools
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from http_rig import Http
from kafka_players import FLINK_CONNECTOR_VERSION, FLINK_VERSION, JAVA_VERSION, SPARK_VERSION
from kafka_rig import WAIT_SECONDS, bootstrap_of, free_port, producer
from kafka_tools import kafka_broker

from siltlog.infra.errors import ConfigError
from siltlog.testing import running_server

TOP = Path(__file__).parents[2]
IMPORT = TOP / "examples" / "kafka" / "import_topic.py"
GUIDE = (TOP / "docs" / "kafka.md").read_text("utf-8")
CLIENTS = TOP / "tests" / "clients" / "kafka"
PINS = ("go/go.mod", "aiokafka/requirements.txt", "kafkajs/package.json", "rust/Cargo.toml")
RUST = (r'^rdkafka = .*"=([\d.]+)"', r"# librdkafka (\S+)$")
Place = tuple[Http, str]
KILLED = """
import os, runpy, signal, sys, urllib.request
ask, left = urllib.request.urlopen, [10]
def ask_some(request, *rest, **more):
    answer = ask(request, *rest, **more)
    if request.get_method() == "POST" and request.full_url.endswith("/records"):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
    return answer
urllib.request.urlopen = ask_some
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def here() -> Iterator[Place]:
    """A client of HTTP, and the address for clients of Kafka."""
    with running_server(kafka_listen=f"127.0.0.1:{free_port()}", flush_ms=100) as server:
        yield Http(server.url), bootstrap_of(server)


def command(http: Http, topic: str, source: str, *more: str) -> list[str]:
    return [sys.executable, str(IMPORT), topic, "--from", source, "--to", http.url, *more]


def imported(http: Http, topic: str, source: str, *more: str) -> list[str]:
    """What a run of the example prints."""
    done = subprocess.run(command(http, topic, source, *more), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def rows(http: Http, topic: str, partition: int) -> list[dict[str, Any]]:
    """The records of a partition, but for their offsets."""
    return [{name: each[name] for name in each if name != "offset"} for each in http.read(topic, partition)]


def filled(bootstrap: str, topic: str, numbers: Sequence[int]) -> None:
    with producer(bootstrap) as sends:
        for number in numbers:
            value = None if number % 50 == 7 else b"%d" % number
            headers = [("n", b"%d" % number), ("empty", None)] if number % 3 == 0 else None
            sends.produce(topic, value, b"k%d" % (number % 5), number % 2, headers=headers, timestamp=10**12 + number)


def test_the_guide_names_the_clients_that_are_run() -> None:
    part = GUIDE.split("## Which clients\n")[1].split("\n## ")[0]
    versions = dict(re.findall(r"^\| ([^|]+?) \| (\d[^|]*?) \|$", part, re.MULTILINE))
    pinned = "".join((CLIENTS / file).read_text() for file in PINS)
    assert versions == {
        "Java": f"{kafka_oracle.VERSION}, {JAVA_VERSION} (also with `group.protocol=consumer`)",
        "librdkafka by confluent-kafka (Python)": version("confluent-kafka"),
        "kafka-python": version("kafka-python"),
        "aiokafka (Python)": found(r"^aiokafka==(\S+)", pinned),
        "franz-go (Go)": found(r"/franz-go v(\S+)", pinned),
        "sarama (Go)": found(r"/sarama v(\S+)", pinned),
        "rdkafka (Rust)": ", with librdkafka ".join(found(pattern, pinned) for pattern in RUST),
        "kafkajs (Node.js)": found(r'"kafkajs": "(\S+)"', pinned),
        "kcat (librdkafka 2.0)": "1.7.1, Debian's",
        "Spark's source and sink (`spark-sql-kafka-0-10`)": SPARK_VERSION,
        "Kafka Connect, with the connectors of files": kafka_tools.VERSION,
        f"Flink's source and sink (`flink-connector-kafka` {FLINK_CONNECTOR_VERSION})": FLINK_VERSION,
        "Kafka Streams": kafka_tools.VERSION,
    }


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    assert match, pattern
    return match[1]


def refused(http: Http, topic: str, source: str, *more: str) -> str:
    """The one line that it ends with."""
    ended = subprocess.run(command(http, topic, source, *more), capture_output=True, text=True)
    assert ended.returncode == 1
    [said] = [line for line in ended.stderr.splitlines() if not line.startswith("%")]
    return said


@pytest.mark.slow
def test_a_topic_comes_over_once_though_its_import_is_killed(here: Place) -> None:
    http, bootstrap = here
    http.create("history", 2, timestamp_before_max_ms=-1)
    filled(bootstrap, "history", range(2_000))
    small = ("--as", "copy", "--records", "20")
    python, *example = command(http, "history", bootstrap, *small)
    killed = subprocess.run([python, "-c", KILLED, *example], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    [told] = imported(http, "history", bootstrap, *small)
    came, _, rest = told.partition(" ")
    assert rest == "records came, 2000 are there"
    assert 0 < int(came) < 2_000
    for partition in range(2):
        assert rows(http, "copy", partition) == rows(http, "history", partition)
    filled(bootstrap, "history", range(2_000, 2_010))
    assert imported(http, "history", bootstrap, "--as", "copy") == ["10 records came, 2010 are there"]
    # It is another topic's by now.
    http.create("other", 2)
    filled(bootstrap, "other", range(2))
    assert "choose another --as" in refused(http, "other", bootstrap, "--as", "copy")
    assert "no offsets of group biling" in refused(http, "other", bootstrap, "--as", "more", "--group", "biling")
    assert refused(http, "other", f"127.0.0.1:{free_port()}").endswith("Broker transport failure")


@contextmanager
def old_cluster(kind: str, folder: Path) -> Iterator[str]:
    """What an application is moved from: a broker of Kafka, or what looks like one."""
    if kind == "kafka":
        with kafka_broker(folder) as bootstrap:
            yield bootstrap
    else:
        with running_server(kafka_listen=f"127.0.0.1:{free_port()}", flush_ms=100) as server:
            yield bootstrap_of(server)


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["alike", pytest.param("kafka", marks=pytest.mark.client)])
def test_an_application_moves_as_the_page_says(here: Place, tmp_path: Path, kind: str) -> None:
    http, bootstrap = here
    section = GUIDE.split("## Moving an application in ten minutes")[1].split("\n## ")[0]
    (tmp_path / "examples").symlink_to(TOP / "examples")
    try:
        with old_cluster(kind, tmp_path) as old:
            admin = AdminClient({"bootstrap.servers": old})
            [made] = admin.create_topics([NewTopic("orders", 1, 1)]).values()
            made.result()
            with producer(old) as sends:
                for order in ("tea", "cup", "pot", "bowl", "pan"):
                    sends.produce("orders", order)

            def addressed(commands: str) -> str:
                told = commands.replace("old.example:9092", old).replace("localhost:9092", bootstrap)
                return told.replace(f"--from {old}", f"--from {old} --to {http.url}")

            assert doc_page.run(section, http.url, tmp_path, change=addressed) == 5
    except ConfigError as error:
        pytest.skip(f"Kafka cannot be run: {error}")
    finally:
        http.call("DELETE", "/v1/topics/orders")
        http.call("DELETE", "/v1/groups/billing")


@pytest.mark.client
def test_a_topic_of_kafka_comes_over_with_gaps_and_groups(here: Place, tmp_path: Path) -> None:
    http, _ = here
    try:
        with kafka_broker(tmp_path) as kafka:
            transactions(kafka)
            [told, group] = imported(http, "sold", kafka, "--group", "billing")
            assert told == "30 records came, 30 are there"
            # Of each ten records of a transaction the group has had those of the first two, and its offsets have gaps.
            assert group == "billing goes on at 20"
            assert imported(http, "sold", kafka) == ["0 records came, 30 are there"]
    except ConfigError as error:
        pytest.skip(f"Kafka cannot be run: {error}")
    assert [each["value"] for each in http.read("sold", query="values=text")] == [
        f"{batch}-{number}" for batch in (0, 2, 3) for number in range(10)
    ]


def transactions(kafka: str) -> None:
    """Four transactions of ten records, of which the second was given up; a group has committed the first two."""
    admin = AdminClient({"bootstrap.servers": kafka})
    [made] = admin.create_topics([NewTopic("sold", 1, 1)]).values()
    made.result()
    sends = Producer({"bootstrap.servers": kafka, "transactional.id": "t", "log_level": 0})
    sends.init_transactions(WAIT_SECONDS)
    for batch in range(4):
        sends.begin_transaction()
        for number in range(10):
            sends.produce("sold", f"{batch}-{number}")
        sends.flush(WAIT_SECONDS)
        (sends.abort_transaction if batch == 1 else sends.commit_transaction)(WAIT_SECONDS)
    group = Consumer({"bootstrap.servers": kafka, "group.id": "billing"})
    group.commit(offsets=[TopicPartition("sold", 0, 33)], asynchronous=False)
    group.close()
