"""Real records, 336,776 flights as JSON: the bodies that carry them, and what one core gives at most."""

import time

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.figures.figure import Figure
from benchmarks.loads.records import ARROW_RECORDS, arrow_body
from siltlog.demo.data import Flights

JSON_RECORDS = 500
ENCODED = "the same flights encoded as Parquet (zstd) on one core"


def json_flights(known: Flights) -> list[bytes]:
    """JSON bodies of 500."""
    bodies = []
    for at in range(0, len(known) - JSON_RECORDS + 1, JSON_RECORDS):
        pairs = zip(known.keys[at : at + JSON_RECORDS], known.values[at : at + JSON_RECORDS], strict=True)
        records = b",".join(b'{"key":"%s","value":%s}' % (key.encode(), value) for key, value in pairs)
        bodies.append(b'{"records":[' + records + b"]}")
    return bodies


def arrow_flights(known: Flights) -> list[bytes]:
    """Arrow bodies of 10,000."""
    records = flights_table(known)
    starts = range(0, len(known) - ARROW_RECORDS + 1, ARROW_RECORDS)
    return [arrow_body(records.slice(at, ARROW_RECORDS).combine_chunks()) for at in starts]


def flights_table(known: Flights) -> pa.Table:
    return pa.table({"key": pa.array(known.keys, pa.string()), "value": pa.array(known.values, pa.binary())})


def encoded(known: Flights, each: float) -> Figure:
    """Measures what one core gives at most."""
    records = flights_table(known)
    started = time.perf_counter()
    pq.write_table(records, pa.BufferOutputStream(), compression="zstd", compression_level=1, use_dictionary=False)
    per_second = len(known) / (time.perf_counter() - started)
    return Figure(ENCODED, per_second, "records/s", "limit", megabytes_per_second=per_second * each / 1e6)
