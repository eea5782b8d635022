"""Records of a batch as Arrow columns, or few of them as lists, by where their parts are."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from siltlog.infra.arrow.arrays import fixed_array
from siltlog.infra.columns import HEADERS, TIMESTAMP, nulls
from siltlog.infra.kafka.layout import Layout, gathered

NO_TIMESTAMP = -1
US_PER_MS = 1_000
ENTRY = list(HEADERS.value_type)


class Columns(NamedTuple):
    """The records as columns; one that no record has is None, but for the values.

    A time is null where the producer gave none, headers are null where a record has none.
    """

    timestamp: pa.Array | None
    key: pa.Array | None
    value: pa.Array
    headers: pa.Array | None
    time_bounds: tuple[int, int] | None
    """The least and the greatest of `timestamp`, where none of it is null."""


class Lists(NamedTuple):
    """The records one by one: times in microseconds, and headers as names and contents. None where one has none."""

    timestamps: list[int | None]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[list[tuple[str, bytes | None]] | None]


class Content(Protocol):
    """The records of a batch, all of whose parts were found right. Neither can fail."""

    def columns(self) -> Columns: ...

    def lists(self) -> Lists: ...


# Not frozen: of one record that would be a good part of the time that all of this takes.
@dataclass(slots=True)
class Located:
    """The records by what numpy, or a loop, found of them."""

    records: memoryview
    base_timestamp_ms: int
    layout: Layout
    header_names: pa.Array
    """The names of all headers in order, as text."""

    def columns(self) -> Columns:
        found, rows = self.layout, len(self.layout.header_counts)
        key, value = (
            None if found.nulls[:, part].all() else gathered(self.records, found.bounds[:, part], found.nulls[:, part])
            for part in (0, 1)
        )
        value = nulls(rows, pa.binary()) if value is None else value
        return Columns(self._timestamp(rows), key, value, self._headers(rows), self._time_bounds())

    def lists(self) -> Lists:
        records, found = self.records, self.layout
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for (key, value), (no_key, no_value) in zip(found.bounds.tolist(), found.nulls.tolist(), strict=True):
            keys.append(None if no_key else bytes(records[key[0] : key[1]]))
            values.append(None if no_value else bytes(records[value[0] : value[1]]))
        millis = (found.timestamp_deltas + self.base_timestamp_ms).tolist()
        times = [None if at == NO_TIMESTAMP else at * US_PER_MS for at in millis]
        return Lists(times, keys, values, self._header_lists() if len(found.header_bounds) else [None] * len(keys))

    def _timestamp(self, rows: int) -> pa.Array | None:
        millis = self.layout.timestamp_deltas + self.base_timestamp_ms
        given = millis != NO_TIMESTAMP
        if given.all():
            return fixed_array(millis * US_PER_MS, TIMESTAMP)
        if not given.any():
            return None
        validity = pa.py_buffer(np.packbits(given, bitorder="little"))
        return pa.Array.from_buffers(TIMESTAMP, rows, [validity, pa.py_buffer(millis * US_PER_MS)])

    def _time_bounds(self) -> tuple[int, int] | None:
        least, greatest = (self.base_timestamp_ms + int(of(self.layout.timestamp_deltas)) for of in (np.min, np.max))
        return None if least == NO_TIMESTAMP else (least * US_PER_MS, greatest * US_PER_MS)

    def _headers(self, rows: int) -> pa.Array | None:
        found = self.layout
        if not len(found.header_bounds):
            return None
        contents = gathered(self.records, found.header_bounds[:, 1], found.header_nulls)
        entries = pa.StructArray.from_arrays([self.header_names, contents], fields=ENTRY)
        ends = np.zeros(rows + 1, np.int32)
        np.cumsum(found.header_counts, out=ends[1:])
        validity = pa.py_buffer(np.packbits(found.header_counts > 0, bitorder="little"))
        return pa.Array.from_buffers(HEADERS, rows, [validity, pa.py_buffer(ends)], children=[entries])

    def _header_lists(self) -> list[list[tuple[str, bytes | None]] | None]:
        found, records = self.layout, self.records
        bounds, missing = found.header_bounds[:, 1].tolist(), found.header_nulls.tolist()
        pairs = [
            (name, None if null else bytes(records[start:end]))
            for name, (start, end), null in zip(self.header_names.to_pylist(), bounds, missing, strict=True)
        ]
        ends = np.cumsum(found.header_counts).tolist()
        return [pairs[end - count : end] or None for end, count in zip(ends, found.header_counts.tolist(), strict=True)]
