"""Where a batch's records are: numpy finds what the loop finds, and both refuse the same."""

import random
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_oracle import Record
from kafka_records import NOW_MS, columns_of, random_records

from siltlog.infra.kafka.batch import HEAD
from siltlog.infra.kafka.layout import HEADERS_MAX, Layout, by_loop, by_numpy, gathered, layout
from siltlog.infra.kafka.records import encode
from siltlog.infra.kafka.wire import Malformed


def encoded(chance: random.Random, count: int) -> memoryview:
    head, records = encode(columns_of(random_records(chance, count), list(range(count))), 0)
    assert len(head) == HEAD.size
    return memoryview(records).cast("B")


def found_by(find: object, records: memoryview, count: int) -> Layout | str:
    assert callable(find)
    try:
        found: Layout = find(records, count)
    except Malformed as error:
        return error.where
    return found


def assert_same(records: memoryview, count: int) -> None:
    one, other = found_by(by_loop, records, count), found_by(by_numpy, records, count)
    if isinstance(one, str) or isinstance(other, str):
        assert isinstance(one, str), other
        assert isinstance(other, str), one
        return
    for field in fields(Layout):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), field.name)


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_numpy_finds_what_the_loop_finds(seed: int, count: int) -> None:
    assert_same(encoded(random.Random(seed), count), count)


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_numpy_refuses_what_the_loop_refuses(seed: int, count: int) -> None:
    chance = random.Random(seed)
    data = bytearray(encoded(chance, count))
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data))
        data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << chance.randrange(8)))
    assert_same(memoryview(data), count)
    assert_same(memoryview(data)[: chance.randrange(len(data))], count)


def in_runs(chance: random.Random) -> tuple[memoryview, int]:
    """Records of which many in a row are of one size, and how many they are."""
    sizes = [chance.choice((0, 9, 60, 140, 20_000)) for _ in range(chance.randint(1, 8))]
    values = [bytes(size) for size in sizes for _ in range(chance.choice((1, 7, 9, 10, 40, 300)))]
    records: list[Record] = [(NOW_MS + n, None, value, ()) for n, value in enumerate(values)]
    _, data = encode(columns_of(records, list(range(len(values)))), 0, bytes_max=1 << 30)
    return memoryview(data).cast("B"), len(values)


@given(st.integers(0, 2**32))
@settings(deadline=None)
def test_numpy_finds_records_of_one_size(seed: int) -> None:
    chance = random.Random(seed)
    records, count = in_runs(chance)
    assert_same(records, count)
    assert_same(records, count + chance.choice((-1, 1)))
    data = bytearray(records)
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    assert_same(memoryview(data), count)
    assert_same(records[: chance.randrange(len(records))], count)


@pytest.mark.parametrize("find", [by_loop, by_numpy])
@pytest.mark.parametrize(
    ("record", "text"),
    [
        (b"\x0c\0\0\0\x01\x01\0\0", "1 bytes follow the records"),
        (b"\x0c\0\0\x02\x01\x01\0", "record 0: its offset is"),
        (b"\x0c\0\0\0\x03\x01\0", "record 0: its key"),
        (b"\x0c\0\0\0\x01\x7f\0", "record 0: its value"),
        (b"\x0c\0\0\0\x01\x01\x01", "record 0: it"),
        (b"\x10\0\0\0\x01\x01\x02\x01\0", "record 0: the name of a header is null"),
        (b"\x10\0\0\0\x01\x01\x02\0\x06", "record 0: its value of a header"),
        (b"\x10\0\0\0\x01\x01\0\0\0", "record 0: it ends"),
        (b"\x7f\0\0\0\x01\x01\0\0\0", "record 0: it has -64 bytes"),
        (b"\x80\x01\0\0\0\x01\x01\0", "record 0: it has 64 bytes, and 6 are left"),
        (b"\x0e\0\0\xff\xff\xff\xff\xff", "record 0"),
        (b"\x1c\0" + b"\xff" * 11 + b"\x01\0", "record 0: a number of variable length has more than 10 bytes"),
        (b"\x14\0\0\xff\xff\xff\xff\x7f\x01\x01\0", "record 0: a number of variable length is above 32 bits"),
    ],
)
def test_what_is_wrong_is_told_with_the_record(find: object, record: bytes, text: str) -> None:
    assert callable(find)
    with pytest.raises(Malformed) as caught:
        find(memoryview(record), 1)
    assert str(caught.value).startswith(text)


def test_a_count_takes_no_memory() -> None:
    with pytest.raises(Malformed, match="2147483647 records do not fit into 14 bytes"):
        layout(memoryview(bytes(14)), 2**31 - 1)


@pytest.mark.parametrize("count", [2, 30])
def test_a_record_has_so_many_headers(count: int) -> None:
    for headers, taken in ((HEADERS_MAX, True), (HEADERS_MAX + 1, False)):
        records = [(0, None, b"v", ())] * (count - 1) + [(0, None, b"v", (("", None),) * headers)]
        data = memoryview(encode(columns_of(records, list(range(count))), 0)[1]).cast("B")
        assert_same(data, count)
        found = found_by(layout, data, count)
        assert found.header_counts[-1] == headers if isinstance(found, Layout) else found == f"record {count - 1}"
        assert isinstance(found, Layout) == taken


def test_numpy_names_the_record_whose_header_is_wrong() -> None:
    record = (0, None, b"v", (("n", b"value"),))
    data = bytearray(encode(columns_of([*[(0, None, b"v", ())] * 58, record, record], list(range(60))), 0)[1])
    assert data[-8:] == b"\x02n\x0avalue"
    for place, wrong in ((-8, b"\x01"), (-8, b"\x3c"), (-6, b"\x3c"), (-6, b"\xff" * 5)):
        changed = data.copy()
        changed[len(data) + place : len(data) + place + len(wrong)] = wrong
        assert found_by(by_numpy, memoryview(changed), 60) == found_by(by_loop, memoryview(changed), 60) == "record 59"


@given(st.lists(st.none() | st.binary(max_size=9), max_size=60))
def test_bytes_are_gathered(values: list[bytes | None]) -> None:
    data = b"".join(b"--" + (value or b"") for value in values)
    lengths = np.array([len(value or b"") for value in values], np.int64)
    starts = np.cumsum(lengths + 2) - lengths
    nulls = np.array([value is None for value in values], np.bool_)
    bounds = np.stack([starts, starts + lengths], axis=1)
    assert gathered(memoryview(data), bounds, nulls).to_pylist() == values
    assert gathered(memoryview(data), bounds, None).to_pylist() == [value or b"" for value in values]
