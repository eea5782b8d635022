"""Publishers and readers call the nodes of a cluster, go on through anything, and note what they are told."""

import json
import random
import threading
import time
from abc import ABC, abstractmethod
from typing import Any

import urllib3
from cluster_rig import PAUSE_SECONDS, Nodes
from history import Ack, Read, Row
from publishers import LOST, Wire

from siltlog import Consumer, Producer, SiltlogError
from siltlog.infra import names

VIEW_FIELD = "Silt-View"
CALL_SECONDS = 5.0
"""How long a caller waits for a node that may have stopped: it says so itself where it still runs."""


class Caller(threading.Thread, ABC):
    """Calls one node after another: what is not answered, or not now, is asked of the next. Notes all it is told."""

    def __init__(self, nodes: Nodes, topic: str, name: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.acks: list[Ack] = []
        self.reads: list[Read] = []
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self.landed: set[str] = set()
        """Values that were acknowledged in the end, wherever: they were sent again and again."""
        self.complaints: list[str] = []
        self.stalls: list[tuple[float, float]] = []
        """When a record was first sent, and the seconds until it was acknowledged, of those that took long."""
        self.pause_seconds = 0.0
        """Between one call and the next."""
        self.topic = topic
        self.rng = random.Random(seed)
        self._nodes = nodes
        self._at = self.rng.randrange(len(nodes))
        self._wires = {name: Wire(node.calls.url, CALL_SECONDS) for name, node in nodes.items()}
        self._stopping = threading.Event()

    def leave(self) -> None:
        """It begins nothing more."""
        self._stopping.set()

    def finish(self) -> None:
        self.leave()
        self.join(120)
        assert not self.is_alive(), f"{self.name} cannot finish"

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.step()
                if self.pause_seconds:
                    time.sleep(self.pause_seconds)
        except BaseException as error:
            self.complaints.append(f"{self.name}: {type(error).__name__}: {error}")

    @abstractmethod
    def step(self) -> None:
        """Calls once, and notes what it is told."""

    @property
    def asked(self) -> str:
        """The node that is asked now."""
        return list(self._wires)[self._at % len(self._wires)]

    def raw(self, method: str, path: str, body: bytes | None = None, **headers: str) -> urllib3.BaseHTTPResponse | None:
        """None where nothing was answered; the next call is of another node then."""
        wire = self._wires[self.asked]
        try:
            return wire.raw(method, path, body, **headers)
        except LOST:
            self.turn()
            return None

    def turn(self) -> None:
        self._at += 1
        time.sleep(PAUSE_SECONDS)


class ClusterPublisher(Caller):
    """Publishes with sequences and repeats until it is acknowledged, or with `once` sends each request once."""

    def __init__(
        self,
        nodes: Nodes,
        topic: str,
        name: str,
        seed: int,
        *,
        acks: str = "table",
        partitions: int = 2,
        once: bool = False,
    ) -> None:
        super().__init__(nodes, topic, name, seed)
        self.acks_level = acks
        self.partitions = partitions
        self.once = once
        self.errors: list[str] = []
        self.waits: list[float] = []
        """Seconds from when each request was first sent until it was acknowledged."""
        self._sequences = [0] * partitions
        self._count = 0
        self._producer_id = f"0b6ce8e0-9b0e-4b5a-8d3c-{seed:012x}"

    def step(self) -> None:
        records, values = [], []
        taken = list(self._sequences)
        for _ in range(self.rng.choice((1, 3, 20))):
            partition = self.rng.randrange(self.partitions)
            value = f"{self.name}:{self._count}"
            self._count += 1
            values.append(value)
            records.append({"value": value, "partition": partition})
            if not self.once:
                records[-1]["sequence"] = taken[partition]
                taken[partition] += 1
        body = json.dumps({"records": records}).encode()
        first = time.monotonic()
        while True:
            began = time.monotonic()
            headers = {} if self.once else {"Silt_Producer_Id": self._producer_id}
            path = f"/v1/topics/{self.topic}/records?acks={self.acks_level}"
            reply = self.raw("POST", path, body, Content_Type=names.MEDIA_JSON, **headers)
            if reply is not None and reply.status == 200:
                self._acknowledged(values, json.loads(reply.data), first if not self.once else began)
                self._sequences = taken
                break
            self._not_acknowledged(reply, values)
            if self.once:
                break
            self.turn()
        waited = time.monotonic() - first
        self.waits.append(waited)
        if waited > 1.0:
            self.stalls.append((first, waited))

    def _acknowledged(self, values: list[str], document: dict[str, Any], began: float) -> None:
        ended = time.monotonic()
        for value, (partition, offset) in zip(values, document["records"], strict=True):
            if not self.once:
                self.landed.add(value)
            if offset is not None:
                self.acks.append(Ack(self.name, value, partition, offset, began, ended))

    def _not_acknowledged(self, reply: urllib3.BaseHTTPResponse | None, values: list[str]) -> None:
        said = {} if reply is None else json.loads(reply.data or b"{}")
        status = 0 if reply is None else reply.status
        self.errors.append(f"{status} {said.get('error_code', '')}")
        if status not in (0, 503, 504):
            self.complaints.append(f"{self.name}: {status} {said}")
            self._stopping.set()
        if self.once:
            (self.refused if said.get("retryable") == "yes" else self.unknown).update(values)


class ClusterReader(Caller):
    """Reads on from where it is, at one node after another."""

    def __init__(self, nodes: Nodes, topic: str, name: str, seed: int, *, partitions: int = 2) -> None:
        super().__init__(nodes, topic, name, seed)
        self._offsets = [0] * partitions
        self._view = 0
        """The newest that a reply has told of."""

    def step(self) -> None:
        import pyarrow as pa

        if self.rng.random() < 0.1:
            self._at += 1
        partition = self.rng.randrange(len(self._offsets))
        offset = self._offsets[partition]
        began = time.monotonic()
        path = f"/v1/topics/{self.topic}/partitions/{partition}/records?offset={offset}&wait_ms=50"
        reply = self.raw("GET", path, Accept=names.MEDIA_ARROW)
        ended = time.monotonic()
        if reply is None:
            return
        view = int(reply.headers.get(VIEW_FIELD, 0))
        # Who slept does not know yet that it owns nothing: its bounds are low, and count for nobody who knows better.
        is_behind = reply.status == 416 and view < self._view
        self._view = max(self._view, view)
        if reply.status != 200:
            if reply.status not in (503, 504) and not is_behind:
                self.complaints.append(f"{self.name}: {reply.status} {reply.data!r}")
                self._stopping.set()
            self.turn()
            return
        table = pa.ipc.open_stream(reply.data).read_all()
        rows = zip(table.column("offset").to_pylist(), table.column("value").cast(pa.string()).to_pylist(), strict=True)
        self._offsets[partition] = int(reply.headers[names.HEADER_NEXT_OFFSET])
        watermark = int(reply.headers[names.HEADER_HIGH_WATERMARK])
        self.reads.append(
            Read(
                self.name, partition, offset, self._offsets[partition], watermark, tuple(rows), began, ended, self.asked
            )
        )


def rows_of(found: list[Any]) -> list[Row]:
    return [Row(row.partition, row.offset, row.value) for row in found]


class LibraryPublisher(Caller):
    """A `Producer`: whatever happens to nodes, it never hears of it."""

    def __init__(self, nodes: Nodes, topic: str, name: str, seed: int, *, partitions: int = 2) -> None:
        super().__init__(nodes, topic, name, seed)
        self.partitions = partitions
        self._count = 0

    def run(self) -> None:
        try:
            with Producer([node.url for node in self._nodes.values()]) as self._producer:
                super().run()
        except SiltlogError as error:
            self.complaints.append(f"{self.name}: {type(error).__name__}: {error}")

    def step(self) -> None:
        began = time.monotonic()
        sent = []
        for _ in range(self.rng.choice((1, 3, 20))):
            value = f"{self.name}:{self._count}"
            self._count += 1
            partition = self.rng.randrange(self.partitions)
            sent.append((value, self._producer.send(self.topic, value, partition=partition)))
        for value, delivery in sent:
            said = delivery.result()
            self.landed.add(value)
            if said.offset is not None:
                self.acks.append(Ack(self.name, value, said.partition, said.offset, began, time.monotonic()))
        waited = time.monotonic() - began
        if waited > 1.0:
            self.stalls.append((began, waited))


class GroupMember(Caller):
    """A `Consumer` in a group: what it was given, in the order in which it was."""

    def __init__(self, nodes: Nodes, topic: str, name: str, seed: int, *, group: str) -> None:
        super().__init__(nodes, topic, name, seed)
        self.given: list[Row] = []
        self._group = group

    def run(self) -> None:
        urls = [node.url for node in self._nodes.values()]
        try:
            with Consumer(urls, group=self._group, topics=self.topic, auto_commit_interval_ms=200) as self._consumer:
                super().run()
        except SiltlogError as error:
            self.complaints.append(f"{self.name}: {type(error).__name__}: {error}")

    def step(self) -> None:
        for record in self._consumer.poll(timeout_ms=100):
            self.given.append(Row(record.partition, record.offset, record.text() or ""))
