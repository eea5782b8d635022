"""The values that a publisher and a reader hold: topic-partitions, acknowledgements, and Python values as bytes."""

import json
import operator
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from siltlog.infra.clock import MICROS_PER_SECOND, parse_us
from siltlog.infra.errors import ConfigError, problem
from siltlog.infra.limits import PARTITION_MAX

Headers = tuple[tuple[str, bytes | None], ...]
HeadersLike = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]
TimeLike = datetime | int | str

RECORD_BYTES_MAX = 2**31 - 1
"""No more than one array of Arrow holds, which is not imported to say so."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_JSON = msgspec.json.Encoder()


class TopicPartition(msgspec.Struct, frozen=True, order=True, gc=False):
    topic: str
    partition: int


def checked_partition(given: Any) -> TopicPartition:
    """Raises ConfigError for what only looks like a partition to the caller, such as a tuple or a topic's name."""
    if not isinstance(given, TopicPartition):
        raise ConfigError(f"a partition is written TopicPartition('flights', 0), not {given!r}")
    return given


class RecordMetadata(msgspec.Struct, frozen=True, gc=False):
    """Where a record landed. `offset` is None for a duplicate whose offset the server no longer remembers.

    `timestamp` is what the publisher sent; a topic with `timestamp.type=append` stores the server's instead.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp: datetime


class PartitionMetadata(msgspec.Struct, frozen=True, gc=False):
    """The part of a request that landed in one partition: offsets are inclusive, None where the server forgot them."""

    topic: str
    partition: int
    first_offset: int | None
    last_offset: int | None
    count: int
    duplicate: bool


def value_bytes(value: Any) -> bytes | None:
    """Bytes as they are, text as UTF-8, None as a tombstone, dict, list, number and bool as compact JSON.

    Raises TypeError for anything else, ValueError for NaN and infinities.
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (dict, list, int, float)):
        return _json_bytes(value)
    raise TypeError(
        f"a value must be bytes, str, None, dict, list, int, float or bool, not {type(value).__name__}; "
        "encode it first, or send many rows with send_batch()"
    )


def _json_bytes(value: Any) -> bytes:
    encoded = _JSON.encode(value)
    if b"null" in encoded:
        # The fast encoder writes NaN and infinities as null; only a text with a null in it can hide one.
        json.dumps(value, allow_nan=False, skipkeys=True, default=lambda _: None)
    return encoded


def key_bytes(key: str | bytes | None, name: str = "key") -> bytes | None:
    """Raises TypeError, which calls it `name`, unless `key` is text, bytes or None."""
    if key is None or type(key) is bytes:
        return key
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, (bytes, bytearray, memoryview)):
        return bytes(key)
    raise TypeError(f"a {name} must be str, bytes or None, not {type(key).__name__}")


def header_pairs(headers: HeadersLike | None) -> Headers | None:
    """Headers as stored, None where there are none. Raises TypeError for names or values of another type."""
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    stored = tuple((_header_name(name), key_bytes(value, "header's value")) for name, value in pairs)
    return stored or None


def _header_name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a header's name must be str, not {type(name).__name__}")
    name.encode()
    return name


def time_us(when: TimeLike) -> int:
    """Microseconds since 1970-01-01 UTC of an aware datetime, integer milliseconds or an RFC 3339 text.

    Raises TypeError or ValueError.
    """
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise ValueError(f"{when!r} has no time zone; use datetime.now(UTC) or .replace(tzinfo=...)")
        passed = when - EPOCH
        return (passed.days * 86_400 + passed.seconds) * MICROS_PER_SECOND + passed.microseconds
    if isinstance(when, bool) or not isinstance(when, (int, str)):
        raise TypeError(f"a time must be a datetime, integer milliseconds or RFC 3339, not {type(when).__name__}")
    return when * 1000 if isinstance(when, int) else parse_us(when)


def datetime_of(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def encoded(
    topic: str, value: Any, key: str | bytes | None, headers: HeadersLike | None
) -> tuple[bytes | None, bytes | None, Headers | None, int]:
    """Value, key and headers as stored, and their bytes. Raises TypeError, ValueError, or Refused `invalid_record`."""
    if type(value) is not bytes:
        value = value_bytes(value)
        if value is None and key is None:
            raise problem(
                "invalid_record",
                f"a record for {topic} has neither a value nor a key: a tombstone says which key it removes, "
                "so give key=",
            )
    size = len(value) if value is not None else 0
    stored_key = None
    if key is not None:
        stored_key = key_bytes(key)
        size += len(stored_key)  # type: ignore[arg-type]
    stored = None
    if headers is not None:
        stored = header_pairs(headers)
        if stored is not None:
            size += sum(len(name) + len(text or b"") for name, text in stored)
    if size > RECORD_BYTES_MAX:
        raise problem("record_too_large", f"a record for {topic} has {size} bytes; no request takes as many")
    return value, stored_key, stored, size


def partition_number(partition: Any) -> int:
    """Raises TypeError or ValueError for what is no partition."""
    number = operator.index(partition)
    if not 0 <= number <= PARTITION_MAX:
        raise ValueError(f"a partition is a number from 0, not {partition}")
    return number
