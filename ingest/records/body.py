"""The body of a publish, once it was read: columns. Past the door nothing handles records one by one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.infra.clock import parse_us
from siltlog.infra.columns import HEADERS, TIMESTAMP
from siltlog.infra.errors import SiltlogError, problem
from siltlog.ingest.records.plain import PLAIN_MAX, PlainRecords

ROWS_MAX = 32
"""Up to so many records a request stays Python lists, to be joined with others' into one batch per group commit."""

RECORDS_MAX = 1_000_000
"""The most records of one request: while it is parsed each may take some hundred bytes, however few were sent."""

TIMESTAMP_BYTES = 8
HEADER_BYTES = 8
"""A header takes so much beside its name and content."""

HeaderList = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class Body:
    """A parsed publish of `count` records. Lists and arrays all have that length.

    Either `rows` (few records), `plain` (more, of values and keys alone) or the Arrow columns are set; `timestamp`,
    `key` and `headers` are None where no record has any. `partition` is -1 where the record names none.
    """

    count: int
    nbytes: int
    """About what the records take: of text its bytes, whatever its characters are."""
    rows: "Rows | None" = None
    plain: PlainRecords | None = None
    timestamp: pa.Array | None = None
    key: pa.Array | None = None
    value: pa.Array | None = None
    headers: pa.Array | None = None
    partition: npt.NDArray[np.int32] | None = None
    sequence: npt.NDArray[np.int64] | None = None
    only_partition: int | None = None
    """The partition of all records, in place of `partition`."""
    first_sequence: int | None = None
    """The sequence of the first record, and each has the next one, in place of `sequence`; with `only_partition`."""
    time_bounds: tuple[int, int] | None = None
    """The least and the greatest of `timestamp`, where none of it is null and they were found already."""
    positions: bool = True
    """Whether the reply lists every record's partition and offset."""
    stored: bool = False
    """Whether these are records that were stored before, whose times are what they are."""
    sent: bytes | None = None
    """The batch that these are, where readers may get it as it was sent."""

    def contents(self) -> tuple[pa.Array, pa.Array | None]:
        """Values and keys of a body without `rows`, as columns."""
        if self.plain is not None:
            return self.plain.columns()
        assert self.value is not None
        return self.value, self.key


@dataclass(slots=True)
class Rows:
    """Columns as lists. `timestamps` are microseconds, None where the record has none."""

    timestamps: list[int | None]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[HeaderList | None]
    partitions: list[int]
    sequences: list[int | None]


def one_record(
    value: bytes,
    key: bytes | None,
    headers: HeaderList | None,
    timestamp: int | None,
) -> Body:
    """An octet-stream: the body is the value, and empty is empty."""
    rows = Rows([timestamp], [key], [value], [headers], [-1], [None])
    return Body(1, record_bytes(value, key, headers), rows)


def too_many_records() -> SiltlogError:
    return problem(
        "request_too_large", f"the body has more than {RECORDS_MAX} records; send fewer at once", limit=RECORDS_MAX
    )


def record_bytes(value: bytes | None, key: bytes | None, headers: HeaderList | None) -> int:
    """About what a record takes."""
    size = len(value or b"") + len(key or b"") + TIMESTAMP_BYTES
    if headers:
        size += sum(len(name.encode()) + len(content or b"") + HEADER_BYTES for name, content in headers)
    return size


def from_rows(rows: Rows, nbytes: int) -> Body:
    count = len(rows.values)
    if count <= ROWS_MAX:
        return Body(count, nbytes, rows)
    sequence = None
    if any(number is not None for number in rows.sequences):
        if None in rows.sequences:
            index = rows.sequences.index(None)
            raise problem("invalid_record", f"record {index} has no sequence, but others have", index=index)
        sequence = np.array(rows.sequences, np.int64)
    return Body(
        count,
        nbytes,
        timestamp=pa.array(rows.timestamps, pa.int64()).cast(TIMESTAMP),
        key=pa.array(rows.keys, pa.binary()),
        value=pa.array(rows.values, pa.binary()),
        headers=headers_array(rows.headers),
        partition=np.array(rows.partitions, np.int32),
        sequence=sequence,
    )


def plain_body(plain: PlainRecords, records_max: int = PLAIN_MAX) -> Body:
    """The body of records that stay one by one up to `records_max`, and are columns beyond."""
    count = len(plain.values)
    nbytes = plain.nbytes + TIMESTAMP_BYTES * count
    if count <= records_max:
        return Body(count, nbytes, plain=plain)
    value, key = plain.columns()
    return Body(count, nbytes, key=key, value=value)


def fix_partition(body: Body, partition: int) -> None:
    """`?partition=` is for the whole body; a record that names another one is an error, not a tie to break."""
    if body.rows is not None:
        named, wrong = body.rows.partitions, None
        if named.count(-1) < body.count:
            wrong = next((index for index, given in enumerate(named) if given not in (-1, partition)), None)
        body.rows.partitions = [partition] * body.count
    else:
        explicit = body.partition
        clash = None if explicit is None else (explicit != -1) & (explicit != partition)
        wrong = int(np.argmax(clash)) if clash is not None and clash.any() else None
        body.partition = np.full(body.count, partition, np.int32)
    if wrong is not None:
        raise problem(
            "invalid_record", f"record {wrong} names another partition than ?partition={partition}", index=wrong
        )


def headers_array(headers: Sequence[HeaderList | None]) -> pa.Array | None:
    """HEADERS, or None where no record has any. A record without any has null."""
    if not any(headers):
        return None
    pairs = [pair for one in headers if one for pair in one]
    counts = [len(one) if one else 0 for one in headers]
    contents = pa.array([content for _, content in pairs], pa.binary())
    return headers_of(counts, [name for name, _ in pairs], contents)


def headers_of(counts: Sequence[int], names: Sequence[str], contents: pa.Array) -> pa.Array:
    """HEADERS of records that have so many each; names and contents of all in order. A record without any has null."""
    entries = pa.StructArray.from_arrays([pa.array(names, pa.string()), contents], fields=list(HEADERS.value_type))
    each = np.array(counts, np.int32)
    ends = np.concatenate(([0], np.cumsum(each))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), entries, type=HEADERS, mask=pa.array(each == 0))


def timestamp_us(value: int | str) -> int:
    """Microseconds of integer milliseconds or RFC 3339 text. Raises ValueError."""
    return parse_us(value if isinstance(value, str) else str(value))
