"""Records to publish: records of a given size, and the bodies that carry them."""

import base64
import json

import numpy as np
import pyarrow as pa

SEED = 7
KEYS = 1_000
ARROW_RECORDS = 10_000
"""The records of a body in Arrow."""


def json_record(size_bytes: int) -> bytes:
    """A value of JSON text with exactly `size_bytes`."""
    document = {"carrier": "UA", "flight": 1545, "origin": "EWR", "dest": "IAH", "dep_delay": 2.0, "note": ""}
    document["note"] = "x" * (size_bytes - len(_compact(document)))
    return _compact(document)


def json_body(value: bytes, count: int) -> bytes:
    return b'{"records":[' + b",".join([b'{"value":' + value + b"}"] * count) + b"]}"


def table(count: int, size_bytes: int, *, keyed: bool) -> pa.Table:
    """Values of random text, which hardly compresses; with `keyed` also keys, 1,000 different ones."""
    random = np.random.default_rng(SEED)
    text = base64.b64encode(random.bytes(count * size_bytes * 3 // 4 + 3))[: count * size_bytes]
    ends = np.arange(0, (count + 1) * size_bytes, size_bytes, dtype=np.int32)
    columns = {"value": pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(text)])}
    if keyed:
        names = [b"key-%05d" % number for number in range(KEYS)]
        columns["key"] = pa.array([names[number] for number in random.integers(0, KEYS, count)], pa.binary())
    return pa.table(columns)


def arrow_body(records: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        writer.write_table(records)
    return bytes(sink.getvalue())


def _compact(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
