"""Records cut into chunks, the same for the same records however they were read, and read ahead of their sending."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra.arrow.arrays import numbers_of

CHUNK_RECORDS = 20_000
CHUNK_BYTES = 4 * 1024 * 1024
"""Never to be changed: where the chunks of a file end decides what an interrupted publish of it does again."""
READ_AHEAD = 4


class Chunk(NamedTuple):
    table: pa.Table
    position: int
    """The position of the input when the chunk was read."""


def chunked(runs: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """A chunk ends with the record that fills its bytes of values or its number of records.

    What came before an error of `runs` is given before it is raised.
    """
    parts: list[pa.Table] = []
    records = size = 0
    failed: BaseException | None = None
    try:
        for run in runs:
            lengths = pc.binary_length(run["value"].combine_chunks()).fill_null(0).cast(pa.int64())
            ends = np.cumsum(numbers_of(lengths, np.int64))
            start = 0
            while start < run.num_rows:
                before = int(ends[start - 1]) if start else 0
                full = int(np.searchsorted(ends, before + CHUNK_BYTES - size)) + 1
                stop = min(max(full, start + 1), start + CHUNK_RECORDS - records, run.num_rows)
                parts.append(run.slice(start, stop - start))
                records += stop - start
                size += int(ends[stop - 1]) - before
                start = stop
                if records >= CHUNK_RECORDS or size >= CHUNK_BYTES:
                    yield joined(parts)
                    parts, records, size = [], 0, 0
    except Exception as error:
        failed = error
    if parts:
        yield joined(parts)
    if failed is not None:
        raise failed


def skipped(runs: Iterator[pa.Table], records: int) -> Iterator[pa.Table]:
    """Yields the runs without their first `records`."""
    for run in runs:
        left = run.slice(min(records, run.num_rows))
        records -= run.num_rows - left.num_rows
        if left.num_rows:
            yield left


def joined(tables: list[pa.Table]) -> pa.Table:
    """One table of one chunk; a column that some lack is null there."""
    if len(tables) == 1:
        return tables[0].combine_chunks()
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


class ReadAhead:
    """Runs an iterator of tables on a thread, so that reading and sending overlap."""

    def __init__(self, tables: Iterator[pa.Table], position: Callable[[], int]) -> None:
        self._queue: queue.Queue[Chunk | BaseException | None] = queue.Queue(READ_AHEAD)
        self._stopping = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(tables, position), name="silt-input", daemon=True)
        self._reader.start()
        self._ended: BaseException | None = None
        self._over = False

    def chunks(self, *, gather: bool) -> Iterator[Chunk]:
        """Chunks in order; with `gather` all that is there travels together. Raises what reading raised."""
        while not self._over:
            first = self._next(block=True)
            if first is None:
                break
            together = [first]
            while gather and sum(each.table.nbytes for each in together) < CHUNK_BYTES:
                more = self._next(block=False)
                if more is None:
                    break
                together.append(more)
            yield Chunk(joined([each.table for each in together]), together[-1].position)
        if self._ended is not None:
            raise self._ended

    def stop(self) -> None:
        self._stopping.set()

    def _next(self, *, block: bool) -> Chunk | None:
        try:
            item = self._queue.get(block)
        except queue.Empty:
            return None
        if isinstance(item, Chunk):
            return item
        self._over, self._ended = True, item
        return None

    def _read(self, tables: Iterator[pa.Table], position: Callable[[], int]) -> None:
        end: BaseException | None = None
        try:
            for table in tables:
                self._put(Chunk(table, position()))
                if self._stopping.is_set():
                    return
        except BaseException as error:
            end = error
        self._put(end)

    def _put(self, item: Chunk | BaseException | None) -> None:
        while not self._stopping.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return
            except queue.Full:
                continue
