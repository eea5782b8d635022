"""A real server that speaks Kafka's protocol, real clients of it, and one that says what it is told to."""

import itertools
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from http_rig import NO_REDIS, Http
from ports import free_port as free_port

from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.kafka.batch import CRC_START, HEAD, LENGTH_END
from siltlog.infra.kafka.frames import decode_response, encode_request
from siltlog.infra.kafka.records import encode
from siltlog.infra.store.checksum import crc32c
from siltlog.testing import running_server

WAIT_SECONDS = 60.0
PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, FOR_LEADER_EPOCH = 0, 1, 2, 3, 18, 23


def bootstrap_of(server: Any) -> str:
    return str(server._settings["kafka_listen"])


@contextmanager
def served(**settings: Any) -> Iterator[tuple[Http, str, Any]]:
    """A server that speaks both: a client of HTTP, the address for those of Kafka, and the server."""
    own = {"redis_url": NO_REDIS, "kafka_listen": f"127.0.0.1:{free_port()}", **settings}
    with running_server(**own) as server:
        yield Http(server.url), bootstrap_of(server), server


@contextmanager
def producer(bootstrap: str, **more: Any) -> Iterator[Producer]:
    made = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 5, **_named(more)})
    yield made
    left = made.flush(WAIT_SECONDS)
    assert left == 0, f"{left} records were not delivered"


def read(bootstrap: str, topic: str, count: int, partition: int = 0, offset: int = 0, **more: Any) -> list[Message]:
    """Reads on from `offset` until there are `count` records, by librdkafka."""
    # It asks for a group, and asks for its coordinator, though it needs none.
    own = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**own, **_named(more)})
    consumer.assign([TopicPartition(topic, partition, offset)])
    found: list[Message] = []
    end = time.monotonic() + WAIT_SECONDS
    try:
        while len(found) < count:
            assert time.monotonic() < end, f"there are {len(found)} records, not {count}"
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return found


def _named(more: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in more.items()}


def batch(*values: bytes) -> bytes:
    """Records of these values, as a producer sends them."""
    count = len(values)
    rows = {
        "partition": [0] * count,
        "offset": list(range(count)),
        "timestamp": [1_700_000_000_000_000] * count,
        "key": [None] * count,
        "value": list(values),
        "headers": [None] * count,
    }
    [columns] = pa.table(rows, schema=RECORD_SCHEMA).to_batches()
    return b"".join(encode(columns, -1))


def numbered(records: bytes, producer_id: int, epoch: int, sequence: int) -> bytes:
    """The same records, as an idempotent producer sends them."""
    return with_fields(records, {9: producer_id, 10: epoch, 11: sequence})


def batches_in(data: bytes) -> Iterator[bytes]:
    """Yields each of the batches that follow each other."""
    while data:
        size = HEAD.unpack_from(data)[1] + LENGTH_END
        yield data[:size]
        data = data[size:]


def with_fields(records: bytes, values: dict[int, int]) -> bytes:
    """A batch with other values of fields of its head, by their places, and the checksum that it then has."""
    fields = list(HEAD.unpack_from(records))
    for place, value in values.items():
        fields[place] = value
    body = HEAD.pack(*fields)[CRC_START:] + records[HEAD.size :]
    fields[4] = crc32c(pa.py_buffer(body))
    return HEAD.pack(*fields)[:CRC_START] + body


def publish(topic: str, records: bytes, acks: int = -1, partition: int = 0) -> dict[str, Any]:
    parts = [{"index": partition, "records": records}]
    return {"acks": acks, "timeout_ms": 10_000, "topic_data": [{"name": topic, "partition_data": parts}]}


def fetch(topic: str, offset: int, **more: Any) -> dict[str, Any]:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    own = {name: more.pop(name) for name in list(more) if name in ("current_leader_epoch", "partition_max_bytes")}
    topics = [{"topic": topic, "partitions": [part | own]}]
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics, **more}


def the_part(answer: dict[str, Any]) -> dict[str, Any]:
    [topic] = answer.get("responses") or answer["topics"]
    [part] = topic.get("partition_responses") or topic["partitions"]
    found: dict[str, Any] = part
    return found


class Tape:
    """One connection."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=WAIT_SECONDS)
        self._numbers = itertools.count(1)

    def __enter__(self) -> "Tape":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, key: int, version: int, /, **body: Any) -> dict[str, Any]:
        """Sends a request and gives the fields of its answer."""
        self.send(key, version, **body)
        return self.answer(key, version)

    def send(self, key: int, version: int, /, **body: Any) -> None:
        self.frame(encode_request(key, version, next(self._numbers), "tape", body))

    def answer(self, key: int, version: int) -> dict[str, Any]:
        return decode_response(key, version, self.received()).body

    def frame(self, frame: bytes) -> None:
        self.socket.sendall(len(frame).to_bytes(4) + frame)

    def received(self) -> bytes:
        length = int.from_bytes(self._bytes(4))
        return self._bytes(length)

    def is_closed(self) -> bool:
        """Waits for the end of the connection, whatever comes before."""
        try:
            self.ends()
        except TimeoutError:
            return False
        return True

    def ends(self) -> bytes:
        """Waits for the end of the connection, and gives what came before."""
        came = bytearray()
        try:
            while piece := self.socket.recv(65_536):
                came += piece
        except ConnectionError:
            pass
        return bytes(came)

    def _bytes(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            piece = self.socket.recv(count - len(found))
            assert piece, "the connection was closed"
            found += piece
        return bytes(found)
