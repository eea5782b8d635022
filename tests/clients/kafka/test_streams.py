"""An application of Kafka Streams counts words at a broker of Kafka and at this server, over restarts and over the loss
of what it keeps itself."""

import shutil
import subprocess
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_players import streams_command
from kafka_rig import WAIT_SECONDS
from waiting import until

PARTITIONS = 2
LINES = ("the cup of tea", "a cup", "tea for two", "the end of the tea")
pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(600)]


class WordCount(NamedTuple):
    """The application, its topics, and what each instance keeps."""

    bootstrap: str
    name: str
    lines: str
    counts: str
    folder: Path
    command: Sequence[str]

    @contextmanager
    def instance(self, number: int = 0) -> Iterator["subprocess.Popen[bytes]"]:
        place = self.folder / f"state-{number}"
        log = (self.folder / f"log-{number}").open("ab")
        arguments = [self.bootstrap, self.name, self.lines, self.counts, str(place)]
        with log, subprocess.Popen([*self.command, *arguments], stdout=log, stderr=log) as process:
            try:
                yield process
            finally:
                process.kill()

    def stop(self, process: "subprocess.Popen[bytes]") -> None:
        """It finishes what it began, commits and ends."""
        process.terminate()
        process.wait(WAIT_SECONDS)

    def send(self, times: int) -> Counter[str]:
        """Sends the lines so many times, and gives how often each word is in them."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        sent: Counter[str] = Counter()
        for _ in range(times):
            for line in LINES:
                producer.produce(self.lines, line, key=line[:1])
                sent.update(line.split())
        assert producer.flush(WAIT_SECONDS) == 0
        return sent

    def until_counted(self, wanted: Counter[str]) -> None:
        """Waits until the last count of each word is that."""
        found: dict[str, int] = {}
        settings = {"bootstrap.servers": self.bootstrap, "group.id": f"g{uuid.uuid4()}", "log_level": 0}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.counts, number, 0) for number in range(PARTITIONS)])

        def counted() -> bool:
            for message in consumer.consume(1_000, 0.2):
                assert message.error() is None, message.error()
                found[message.key().decode()] = int(message.value())
            return found == wanted

        try:
            until(counted, WAIT_SECONDS)
        except AssertionError:
            raise AssertionError(f"counted {found}, not {wanted}: {self._logs()}") from None
        finally:
            consumer.close()

    def lose_state(self) -> None:
        for place in self.folder.glob("state-*"):
            shutil.rmtree(place)

    def _logs(self) -> list[str]:
        return [path.read_text()[-3_000:] for path in self.folder.glob("log-*")]


@pytest.fixture
def word_count(bootstrap: str, tmp_path: Path) -> WordCount:
    name = f"words-{uuid.uuid4()}"
    lines, counts = f"{name}-lines", f"{name}-counts"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in (lines, counts)]).values():
        made.result(WAIT_SECONDS)
    return WordCount(bootstrap, name, lines, counts, tmp_path, streams_command())


def test_an_instance_that_lost_its_state_finds_it_in_the_topic_that_it_made(word_count: WordCount) -> None:
    with word_count.instance() as instance:
        sent = word_count.send(20)
        word_count.until_counted(sent)
        word_count.stop(instance)
    word_count.lose_state()
    sent += word_count.send(5)
    with word_count.instance():
        word_count.until_counted(sent)


def test_two_instances_share_the_work_and_one_takes_over(word_count: WordCount) -> None:
    with ExitStack() as stack:
        first, _ = [stack.enter_context(word_count.instance(number)) for number in range(2)]
        sent = word_count.send(10)
        word_count.until_counted(sent)
        word_count.stop(first)
        sent += word_count.send(10)
        word_count.until_counted(sent)
