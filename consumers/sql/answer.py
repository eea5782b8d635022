"""Makes the reply of a query of its rows: JSON or an Arrow stream, with as many rows as fit."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra import names
from siltlog.infra.sql.exact import numbers
from siltlog.infra.sql.values import python_values

MIB = 1024 * 1024
ROWS_BYTES_MAX = 16 * MIB
"""The rows of a reply as Arrow has them; JSON may be several times as much."""
_JSON = msgspec.json.Encoder(decimal_format="number", enc_hook=str)


class TooLarge(Exception):
    """Says what is larger than a reply may be."""


class Rows:
    """The first rows of a result: `cut` where there are more than fit."""

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, limit: int) -> None:
        """Raises TooLarge where not even the first row fits."""
        self.schema = schema
        self.batches: list[pa.RecordBatch] = []
        self.cut = False
        left, bytes_left = limit, ROWS_BYTES_MAX
        for batch in batches:
            taken = _fitting(batch, left, bytes_left)
            if taken.num_rows:
                self.batches.append(taken)
                left -= taken.num_rows
                bytes_left -= taken.nbytes
            elif batch.num_rows and not self.batches and left:
                raise TooLarge(f"the first row of the result is larger than {ROWS_BYTES_MAX // MIB} MiB")
            if taken.num_rows < batch.num_rows:
                self.cut = True
                break

    def json_bytes(self, types: Sequence[Any], told: Mapping[str, Any]) -> bytes:
        """The document: `types` are DuckDB's of the columns, `told` are members beside its own."""
        columns = [{"name": name, "type": str(kind)} for name, kind in zip(self.schema.names, types, strict=True)]
        return _JSON.encode({"columns": columns, "rows": list(self._rows(types)), "cut": self.cut, **told})

    def arrow_bytes(self, told: Mapping[str, Any]) -> pa.Buffer:
        """The stream: what is told stands in its schema's metadata."""
        metadata = {names.ARROW_METADATA_KEY: _JSON.encode({"cut": self.cut, **told})}
        sink = pa.BufferOutputStream()
        schema = self.schema.with_metadata(metadata)
        with pa.ipc.new_stream(sink, schema) as writer:
            for batch in self.batches:
                writer.write_batch(batch.replace_schema_metadata(metadata))
        return sink.getvalue()

    def _rows(self, types: Sequence[Any]) -> Iterator[list[Any]]:
        for batch in self.batches:
            columns = [
                [cell(value) for value in numbers(_values(column), kind)]
                for column, kind in zip(batch.columns, types, strict=True)
            ]
            yield from map(list, zip(*columns, strict=True))


def _fitting(batch: pa.RecordBatch, rows: int, nbytes: int) -> pa.RecordBatch:
    """The longest prefix with at most so many rows and bytes."""
    taken = batch.slice(0, min(rows, batch.num_rows))
    if taken.nbytes <= nbytes:
        return taken
    low, high = 0, taken.num_rows
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if batch.slice(0, middle).nbytes <= nbytes else (low, middle)
    return batch.slice(0, low)


def _values(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = pc.cast(column, pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_time64(kind) and kind.unit == "ns":
        column = pc.cast(column, pa.time64("us"), safe=False)
    return python_values(column)


def cell(value: Any) -> Any:
    """A value as JSON has it. Bytes are text, or `{"base64": …}` where they are none; numbers that JSON lacks are
    text, and so is a period with months."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": msgspec.to_builtins(value)}
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal() | str() | None:
            return value
        case dict():
            return {str(key): cell(each) for key, each in value.items()}
        case pa.MonthDayNano():
            return _period(value)
        case list() | tuple():
            return [cell(each) for each in value]
    return value


def _period(value: Any) -> str:
    """ISO 8601, as other durations are written."""
    rest: str = msgspec.to_builtins(timedelta(days=value.days, microseconds=value.nanoseconds // 1000))
    if not value.months:
        return rest
    sign, months = ("-", -value.months) if value.months < 0 else ("", value.months)
    return f"{sign}P{months}M" + (f" {rest}" if value.days or value.nanoseconds else "")
