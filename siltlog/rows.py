"""Rows of a table as JSON record values, and keys taken out of them."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from siltlog.infra.errors import Refused, problem

ROWS_AT_ONCE = 16_384
_JSON = msgspec.json.Encoder()
_MISSING = object()


def json_values(table: pa.Table | pa.RecordBatch) -> list[bytes]:
    """Each row as one JSON object with the table's columns as members, in row order.

    Nulls stay as `null`; times are RFC 3339, bytes base64, decimals strings, and NaN is `null`.
    """
    names = table.schema.names
    values: list[bytes] = []
    for start in range(0, table.num_rows, ROWS_AT_ONCE):
        columns = [column.to_pylist() for column in table.slice(start, ROWS_AT_ONCE).columns]
        values.extend(_JSON.encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True))
    return values


def pointer_parts(key_from: str) -> list[str]:
    """The members that `key_from` goes through: a JSON Pointer (RFC 6901), or the bare name of a column or member."""
    if not key_from.startswith("/"):
        return [key_from]
    return [part.replace("~1", "/").replace("~0", "~") for part in key_from[1:].split("/")]


def keys_of(values: Sequence[bytes], parts: Sequence[str], first_line: int) -> Iterator[str]:
    """The key that each JSON value holds at `parts`: a string its text, a number or boolean its JSON text.

    `first_line` numbers the first value for errors. Raises Refused `invalid_record` that names the line where the
    value is no JSON or has no such key.
    """
    for line, value in enumerate(values, first_line):
        try:
            found = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _no_key(line, f"it is not JSON: {error}") from None
        for part in parts:
            found = _member(found, part)
        if found is None or found is _MISSING or isinstance(found, dict | list):
            shown = "/".join(parts)
            raise _no_key(line, f"there is no string, number or boolean at {shown!r} to be its key")
        yield found if isinstance(found, str) else _JSON.encode(found).decode()


def _member(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return value.get(part, _MISSING)
    if isinstance(value, list) and part.isascii() and part.isdigit():
        return value[int(part)] if int(part) < len(value) else _MISSING
    return _MISSING


def _no_key(line: int, why: str) -> Refused:
    error = problem("invalid_record", f"record {line}: {why}", line=line)
    assert isinstance(error, Refused)
    return error
