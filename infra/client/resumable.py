"""Records of one source, published by one producer: in order, once, and on from where an earlier run stopped.

The producer of a file is named by the file's content and by what is made of it, so that another run finds it again.
Its sequences rise with the records (`Silt-Sequence-Mode: increasing`): each is the record's number in the source, with
the partition count that placed it in the lower bits. One request is under way at a time, so everything before the
chunk of the highest sequence has arrived, and that chunk is done again with the count it was begun with.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np
import pyarrow as pa
import xxhash

from siltlog.infra import names
from siltlog.infra.arrow.partitioner import PARTITIONERS, PlacedBy
from siltlog.infra.client.answers import Published
from siltlog.infra.client.bodies.arrow_body import PUBLISHED, Compression, out_of_range, place, placed_by
from siltlog.infra.client.calls import path_part
from siltlog.infra.client.core import Request, json_request
from siltlog.infra.client.increasing import IncreasingProducer, fitting, stream_of
from siltlog.infra.client.transport import Caller
from siltlog.infra.errors import SiltlogError, UnknownTopic, problem
from siltlog.infra.settings.topic_config import PARTITIONS_MAX

COUNT_BITS = 14
COUNT_MASK = (1 << COUNT_BITS) - 1
"""The low bits of a sequence: the partition count. Above them is the record's number. Stored, never to be changed."""
RETRY_MS = 120_000
"""How long a server may be away before publishing fails."""
NO_COUNT = 2**31 - 1
"""A partition count that no topic has."""
BAD_RECORD_CODES = ("invalid_record", "record_too_large")

assert PARTITIONS_MAX <= COUNT_MASK


class Stopped(Exception):
    """`row` of the chunk being published was refused with `error`; those before it have arrived."""

    def __init__(self, error: SiltlogError, row: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.row = row


@dataclass(frozen=True, slots=True)
class Options:
    acks: str | None
    compression: Compression
    request_bytes: int
    records_max: int
    """How many records one request has at most."""
    stored: bool = False
    """Whether the records come from a log, and keep their times however old these are."""


@dataclass(slots=True)
class Landed:
    """Counts what this run published to one partition; offsets are None where the server no longer knew them."""

    partition: int
    first_offset: int | None = None
    last_offset: int | None = None
    count: int = 0


@dataclass(slots=True)
class Resumed:
    """Where an earlier run stopped: the last record it is known to have sent, and each partition's last sequence."""

    record: int = -1
    partitions: int = 0
    last: dict[int, int] = field(default_factory=dict)


class Publication:
    def __init__(
        self,
        caller: Caller,
        topic: str,
        options: Options,
        producer_id: str | None,
        *,
        first_record: int = 0,
        first_chunk: int = 0,
    ) -> None:
        """Without a `producer_id` nothing earlier is asked for. Raises UnknownTopic.

        A source that comes in several parts says how many records were before this one, which all have arrived.
        `first_chunk` says where its keyless records begin to go around.
        """
        self.topic = topic
        self.count = 0
        self.already = 0
        """Records that an earlier run had published."""
        self.landed: dict[int, Landed] = {}
        self._caller = caller
        self._options = options
        self._path = f"/v1/topics/{path_part(topic)}"
        self._made = True
        self._placed_by = self._topic_placed_by()
        self._producer_id = producer_id or str(uuid4())
        self._keyless = xxhash.xxh3_64_intdigest(self._producer_id.encode())
        self._producer = IncreasingProducer(
            caller, topic, self._producer_id, compression=options.compression, acks=options.acks, stored=options.stored
        )
        self._resumed = Resumed()
        if producer_id is not None and self._made:
            self._claim()
        self._chunks = first_chunk
        self._record = first_record

    @property
    def resumed_record(self) -> int:
        """The number of the last record that an earlier run is known to have sent; -1 when none is."""
        return self._resumed.record

    def publish(self, chunk: pa.Table) -> Iterator[int]:
        """Sends the next chunk of the source; yields before each request how many records it has, for pacing.

        Raises Stopped where one is refused, and the SiltlogError of whatever else goes wrong.
        """
        first, keyless = self._record, self._keyless + self._chunks
        self._record += chunk.num_rows
        self._chunks += 1
        resumed = self._resumed
        if self._record <= resumed.record:
            self.already += chunk.num_rows
            return
        count = resumed.partitions if first <= resumed.record else self._placed_by.partitions
        wrong = out_of_range(chunk, count)
        missing = chunk["partition"][wrong[0]].as_py() if wrong else None
        if wrong:
            chunk = chunk.slice(0, wrong[0])
        placed = self._placed(chunk, first, count, keyless) if chunk.num_rows else chunk
        start = 0
        while start < placed.num_rows:
            rows = fitting(placed, start, bytes_max=self._options.request_bytes, records_max=self._options.records_max)
            yield rows
            start += self._send(placed.slice(start, rows), first, count)
        if wrong:
            detail = f"{self.topic} has no partition {missing}; it has {count}, numbered from 0"
            raise Stopped(problem("unknown_partition", detail), wrong[0])

    def _topic_placed_by(self) -> PlacedBy:
        try:
            return placed_by(self._caller.call(json_request("GET", self._path)).json())
        except UnknownTopic:
            found = self._placed_by_when_made()
            if found is None:
                raise
            self._made = False
            return found

    def _placed_by_when_made(self) -> PlacedBy | None:
        """How a topic that publishing will make places keys; None where the server makes none.

        It is told when a record comes with a count that no topic has, which publishes nothing.
        """
        record = pa.table({"value": pa.array([b""], pa.binary())})
        headers = {"Content-Type": names.MEDIA_ARROW, names.HEADER_PARTITION_COUNT: str(NO_COUNT)}
        try:
            self._caller.call(Request("POST", f"{self._path}/records", headers, stream_of(record, "none")))
        except SiltlogError as error:
            if error.error_code == "partition_count_changed":
                return placed_by(error.members)
        return None

    def _claim(self) -> None:
        """Fences an earlier run that may still be there, and asks where it stopped."""
        last = self._producer.claim()
        if last:
            highest = max(last.values())
            self._resumed = Resumed(highest >> COUNT_BITS, highest & COUNT_MASK, last)

    def _placed(self, chunk: pa.Table, first: int, count: int, keyless: int) -> pa.Table:
        """Gives the records of a chunk that have not arrived yet, with partition and sequence."""
        placement = place(chunk, count, keyless % count, PARTITIONERS[self._placed_by.partitioner])
        partition = placement.partition
        if partition is None:
            partition = np.full(chunk.num_rows, placement.single, np.int32)
        sequence = np.arange(first, first + chunk.num_rows, dtype=np.int64) << COUNT_BITS | count
        columns = {name: chunk[name] for name in chunk.column_names if name in PUBLISHED and name != "partition"}
        placed = pa.table({**columns, "partition": partition, "sequence": sequence})
        if first > self._resumed.record:
            return placed
        last = np.full(count, -1, np.int64)
        for number, highest in self._resumed.last.items():
            if number < count:
                last[number] = highest
        new = sequence > last[partition]
        self.already += int(len(new) - new.sum())
        return placed.filter(pa.array(new))

    def _send(self, records: pa.Table, first: int, count: int) -> int:
        """Returns how many of the records it sent. `first` is the number of the chunk's first one."""
        try:
            parts = self._producer.send(records, self._placed_by if count == self._placed_by.partitions else None)
        except SiltlogError as error:
            index = error.members.get("index")
            if error.error_code == "partition_count_changed":
                # What was begun is ended with the old count: a part of it may have arrived.
                before, self._placed_by = self._placed_by, self._topic_placed_by()
                if self._placed_by.partitioner != before.partitioner:
                    # Another topic of the same name: nothing of this one's source is in it.
                    raise
                return self._send(records, first, count)
            if error.error_code == "request_too_large" and records.num_rows > 1:
                return self._send(records.slice(0, records.num_rows // 2), first, count)
            if error.error_code not in BAD_RECORD_CODES or not isinstance(index, int):
                raise
            if index:
                self._send(records.slice(0, index), first, count)
            raise Stopped(error, (records["sequence"][index].as_py() >> COUNT_BITS) - first) from error
        for part in parts:
            self._count(part)
        sent: int = records.num_rows
        self.count += sent
        return sent

    def _count(self, part: Published.Part) -> None:
        landed = self.landed.setdefault(part.partition, Landed(part.partition))
        if landed.first_offset is None:
            landed.first_offset = part.first_offset
        if part.last_offset is not None:
            landed.last_offset = part.last_offset
        landed.count += part.count
