"""Records as NDJSON and CSV, which `silt import` takes back byte for byte."""

import io

import msgspec
import pyarrow as pa
from msgspec import UNSET
from pyarrow import csv

from siltlog.cli.records.record_csv import CSV_SCHEMA
from siltlog.consumers.reading.render import ndjson, records
from siltlog.pipelines.export.export import Text

_headers = msgspec.json.Encoder().encode


def ndjson_of(table: pa.Table) -> bytes:
    """Record objects, one a line, as HTTP gives them."""
    return ndjson(records(table.to_batches(), "text"))


def csv_of(table: pa.Table) -> bytes:
    """Rows of CSV_SCHEMA."""
    found = records(table.to_batches(), "text")
    rows = {
        "partition": table["partition"],
        "offset": table["offset"],
        "timestamp": [record.timestamp for record in found],
        "key": [_text(record.key) for record in found],
        "key_base64": [_base64(record.key_base64) for record in found],
        "value": [_text(record.value) for record in found],
        "value_base64": [_base64(record.value_base64) for record in found],
        "headers": [_headers(record.headers).decode() if record.headers else None for record in found],
    }
    sink = io.BytesIO()
    csv.write_csv(pa.table(rows, schema=CSV_SCHEMA), sink, csv.WriteOptions(include_header=False))
    return sink.getvalue()


def texts() -> dict[str, Text]:
    head = ",".join(CSV_SCHEMA.names) + "\n"
    return {"ndjson": Text(b"", ndjson_of), "csv": Text(head.encode(), csv_of)}


def _text(value: object) -> object:
    return None if value is UNSET else value


def _base64(value: object) -> str | None:
    return None if value is UNSET else msgspec.json.decode(msgspec.json.encode(value), type=str)
