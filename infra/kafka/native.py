"""The native codec of record batches and messages, where the wheel `siltlog-native` is installed.

It does what numpy and closures do, sooner. What it does not take is looked at by those two, which say what is wrong: so
both refuse the same, and tell the same.
"""

from typing import Any

import pyarrow as pa

from siltlog.infra.columns import HEADERS, TIMESTAMP, nulls
from siltlog.infra.kafka.columns import ENTRY, Columns, Content, Lists
from siltlog.infra.kafka.messages.schema import Field

try:
    import siltlog_native
except ImportError:
    siltlog_native = None

# One that was built of an older clone lacks something, and is not used.
_native: Any = siltlog_native if hasattr(siltlog_native, "Message") else None
IS_NATIVE = _native is not None
CODEC = f"siltlog-native {_native.__version__}" if IS_NATIVE else "numpy"
"""Names the one of the two that this process has."""
_Buffers = tuple[int, pa.Buffer | None, pa.Buffer | None, pa.Buffer | None]
_NONE: _Buffers = (0, None, None, None)
_Places = list[pa.Buffer | None]


def message(fields: tuple[Field, ...], version: int, flexible: bool) -> Any:
    """What reads and writes a message of `fields`; None where no native codec does."""
    return None if _native is None else _native.Message(fields, version, flexible, _nothing)


def _nothing() -> None:
    """Is called now and then while much is read or written, so that other threads have a turn."""


def checked(records: memoryview, rows: int, base_ms: int, latest_ms: int) -> Content | None:
    """The records of a batch whose times lie between -1, which is none, and `latest_ms`.

    None where any part of them is wrong, and where there is no native codec.
    """
    if _native is None:
        return None
    found = _native.check(records, rows, base_ms, latest_ms)
    return None if found is None else _Checked(found, rows)


class _Checked:
    __slots__ = ("_records", "_rows")

    def __init__(self, records: Any, rows: int) -> None:
        self._records = records
        self._rows = rows

    def columns(self) -> Columns:
        memory, places = self._records.columns()
        whole, rows = pa.py_buffer(memory), self._rows
        parts: _Places = [None if place is None else whole.slice(*place) for place in places]
        timestamp = None if parts[1] is None else pa.Array.from_buffers(TIMESTAMP, rows, parts[:2])
        key = None if parts[3] is None else pa.Array.from_buffers(pa.binary(), rows, parts[2:5])
        headers = None
        if parts[9] is not None:
            count = self._records.headers()
            names = pa.Array.from_buffers(pa.string(), count, [None, *parts[10:12]])
            entries = pa.StructArray.from_arrays([names, _binary(count, parts[12:15])], fields=ENTRY)
            headers = pa.Array.from_buffers(HEADERS, rows, parts[8:10], children=[entries])
        return Columns(timestamp, key, _binary(rows, parts[5:8]), headers, self._records.time_bounds())

    def lists(self) -> Lists:
        return Lists(*self._records.lists())


def _binary(rows: int, parts: _Places) -> pa.Array:
    return nulls(rows, pa.binary()) if parts[1] is None else pa.Array.from_buffers(pa.binary(), rows, parts)


class NativeColumns:
    """Columns that are to become batches."""

    def __init__(self, columns: pa.RecordBatch) -> None:
        """`columns` are those that `encode` takes."""
        headers = columns.column("headers")
        lists, name, content = _NONE, _NONE, _NONE
        if headers.null_count < len(headers):
            lists = headers.offset, *headers.buffers()[:2], None
            name, content = (_buffers(headers.values.field(number)) for number in (0, 1))
        numbers = (columns.column(name) for name in ("offset", "timestamp"))
        offset, timestamp = ((each.offset, None, None, each.buffers()[1]) for each in numbers)
        key, value = (_buffers(columns.column(name)) for name in ("key", "value"))
        self._columns = _native.Columns(columns.num_rows, offset, timestamp, key, value, lists, name, content)

    def cuts(self, bytes_max: int, gap_max: int, delta_max: int) -> list[int]:
        """The row after the last of each batch: it ends before it would have more than about `bytes_max`, before
        offsets that leave out more than `gap_max`, and where they are more than `delta_max` above its first."""
        found: list[int] = self._columns.cuts(bytes_max, gap_max, delta_max)
        return found

    def records(self, start: int, end: int) -> tuple[bytes, int]:
        """The records of the rows from `start` to `end` as those of a batch, and the latest of their times, in
        milliseconds."""
        found: tuple[bytes, int] = self._columns.records(start, end)
        return found


def native_columns(columns: pa.RecordBatch) -> NativeColumns | None:
    """None where there is no native codec."""
    return None if _native is None else NativeColumns(columns)


def _buffers(array: pa.Array) -> _Buffers:
    """Validity, ends and bytes of a binary column, and which of their values is its first."""
    missing = array.null_count
    if missing == len(array):
        return _NONE
    validity, ends, data = array.buffers()
    return array.offset, validity if missing else None, ends, data
