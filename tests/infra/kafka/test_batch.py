"""What a producer's batch is refused for, and with which code."""

import random
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_oracle import Record
from kafka_records import NOW_MS, batch_of, columns_of, random_records, records_of

from siltlog.infra.clock import TIME_MAX_US
from siltlog.infra.kafka.batch import CRC_START, HEAD, Rejected, check
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.kafka.records import encode

pytestmark = pytest.mark.usefixtures("codec")
INFLATED_BYTES_MAX = 1_000_000
NAMES = (
    "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_delta", "base_ms", "max_ms",
    "producer_id", "producer_epoch", "first_sequence", "rows",
)  # fmt: skip


def encoded(records: list[Record]) -> bytes:
    return b"".join(encode(columns_of(records, list(range(len(records)))), 3))


def changed(raw: bytes, records: bytes | None = None, **members: Any) -> bytes:
    """The batch with other members of its head, or other bytes of records, and the length and checksum of those."""
    body = raw[HEAD.size :] if records is None else records
    head = dict(zip(NAMES, HEAD.unpack_from(raw), strict=True))
    head = {**head, "length": HEAD.size - 12 + len(body), **members}
    unsigned = HEAD.pack(*head.values()) + body
    return HEAD.pack(*{**head, "crc": google_crc32c.value(unsigned[CRC_START:])}.values()) + body


ONE = encoded([(NOW_MS, b"key", b"value", (("name", b"x"),))])
MANY = encoded([(NOW_MS, b"key", b"value", ())] * 100)


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_records_become_columns(seed: int, count: int) -> None:
    records = random_records(random.Random(seed), count)
    found = check(encoded(records), INFLATED_BYTES_MAX).content.columns()
    assert records_of(found) == records
    batch = batch_of(found)
    batch.validate(full=True)
    assert batch.column("headers").null_count == sum(not headers for *_, headers in records)


def test_the_head_is_told() -> None:
    raw = changed(ONE, producer_id=2**62, producer_epoch=3, first_sequence=2**31 - 1, base_offset=9)
    head = check(raw, INFLATED_BYTES_MAX)
    assert (head.producer_id, head.producer_epoch, head.first_sequence, head.rows) == (2**62, 3, 2**31 - 1, 1)
    assert (head.base_offset, head.leader_epoch, head.codec) == (9, 3, 0)
    assert (head.base_timestamp_ms, head.max_timestamp_ms) == (NOW_MS, NOW_MS)


@pytest.mark.parametrize("of", [bytes, bytearray, memoryview, pa.py_buffer])
def test_any_buffer_is_taken(of: Any) -> None:
    assert check(of(ONE), INFLATED_BYTES_MAX).content.columns().value.to_pylist() == [b"value"]


@pytest.mark.parametrize(
    ("raw", "code", "text"),
    [
        (b"", KafkaError.CORRUPT_MESSAGE, "0 bytes are no record batch"),
        (ONE[:60], KafkaError.CORRUPT_MESSAGE, "60 bytes are no record batch"),
        (ONE[:-1], KafkaError.CORRUPT_MESSAGE, "bytes, and"),
        (ONE + b"\0", KafkaError.INVALID_RECORD, "one record batch, and there are more"),
        (changed(ONE, length=-(2**31)), KafkaError.CORRUPT_MESSAGE, "bytes, and"),
        (ONE[:-1] + b"\xff", KafkaError.CORRUPT_MESSAGE, "does not have its checksum"),
        (changed(ONE, magic=1), KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, "has format 1"),
        (changed(ONE, attributes=5), KafkaError.UNSUPPORTED_COMPRESSION_TYPE, "compression 5 is not known"),
        (changed(ONE, attributes=1), KafkaError.INVALID_RECORD, "its records are not gzip"),
        (changed(ONE, attributes=16), KafkaError.INVALID_RECORD, "transactions are not taken"),
        (changed(ONE, attributes=32), KafkaError.INVALID_RECORD, "transactions are not taken"),
        (changed(ONE, attributes=8), KafkaError.INVALID_TIMESTAMP, "times are those of the append"),
        (changed(ONE, rows=0), KafkaError.INVALID_RECORD, "has 0 records"),
        (changed(ONE, rows=2), KafkaError.INVALID_RECORD, "has 2 records, and 0"),
        (changed(ONE, rows=2**31 - 1, last_delta=2**31 - 2), KafkaError.INVALID_RECORD, "records do not fit into"),
        (changed(MANY, rows=-1, last_delta=-2), KafkaError.INVALID_RECORD, "has -1 records"),
        (changed(ONE, producer_id=5), KafkaError.INVALID_RECORD, "producer 5 gives -1 as its epoch"),
        (changed(ONE, producer_id=5, producer_epoch=0), KafkaError.INVALID_RECORD, "and -1 as its sequence"),
        (changed(ONE, producer_id=-2), KafkaError.INVALID_RECORD, "producer -2"),
        (changed(ONE, base_ms=-2), KafkaError.INVALID_TIMESTAMP, "the time -2 ms"),
        (changed(ONE, base_ms=2**62), KafkaError.INVALID_TIMESTAMP, "the time 4611686018427387904 ms"),
    ],
)
def test_a_batch_is_refused_with_its_code(raw: bytes, code: KafkaError, text: str) -> None:
    with pytest.raises(Rejected, match=text) as caught:
        check(raw, INFLATED_BYTES_MAX)
    assert caught.value.code == code


def test_what_inflates_to_too_much_is_too_large() -> None:
    raw = encoded([(NOW_MS, None, bytes(10_000), ())])
    packed = pa.compress(raw[HEAD.size :], "gzip", asbytes=True)
    assert check(changed(raw, packed, attributes=1), 20_000).rows == 1
    with pytest.raises(Rejected) as caught:
        check(changed(raw, packed, attributes=1), 5_000)
    assert caught.value.code == KafkaError.MESSAGE_TOO_LARGE


def test_the_wrong_record_is_named() -> None:
    for count in (3, 60):
        records: list[Record] = [(NOW_MS, b"k", b"v", (("name", b"x"), ("n\0me", b"y")))] * count
        raw = encoded(records)
        at = raw.rindex(b"n\0me")
        with pytest.raises(Rejected, match="the name of a header is not UTF-8") as caught:
            check(changed(raw, raw[HEAD.size : at] + b"\xff" + raw[at + 1 :]), INFLATED_BYTES_MAX)
        assert (caught.value.code, caught.value.index) == (KafkaError.INVALID_RECORD, count - 1)


def test_a_time_that_no_column_takes_is_named_with_its_record() -> None:
    late = TIME_MAX_US // 1000
    for count in (3, 60):
        raw = encoded([*[(late - 5, b"k", b"v", ())] * (count - 1), (late, b"k", b"v", ())])
        assert check(raw, INFLATED_BYTES_MAX).max_timestamp_ms == late
        with pytest.raises(Rejected, match=f"record {count - 1}: its time, {late + 1} ms") as caught:
            check(changed(raw, base_ms=late - 4), INFLATED_BYTES_MAX)
        assert (caught.value.code, caught.value.index) == (KafkaError.INVALID_TIMESTAMP, count - 1)


def test_a_time_of_minus_one_is_none() -> None:
    for count in (1, 50):
        raw = encoded([(0, b"k", b"v", ())] * count)
        assert check(changed(raw, base_ms=-1), INFLATED_BYTES_MAX).content.columns().timestamp is None
    raw = encoded([(0, b"k", b"v", ()), (5, b"k", b"v", ())])
    times = check(changed(raw, base_ms=-1), INFLATED_BYTES_MAX).content.columns().timestamp
    assert times is not None
    assert times.view(pa.int64()).to_pylist() == [None, 4_000]


def test_neither_key_nor_value_is_taken() -> None:
    assert records_of(check(encoded([(NOW_MS, None, None, ())]), INFLATED_BYTES_MAX).content.columns()) == [
        (NOW_MS, None, None, ())
    ]


@given(st.integers(0, 2**32), st.integers(1, 50))
def test_mutated_batches_are_refused_or_become_columns(seed: int, count: int) -> None:
    """Their checksum is right: somebody made it for them."""
    chance = random.Random(seed)
    raw = encoded(random_records(chance, count))
    data = bytearray(raw)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(CRC_START, len(data))
        data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << chance.randrange(8)))
    data[17:21] = google_crc32c.value(bytes(data[CRC_START:])).to_bytes(4, "big")
    try:
        head = check(data, INFLATED_BYTES_MAX)
    except Rejected as error:
        assert str(error)
        return
    found = head.content.columns()
    batch = batch_of(found)
    batch.validate(full=True)
    assert batch.num_rows == head.rows
