"""Publishes the records of one partition, with headers that name their origin: in order, once, and after a kill from
where the run stopped.

The sequence of a record is the offset it was read at, and one request is under way at a time.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra import names, producer_names
from siltlog.infra.arrow.arrays import fixed_array, numbers_of
from siltlog.infra.arrow.partitioner import PARTITIONERS
from siltlog.infra.client.bodies.arrow_body import Compression, place
from siltlog.infra.client.increasing import IncreasingProducer, fitting
from siltlog.infra.client.rate import Pace
from siltlog.infra.client.transport import Caller
from siltlog.infra.columns import HEADERS
from siltlog.infra.errors import SiltlogError, of_the_record
from siltlog.pipelines.replay.plan import BLOCK_OFFSETS, ReplayPlan

ADDED = (
    names.RECORD_HEADER_REPLAY_RUN,
    names.RECORD_HEADER_REPLAY_TOPIC,
    names.RECORD_HEADER_REPLAY_PARTITION,
    names.RECORD_HEADER_REPLAY_OFFSET,
    names.RECORD_HEADER_REPLAY_TIMESTAMP,
)

REQUEST_BYTES = 4 * 1024 * 1024
"""Records are gathered to so much, if their block has as many."""
COLUMNS = ("key", "value", "timestamp")


def with_origin(records: pa.Table, run: str, topic: str) -> pa.Array:
    """The headers of `records` (RECORD_SCHEMA, one chunk), each with ADDED behind its own; shape (n,)."""
    count = records.num_rows
    own = records["headers"].combine_chunks()
    lengths = numbers_of(pc.list_value_length(own).fill_null(0), np.int32).astype(np.int64)
    pairs = own.flatten()
    keys = pa.chunked_array([pairs.field("key"), pa.array(ADDED, pa.string())]).combine_chunks()
    values = pa.chunked_array([pairs.field("value"), *_origins(records, run, topic)]).combine_chunks()
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(lengths + len(ADDED), out=ends[1:])
    key_at = np.empty(ends[-1], np.int64)
    value_at = np.empty(ends[-1], np.int64)
    added_at = (ends[1:, None] - len(ADDED) + np.arange(len(ADDED))).ravel()
    is_own: npt.NDArray[np.bool_] = np.ones(ends[-1], np.bool_)
    is_own[added_at] = False
    key_at[is_own] = value_at[is_own] = np.arange(len(pairs))
    key_at[added_at] = np.tile(len(pairs) + np.arange(len(ADDED)), count)
    # The run and the topic are one value each; partition, offset and time are one for each record.
    origin_at = np.empty((count, len(ADDED)), np.int64)
    origin_at[:, :2] = len(pairs) + np.arange(2)
    origin_at[:, 2:] = len(pairs) + 2 + np.arange(3) * count + np.arange(count)[:, None]
    value_at[added_at] = origin_at.ravel()
    struct = pa.StructArray.from_arrays(
        [keys.take(pa.array(key_at)), values.take(pa.array(value_at))], ["key", "value"]
    )
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), struct).cast(HEADERS)


def _origins(records: pa.Table, run: str, topic: str) -> list[pa.Array]:
    """Run and topic, then the partitions, offsets and times of the records, as text in bytes."""
    # Arrow writes a time without a zone forty times as fast.
    times = records["timestamp"].combine_chunks().cast(pa.timestamp("us")).cast(pa.string())
    texts = [
        records["partition"].combine_chunks().cast(pa.string()),
        records["offset"].combine_chunks().cast(pa.string()),
        pc.binary_join_element_wise(pc.replace_substring(times, " ", "T", max_replacements=1), "Z", ""),
    ]
    return [pa.array([run.encode(), topic.encode()], pa.binary()), *(text.cast(pa.binary()) for text in texts)]


class Stopped(Exception):
    """The caller was interrupted."""


@dataclass(frozen=True, slots=True)
class Sending:
    """How requests are made; the same for every partition of a run."""

    caller: Caller
    compression: Compression
    request_bytes: int
    """The largest request that the server takes."""
    pace: Pace


class PartitionReplay:
    def __init__(self, sending: Sending, run: str, plan: ReplayPlan, partition: int) -> None:
        self._sending = sending
        self._run = run
        self._plan = plan
        self._partition = partition
        self._producer = IncreasingProducer(
            sending.caller,
            plan.into.topic,
            producer_names.replay_run_producer(run, partition),
            compression=sending.compression,
            stored=True,
        )
        self._last: Mapping[int, int] = {}

    def claim(self) -> Mapping[int, int]:
        """Fences who was at this partition before; the last sequence in each partition of the target that has one."""
        self._last = self._producer.claim()
        return self._last

    def publish(self, tables: Iterator[pa.Table], done: Callable[[int, int], None]) -> None:
        """All of `tables`. Calls `done` with how many records arrived and the offset below which all have.

        Raises the SiltlogError of what is refused, which names the record's place in the source; Stopped.
        """
        for gathered in in_blocks(tables, min(REQUEST_BYTES, self._sending.request_bytes)):
            placed = self._placed(gathered)
            start = 0
            while start < placed.num_rows:
                start += self._send(placed, start)
            done(placed.num_rows, gathered["offset"][-1].as_py() + 1)

    def _placed(self, records: pa.Table) -> pa.Table:
        """Adds partition and sequence, and leaves out records that an earlier run published."""
        count = self._plan.into.partitions
        rows = records.num_rows
        if self._plan.keep_partitions:
            partition = np.full(rows, self._partition, np.int32)
        else:
            by = PARTITIONERS[self._plan.into.partitioner]
            placement = place(records.select(["key"]), count, self._partition % count, by)
            partition = (
                np.full(rows, placement.single, np.int32) if placement.partition is None else placement.partition
            )
        sequence = numbers_of(records["offset"].combine_chunks(), np.int64)
        columns = {name: records[name] for name in COLUMNS}
        columns["headers"] = with_origin(records, self._run, self._plan.topic)
        columns["partition"] = fixed_array(partition, pa.int32())
        columns["sequence"] = fixed_array(sequence, pa.int64())
        placed = pa.table(columns)
        last = np.full(count, -1, np.int64)
        for number, highest in self._last.items():
            if number < count:
                last[number] = highest
        new = sequence > last[partition]
        return placed if new.all() else placed.filter(pa.array(new))

    def _send(self, placed: pa.Table, start: int) -> int:
        """One request of the records from `start` on; returns how many it had."""
        sending = self._sending
        rows = fitting(placed, start, bytes_max=sending.request_bytes, records_max=sending.pace.records_max)
        while True:
            records = placed.slice(start, rows)
            if sending.caller.interrupted.wait(sending.pace.due_s(rows)):
                raise Stopped
            try:
                self._producer.send(records)
            except SiltlogError as error:
                if error.error_code == "request_too_large" and rows > 1:
                    rows //= 2
                    continue
                index = error.members.get("index")
                if isinstance(index, int):
                    offset = records["sequence"][index].as_py()
                    error.detail = (
                        f"the record at offset {offset} of partition {self._partition} of {self._plan.topic} was "
                        f"refused: {of_the_record(error)}; all before it is published"
                    )
                raise
            return rows


def in_blocks(tables: Iterator[pa.Table], bytes_max: int) -> Iterator[pa.Table]:
    """The same records in tables of one chunk, each of one block of BLOCK_OFFSETS, gathered up to `bytes_max`.

    A table that is larger by itself stays so. Offsets ascend within and across `tables`.
    """
    held: list[pa.Table] = []
    size, block = 0, -1
    for table in tables:
        blocks = numbers_of(table["offset"].combine_chunks(), np.int64) // BLOCK_OFFSETS
        cuts = sorted({0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), table.num_rows})
        for start, stop in pairwise(cuts):
            part = table.slice(start, stop - start)
            if held and (blocks[start] != block or size + part.nbytes > bytes_max):
                yield pa.concat_tables(held).combine_chunks()
                held, size = [], 0
            held.append(part)
            size += part.nbytes
            block = blocks[start]
    if held:
        yield pa.concat_tables(held).combine_chunks()
