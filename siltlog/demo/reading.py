"""The demo's consumer group, and the watch on how far the table is."""

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from siltlog.consumers.library.consumer import Consumer
from siltlog.demo.ledger import Ledger, value_hashes
from siltlog.demo.publishing import Single
from siltlog.infra.client.admin import Admin
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError

POLL_RECORDS_MAX = 50_000
POLL_MS = 500
RETRY_S = 0.2
WATCH_S = 0.05


class Member:
    """One consumer of a group, on a thread of its own: reads, notes what it read, commits, until it is stopped.

    `topics` says what is added to a topic's numbers of partitions in the ledger.
    """

    def __init__(
        self, name: str, url: str | Sequence[str], group: str, topics: Mapping[str, int], clock: Clock
    ) -> None:
        self.name = name
        self._url = url
        self._group = group
        self._topics = dict(topics)
        self.count = 0
        self._clock = clock
        self._parts: list[Ledger] = []
        self._stopped = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=f"demo-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leaves the group."""
        self._stopped.set()
        self._thread.join()

    def ledger(self) -> Ledger:
        """Returns the records read so far, in the order of reading."""
        return Ledger.concat(list(self._parts))

    def _guarded(self) -> None:
        try:
            self._read()
        except BaseException as error:
            self.error = error

    def _read(self) -> None:
        with Consumer(self._url, group=self._group, topics=list(self._topics), auto_commit=False) as consumer:
            while not self._stopped.is_set():
                try:
                    records = consumer.poll_arrow(max_records=POLL_RECORDS_MAX, timeout_ms=POLL_MS)
                    if records.num_rows:
                        self._note(records)
                        consumer.commit()
                except SiltlogError as error:
                    if error.retryable == "no":
                        raise
                    self._clock.sleep(RETRY_S)  # the server is away: the group goes on where it was

    def _note(self, records: pa.Table) -> None:
        shifts = np.array([self._topics[topic] for topic in records["topic"].to_pylist()], dtype=np.int64)
        self._parts.append(
            Ledger(
                records["partition"].to_numpy().astype(np.int64) + shifts,
                records["offset"].to_numpy(),
                value_hashes(records["value"].to_pylist()),
            )
        )
        self.count += records.num_rows


class TableWatch:
    """Asks the server again and again how far the table is; notes when each offset was first seen to be in it."""

    def __init__(self, url: str, topic: str, clock: Clock) -> None:
        self._admin = Admin(url, retry_timeout_ms=0)
        self._topic = topic
        self._clock = clock
        self._stopped = threading.Event()
        self._seen: dict[int, list[tuple[int, float]]] = defaultdict(list)
        """partition -> (table offset, when it was first seen), both rising"""
        self._thread = threading.Thread(target=self._watch, name="demo-table-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._admin.close()

    def ages_ms(self, records: Sequence[Single]) -> list[float]:
        """Gives, for each of `records` that the table was seen to hold, the milliseconds from its ack until then."""
        ages = []
        for record in records:
            for offset, when in self._seen[record.partition]:
                if offset > record.offset:
                    ages.append(max(0.0, when - record.acknowledged) * 1000)
                    break
        return ages

    def _watch(self) -> None:
        while not self._stopped.wait(WATCH_S):
            try:
                offsets: Any = self._admin.offsets(self._topic)
            except SiltlogError:
                continue
            now = self._clock.monotonic()
            for entry in offsets:
                seen = self._seen[entry["partition"]]
                if not seen or entry["table_offset"] > seen[-1][0]:
                    seen.append((entry["table_offset"], now))
