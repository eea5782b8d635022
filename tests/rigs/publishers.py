"""Publishers that go on through anything, and remember exactly what they were told."""

import json
import random
import threading
import time
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import urllib3
from chaos import CHAOS

from siltlog.infra import names

FILLER = "." * 4_000
PAUSE_S = 0.03
"""After what was not answered, or not done."""
BREATH_S = 0.0 if CHAOS > 1 else 0.01
"""Between one request and the next; without one, a few publishers take all that their server needs."""
LOST = (urllib3.exceptions.HTTPError, OSError)


@dataclass
class Reply:
    status: int
    document: Any

    @property
    def error_code(self) -> str:
        return str(self.document.get("error_code", ""))


class Wire:
    """Bare HTTP without retries: what a call is answered, or that it was not."""

    def __init__(self, url: str, timeout_s: float = 30.0) -> None:
        self.url = url
        self._http = urllib3.PoolManager(retries=False, timeout=timeout_s, maxsize=4)

    def raw(self, method: str, path: str, body: Any = None, **headers: str) -> urllib3.BaseHTTPResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._http.request(method, self.url + path, body=body, headers=named)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        reply = self.raw(method, path, content, **{"Content_Type": names.MEDIA_JSON, **headers})
        return Reply(reply.status, json.loads(reply.data) if reply.data else {})

    def create(self, topic: str, partitions: int, **config: Any) -> dict[str, Any]:
        named = {name.replace("_", "."): value for name, value in config.items()}
        reply = self.call("POST", "/v1/topics", {"name": topic, "partitions": partitions, "config": named})
        assert reply.status == 201, reply
        document: dict[str, Any] = reply.document
        return document

    def offsets(self, topic: str) -> list[dict[str, Any]]:
        reply = self.call("GET", f"/v1/topics/{topic}")
        assert reply.status == 200, reply
        offsets: list[dict[str, Any]] = reply.document["offsets"]
        return offsets

    def ready(self) -> Reply:
        return self.call("GET", "/readyz")


@dataclass
class Ledger:
    """What publishers know of one topic. Values are unique texts; a place is (partition, offset)."""

    acked: dict[str, tuple[int, int]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    exactly_once: set[str] = field(default_factory=set)
    """What idempotent publishers sent, all acknowledged in the end."""
    complaints: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Publisher(threading.Thread, ABC):
    """Publishes until `finish`, from a seed of its own."""

    def __init__(self, url: str, topic: str, partitions: int, ledger: Ledger, seed: int, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.wire = Wire(url)
        self.topic = topic
        self.partitions = partitions
        self.ledger = ledger
        self.rng = random.Random(seed)
        self.pause_s = BREATH_S
        self._stopping = threading.Event()
        self._count = 0

    def finish(self) -> None:
        """Call it while a server runs: what was begun is carried through."""
        self._stopping.set()
        self.join(120)
        assert not self.is_alive(), f"{self.name} cannot finish"

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.publish()
                if self.pause_s:
                    time.sleep(self.pause_s)
        except Exception as error:
            self.complain(f"{type(error).__name__}: {error}")

    @abstractmethod
    def publish(self) -> None:
        """Publishes once, and enters what came of it into the ledger."""

    def complain(self, what: str) -> None:
        self.ledger.complaints.append(f"{self.name}: {what}")

    def values(self, count: int) -> list[str]:
        first = self._count
        self._count += count
        return [f"{self.name}:{first + i} {FILLER[: self.rng.randint(0, 1500)]}" for i in range(count)]

    @property
    def path(self) -> str:
        return f"/v1/topics/{self.topic}/records"


class PlainPublisher(Publisher):
    """Sends each request once."""

    def publish(self) -> None:
        values = self.values(self.rng.choice((1, 1, 3, 40, 120)))
        try:
            places = self._columns(values) if self.rng.random() < 0.3 else self._rows(values)
        except LOST:
            with self.ledger.lock:
                self.ledger.unknown.update(values)
            time.sleep(PAUSE_S)
            return
        if places is None:
            time.sleep(PAUSE_S)
        else:
            with self.ledger.lock:
                self.ledger.acked.update(zip(values, places, strict=True))

    def _rows(self, values: list[str]) -> list[tuple[int, int]] | None:
        keyed = self.rng.random() < 0.5
        records = [{"value": value, **({"key": value[-3:]} if keyed else {})} for value in values]
        acks = self.rng.choice(("", "?acks=wal", "?acks=table", "?acks=written"))
        reply = self.wire.call("POST", self.path + acks, {"records": records})
        if self._not_done(reply, values):
            return None
        return [(partition, offset) for partition, offset in reply.document["records"]]

    def _columns(self, values: list[str]) -> list[tuple[int, int]] | None:
        partition = self.rng.randrange(self.partitions)
        reply = self.wire.call("POST", f"{self.path}?partition={partition}", arrow_body(values), **ARROW)
        if self._not_done(reply, values):
            return None
        first = reply.document["partitions"][0]["first_offset"]
        return [(partition, first + i) for i in range(len(values))]

    def _not_done(self, reply: Reply, values: list[str]) -> bool:
        if reply.status == 200:
            return False
        refused = reply.document.get("retryable") == "yes"
        if reply.status not in (503, 504):
            self.complain(f"{reply}")
        with self.ledger.lock:
            (self.ledger.refused if refused else self.ledger.unknown).update(values)
        return True


class RepeatingPublisher(Publisher):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.repeats = 0

    def until_acked(self, records: list[dict[str, Any]], **headers: str) -> Reply:
        """The same request again and again, until it is acknowledged."""
        while True:
            try:
                reply = self.wire.call("POST", self.path, {"records": records}, **headers)
            except LOST:
                reply = Reply(0, {})
            if reply.status == 200:
                return reply
            if reply.status not in (0, 503, 504):
                raise AssertionError(f"{reply.status} {reply.document}")
            self.repeats += 1
            time.sleep(PAUSE_S)


class IdempotentPublisher(RepeatingPublisher):
    """Repeats a request, sequences and all, until it is acknowledged."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.producer_id = str(uuid.uuid4())
        self.sequences = [0] * self.partitions

    def publish(self) -> None:
        records, taken = [], list(self.sequences)
        for value in self.values(self.rng.choice((1, 5, 60))):
            partition = self.rng.randrange(self.partitions)
            records.append({"value": value, "partition": partition, "sequence": taken[partition]})
            taken[partition] += 1
        reply = self.until_acked(records, Silt_Producer_Id=self.producer_id)
        self.sequences = taken
        with self.ledger.lock:
            for record, (partition, offset) in zip(records, reply.document["records"], strict=True):
                value = str(record["value"])
                self.ledger.exactly_once.add(value)
                if offset is not None:
                    self.ledger.acked[value] = (partition, offset)


class KeyedPublisher(RepeatingPublisher):
    """Repeats a request with an idempotency key until it is acknowledged; its records name no partition."""

    def publish(self) -> None:
        values = self.values(self.rng.choice((1, 1, 4, 50)))
        records = [{"value": value, **({"key": value[-5:]} if self.rng.random() < 0.7 else {})} for value in values]
        key = str(uuid.uuid4())
        reply = self.until_acked(records, Idempotency_Key=key)
        with self.ledger.lock:
            self.ledger.exactly_once.update(values)
            self.ledger.acked.update(zip(values, map(tuple, reply.document["records"]), strict=True))


ARROW = {"Content_Type": names.MEDIA_ARROW}


def arrow_body(values: list[str]) -> bytes:
    batch = pa.record_batch([pa.array(values)], names=["value"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def start_publishers(
    url: str,
    topic: str,
    partitions: int,
    ledger: Ledger,
    rng: random.Random,
    *,
    plain: int = 3,
    idempotent: int = 3,
    keyed: int = 0,
) -> list[Publisher]:
    tag = uuid.uuid4().hex[:6]
    kinds = [(PlainPublisher, f"plain-{tag}-{i}") for i in range(plain)]
    kinds += [(IdempotentPublisher, f"once-{tag}-{i}") for i in range(idempotent)]
    kinds += [(KeyedPublisher, f"keyed-{tag}-{i}") for i in range(keyed)]
    publishers = [kind(url, topic, partitions, ledger, rng.getrandbits(32), name=name) for kind, name in kinds]
    for publisher in publishers:
        publisher.start()
    return publishers
