"""Feeds a stream with records of some partitions from given offsets on, as they come, through a filter.

The log is its only buffer: a feed reads when its stream can take more, and a stream that takes nothing holds nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from siltlog.consumers.reading.budget import READ_BYTES_MAX, READ_RECORDS_MAX
from siltlog.consumers.reading.fetch import Fetcher, FetchPosition, PartitionFetch, find_partition, find_topic
from siltlog.consumers.reading.reader import Isolation, visible_end
from siltlog.consumers.reading.view import Key, LogView, PartitionView
from siltlog.infra.arrow.record_filter import RecordFilter
from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.memory import Held

SCAN_RECORDS_MAX = 10_000
SCAN_BYTES_MAX = 512 * 1024
"""The most bytes of one read where a filter looks for some among many; less where it finds more than is taken."""


@dataclass(frozen=True, slots=True)
class Found:
    """The wanted records of one partition, RECORD_SCHEMA or PRODUCED_SCHEMA, in order."""

    key: Key
    batches: list[pa.RecordBatch]

    @property
    def records(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


class Feed:
    """Used on one event loop, by one task. `wake` is called when there may be more than there was."""

    def __init__(
        self,
        log: LogView,
        fetcher: Fetcher,
        wake: Callable[[], None],
        *,
        wanted: RecordFilter,
        isolation: Isolation,
        held: Held | None,
        producers: bool = False,
    ) -> None:
        """Everything read is counted in `held`, until whoever sends it releases that. With `producers`, as where one is
        wanted, records come with theirs."""
        self._log = log
        self._fetcher = fetcher
        self._wake = wake
        self._wanted = wanted
        self._isolation = isolation
        self._held = held
        self._producers = producers or wanted.producer_id is not None
        self._offsets: dict[Key, int] = {}
        self._watched: dict[Key, tuple[PartitionView, Callable[[], None]]] = {}
        self._ready: dict[Key, None] = {}
        """Partitions that may have more, first come first read."""
        self._scan_records = READ_RECORDS_MAX
        self._error: SiltlogError | None = None

    @property
    def ready(self) -> bool:
        """Whether `read` may find something now."""
        return bool(self._ready) or self._error is not None

    @property
    def offsets(self) -> Mapping[Key, int]:
        """The next offset to read of each partition: behind what `read` gave, and what the filter passed over."""
        return self._offsets

    def put(self, key: Key, offset: int) -> None:
        """Reads a partition from `offset` on, also one that it reads already. Raises Refused where it is not there."""
        if key not in self._watched:
            view = find_partition(find_topic(self._log, key.topic, key.topic_id), key.partition)
            callback = partial(self._moved, key)
            view.subscribe(callback)
            self._watched[key] = view, callback
        self._offsets[key] = offset
        self._moved(key)

    def drop(self, key: Key) -> None:
        """Reads a partition no more."""
        view, callback = self._watched.pop(key)
        view.unsubscribe(callback)
        del self._offsets[key]
        self._ready.pop(key, None)

    def close(self) -> None:
        for key in list(self._watched):
            self.drop(key)

    async def read(self, records_max: int) -> list[Found]:
        """Up to `records_max` wanted records; nothing when there are none now, or not among what was looked at.

        What is passed over, or given, moves `offsets`. Raises what is wrong with one of the partitions, once what the
        others had was given.
        """
        self._raise()
        scans = bool(self._wanted)
        keys = list(self._ready)
        result = await self._fetcher.fetch(
            [FetchPosition(key.topic, key.partition, self._offsets[key], topic_id=key.topic_id) for key in keys],
            max_records=self._scan_records if scans else min(records_max, READ_RECORDS_MAX),
            max_bytes=SCAN_BYTES_MAX if scans else READ_BYTES_MAX,
            min_bytes=1,
            wait_ms=0,
            isolation=self._isolation,
            held=self._held,
            producers=self._producers,
        )
        found = self._taken(((keys[index], result.partitions[index]) for index in result.order), records_max)
        if not found:
            self._raise()
        return found

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _taken(self, parts: Iterable[tuple[Key, PartitionFetch]], records_max: int) -> list[Found]:
        out: list[Found] = []
        self._scan_records = min(self._scan_records * 2, SCAN_RECORDS_MAX)
        for key, part in parts:
            if part.error is not None:
                self._error = self._error or part.error
            found = Found(key, [])
            next_offset = part.next_offset
            for batch in part.batches:
                rows = self._wanted.of(batch)
                if rows.num_rows > records_max:
                    next_offset = rows.column("offset")[records_max].as_py()
                    rows = rows.slice(0, records_max)
                if rows.num_rows:
                    found.batches.append(rows)
                    records_max -= rows.num_rows
                if next_offset != part.next_offset:
                    self._scan_records = READ_RECORDS_MAX
                    break
            if found.batches:
                out.append(found)
            self._reached(key, next_offset)
        return out

    def _reached(self, key: Key, offset: int) -> None:
        self._offsets[key] = offset
        # Asked now, not when it was read: it may have moved since.
        if offset >= visible_end(self._watched[key][0].bounds(), self._isolation):
            del self._ready[key]
        else:
            # Behind the others, so that each has its turn.
            self._ready[key] = self._ready.pop(key)

    def _moved(self, key: Key) -> None:
        self._ready[key] = None
        self._wake()
