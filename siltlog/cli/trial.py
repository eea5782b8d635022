"""How fast a server is, measured with the client library on a topic of its own (`silt bench`).

Everything that is published is read back and counted: a figure of a log that loses records is worth nothing.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from siltlog.consumers.library.consumer import Consumer
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.clock import MICROS_PER_SECOND, Clock, stopwatch
from siltlog.infra.errors import problem
from siltlog.ingest.library.producer import Producer

MIB = 1024 * 1024
BATCH_RECORDS = 10_000
SINGLE_RECORDS = 300
TAILED_RECORDS = 500
TAILED_PER_SECOND = 250
POLL_MS = 250
SILENT_SECONDS_MAX = 30.0
"""How long no record may come while some are to come, before they count as not there."""


@dataclass(frozen=True, slots=True)
class Measured:
    what: str
    records_per_second: float
    mib_per_second: float
    p50_ms: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of the server at `url`, on `topic`, which is empty and has `partitions`."""

    url: str
    credentials: Credentials
    topic: str
    partitions: int
    records: int
    record_bytes: int
    acks: Literal["written", "wal", "object", "table"]
    clock: Clock

    def run(self) -> Iterator[Measured]:
        """Raises SiltlogError: whatever a client does, and `corrupt_data` when published records do not come back."""
        values = _values(min(self.records, BATCH_RECORDS), self.record_bytes)
        yield self._one_by_one(values)
        yield self._in_batches(values)
        yield self._read()
        yield self._single(values)
        yield self._tailed()

    def _producer(self, **options: Any) -> Producer:
        return Producer(self.url, **self.credentials.keywords, **options)

    def _consumer(self, **options: Any) -> Consumer:
        return Consumer(self.url, **self.credentials.keywords, **options)

    def _one_by_one(self, values: Sequence[bytes]) -> Measured:
        with stopwatch(self.clock) as seconds, self._producer(acks=self.acks) as producer:
            for number in range(self.records):
                producer.send(self.topic, values[number % len(values)])
        return self._rate("publish, a send() a record", self.records, seconds[0])

    def _in_batches(self, values: Sequence[bytes]) -> Measured:
        batch = pa.table({"value": pa.array(values, pa.binary())})
        with stopwatch(self.clock) as seconds, self._producer(acks=self.acks) as producer:
            for start in range(0, self.records, batch.num_rows):
                producer.send_batch(self.topic, batch.slice(0, min(batch.num_rows, self.records - start)))
        return self._rate("publish, send_batch() of Arrow tables", self.records, seconds[0])

    def _read(self) -> Measured:
        everything = [TopicPartition(self.topic, partition) for partition in range(self.partitions)]
        wanted, found = 2 * self.records, 0
        with self._consumer(assign=everything) as consumer, stopwatch(self.clock) as seconds:
            last = self.clock.monotonic()
            while found < wanted and self.clock.monotonic() - last < SILENT_SECONDS_MAX:
                had = consumer.poll_arrow(timeout_ms=POLL_MS).num_rows
                found += had
                last = self.clock.monotonic() if had else last
        if found != wanted:
            raise problem("corrupt_data", f"of {wanted} records published to topic {self.topic} {found} came back")
        return self._rate("read all of it, poll_arrow()", wanted, seconds[0])

    def _single(self, values: Sequence[bytes]) -> Measured:
        taken = []
        with stopwatch(self.clock) as seconds, self._producer(acks=self.acks, linger_ms=0) as producer:
            for number in range(SINGLE_RECORDS):
                with stopwatch(self.clock) as spent:
                    producer.send(self.topic, values[number % len(values)]).result()
                taken.append(spent[0])
        return self._rate("publish one, wait for its ack", SINGLE_RECORDS, seconds[0], taken)

    def _tailed(self) -> Measured:
        """Measures the time from sending a record until a consumer in this process, which waits for it, has it."""
        taken: list[float] = []
        ready, ended = threading.Event(), threading.Event()

        def tail() -> None:
            everything = [TopicPartition(self.topic, partition) for partition in range(self.partitions)]
            with self._consumer(assign=everything, auto_offset_reset="latest") as consumer:
                consumer.poll(timeout_ms=1)
                ready.set()
                while len(taken) < TAILED_RECORDS and not ended.is_set():
                    had = consumer.poll(timeout_ms=POLL_MS)
                    now_us = self.clock.now_us()
                    taken.extend((now_us - int(record.value or b"0")) / MICROS_PER_SECOND for record in had)

        tailing = threading.Thread(target=tail, daemon=True)
        tailing.start()
        ready.wait(SILENT_SECONDS_MAX)
        try:
            with stopwatch(self.clock) as seconds, self._producer(acks=self.acks, linger_ms=0) as producer:
                for _ in range(TAILED_RECORDS):
                    producer.send(self.topic, b"%0*d" % (self.record_bytes, self.clock.now_us()))
                    self.clock.sleep(1 / TAILED_PER_SECOND)
            tailing.join(SILENT_SECONDS_MAX)
        finally:
            ended.set()
        if len(taken) < TAILED_RECORDS:
            said = f"of {TAILED_RECORDS} records published to topic {self.topic} a waiting consumer had {len(taken)}"
            raise problem("corrupt_data", said)
        return self._rate("from send() to a waiting consumer", TAILED_RECORDS, seconds[0], taken)

    def _rate(self, what: str, records: int, seconds: float, taken: Sequence[float] = ()) -> Measured:
        per_second = records / seconds
        p50, p99 = np.percentile(taken, (50, 99)) * 1000 if taken else (None, None)
        return Measured(
            what,
            round(per_second, 1),
            round(per_second * self.record_bytes / MIB, 2),
            None if p50 is None else round(float(p50), 2),
            None if p99 is None else round(float(p99), 2),
        )


def _values(count: int, size: int) -> list[bytes]:
    """Half of each is random: neither what compression likes best nor what it can do nothing with."""
    noise = np.random.default_rng(0).bytes(count * (size // 2))
    half = size // 2
    return [noise[at * half : (at + 1) * half] + b"%0*d" % (size - half, at) for at in range(count)]
