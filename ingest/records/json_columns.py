"""The shapes of JSON records, and how many of them become Arrow columns at once: a call per record would cost more
than all the rest.

It takes regular bodies only. One that has base64, mixes strings with other values, or has anything wrong in it gives
None, and its caller reads it record by record.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from siltlog.infra.clock import TIME_MAX_US, TIME_MIN_US
from siltlog.infra.columns import TIMESTAMP
from siltlog.infra.limits import INTEGER_MAX, PARTITION_MAX
from siltlog.ingest.records.body import Body, headers_of, plain_body
from siltlog.ingest.records.plain import PlainRecords, Text, ends_of, keys_of, lengths_of
from siltlog.ingest.records.pointer import KeyPointer

_QUOTE, _NULL_FIRST = 0x22, 0x6E
_CANONICAL_TIME = np.frombuffer(b"0000-00-00T00:00:00.000000Z", np.uint8)
_decode_texts = msgspec.json.Decoder(list[str]).decode


class JsonHeader(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: str
    value: str | None = None
    value_base64: str | None = None


class JsonRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """`value` is the text of any JSON value, empty where there is none; `topic`, `offset` and `producer` are passed
    over."""

    value: msgspec.Raw = msgspec.Raw()
    value_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str | None] | list[JsonHeader] | None = None
    timestamp: int | str | None = None
    partition: int | None = None
    sequence: int | None = None
    topic: msgspec.Raw = msgspec.Raw()
    offset: msgspec.Raw = msgspec.Raw()
    producer: msgspec.Raw = msgspec.Raw()


class PlainRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record of nothing but a value and perhaps a key, as most are."""

    value: msgspec.Raw = msgspec.Raw()
    key: str | None = None


class _Irregular(Exception):
    """The body must be read record by record."""


def columns_of(records: Sequence[JsonRecord], key_from: KeyPointer | None) -> Body | None:
    """The columns of `records` (n at least 1); None where they are not regular."""
    try:
        return _columns(records, key_from)
    except (_Irregular, ValueError, OverflowError, pa.ArrowInvalid):
        return None


def plain_body_of(records: Sequence[PlainRecord], key_from: KeyPointer | None) -> Body | None:
    """Does what `columns_of` does for records of a value and a key alone: it looks at no other column."""
    try:
        return plain_body(_plain([record.value for record in records], [record.key for record in records], key_from))
    except (_Irregular, ValueError):
        return None


def _columns(records: Sequence[JsonRecord], key_from: KeyPointer | None) -> Body:
    for column in (
        [record.value_base64 for record in records],
        [record.key_base64 for record in records],
    ):
        if column.count(None) < len(records):
            raise _Irregular
    plain = _plain([record.value for record in records], [record.key for record in records], key_from)
    body = plain_body(plain, records_max=0)
    body.headers = _headers([record.headers for record in records])
    if body.headers is not None:
        body.nbytes += body.headers.nbytes
    body.timestamp = _timestamps([record.timestamp for record in records])
    body.partition = _partitions([record.partition for record in records])
    body.sequence = _sequences([record.sequence for record in records])
    return body


def _plain(raws: list[msgspec.Raw], keys: list[str | None], key_from: KeyPointer | None) -> PlainRecords:
    values, lengths, text = _values(raws)
    given = _keys(keys, raws, key_from)
    return PlainRecords(values, lengths, text, None if given is None else keys_of(given))


def _values(raws: list[msgspec.Raw]) -> tuple[Sequence[Text], npt.NDArray[np.int32], bytes]:
    """All strings, or none: a string's own text, of all else the text as sent; and their lengths, and all together."""
    lengths = lengths_of(raws)
    text = b"".join(raws)
    starts = ends_of(lengths)[:-1]
    if not lengths.all():
        raise _Irregular
    firsts = np.frombuffer(text, np.uint8)[starts]
    if (firsts == _NULL_FIRST).any():
        raise _Irregular
    strings = np.count_nonzero(firsts == _QUOTE)
    if strings == 0:
        return raws, lengths, text
    if strings < len(raws):
        raise _Irregular
    texts = [one.encode() for one in _decode_texts(b"".join((b"[", b",".join(raws), b"]")))]
    return texts, lengths_of(texts), b"".join(texts)


def _keys(
    keys: list[str | None], raws: list[msgspec.Raw], key_from: KeyPointer | None
) -> Sequence[str | bytes | None] | None:
    """None where no record has a key."""
    if key_from is None:
        return keys
    if keys.count(None) < len(keys):
        raise _Irregular
    return [key_from.key(raw) for raw in raws]


def _texts(texts: Sequence[str | None]) -> pa.Array:
    return pa.array(texts, pa.string()).cast(pa.binary())


def _headers(headers: list[Any]) -> pa.Array | None:
    """Makes the column of headers that are text only, all in one of the two shapes."""
    if not any(headers):
        return None
    counts = [len(one) if one else 0 for one in headers]
    given = [one for one in headers if one]
    shapes = set(map(type, given))
    if shapes == {dict}:
        names = [name for one in given for name in one]
        contents = [text for one in given for text in one.values()]
    elif shapes == {list}:
        entries: list[JsonHeader] = [entry for one in given for entry in one]
        if any(entry.value_base64 is not None for entry in entries):
            raise _Irregular
        names = [entry.key for entry in entries]
        contents = [entry.value for entry in entries]
    else:
        raise _Irregular
    return headers_of(counts, names, _texts(contents))


def _timestamps(timestamps: list[int | str | None]) -> pa.Array | None:
    missing = timestamps.count(None)
    if missing == len(timestamps):
        return None
    if missing:
        raise _Irregular
    if isinstance(timestamps[0], str):
        return _canonical_times(timestamps)
    if set(map(type, timestamps)) != {int}:
        raise _Irregular
    millis = _int64(timestamps)
    if int(millis.min()) < TIME_MIN_US // 1000 or int(millis.max()) > TIME_MAX_US // 1000:
        raise _Irregular
    return pa.array(millis * 1000).view(TIMESTAMP)


def _canonical_times(texts: list[Any]) -> pa.Array:
    """Parses times as this server writes them; Arrow's own parser would take forms that RFC 3339 has not."""
    width = len(_CANONICAL_TIME)
    if set(map(type, texts)) != {str} or set(map(len, texts)) != {width}:
        raise _Irregular
    joined = "".join(texts).encode("ascii")
    letters = np.frombuffer(joined, np.uint8).reshape(-1, width)
    punctuation = (ord("0") > _CANONICAL_TIME) | (ord("9") < _CANONICAL_TIME)
    digits = letters[:, ~punctuation]
    if (letters[:, punctuation] != _CANONICAL_TIME[punctuation]).any() or (
        (digits < ord("0")) | (digits > ord("9"))
    ).any():
        raise _Irregular
    # The year 0 is none.
    if (letters[:, :4] == ord("0")).all(axis=1).any():
        raise _Irregular
    return pa.array(texts, pa.string()).cast(TIMESTAMP)


def _partitions(partitions: list[int | None]) -> npt.NDArray[np.int32] | None:
    missing = partitions.count(None)
    if missing == len(partitions):
        return None
    given = _int64([-1 if number is None else number for number in partitions] if missing else partitions)
    if int(given.max()) > PARTITION_MAX or np.count_nonzero(given < 0) != missing:
        raise _Irregular
    return given.astype(np.int32)


def _sequences(sequences: list[int | None]) -> npt.NDArray[np.int64] | None:
    missing = sequences.count(None)
    if missing == len(sequences):
        return None
    if missing:
        raise _Irregular
    given = _int64(sequences)
    if int(given.min()) < 0 or int(given.max()) > INTEGER_MAX:
        raise _Irregular
    return given


def _int64(numbers: list[Any]) -> npt.NDArray[np.int64]:
    return np.array(numbers, np.int64)
