"""Arrow bodies: every type a publisher may use gives the same records; damage and bombs are refused, never a crash."""

import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.infra.clock import TIME_MAX_US, TIME_MIN_US
from siltlog.infra.columns import HEADERS, TIMESTAMP
from siltlog.infra.errors import Refused
from siltlog.ingest.records.arrow import parse_arrow
from siltlog.ingest.records.arrow_messages import inflated_bytes
from siltlog.ingest.records.body import RECORDS_MAX, Body

LIMIT = 1 << 20
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
BYTES_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int16(), pa.binary())]
LIST_TYPES = [
    HEADERS,
    pa.large_list(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])),
]
CODECS = [None, "lz4", "zstd"]


def stream(*batches: pa.RecordBatch, codec: str | None = None, schema: pa.Schema | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec, allow_64bit=True)
    with pa.ipc.new_stream(sink, schema or batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def of(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(columns)


def listed(column: pa.Array | None, count: int) -> list[Any]:
    return [None] * count if column is None else column.to_pylist()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_type_gives_the_same_records(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    textual = data.draw(st.booleans())
    contents = TEXT.map(str.encode) if textual else st.binary(max_size=30)
    keys = data.draw(st.lists(st.none() | contents, min_size=count, max_size=count))
    values = [data.draw(contents if key is None else st.none() | contents) for key in keys]
    header = st.fixed_dictionaries({"key": TEXT, "value": st.none() | st.binary(max_size=5)})
    headers = data.draw(st.lists(st.none() | st.lists(header, max_size=3), min_size=count, max_size=count))
    times = st.none() | st.integers(TIME_MIN_US // 1000, TIME_MAX_US // 1000)
    millis = data.draw(st.lists(times, min_size=count, max_size=count))
    partitions = data.draw(st.lists(st.none() | st.integers(0, 300), min_size=count, max_size=count))
    types = TEXT_TYPES if textual else BYTES_TYPES
    time_type = data.draw(st.sampled_from([pa.int64(), pa.timestamp("ms"), pa.timestamp("us", "Asia/Tokyo")]))
    columns = {
        "value": _typed(values, data.draw(st.sampled_from(types)), textual),
        "key": _typed(keys, data.draw(st.sampled_from(types)), textual),
        "headers": pa.array(headers, data.draw(st.sampled_from(LIST_TYPES))),
        "timestamp": pa.array(millis, pa.int64()).cast(pa.timestamp("ms")).cast(time_type),
        "partition": pa.array(partitions, data.draw(st.sampled_from([pa.int16(), pa.int64(), pa.uint64()]))),
        "offset": pa.array(range(count)),
    }
    batch = pa.record_batch(columns)
    cut = data.draw(st.integers(0, count))
    batches = [part for part in (batch.slice(0, cut), batch.slice(cut)) if part.num_rows]
    body = parse_arrow(stream(*batches, codec=data.draw(st.sampled_from(CODECS))), LIMIT)
    assert body.count == count
    assert listed(body.value, count) == values
    assert listed(body.key, count) == keys
    assert listed(body.headers, count) == [header or None for header in headers]
    micros = None if body.timestamp is None else body.timestamp.cast(pa.int64())
    assert listed(micros, count) == [None if ms is None else ms * 1000 for ms in millis]
    wanted = [-1 if partition is None else partition for partition in partitions]
    assert wanted == ([-1] * count if body.partition is None else body.partition.tolist())
    _check_types(body)


def _typed(values: list[bytes | None], type_: pa.DataType, textual: bool) -> pa.Array:
    decoded = [value.decode() if textual and value is not None else value for value in values]
    return pa.array(decoded, type_)


def _check_types(body: Body) -> None:
    wanted = (body.value, pa.binary()), (body.key, pa.binary()), (body.headers, HEADERS), (body.timestamp, TIMESTAMP)
    for column, type_ in wanted:
        if column is not None:
            column.validate(full=True)
            assert column.type == type_
    assert not body.positions


def test_columns_are_sliced_and_nothing_else_of_their_buffers_is_kept() -> None:
    """A slice of a large column, and what lies below a null list, are not part of the body."""
    child = pa.StructArray.from_arrays([pa.array(["a", None, "b"]), pa.array([b"1", b"2", b"3"])], ["key", "value"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), child, mask=pa.array([False, True, False]))
    body = parse_arrow(stream(of(value=pa.array(["x", "y", "z"]), headers=lists).slice(1)), LIMIT)
    assert listed(body.headers, 2) == [None, [{"key": "b", "value": b"3"}]]
    assert body.nbytes < 100


def refusal(body: bytes, limit: int = LIMIT) -> Refused:
    with pytest.raises(Refused) as caught:
        parse_arrow(body, limit)
    return caught.value


TWO = pa.array(["a", "b"])
BEYOND = [("s", TIME_MAX_US // 1_000_000 + 1), ("ms", TIME_MIN_US // 1_000 - 1), ("us", 2**62), ("s", 2**62)]


@pytest.mark.parametrize(
    ("columns", "code", "words", "index"),
    [
        ({"value": pa.array(["a", None])}, "invalid_record", "tombstone", 1),
        ({"value": pa.array([None, None], pa.null())}, "invalid_record", "tombstone", 0),
        ({"value": pa.array([None] * 2, pa.null()), "key": pa.array(["k", None])}, "invalid_record", "tombstone", 1),
        ({"value": pa.array([1, 2])}, "invalid_request", "binary or string", None),
        ({"value": TWO, "key": pa.array([1.5, 2])}, "invalid_request", "column key must be", None),
        ({"key": TWO}, "invalid_request", "has the column value", None),
        ({"value": TWO, "valeu": TWO}, "invalid_request", "valeu", None),
        ({"value": TWO, "headers": TWO}, "invalid_request", "list of structs", None),
        (
            {"value": TWO, "headers": pa.array([[{"key": "a"}], None], pa.list_(pa.struct([("key", pa.string())])))},
            "invalid_request",
            "list of structs",
            None,
        ),
        ({"value": TWO, "headers": pa.array([[], [{"key": None}]], HEADERS)}, "invalid_record", "without a key", 1),
        ({"value": TWO, "headers": pa.array([[], [None]], HEADERS)}, "invalid_record", "without a key", 1),
        ({"value": TWO, "timestamp": pa.array([1.5, 2])}, "invalid_request", "timestamp must be", None),
        ({"value": TWO, "timestamp": pa.array([0, 2**64 - 5], pa.uint64())}, "invalid_record", "years 1 to 9999", 1),
        *(
            ({"value": TWO, "timestamp": pa.array([0, n], pa.timestamp(u))}, "invalid_record", "years 1 to 9999", 1)
            for u, n in BEYOND
        ),
        ({"value": TWO, "partition": TWO}, "invalid_request", "partition must be an integer", None),
        ({"value": TWO, "partition": pa.array([0, -1])}, "invalid_record", "partition must be from 0", 1),
        ({"value": TWO, "partition": pa.array([0, 2**31])}, "invalid_record", "partition must be from 0", 1),
        ({"value": TWO, "sequence": pa.array([0, None])}, "invalid_record", "no sequence", 1),
        ({"value": TWO, "sequence": pa.array([0, 2**53])}, "invalid_record", "sequence must be from 0", 1),
        ({"value": TWO, "sequence": pa.array([0, 2**64 - 1], pa.uint64())}, "invalid_record", "must be from 0", 1),
    ],
)
def test_what_does_not_fit_is_named(columns: dict[str, pa.Array], code: str, words: str, index: int | None) -> None:
    error = refusal(stream(pa.record_batch(columns)))
    assert (error.error_code, error.members.get("index")) == (code, index)
    assert words in error.detail


def test_nothing_at_all() -> None:
    assert refusal(stream(schema=pa.schema([("value", pa.string())]))).error_code == "invalid_request"
    for junk in (b"", b"{}", b"hello, this is no Arrow stream", b"\xff" * 64):
        error = refusal(junk)
        assert (error.error_code, error.members["byte"]) == ("malformed_body", 0)
    doubled = pa.RecordBatch.from_arrays([TWO, TWO], ["value", "value"])
    assert "each once" in refusal(stream(doubled)).detail


def test_text_that_is_not_utf8() -> None:
    broken = pa.array([b"ok", b"\xff"]).view(pa.string())
    error = refusal(stream(of(value=broken)))
    assert (error.error_code, "UTF8" in error.detail.upper().replace("-", "")) == ("malformed_body", True)


def test_the_byte_is_that_of_the_damaged_message() -> None:
    first, second = of(value=pa.array(["a"] * 100)), of(value=pa.array([b"ok", b"\xff"]).view(pa.string()))
    start = len(stream(first)) - 8
    assert refusal(stream(first, second)).members["byte"] == start
    torn = stream(first, first)
    assert refusal(torn[: start + 40]).members["byte"] == start


NESTED = pa.list_(pa.struct([("a", pa.list_(pa.int8()))]))


@pytest.mark.rule("B4")
@pytest.mark.parametrize(
    "type_",
    [
        NESTED,
        pa.struct([("a", pa.string())]),
        pa.map_(pa.string(), pa.string()),
        pa.list_view(pa.int8()),
        pa.list_(pa.int8(), 3),
        pa.dictionary(pa.int8(), NESTED),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.sparse_union([pa.field("a", pa.string())]),
        pa.dense_union([pa.field("a", pa.string())]),
        pa.fixed_shape_tensor(pa.int8(), (2, 2)),
    ],
    ids=lambda type_: str(type_)[:20],
)
@pytest.mark.parametrize("name", ["value", "key", "headers", "timestamp", "partition", "sequence", "topic", "offset"])
def test_unusual_types_are_refused_before_they_are_read(name: str, type_: pa.DataType) -> None:
    """The schema alone decides: what follows it here is no batch at all."""
    schema = pa.schema([("value", pa.string()), (name, type_)] if name != "value" else [(name, type_)])
    error = refusal(schema.serialize().to_pybytes() + b"\xff" * 100)
    assert (error.error_code, f"the column {name} must be" in error.detail) == ("invalid_request", True)


@pytest.mark.rule("B4")
@pytest.mark.parametrize("id_", [pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME], ids=["months", "days"])
def test_intervals_of_which_pyarrow_makes_no_array_are_refused(id_: int) -> None:
    """Neither can be written by it: what says which interval a column has is changed in the schema's bytes."""
    body = stream(of(value=TWO, partition=pa.array([None, pa.MonthDayNano([1, 2, 3])])))
    end = 8 + int.from_bytes(body[4:8], "little")
    changed = (body[:at] + bytes((unit,)) + body[at + 1 :] for at in range(8, end) if body[at] == 2 for unit in (0, 1))
    [made] = [each for each in changed if _id_of_partition(each) == id_]
    with pytest.raises(Refused, match="the column partition must be an integer, not"):
        parse_arrow(made, LIMIT)


def _id_of_partition(body: bytes) -> int | None:
    try:
        return pa.ipc.open_stream(body).schema.field("partition").type.id
    except (pa.ArrowException, OSError, KeyError, ValueError):
        return None


def test_extensions_are_read_as_what_they_store() -> None:
    value = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}']))
    key = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))
    body = parse_arrow(stream(of(value=value, key=key)), LIMIT)
    assert (listed(body.value, 1), listed(body.key, 1)) == ([b'{"a": 1}'], [bytes(16)])


@pytest.mark.rule("B5")
@pytest.mark.parametrize("lie", [-(2**31), 2**31 - 1, 13])
def test_views_of_nulls_say_nothing(lie: int) -> None:
    """A child looks at them: where they are read the process ends."""
    views = struct.pack("<i12s", 2, b"ab") + struct.pack("<iiii", lie, lie, lie, lie) + struct.pack("<i12s", 3, b"abc")
    column = pa.Array.from_buffers(
        pa.binary_view(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(views), pa.py_buffer(b"x")]
    )
    body = stream(of(value=pa.array(["1", "2", "3"]), key=column))
    code = (
        f"from siltlog.ingest.records.arrow import parse_arrow; print(parse_arrow({body!r}, 1 << 20).key.to_pylist())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout.strip()) == (0, "[b'ab', None, b'abc']"), ran.stderr


@pytest.mark.parametrize("type_", [pa.string_view(), pa.binary_view(), pa.large_string(), pa.binary(2)], ids=str)
def test_dictionaries_of_every_type(type_: pa.DataType) -> None:
    entries = (
        pa.array(["aa", "bb", None]).cast(type_) if type_ != pa.binary(2) else pa.array([b"aa", b"bb", None], type_)
    )
    column = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 2, 1], pa.uint8()), entries)
    body = parse_arrow(stream(of(value=pa.array(["v"] * 5), key=column)), LIMIT)
    assert listed(body.key, 5) == [b"bb", None, b"aa", None, b"bb"]


@pytest.mark.rule("B9")
def test_what_follows_the_stream_is_not_dropped() -> None:
    whole = stream(of(value=TWO))
    for rest in (whole, b"\0", b"garbage"):
        error = refusal(whole + rest)
        assert (error.error_code, error.members["byte"]) == ("malformed_body", len(whole))
    assert parse_arrow(whole[:-8], LIMIT).count == 2, "the end may be left out"


def test_errors_quote_little() -> None:
    many = pa.record_batch({f"column {i}": TWO for i in range(2_000)})
    assert len(refusal(stream(many)).detail) < 1_000


SHARED = b"x" * (LIMIT // 2)
MANY_CODES = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3_000, np.int32)), pa.array([SHARED]))
LARGE_DICTIONARY = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([bytes(50_000)]))
VIEW = len(SHARED).to_bytes(4, "little") + SHARED[:4] + bytes(8)
NO_BYTES = pa.Array.from_buffers(pa.binary(0), 2**45, [None, pa.py_buffer(b"")])
MANY_VIEWS = pa.Array.from_buffers(pa.binary_view(), 3_000, [None, pa.py_buffer(VIEW * 3_000), pa.py_buffer(SHARED)])

ONE_OF_MANY_VIEWS = pa.DictionaryArray.from_arrays(pa.array([0], pa.int16()), MANY_VIEWS)


@pytest.mark.rule("B4", "B6")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(stream(of(value=pa.array([bytes(50 << 20)])), codec="zstd"), id="zstd"),
        pytest.param(stream(of(value=pa.array([bytes(50 << 20)])), codec="lz4"), id="lz4"),
        pytest.param(
            stream(of(value=pa.array([bytes(50 << 20)]).dictionary_encode()), codec="zstd"), id="a zstd dictionary"
        ),
        pytest.param(stream(of(value=MANY_CODES)), id="one entry, many codes"),
        pytest.param(stream(of(value=MANY_VIEWS)), id="one buffer, many views"),
        pytest.param(stream(of(value=ONE_OF_MANY_VIEWS)), id="a dictionary of views"),
        pytest.param(stream(*[of(value=TWO[:0])] * 2_000), id="batches without rows"),
        pytest.param(stream(*[of(value=LARGE_DICTIONARY)] * 200), id="one dictionary, many batches"),
    ],
)
def test_little_that_stands_for_much_is_refused_before_it_is_made(body: bytes) -> None:
    assert len(body) < LIMIT
    before = pa.total_allocated_bytes()
    pool_peak = pa.default_memory_pool().max_memory() or 0
    error = refusal(body)
    assert (error.error_code, error.status, error.members["limit"]) == ("request_too_large", 413, LIMIT)
    assert pa.total_allocated_bytes() <= before
    assert (pa.default_memory_pool().max_memory() or 0) - max(pool_peak, before) < 4 * LIMIT


def test_records_are_counted() -> None:
    for rows in (of(value=NO_BYTES), of(value=pa.array([""] * (RECORDS_MAX // 4)))):
        error = refusal(stream(*[rows] * 5), LIMIT * 64)
        assert (error.error_code, error.members["limit"]) == ("request_too_large", RECORDS_MAX)


@given(st.binary(max_size=4_000), st.integers(1, 3), st.sampled_from(CODECS))
@settings(max_examples=50, deadline=None)
def test_inflated_sizes_are_told_without_inflating(value: bytes, batches: int, codec: str | None) -> None:
    batch = of(value=pa.array([value, value + bytes(1_000)]), key=pa.array(["k", "l"]).dictionary_encode())
    told = inflated_bytes(stream(*[batch] * batches, codec=codec))
    if codec is None:
        assert told == 0
    else:
        least = batches * (2 * len(value) + 1_000)
        assert least <= told <= least + 1_000


FUZZ = """
import random, sys
sys.path.insert(0, {tests!r})
from test_arrow import LIMIT, damaged, samples
from siltlog.infra.errors import Refused
from siltlog.ingest.records.arrow import parse_arrow
rng = random.Random({seed})
outcomes = {{}}
for body in samples():
    for _ in range({rounds}):
        try:
            parsed = parse_arrow(damaged(rng, body), LIMIT)
            for column in (parsed.value, parsed.key, parsed.headers, parsed.timestamp):
                if column is not None:
                    column.validate(full=True)
                    column.to_pylist()
            outcome = "taken"
        except Refused as error:
            assert error.error_code != "malformed_body" or error.members["byte"] >= 0
            outcome = error.error_code
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
print(outcomes)
"""


def samples() -> list[bytes]:
    rows = 40
    plain = of(
        value=pa.array([f"value {i}" * (i % 5) for i in range(rows)]),
        key=pa.array([None if i % 3 == 0 else f"k{i}" for i in range(rows)]),
        headers=pa.array([None if i % 2 else [{"key": f"h{i}", "value": b"x" * i}] for i in range(rows)], HEADERS),
        timestamp=pa.array([i * 1_000 for i in range(rows)], pa.timestamp("ms")),
        partition=pa.array([i % 4 for i in range(rows)], pa.int32()),
    )
    views = of(value=pa.array([f"a longer value {i}" for i in range(rows)], pa.string_view()))
    codes = of(
        value=pa.array([f"v{i % 4}" for i in range(rows)]).dictionary_encode(),
        key=pa.array([b"%d" % (i % 3) for i in range(rows)]).dictionary_encode(),
    )
    large = of(value=pa.array([b"x" * i for i in range(rows)], pa.large_binary()))
    usual = [stream(batch, batch.slice(3), codec=codec) for batch in (plain, views, codes, large) for codec in CODECS]
    return [*usual, *small_samples()]


def small_samples() -> list[bytes]:
    """Nulls, dictionaries that differ, and what is not often sent; so small that damage hits what describes them."""
    two = pa.array(["a", None])
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)] * 2, pa.binary(16)))
    codes = pa.DictionaryArray.from_arrays(
        pa.array([1, None], pa.int8()), pa.array(["x" * 30, None, "y"], pa.string_view())
    )
    moments = pa.array([1, None], pa.timestamp("us", "Europe/Berlin"))
    return [
        stream(of(value=TWO, key=uuids, timestamp=moments, topic=two)),
        stream(
            *[of(value=pa.array(["x" * 30, None], pa.string_view()), key=pa.array(["k" * 30, "k"], pa.binary_view()))]
            * 2
        ),
        stream(of(value=TWO, key=codes), of(value=TWO, key=codes.take(pa.array([1, 0])))),
        stream(
            of(value=TWO, key=two.dictionary_encode()), of(value=TWO, key=pa.array(["z" * 40, "a"]).dictionary_encode())
        ),
        stream(of(value=pa.array([b"ab", b"cd"], pa.binary(2)), partition=pa.array([1, None], pa.uint8()))),
        stream(of(value=TWO, other=pa.array([[1], [2]], pa.list_view(pa.int8())))),
    ]


def damaged(rng: random.Random, body: bytes) -> bytes:
    out = bytearray(body)
    # Often within the schema and the first message's own description.
    reach = len(out) if rng.randrange(2) else min(len(out), 800)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(min(reach, len(out)))
        match rng.randrange(6):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                at -= at % 4
                out[at : at + 4] = rng.choice((b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\xff" * 4, bytes(4)))
            case 3:
                # Offsets and lengths are 64-bit: negative, huge, and just beside what they were.
                at -= at % 8
                lie = rng.choice((-1, -8, 2**62, 2**31, len(out), rng.randrange(2 * len(out))))
                out[at : at + 8] = struct.pack("<q", lie)
            case 4:
                out = out[: max(at, 1)]
            case _:
                end = min(len(out), at + rng.randrange(1, 64))
                out[at:end] = rng.randbytes(end - at)
    return bytes(out)


@pytest.mark.rule("B4")
@pytest.mark.slow
def test_damaged_streams_never_crash_the_process() -> None:
    """A child reads them, so that a crash is a failure of this test and not the end of all of them."""
    seed = random.randrange(2**32)
    code = FUZZ.format(tests=str(Path(__file__).parent), seed=seed, rounds=250)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert ran.returncode == 0, f"seed {seed}, exit status {ran.returncode}: {ran.stderr[-2_000:]}"
    assert "malformed_body" in ran.stdout
