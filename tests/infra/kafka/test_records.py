"""Columns become record batches: the same bytes by the loop and by Arrow, split where they must be."""

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_records import NOW_MS, columns_of, random_records, records_of

from siltlog.infra.columns import HEADERS, TIMESTAMP
from siltlog.infra.kafka.batch import HEAD, Rejected, check
from siltlog.infra.kafka.compression import CODECS, NO_CODEC
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.kafka.layout import layout
from siltlog.infra.kafka.records import FEW, GAP_MAX, control_marker, encode

pytestmark = pytest.mark.usefixtures("codec")
BYTES_MAX = 1_000_000


def heads_of(pieces: list[bytes | memoryview]) -> list[tuple[int, int, int]]:
    """First offset, last offset and rows of each batch."""
    heads = [HEAD.unpack(piece) for piece in pieces[::2]]
    assert [head[1] for head in heads] == [HEAD.size - 12 + len(piece) for piece in pieces[1::2]]
    return [(head[0], head[0] + head[6], head[-1]) for head in heads]


@given(st.integers(0, 2**32), st.integers(1, FEW + 40), st.booleans())
def test_what_is_encoded_is_read_again(seed: int, count: int, headers: bool) -> None:
    chance = random.Random(seed)
    records = random_records(chance, count, headers)
    skipped = chance.randrange(count)
    part = columns_of(records, list(range(7, 7 + count))).slice(skipped)
    head = check(b"".join(encode(part, -1)), BYTES_MAX)
    assert (head.base_offset, head.leader_epoch, head.rows) == (7 + skipped, -1, count - skipped)
    assert records_of(head.content.columns()) == records[skipped:]


@given(st.integers(0, 2**32), st.booleans())
def test_the_loop_and_arrow_give_the_same_bytes(seed: int, headers: bool) -> None:
    """Many records are encoded by Arrow, a few of them by the loop."""
    records = random_records(random.Random(seed), FEW + 5, headers)
    whole = columns_of(records, list(range(FEW + 5)))
    many = memoryview(encode(whole, 0)[1]).cast("B")
    few = memoryview(encode(whole.slice(0, FEW), 0)[1]).cast("B")
    assert few == many[: len(few)]


@given(
    st.integers(0, 2**32),
    st.integers(FEW + 1, 6 * FEW),
    st.sampled_from([None, 0, 3, 70]),
    st.sampled_from([None, 0, 1, 100, 9_000]),
    st.sampled_from([1, 90, 1 << 15]),
)
def test_records_of_one_size_have_the_bytes_of_the_loop(
    seed: int, count: int, key: int | None, value: int | None, gap: int
) -> None:
    """A gap after each record makes their numbers longer and longer; times go both ways, now and then."""
    chance = random.Random(seed)
    later = [chance.choice((0, -70, 5, 100_000)) for _ in range(0, count, 180)]
    records = [
        (
            NOW_MS + later[number // 180],
            None if key is None else chance.randbytes(key),
            None if value is None else chance.randbytes(value),
            (),
        )
        for number in range(count)
    ]
    part = columns_of(records, list(range(5, 5 + count * gap, gap))).slice(chance.randrange(3))
    tabled = encode(part, 0, BYTES_MAX * 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("siltlog.infra.kafka.records.FEW", count)
        looped = encode(part, 0, BYTES_MAX * 10)
    assert [bytes(piece) for piece in tabled] == [bytes(piece) for piece in looped]


def test_times_are_rounded_towards_the_past() -> None:
    for count in (1, 2 * FEW):
        times = pa.array([-1, 1_999] * count, pa.int64()).view(TIMESTAMP)
        part = columns_of([(0, None, b"v", ())] * 2 * count, list(range(2 * count)))
        part = part.set_column(2, "timestamp", times)
        head, records = encode(part, 0)
        assert HEAD.unpack(head)[7:9] == (-1, 1)
        assert layout(memoryview(records).cast("B"), 2 * count).timestamp_deltas.tolist() == [0, 2] * count


def test_a_batch_ends_before_a_large_gap_and_spans_small_ones() -> None:
    offsets = [0, 1, 1 + GAP_MAX, 2 + 2 * GAP_MAX, 10 + 2 * GAP_MAX, 2**50]
    pieces = encode(columns_of([(NOW_MS, b"k", b"v", ())] * 6, offsets), 0)
    assert heads_of(pieces) == [
        (0, 1 + GAP_MAX, 3),
        (2 + 2 * GAP_MAX, 10 + 2 * GAP_MAX, 2),
        (2**50, 2**50, 1),
    ]


def test_offsets_of_a_batch_are_numbers_of_32_bits() -> None:
    offsets = [at * GAP_MAX for at in range(5_000)]
    heads = heads_of(encode(columns_of([(NOW_MS, None, b"v", ())] * 5_000, offsets), 0, 10**9))
    assert [rows for *_, rows in heads] == [2_048, 2_048, 904]
    assert all(last - first < 2**31 for first, last, _ in heads)


@pytest.mark.parametrize("headers", [False, True])
def test_batches_have_about_so_many_bytes_or_one_record(headers: bool) -> None:
    records = random_records(random.Random(3), 300, headers)
    records[100] = (NOW_MS, b"k", bytes(50_000), ())
    pieces = encode(columns_of(records, list(range(300))), 0, 5_000)
    heads = heads_of(pieces)
    assert [first for first, *_ in heads] == [0, *(last + 1 for _, last, _ in heads)][:-1]
    assert (100, 100, 1) in heads
    sizes = [len(piece) for piece, (_, _, rows) in zip(pieces[1::2], heads, strict=True) if rows > 1]
    assert max(sizes) <= 5_000 < 50_000
    assert sum(sizes) / len(sizes) > 2_500
    assert heads_of(encode(columns_of(records, list(range(300))), 0, 1)) == [(at, at, 1) for at in range(300)]


def test_a_header_without_a_name_has_an_empty_one() -> None:
    for count in (1, 2 * FEW):
        part = columns_of([(NOW_MS, None, b"v", (("", b"x"),))] * count, list(range(count)))
        named = part.column("headers").to_pylist()
        nameless = pa.array([[{**header, "key": None} for header in headers] for headers in named], HEADERS)
        without = part.set_column(5, "headers", nameless)
        assert b"".join(encode(without, 0)) == b"".join(encode(part, 0))


@pytest.mark.rule("KF22")
@pytest.mark.parametrize("codec", sorted(CODECS))
def test_batches_are_compressed_where_that_takes_fewer_bytes(codec: int) -> None:
    for count in (1, 5, FEW + 100):
        records = [(NOW_MS, b"key", b"a value like others %d" % number, ()) for number in range(count)]
        plain = b"".join(encode(columns_of(records, list(range(count))), -1))
        data = b"".join(encode(columns_of(records, list(range(count))), -1, codec=codec))
        head = check(data, BYTES_MAX)
        assert records_of(head.content.columns()) == records
        assert (head.codec == codec and (len(data) < len(plain) or codec == NO_CODEC)) or data == plain
        assert count < 5 or head.codec == codec
    noise = [(NOW_MS, None, random.Random(1).randbytes(1_000), ())]
    assert check(b"".join(encode(columns_of(noise, [0]), -1, codec=codec)), BYTES_MAX).codec == NO_CODEC


def test_no_records_are_no_batch() -> None:
    assert encode(columns_of([], []), 0) == []


def test_a_marker_is_one_control_record_that_no_producer_may_send() -> None:
    marker = control_marker(2**40, 6, NOW_MS)
    fields = HEAD.unpack_from(marker)
    assert (fields[0], fields[2], fields[6], fields[7], fields[-1]) == (2**40, 6, 0, NOW_MS, 1)
    with pytest.raises(Rejected) as caught:
        check(marker, BYTES_MAX)
    assert caught.value.code == KafkaError.INVALID_RECORD
