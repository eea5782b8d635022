"""The native codec against numpy: the same columns, lists and bytes, and nothing is taken that numpy refuses."""

import random
from typing import Any

import pyarrow as pa
import pytest
from chaos import seeds
from hypothesis import given
from hypothesis import strategies as st
from kafka_oracle import Record
from kafka_records import NOW_MS, batch_of, columns_of, random_records

from siltlog.infra.kafka import native
from siltlog.infra.kafka.batch import TIME_MAX_MS, Rejected, located
from siltlog.infra.kafka.columns import Content
from siltlog.infra.kafka.layout import HEADERS_MAX
from siltlog.infra.kafka.native import checked
from siltlog.infra.kafka.records import GAP_MAX, encode

pytestmark = pytest.mark.skipif(not native.IS_NATIVE, reason="siltlog-native is not installed: make native")

BYTES_MAX = 1 << 30
WITHOUT_LOCK = 3_000
"""So many records are read and made without the interpreter's lock."""
ODD_BYTES = (0, 1, 0x7F, 0x80, 0xFF)


def by_numpy(columns: pa.RecordBatch, bytes_max: int = BYTES_MAX) -> list[bytes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_native", None)
        return [bytes(piece) for piece in encode(columns, -1, bytes_max)]


def records_as_bytes(records: list[Record]) -> bytes:
    [_, found] = by_numpy(columns_of(records, list(range(len(records)))))
    return found


def assert_both_find(data: bytes, rows: int, base_ms: int = NOW_MS) -> Content | None:
    """The same content by both; None where both refuse it."""
    found = checked(memoryview(data), rows, base_ms, TIME_MAX_MS)
    try:
        expected = located(memoryview(data), rows, base_ms)
    except Rejected:
        assert found is None
        return None
    assert found is not None
    columns, same = batch_of(found.columns()), batch_of(expected.columns())
    columns.validate(full=True)
    assert columns.equals(same)
    assert [column.null_count for column in columns] == [column.null_count for column in same]
    assert [each is None for each in found.columns()] == [each is None for each in expected.columns()]
    assert found.columns().time_bounds == expected.columns().time_bounds
    assert found.lists() == expected.lists()
    return found


def mutated(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(changed))
        changed[at] = chance.choice((*ODD_BYTES, changed[at] ^ 1 << chance.randrange(8)))
    return bytes(changed)


@pytest.mark.rule("KF28")
@given(st.integers(0, 2**32), st.integers(1, 60), st.booleans())
def test_both_find_the_same_records(seed: int, count: int, headers: bool) -> None:
    records = random_records(random.Random(seed), count, headers)
    assert assert_both_find(records_as_bytes(records), count, records[0][0]) is not None


@pytest.mark.parametrize("missing", ["times", "keys", "values", "nothing"])
def test_what_all_records_lack_is_null(missing: str) -> None:
    key, value = (None if missing == part else b"some" for part in ("keys", "values"))
    data = records_as_bytes([(NOW_MS, key, value, ())] * 40)
    assert assert_both_find(data, 40, -1 if missing == "times" else NOW_MS) is not None


def test_some_records_lack_what_others_have() -> None:
    records: list[Record] = [
        (0, None, b"", ()), (1, b"", None, (("", None),)),
        (0, b"k", b"v", (("n", b"x"), ("m", b""))), (5, None, None, ()),
    ]  # fmt: skip
    for base_ms in (-1, 0, TIME_MAX_MS - 5):
        assert assert_both_find(records_as_bytes(records * 9), 36, base_ms) is not None


def test_many_records_are_found_without_the_lock() -> None:
    chance = random.Random(7)
    records = random_records(chance, WITHOUT_LOCK)
    data = records_as_bytes(records)
    assert len(data) > 128 * 1024
    assert assert_both_find(data, WITHOUT_LOCK, records[0][0]) is not None
    for _ in range(20):
        assert_both_find(mutated(chance, data), WITHOUT_LOCK, records[0][0])


@pytest.mark.rule("KF28")
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_what_numpy_refuses_is_not_taken(seed: int, count: int) -> None:
    chance = random.Random(seed)
    records = random_records(chance, count)
    data = records_as_bytes(records)
    assert_both_find(mutated(chance, data), count, records[0][0])
    assert_both_find(data[: chance.randrange(len(data))], count, records[0][0])
    assert_both_find(data + bytes(chance.randint(1, 9)), count, records[0][0])
    assert_both_find(data, count + chance.choice((-1, 1, 2**31 - 1 - count)) or 1, records[0][0])


@pytest.mark.chaos
def test_whatever_comes_is_refused_or_found() -> None:
    """Bytes of which most are those that numbers of variable length, nulls and lengths are made of."""
    for seed in seeds(2_000):
        chance = random.Random(seed)
        data = bytes(chance.choice((*ODD_BYTES, chance.randrange(32))) for _ in range(chance.randint(0, 60)))
        assert_both_find(data, chance.choice((1, 2, 3, 30)), chance.choice((-1, NOW_MS, -2, TIME_MAX_MS, 2**63 - 1)))
        length = 2 * chance.randint(6, 20)
        body = bytes(chance.choice((0, 0, 1, 1, 2, 4, 0x80)) for _ in range(length // 2))
        assert_both_find(bytes((length,)) + body, 1)


@pytest.mark.parametrize("base_ms", [-2, TIME_MAX_MS + 1, 2**63 - 1, -(2**63)])
def test_a_time_that_no_column_takes_is_refused(base_ms: int) -> None:
    assert assert_both_find(records_as_bytes([(NOW_MS, b"k", b"v", ())] * 3), 3, base_ms) is None


def test_a_record_has_so_many_headers() -> None:
    for headers in (HEADERS_MAX, HEADERS_MAX + 1):
        data = records_as_bytes([(NOW_MS, None, b"v", (("", None),) * headers)] * 2)
        assert (assert_both_find(data, 2) is not None) == (headers == HEADERS_MAX)


def test_memory_that_may_change_is_left_to_numpy() -> None:
    data = records_as_bytes([(NOW_MS, b"k", b"v", ())])
    assert checked(memoryview(bytearray(data)), 1, NOW_MS, TIME_MAX_MS) is None


def test_columns_outlive_what_they_were_read_from() -> None:
    found = checked(memoryview(records_as_bytes([(NOW_MS, b"key", b"value", ())] * 50)), 50, NOW_MS, TIME_MAX_MS)
    assert found is not None
    assert found.columns().value.to_pylist() == [b"value"] * 50


@pytest.mark.rule("KF28")
@given(st.integers(0, 2**32), st.integers(1, 150), st.booleans(), st.sampled_from([1, 900, 5_000, BYTES_MAX]))
def test_both_make_the_same_batches(seed: int, count: int, headers: bool, bytes_max: int) -> None:
    chance = random.Random(seed)
    gaps = (1, 1, 1, 1, 70, GAP_MAX, GAP_MAX + 1, 2**31)
    offsets = [chance.randrange(2**40)]
    while len(offsets) < count:
        offsets.append(offsets[-1] + chance.choice(gaps))
    part = columns_of(random_records(chance, count, headers), offsets).slice(chance.randrange(count))
    assert [bytes(piece) for piece in encode(part, -1, bytes_max)] == by_numpy(part, bytes_max)


def test_both_make_the_same_batches_of_many_records() -> None:
    records = random_records(random.Random(5), WITHOUT_LOCK)
    part = columns_of(records, list(range(WITHOUT_LOCK))).slice(3)
    for bytes_max in (1 << 17, BYTES_MAX):
        assert [bytes(piece) for piece in encode(part, -1, bytes_max)] == by_numpy(part, bytes_max)


def test_what_comes_out_of_the_log_is_made_as_numpy_makes_it() -> None:
    """Parts of columns, joined, with offsets that Arrow did not allocate."""
    records = random_records(random.Random(9), 90)
    whole = columns_of(records, list(range(90)))
    for part in (whole.slice(8, 70), pa.concat_batches([whole.slice(0, 9), whole.slice(20, 50)]), whole.slice(31, 1)):
        assert [bytes(piece) for piece in encode(part, -1)] == by_numpy(part)


WRONG: list[tuple[str, Any]] = [
    ("value", (0, None, pa.py_buffer(bytes(8)), None)),
    ("value", (1, None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"ab"))),
    ("value", (2**63, None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"ab"))),
    ("value", (0, None, pa.array([0, 1, 3], pa.int32()).buffers()[1], pa.py_buffer(b"ab"))),
    ("value", (0, None, pa.array([0, -1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"ab"))),
    ("value", (0, None, pa.array([2, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"ab"))),
    ("value", (0, pa.py_buffer(b""), pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"ab"))),
    ("offset", (0, None, None, None)),
    ("offset", (0, None, None, pa.array([2**63 - 1, -(2**63)], pa.int64()).buffers()[1])),
    ("timestamp", (0, None, None, pa.py_buffer(bytes(15)))),
    ("headers", (0, None, pa.array([0, 1, 2**31 - 1], pa.int32()).buffers()[1], None)),
]


@pytest.mark.parametrize(("column", "buffers"), WRONG)
def test_buffers_that_are_no_columns_are_refused(column: str, buffers: Any) -> None:
    import siltlog_native

    numbers = (0, None, None, pa.array([0, 1], pa.int64()).buffers()[1])
    none = (0, None, None, None)
    given = {
        "offset": numbers,
        "timestamp": numbers,
        **dict.fromkeys(("key", "value", "headers", "name", "content"), none),
    }
    some = siltlog_native.Columns(2, *given.values())
    assert some.cuts(100, GAP_MAX, 2**31 - 1) == [2]
    assert some.records(0, 2)[1] == 0
    ends = (0, None, pa.array(range(9), pa.int32()).buffers()[1], pa.py_buffer(b"headers."))
    if column == "headers":
        given |= {"name": ends, "content": ends}
    wrong = siltlog_native.Columns(2, *{**given, column: buffers}.values())
    with pytest.raises(ValueError, match="no columns"):
        wrong.records(0, 2)


@pytest.mark.parametrize("rows", [(0, 0), (1, 1), (1, 0), (0, 3), (2**40, 2**41)])
def test_rows_that_are_not_there_are_refused(rows: tuple[int, int]) -> None:
    part = native.native_columns(columns_of([(NOW_MS, b"k", b"v", ())] * 2, [0, 1]))
    assert part is not None
    with pytest.raises(ValueError, match="no columns"):
        part.records(*rows)
