"""Reads one data file whole, a row group at a time, and compares its bytes, pages and records with what the log
says."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from siltlog.infra import names
from siltlog.infra.arrow.arrays import numbers_of
from siltlog.infra.arrow.partitioner import PARTITIONERS, XXHASH64
from siltlog.infra.columns import FILE_SCHEMA, TIMESTAMP
from siltlog.infra.errors import CorruptData, on_one_line
from siltlog.infra.store.checksum import crc32c_in_pieces, crc32c_of
from siltlog.infra.store.store import COPY_BYTES, Readable, ReadableStore
from siltlog.infra.table.data_file import (
    MIB,
    DataFile,
    bounded_timestamps,
    damage_named,
    opened_data_file,
)
from siltlog.infra.table.footer import stored_bounds
from siltlog.pipelines.audit.findings import Expected, FileRead, Finding, Hole, Kind
from siltlog.pipelines.audit.parquet_pages import chunks_without_checksum

WHOLE_BYTES_MAX = 16 * MIB
"""A file up to this size is in memory whole while it is read."""
HOLES_MAX = 100
"""Runs of missing offsets of one file that are told apart."""
KEY_CHARS_MAX = 40
MISPLACED_KEYS_MAX = 10_000
"""Keys of one file that lie where their hash does not say and are told apart."""
Offsets = npt.NDArray[np.int64]


def read_file(store: ReadableStore, topic: str, file: DataFile, expected: Expected, *, keys: bool) -> FileRead:
    """Raises Unavailable where the store cannot be read now; all else that is wrong is a finding.

    `keys` checks that each is in the partition that its hash names.
    """
    read = FileRead(file, first=file.first_offset, last=file.last_offset)
    size = store.size(f"{names.topic_path(topic)}/{file.path}")
    if size != file.size_bytes:
        kind: Kind = "missing_file" if size is None else "damaged_file"
        what = "is missing" if size is None else f"has {size} bytes, the log says {file.size_bytes}"
        read.findings.append(_finding(kind, file, what, file.first_offset, file.last_offset, file.rows))
        read.whole = False
        return read
    if file.footer_crc is None:
        read.findings.append(_finding("unprotected_file", file, "has no checksum of its footer in the log"))
    try:
        with _checked(store, topic, file) as content:
            with opened_data_file(content, topic, file) as parquet:
                _Reading(read, parquet, expected, keys).run()
            with content.open(f"{names.topic_path(topic)}/{file.path}") as source:
                unprotected = chunks_without_checksum(source, parquet.metadata)
    except CorruptData as error:
        cause = on_one_line(error.__cause__ or error)
        damage = _finding("damaged_file", file, f"is damaged: {cause}", file.first_offset, file.last_offset, file.rows)
        read.findings.append(damage)
        read.whole = False
        read.first, read.last, read.holes = file.first_offset, file.last_offset, []
        return read
    if unprotected:
        read.findings.append(
            _finding("unprotected_file", file, f"has no page checksums in {', '.join(sorted(unprotected))}")
        )
    return read


class _InMemory:
    """A file that was read whole."""

    def __init__(self, content: pa.Buffer) -> None:
        self._content = content

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._content)


@contextmanager
def _checked(store: ReadableStore, topic: str, file: DataFile) -> Iterator[Readable]:
    """Gives a place to read `file` from, its content checked: a small file is read once.

    What goes wrong inside the block is raised as `read_data_file` does.
    """
    with damage_named(topic, file):
        content: Readable = store
        with store.open(f"{names.topic_path(topic)}/{file.path}") as source:
            if file.size_bytes <= WHOLE_BYTES_MAX:
                whole = source.read_buffer()
                content, crc = _InMemory(whole), crc32c_in_pieces(whole)
            elif file.content_crc is not None:
                crc = crc32c_of(source, COPY_BYTES)
        if file.content_crc is not None and crc != file.content_crc:
            raise ValueError("it fails its checksum: its bytes are not those that were written")
        yield content


class _Reading:
    """Takes in the row groups of one file in their order."""

    def __init__(self, read: FileRead, parquet: pq.ParquetFile, expected: Expected, keys: bool) -> None:
        self._read = read
        self._parquet = parquet
        self._expected = expected
        self._keys = keys
        self._before: int | None = None
        """The offset of the row before."""
        self._bounds: list[tuple[int, int]] = []
        """First and last offset of each row group."""
        self._times: list[tuple[int, int]] = []
        self._holes: list[Hole] = []
        self._rising = True
        self._misplaced = 0
        self._misplaced_first: tuple[int, bytes, int] | None = None

    def run(self) -> None:
        read, file = self._read, self._read.file
        self._check_columns()
        for index in range(self._parquet.metadata.num_row_groups):
            self._take(index)
        if self._bounds:
            read.first, read.last = min(low for low, _ in self._bounds), max(high for _, high in self._bounds)
        else:
            read.first, read.last = 0, -1
        if not self._rising:
            self._take_unordered()
        read.holes = self._holes
        self._check_statistics()
        if self._misplaced_first is not None:
            offset, key, belongs = self._misplaced_first
            what = (
                f"has {self._misplaced} records of keys that belong elsewhere: the key {shown(key)} at offset "
                f"{offset} belongs to partition {belongs}"
            )
            found = _finding("wrong_partition", file, what, offset, None, self._misplaced)
            # Clients of Kafka place keys themselves, not all of them by the same hash.
            (read.findings if self._expected.partitioner == XXHASH64.name else read.warnings).append(found)

    def _check_columns(self) -> None:
        found = {field.name: field.type for field in self._parquet.schema_arrow}
        for name in ("offset", "timestamp"):
            if name not in found:
                raise ValueError(f"it has no column {name}")
        unknown = sorted(found.keys() - set(FILE_SCHEMA.names))
        if unknown:
            raise ValueError(f"it has the columns {', '.join(unknown)}, which no topic has")

    def _take(self, index: int) -> None:
        group = self._parquet.read_row_group(index, use_threads=False)
        if not group.num_rows:
            return
        if group.column("offset").null_count or group.column("timestamp").null_count:
            raise ValueError("rows without an offset or a timestamp")
        offsets = numbers_of(group.column("offset").combine_chunks(), np.int64)
        times = pc.min_max(group.column("timestamp").cast(TIMESTAMP).cast(pa.int64()))
        self._read.rows += group.num_rows
        self._bounds.append((int(offsets.min()), int(offsets.max())))
        self._times.append((times["min"].as_py(), times["max"].as_py()))
        self._check_group_statistics(index)
        self._take_offsets(offsets)
        if self._keys and "key" in group.column_names:
            self._take_keys(offsets, group.column("key"))

    def _check_group_statistics(self, index: int) -> None:
        group = self._parquet.metadata.row_group(index)
        stored = stored_bounds(group, "offset"), stored_bounds(group, "timestamp")
        if stored != (self._bounds[-1], self._times[-1]):
            what = (
                f"row group {index}: its footer says offsets {stored[0]}, timestamps {stored[1]}; its rows have "
                f"{self._bounds[-1]} and {self._times[-1]}"
            )
            self._read.findings.append(_finding("wrong_statistics", self._read.file, what, *self._bounds[-1]))

    def _take_offsets(self, offsets: Offsets) -> None:
        joined = offsets if self._before is None else np.concatenate(([self._before], offsets))
        steps = np.diff(joined)
        self._before = int(offsets[-1])
        self._rising &= bool((steps > 0).all())
        if self._rising:
            self._take_holes(joined, steps)

    def _take_unordered(self) -> None:
        """Finds repeated and missing offsets where they do not rise: reads the column once more, whole."""
        read, file = self._read, self._read.file
        offsets = numbers_of(self._parquet.read(columns=["offset"]).column("offset").combine_chunks(), np.int64)
        found, first_places, counts = np.unique(offsets, return_index=True, return_counts=True)
        again = found[counts > 1]
        if len(again):
            repeated = len(offsets) - len(found)
            what = f"has {repeated} rows whose offset another of its rows has"
            read.findings.append(_finding("repeated_offsets", file, what, int(again[0]), int(again[-1]), repeated))
        unordered = int((np.diff(first_places) < 0).sum())
        if unordered:
            read.findings.append(
                _finding("unordered_offsets", file, "is not sorted by offset", read.first, read.last, unordered)
            )
        self._holes = []
        self._take_holes(found, np.diff(found))

    def _take_holes(self, joined: Offsets, steps: Offsets) -> None:
        for at in np.flatnonzero(steps > 1).tolist():
            hole = Hole(int(joined[at]) + 1, int(joined[at + 1]))
            if hole.end <= self._expected.thinned_below:
                continue
            if len(self._holes) == HOLES_MAX:
                self._holes[-1] = Hole(self._holes[-1].start, hole.end)
            else:
                self._holes.append(hole)

    def _take_keys(self, offsets: Offsets, keys: pa.ChunkedArray) -> None:
        partition = self._expected.partition
        if np.any(offsets[1:] < offsets[:-1]):
            order = np.argsort(offsets)
            offsets, keys = offsets[order], keys.take(order)
        for start, end, count in self._placed(offsets):
            own = keys.slice(start, end - start).combine_chunks()
            belongs = PARTITIONERS[self._expected.partitioner].partitions_of(own, count, partition)
            wrong = np.flatnonzero(belongs != partition)
            if len(wrong):
                self._take_misplaced(own.take(pa.array(wrong)))
                self._misplaced += len(wrong)
                at = int(wrong[0])
                if self._misplaced_first is None:
                    self._misplaced_first = int(offsets[start + at]), own[at].as_py(), int(belongs[at])

    def _take_misplaced(self, keys: pa.Array) -> None:
        if self._expected.partitioner != XXHASH64.name:
            room = MISPLACED_KEYS_MAX - len(self._read.misplaced_keys)
            self._read.misplaced_keys.update(map(bytes, pc.unique(keys)[:room].to_pylist()))

    def _placed(self, offsets: Offsets) -> Iterator[tuple[int, int, int]]:
        """Rows [start, end) whose keys went by the same partition count."""
        placements = self._expected.placements
        for index, (since, count) in enumerate(placements):
            until = placements[index + 1][0] if index + 1 < len(placements) else None
            start = int(np.searchsorted(offsets, since))
            end = len(offsets) if until is None else int(np.searchsorted(offsets, until))
            if start < end:
                yield start, end, count

    def _check_statistics(self) -> None:
        read, file = self._read, self._read.file
        times = (0, 0)
        if self._times:
            times = bounded_timestamps(min(low for low, _ in self._times), max(high for _, high in self._times))
        said = {
            "rows": (file.rows, read.rows),
            "first offset": (file.first_offset, read.first),
            "last offset": (file.last_offset, read.last),
            "lowest timestamp (us)": (file.min_timestamp_us, times[0]),
            "highest timestamp (us)": (file.max_timestamp_us, times[1]),
        }
        wrong = [f"{name} {log}, its rows {rows}" for name, (log, rows) in said.items() if log != rows]
        if wrong:
            what = f"is not what its statistics in the log say: {'; '.join(wrong)}"
            read.findings.append(_finding("wrong_statistics", file, what, file.first_offset, file.last_offset))


def _finding(
    kind: Kind, file: DataFile, what: str, first: int | None = None, last: int | None = None, rows: int | None = None
) -> Finding:
    return Finding(
        kind,
        f"partition {file.partition}: {file.path} {what}",
        partition=file.partition,
        path=file.path,
        first_offset=first,
        last_offset=first if last is None else last,
        records=rows,
    )


def shown(key: Any) -> str:
    text = repr(bytes(key))[1:]
    return text if len(text) <= KEY_CHARS_MAX else text[:KEY_CHARS_MAX] + "…"
