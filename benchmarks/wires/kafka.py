"""Kafka's protocol: produce requests of version 7, fetch requests of version 4, and batches of records of version 2.

The formats are those of the protocol guide in Kafka's documentation.
"""

import struct
import time
from collections.abc import Iterator, Sequence

import google_crc32c

from benchmarks.wires.wire import IsWhole, Wire

TOPIC = b"bench"
PRODUCE, FETCH, METADATA = 0, 1, 3
ACKS_OF_ALL = -1
TIMEOUT_MS = 30_000
FETCH_BYTES = 1024 * 1024
_CLIENT = b"load"
_ERROR_AT = 4 + 4 + 4 + 2 + len(TOPIC) + 4 + 4
"""Where the answer to a produce request of one partition has its error code."""
_BATCH_HEAD = struct.Struct(">qiibIhiqqqhii")


def produce(values: Sequence[bytes], partition: int) -> bytes:
    records = batch(values)
    body = _text(None) + struct.pack(">hii", ACKS_OF_ALL, TIMEOUT_MS, 1) + _text(TOPIC)
    return _request(PRODUCE, 7, body + struct.pack(">iii", 1, partition, len(records)) + records)


def fetch(partition: int, offset: int, wait_ms: int) -> bytes:
    body = struct.pack(">iiiibi", -1, wait_ms, 1, FETCH_BYTES, 0, 1) + _text(TOPIC)
    return _request(FETCH, 4, body + struct.pack(">iiqi", 1, partition, offset, FETCH_BYTES))


def metadata() -> bytes:
    """Asks for TOPIC, which makes it where brokers make topics by themselves."""
    return _request(METADATA, 1, struct.pack(">i", 1) + _text(TOPIC))


def batch(values: Sequence[bytes]) -> bytes:
    """Records without keys, all of this moment."""
    now_ms = time.time_ns() // 1_000_000
    records = b"".join(_record(number, value) for number, value in enumerate(values))
    last = len(values) - 1
    checked = struct.pack(">hiqqqhii", 0, last, now_ms, now_ms, -1, -1, -1, len(values)) + records
    head = struct.pack(">ibI", -1, 2, google_crc32c.value(checked))
    return struct.pack(">qi", 0, len(head) + len(checked)) + head + checked


def counts(records: bytes) -> Iterator[tuple[int, int]]:
    """Yields of each whole batch the offset after it, and how many records it has."""
    at = 0
    while at + _BATCH_HEAD.size <= len(records):
        base, length, _, _, _, _, last, *_, count = _BATCH_HEAD.unpack_from(records, at)
        if at + 12 + length > len(records):
            return
        yield base + last + 1, count
        at += 12 + length


def fetched(answer: bytes) -> bytes:
    """The batches in the answer to a fetch of one partition. Raises ValueError with Kafka's error code."""
    at = 4 + 4 + 4 + 4 + 2 + len(TOPIC) + 4 + 4
    (error,) = struct.unpack_from(">h", answer, at)
    if error:
        raise ValueError(f"Kafka answered a fetch with error {error}")
    at += 2 + 8 + 8
    (aborted,) = struct.unpack_from(">i", answer, at)
    at += 4 + max(0, aborted) * 16
    (size,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + size]


def frame_is_whole(data: bytes) -> bool:
    return len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4], "big")


def _replies(_: int) -> IsWhole:
    return _produced


def _produced(data: bytes) -> bool:
    if not frame_is_whole(data):
        return False
    (error,) = struct.unpack_from(">h", data, _ERROR_AT)
    if error:
        raise ValueError(f"Kafka answered a produce request with error {error}")
    return True


def _request(key: int, version: int, body: bytes) -> bytes:
    whole = struct.pack(">hhi", key, version, 1) + _text(_CLIENT) + body
    return struct.pack(">i", len(whole)) + whole


def _text(text: bytes | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text


def _record(number: int, value: bytes) -> bytes:
    body = b"\0" + _varint(0) + _varint(number) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    """Signed, as zigzag."""
    rest = number * 2 if number >= 0 else -number * 2 - 1
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


WIRE = Wire(_replies)
