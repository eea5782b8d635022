"""Makes records of values or rows for `silt publish`: their key, time, headers, partition. Column by column."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.cli.records.record_csv import bytes_column, check_columns, headers_column
from siltlog.cli.records.record_lines import record_columns
from siltlog.infra.client.bodies.json_rows import json_column, text_column, texts_of
from siltlog.infra.client.record import time_us
from siltlog.infra.clock import TIME_MAX_US, TIME_MIN_US, parse_us
from siltlog.infra.columns import HEADERS, TIMESTAMP

_check = msgspec.json.Decoder(msgspec.Raw).decode
_MILLISECOND_US = 1_000


class Wrong(NamedTuple):
    """The first record that cannot be published."""

    at: int
    """Index in the run."""
    why: str


class Shaped(NamedTuple):
    """Records as columns value, and if wanted key, timestamp, headers, partition: those before `wrong`."""

    columns: dict[str, pa.Array]
    wrong: Wrong | None


@dataclass(frozen=True, slots=True)
class RecordShape:
    """`key_from` and `timestamp_from` are the members to go through; times are microseconds."""

    key: str | None = None
    key_from: Sequence[str] | None = None
    value_from: str | None = None
    timestamp_us: int | None = None
    timestamp_from: Sequence[str] | None = None
    headers: tuple[tuple[str, str], ...] = ()
    partition: int | None = None
    lines: Literal["value", "record"] = "value"

    def in_words(self, why: str) -> str:
        """Rewords what the server says is wrong with a record, with the name that its time has here."""
        if self.timestamp_from is None:
            return why
        return why.replace("its timestamp", f"its timestamp, {_named(self.timestamp_from)}", 1)

    def of_lines(self, values: pa.Array, *, json: bool) -> Shaped:
        """One record a line; with `json` each must be a JSON text."""
        found = _Columns(len(values))
        if self.lines == "record":
            columns, wrong = record_columns(values.to_pylist())
            found.columns.update(columns)
            found.stop(None if wrong is None else Wrong(*wrong))
        else:
            found.columns["value"] = values
            if json or self.key_from is not None or self.timestamp_from is not None:
                lines = values.to_pylist()
                if json:
                    found.stop(_first_no_json(values, lines))
                if self.key_from is not None:
                    found.columns["key"] = pa.array(found.taken(texts_of(lines, self.key_from)), pa.string())
                if self.timestamp_from is not None:
                    found.columns["timestamp"] = _times(
                        found.taken(_parsed(texts_of(lines, self.timestamp_from), self.timestamp_from))
                    )
        return self._finished(found)

    def of_rows(self, rows: pa.RecordBatch) -> Shaped:
        """One record a row: the value is the row as a JSON object, or one column of it; or rows are records.

        Raises ValueError.
        """
        found = _Columns(rows.num_rows)
        if self.lines == "record":
            return self._finished(_record_rows(rows, found))
        if self.value_from is None:
            found.columns["value"] = json_column(rows)
        else:
            found.columns["value"] = _text(_column(rows, [self.value_from]), [self.value_from])
        if self.key_from is not None:
            keys = _text(_column(rows, self.key_from), self.key_from)
            found.stop(_first_null(keys, f"there is no key: {_named(self.key_from)} is empty"))
            found.columns["key"] = keys
        elif self.key is None:
            found.stop(_first_null(found.columns["value"], "a null value is a tombstone and needs a key"))
        if self.timestamp_from is not None:
            found.columns["timestamp"] = _time_column(_column(rows, self.timestamp_from), self.timestamp_from, found)
        return self._finished(found)

    def _finished(self, found: "_Columns") -> Shaped:
        count = found.count
        columns = {name: column.slice(0, count) for name, column in found.columns.items()}
        if self.key is not None:
            columns["key"] = pa.repeat(pa.scalar(self.key.encode(), pa.binary()), count)
        if self.timestamp_us is not None:
            columns["timestamp"] = pa.repeat(pa.scalar(self.timestamp_us, TIMESTAMP), count)
        if self.partition is not None:
            columns["partition"] = pa.repeat(pa.scalar(self.partition, pa.int32()), count)
        if self.headers:
            headers = [{"key": name, "value": text.encode()} for name, text in self.headers]
            columns["headers"] = pa.repeat(pa.scalar(headers, HEADERS), count)
        return Shaped(columns, found.wrong)


class _Columns:
    """Columns whose records are good up to `count`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.wrong: Wrong | None = None
        self.columns: dict[str, pa.Array] = {}

    def stop(self, wrong: Wrong | None) -> None:
        if wrong is not None and wrong.at < self.count:
            self.count, self.wrong = wrong.at, wrong

    def taken(self, items: Iterable[object]) -> list[object]:
        """Up to the one that raises ValueError, which is wrong."""
        there: list[object] = []
        try:
            there.extend(items)
        except ValueError as error:
            self.stop(Wrong(len(there), str(error)))
        return there


def _record_rows(rows: pa.RecordBatch, found: _Columns) -> _Columns:
    check_columns(rows.schema.names)
    value, key = (bytes_column(rows, name) for name in ("value", "key"))
    nothing = pc.and_(value.is_null(), key.is_null())
    if pc.any(nothing).as_py():
        found.stop(Wrong(pc.index(nothing, True).as_py(), "a null value is a tombstone and needs a key"))
    found.columns.update(value=value, key=key)
    if "headers" in rows.schema.names:
        found.columns["headers"] = pa.array(found.taken(headers_column(rows.column("headers"))), HEADERS)
    if "timestamp" in rows.schema.names:
        found.columns["timestamp"] = _time_column(rows.column("timestamp"), ["timestamp"], found)
    if "partition" in rows.schema.names:
        found.columns["partition"] = rows.column("partition").cast(pa.int32())
    return found


def _first_no_json(values: pa.Array, lines: Sequence[bytes]) -> Wrong | None:
    try:
        values.cast(pa.string())
        deque(map(_check, lines), maxlen=0)
    except (pa.ArrowInvalid, msgspec.DecodeError, RecursionError):
        for index, line in enumerate(lines):
            try:
                line.decode()
                _check(line)
            except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
                return Wrong(index, f"it is not JSON ({error})")
    return None


def _first_null(column: pa.Array, why: str) -> Wrong | None:
    if not column.null_count:
        return None
    return Wrong(pc.index(column.is_null(), True).as_py(), why)


def _column(rows: pa.RecordBatch, parts: Sequence[str]) -> pa.Array:
    """A column, or a member of one that is a struct. Raises ValueError that names the columns there are."""
    if parts[0] not in rows.schema.names:
        raise ValueError(f"there is no column {parts[0]!r}; there are: {', '.join(rows.schema.names)}")
    column = rows.column(parts[0])
    for part in parts[1:]:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(part) < 0:
            raise ValueError(f"there is no {_named(parts)}: {part!r} is not a member of {column.type}")
        column = pc.struct_field(column, part)
    return column


def _text(column: pa.Array, parts: Sequence[str]) -> pa.Array:
    texts = text_column(column)
    if texts is None:
        raise ValueError(f"the column {_named(parts)} is {column.type}, which has no text; choose another")
    return texts


def _named(parts: Sequence[str]) -> str:
    return repr("/".join(parts))


def _parsed(texts: Iterable[str | None], parts: Sequence[str]) -> Iterator[int | None]:
    """Null has no time of its own. Raises ValueError that names where the time stands."""
    for text in texts:
        try:
            yield None if text is None else time_us(text)
        except ValueError as error:
            raise ValueError(f"{_named(parts)}: {error}") from None


def _times(micros: Sequence[object]) -> pa.Array:
    return pa.array(micros, pa.int64()).cast(TIMESTAMP)


def _time_column(column: pa.Array, parts: Sequence[str], found: _Columns) -> pa.Array:
    """A column of times, of whole milliseconds, or of RFC 3339 texts; null has none of its own."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            raise ValueError(f"the times of the column {_named(parts)} have no time zone")
        return column.cast(TIMESTAMP, safe=False)
    if pa.types.is_integer(kind):
        return _milliseconds(column.cast(pa.int64()), parts, found)
    texts = _text(column, parts).cast(pa.string()).to_pylist()
    return _times(found.taken(_parsed(texts, parts)))


def _milliseconds(millis: pa.Array, parts: Sequence[str], found: _Columns) -> pa.Array:
    beyond = pc.or_(pc.less(millis, TIME_MIN_US // _MILLISECOND_US), pc.greater(millis, TIME_MAX_US // _MILLISECOND_US))
    first = pc.index(beyond, True).as_py()
    if first >= 0:
        try:
            parse_us(str(millis[first].as_py()))
        except ValueError as error:
            found.stop(Wrong(first, f"{_named(parts)}: {error}"))
    return pc.multiply(millis, _MILLISECOND_US).cast(TIMESTAMP)


def table_of(columns: Mapping[str, pa.Array]) -> pa.Table:
    """Makes a table of the columns, without those that are all null; keys and values as binary."""
    return pa.table(
        {
            name: column.cast(pa.binary()) if name == "key" else column
            for name, column in columns.items()
            if name == "value" or column.null_count < len(column)
        }
    )
