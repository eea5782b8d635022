"""A dead letter: a record that was given up, with headers about it behind its own, which can be taken off again."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.clock import format_us, parse_us
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.records import NewRecord

ADDED = (
    names.RECORD_HEADER_TOPIC,
    names.RECORD_HEADER_PARTITION,
    names.RECORD_HEADER_OFFSET,
    names.RECORD_HEADER_TIMESTAMP,
    names.RECORD_HEADER_GROUP,
    names.RECORD_HEADER_ATTEMPTS,
    names.RECORD_HEADER_ERROR,
    names.RECORD_HEADER_FAILED_AT,
)

_WHOLE = frozenset((names.RECORD_HEADER_PARTITION, names.RECORD_HEADER_OFFSET, names.RECORD_HEADER_ATTEMPTS))
Headers = tuple[tuple[str, bytes | None], ...]


class Stored(NamedTuple):
    """A record as it is in the log."""

    offset: int
    timestamp_us: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Failure(NamedTuple):
    """Where a record was, and why it was given up."""

    topic: str
    partition: int
    group: str
    attempts: int
    error: str
    failed_us: int


def stored_records(batch: pa.RecordBatch) -> Iterator[Stored]:
    """The records of a RECORD_SCHEMA batch, in order."""
    for offset, timestamp_us, key, value, headers in zip(
        batch.column("offset").to_pylist(),
        batch.column("timestamp").cast(pa.int64()).to_pylist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        batch.column("headers").to_pylist(),
        strict=True,
    ):
        pairs = tuple((pair["key"], pair["value"]) for pair in headers or ())
        yield Stored(offset, timestamp_us, key, value, pairs)


def dead_letter(record: Stored, failure: Failure) -> NewRecord:
    """`record` with what is said about it; its time is that of the failure."""
    said: Mapping[str, object] = dict(
        zip(
            ADDED,
            (
                failure.topic,
                failure.partition,
                record.offset,
                format_us(record.timestamp_us),
                failure.group,
                failure.attempts,
                failure.error,
                format_us(failure.failed_us),
            ),
            strict=True,
        )
    )
    added = tuple((name, str(value).encode()) for name, value in said.items())
    return NewRecord(record.key, record.value, (*record.headers, *added))


class Origin(NamedTuple):
    partition: int
    record: NewRecord
    """The record before it was given up, without the headers about it and without a time."""


def said_of(headers: Headers) -> dict[str, str | int] | None:
    """Reads the headers about a dead letter, by name without `silt.`; None where its headers do not end with them."""
    added = headers[-len(ADDED) :]
    if tuple(name for name, _ in added) != ADDED:
        return None
    said: dict[str, str | int] = {}
    for name, value in added:
        text = (value or b"").decode("utf-8", "replace")
        said[name.partition(".")[2]] = int(text) if name in _WHOLE and text.isdigit() else text
    return said


def origin(dead: Stored) -> Origin:
    """Raises CorruptData where what is said about it is not at the end of its headers."""
    said = said_of(dead.headers)
    if said is None or not isinstance(said["partition"], int):
        raise _no_dead_letter(dead)
    try:
        timestamp_us = parse_us(str(said["timestamp"]))
    except ValueError:
        raise _no_dead_letter(dead) from None
    own = dead.headers[: -len(ADDED)]
    return Origin(said["partition"], NewRecord(dead.key, dead.value, own, timestamp_us))


def _no_dead_letter(dead: Stored) -> SiltlogError:
    return problem(
        "corrupt_data",
        f"the record at offset {dead.offset} has not got the headers of a dead letter at its end: "
        f"{', '.join(ADDED)}; leave its offset out",
        first_offset=dead.offset,
        last_offset=dead.offset,
    )
