"""Publishing what was read of one partition: in order, once, and on from where a run that was killed stopped.

The sequence of a record is the offset it was read at, and one request is under way at a time.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.arrow_arrays import fixed_array, numbers_of
from siltlog.infra.client.arrow_body import Compression, place
from siltlog.infra.client.increasing import IncreasingProducer, fitting
from siltlog.infra.client.pace import Pace
from siltlog.infra.client.transport import Caller
from siltlog.infra.errors import SiltlogError, of_the_record
from siltlog.pipelines.replay_headers import with_origin
from siltlog.pipelines.replay_plan import BLOCK_OFFSETS, ReplayPlan

REQUEST_BYTES = 4 * 1024 * 1024
"""Records are gathered to so much, if their block has as many."""
COLUMNS = ("key", "value", "timestamp")


class Stopped(Exception):
    """The caller was interrupted."""


@dataclass(frozen=True, slots=True)
class Sending:
    """How requests are made; the same for every partition of a run."""

    caller: Caller
    compression: Compression
    request_bytes: int
    """What the server takes."""
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
            names.replay_run_producer(run, partition),
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
        """With partition and sequence, without those that an earlier run published."""
        count = self._plan.into.partitions
        rows = records.num_rows
        if self._plan.keep_partitions:
            partition = np.full(rows, self._partition, np.int32)
        else:
            placement = place(records.select(["key"]), count, self._partition % count)
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
