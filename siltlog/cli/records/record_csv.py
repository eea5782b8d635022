"""Rows that are records: columns of the names that records have, from Parquet or CSV, as what is published."""

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.cli.records.record_lines import Stored, headers_of
from siltlog.infra.client.bodies.arrow_body import IGNORED
from siltlog.infra.columns import HEADERS

CSV_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.string()),
        pa.field("key", pa.string()),
        pa.field("key_base64", pa.string()),
        pa.field("value", pa.string()),
        pa.field("value_base64", pa.string()),
        pa.field("headers", pa.string()),
    ]
)
"""A record as a row of CSV: bytes that are no text stand in base64 beside, headers are JSON as HTTP has them. A field
that is empty is null, one with empty quotes is empty."""
COLUMNS = ("value", "value_base64", "key", "key_base64", "headers", "timestamp", "partition")


def read_options() -> tuple[Any, Any]:
    """How such CSV is read, as pyarrow's ParseOptions and ConvertOptions: nothing is guessed from its looks."""
    from pyarrow import csv

    return csv.ParseOptions(newlines_in_values=True), csv.ConvertOptions(
        column_types=CSV_SCHEMA, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )


def check_columns(names: list[str]) -> None:
    """Raises ValueError where rows of these columns are no records."""
    unknown = [name for name in names if name not in COLUMNS and name not in IGNORED]
    if unknown or not {"value", "value_base64"} & set(names):
        raise ValueError(
            f"rows that are records have the columns {', '.join(COLUMNS)}, of which value or value_base64 is needed; "
            f"there are: {', '.join(names)}"
        )


def bytes_column(rows: pa.RecordBatch, name: str) -> pa.Array:
    """`name`, or `{name}_base64` where that is null; binary. Raises ValueError."""
    column = pa.nulls(rows.num_rows, pa.binary())
    if name in rows.schema.names:
        given = rows.column(name)
        if not (pa.types.is_null(given.type) or _is_textual(given.type)):
            raise ValueError(f"the column {name!r} is {given.type}; a record's is text or binary")
        column = given.cast(pa.binary())
    encoded = f"{name}_base64"
    if encoded in rows.schema.names and rows.column(encoded).null_count < rows.num_rows:
        decoded = pa.array(_decoded(rows.column(encoded), encoded), pa.binary())
        if pc.any(pc.and_(column.is_valid(), decoded.is_valid())).as_py():
            raise ValueError(f"{name} and {encoded} are both given")
        column = pc.coalesce(column, decoded)
    return column


def headers_column(column: pa.Array) -> Iterator[Stored | None]:
    """Yields the headers of each row, from lists as they are stored, or from JSON as HTTP has it.

    Ends in ValueError at the first that is neither.
    """
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        column = column.cast(HEADERS)
        for pairs in column.to_pylist():
            yield [(pair["key"], pair["value"]) for pair in pairs] if pairs else None
        return
    for text in column.to_pylist():
        try:
            yield None if text is None else headers_of(text)
        except msgspec.DecodeError as error:
            raise ValueError(f"its headers are not JSON as records have them: {error}") from None


def _decoded(column: pa.Array, name: str) -> Iterator[bytes | None]:
    for text in column.to_pylist():
        try:
            yield None if text is None else base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise ValueError(f"{name} is not base64") from None


def _is_textual(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )
