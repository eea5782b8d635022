"""Publishers that go on through anything and note what they were told, and what came of it."""

import itertools
import json
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
import urllib3

from siltlog import Producer
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.ingest.library.delivery import Delivery

REPLY_SECONDS_MAX = 40.0
AGAIN_SECONDS = 0.05
END_SECONDS_MAX = 150.0
PARTITION = 0


class Ack(NamedTuple):
    at: float
    """When it came, by the clock of `time.monotonic`."""
    value: str
    offset: int | None
    """None for a record that was there already, and whose place the server no longer remembers."""


class Damage(NamedTuple):
    lost: int
    """Acknowledged, and not at the place that was told."""
    doubled: int


class Stream(threading.Thread, ABC):
    """Publishes to partition 0 of topics until `finish`."""

    def __init__(self, topics: Sequence[str], period_seconds: float) -> None:
        super().__init__(daemon=True)
        self.topics = topics
        self.acks: dict[str, list[Ack]] = defaultdict(list)
        self.errors: Counter[str] = Counter()
        self._period_seconds = period_seconds
        self._tag = uuid.uuid4().hex[:12]
        self.stopping = threading.Event()
        self._problem: BaseException | None = None

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._problem = error

    @abstractmethod
    def _run(self) -> None:
        """Publishes until `stopping` is set."""

    def finish(self) -> None:
        """Returns once what was begun is decided."""
        self.stopping.set()
        self.join(END_SECONDS_MAX)
        if self._problem is not None:
            raise self._problem
        if self.is_alive():
            raise RuntimeError("a publisher cannot finish")

    def acknowledged_since(self, topic: str, since: float) -> bool:
        acks = self.acks[topic]
        return bool(acks) and acks[-1].at > since

    def longest_gap(self, topic: str, began: float, ended: float) -> float:
        return longest_gap((ack.at for ack in self.acks[topic]), began, ended)


class LibraryStream(Stream):
    """A `Producer` as it is made by default: every period `burst` records to each topic."""

    def __init__(self, urls: Sequence[str], topics: Sequence[str], period_seconds: float, burst: int = 1) -> None:
        super().__init__(topics, period_seconds)
        self._urls = urls
        self._burst = burst

    def _run(self) -> None:
        number = 0
        with Producer(self._urls) as producer:
            while not self.stopping.wait(self._period_seconds):
                for topic in self.topics:
                    for _ in range(self._burst):
                        value = f"{self._tag}:{number}"
                        number += 1
                        producer.send(topic, value, partition=PARTITION, on_delivery=self._noting(topic, value))

    def _noting(self, topic: str, value: str) -> Callable[[Delivery], None]:
        def note(delivery: Delivery) -> None:
            now = time.monotonic()
            error = delivery.exception()
            if error is None:
                self.acks[topic].append(Ack(now, value, delivery.result().offset))
            else:
                self.errors[getattr(error, "error_code", "") or type(error).__name__] += 1

        return note


class WireStream(Stream):
    """Plain HTTP to one topic through a node that may not own it: a record a request, sent again until it is told
    that it is there. `entry` is the URL of that node, and may be changed."""

    def __init__(self, entry: str, topic: str, period_seconds: float) -> None:
        super().__init__([topic], period_seconds)
        self.entry = entry
        self._path = f"/v1/topics/{topic}/records"
        self._headers = {"Content-Type": names.MEDIA_JSON, names.HEADER_PRODUCER_ID: str(uuid.uuid4())}
        self._http = urllib3.PoolManager(retries=False, timeout=REPLY_SECONDS_MAX)

    def _run(self) -> None:
        number = 0
        while not self.stopping.wait(self._period_seconds):
            value = f"{self._tag}:{number}"
            record = {"value": value, "partition": PARTITION, "sequence": number}
            body = json.dumps({"records": [record]}).encode()
            while (offset := self._sent(body)) is _NOT_ACKNOWLEDGED:
                time.sleep(AGAIN_SECONDS)
            self.acks[self.topics[0]].append(Ack(time.monotonic(), value, offset))
            number += 1

    def _sent(self, body: bytes) -> int | None:
        try:
            reply = self._http.request("POST", self.entry + self._path, body=body, headers=self._headers)
            document = json.loads(reply.data or b"{}")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self.errors[type(error).__name__] += 1
            return _NOT_ACKNOWLEDGED
        if reply.status == 200:
            offset: int | None = document["records"][0][1]
            return offset
        if reply.status not in (503, 504):
            raise RuntimeError(f"a publish was answered {reply.status}: {document}")
        self.errors[f"{reply.status} {document.get('error_code', '')}"] += 1
        return _NOT_ACKNOWLEDGED


_NOT_ACKNOWLEDGED = -1


@contextmanager
def publishing(streams: Sequence[Stream]) -> Iterator[None]:
    """They publish for as long as the block lasts, and what they began is decided afterwards."""
    for stream in streams:
        stream.start()
    try:
        yield
    finally:
        for stream in streams:
            stream.stopping.set()
        for stream in streams:
            stream.finish()


def longest_gap(times: Iterable[float], began: float, ended: float) -> float:
    """The longest time between two of `times` in seconds, or to the end; what lies beyond the bounds is left out."""
    points = [began, *sorted(at for at in times if began <= at <= ended), ended]
    return max(after - before for before, after in itertools.pairwise(points))


def told(errors: Counter[str]) -> str:
    """Tells which there were, in brackets; nothing where there was none."""
    return f" ({', '.join(f'{count:,} {what}' for what, count in errors.most_common())})" if errors else ""


def rows_from(url: str, topic: str, offset: int) -> dict[int, str]:
    """The values of partition 0 from `offset` to the high watermark, by offset."""
    http = urllib3.PoolManager(retries=False, timeout=REPLY_SECONDS_MAX)
    found: dict[int, str] = {}
    while True:
        path = f"/v1/topics/{topic}/partitions/{PARTITION}/records?offset={offset}"
        reply = http.request("GET", url + path, headers={"Accept": names.MEDIA_ARROW})
        if reply.status != 200:
            raise RuntimeError(f"a read was answered {reply.status}: {reply.data[:300]!r}")
        table = pa.ipc.open_stream(reply.data).read_all()
        values = table.column("value").cast(pa.string()).to_pylist()
        found |= dict(zip(table.column("offset").to_pylist(), values, strict=True))
        offset = int(reply.headers[names.HEADER_NEXT_OFFSET])
        if offset >= int(reply.headers[names.HEADER_HIGH_WATERMARK]):
            return found


def damage(acks: Iterable[Ack], rows: Mapping[int, str]) -> Damage:
    """Compares what was acknowledged with what is there."""
    counts = Counter(rows.values())
    lost = sum(rows.get(ack.offset) != ack.value if ack.offset is not None else not counts[ack.value] for ack in acks)
    return Damage(lost, sum(count - 1 for count in counts.values()))


def watermark(url: str, topic: str) -> int:
    reply = urllib3.PoolManager(retries=False, timeout=REPLY_SECONDS_MAX).request("GET", f"{url}/v1/topics/{topic}")
    if reply.status != 200:
        raise SiltlogError(f"a topic was answered {reply.status}: {reply.data[:300]!r}")
    return int(json.loads(reply.data)["offsets"][PARTITION]["high_watermark"])
