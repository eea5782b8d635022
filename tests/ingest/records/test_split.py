"""Bodies split by partition: Spark's hash, the body's order, every record's place; limits that name the record."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.infra.arrow.partitioner import partition_of
from siltlog.infra.columns import HEADERS, TIMESTAMP
from siltlog.infra.errors import Refused
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.ingest.records.body import Body, HeaderList, Rows
from siltlog.ingest.records.split import Slice, split

NOW_US = 1_795_255_969_361_001
LIMIT = 1_000


def body(
    values: list[bytes | None],
    keys: list[bytes | None] | None = None,
    headers: list[HeaderList | None] | None = None,
    timestamps: list[int | None] | None = None,
    partitions: list[int] | None = None,
    sequences: list[int] | None = None,
    *,
    columns: bool,
) -> Body:
    """The same records as lists or as columns."""
    count = len(values)
    nbytes = sum(len(value or b"") for value in values) + 8 * count + sum(len(key or b"") for key in keys or ())
    nbytes += sum(len(name) + len(value or b"") + 8 for one in headers or () for name, value in one or ())
    if not columns:
        none: list[Any] = [None] * count
        rows = Rows(
            list(timestamps or none),
            list(keys or none),
            list(values),
            list(headers or none),
            list(partitions or [-1] * count),
            list(sequences or none),
        )
        return Body(count, nbytes, rows)
    stored = [one and [{"key": name, "value": value} for name, value in one] for one in headers or []]
    return Body(
        count,
        nbytes,
        timestamp=pa.array(timestamps, pa.int64()).cast(TIMESTAMP) if timestamps else None,
        key=pa.array(keys, pa.binary()) if keys else None,
        value=pa.array(values, pa.binary()),
        headers=pa.array(stored, HEADERS) if headers else None,
        partition=np.array(partitions, np.int32) if partitions else None,
        sequence=np.array(sequences, np.int64) if sequences else None,
    )


def rows_of(part: Slice) -> list[tuple[int | None, bytes | None, bytes | None, Any]]:
    """(timestamp, key, value, headers) of each record."""
    records = part.records
    if isinstance(records, Rows):
        return list(zip(records.timestamps, records.keys, records.values, records.headers, strict=True))
    names = records.schema.names
    count = records.num_rows
    headers: list[Any] = records.column("headers").to_pylist() if "headers" in names else [None] * count
    return list(
        zip(
            records.column("timestamp").cast(pa.int64()).to_pylist(),
            records.column("key").to_pylist() if "key" in names else [None] * count,
            records.column("value").to_pylist(),
            [one and [(header["key"], header["value"]) for header in one] for one in headers],
            strict=True,
        )
    )


CONFIG = TopicConfig({})
KEYS = st.none() | st.binary(max_size=4)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.booleans(), st.integers(1, 9))
def test_every_record_is_in_its_partition_in_order(data: st.DataObject, columns: bool, partitions: int) -> None:
    keys = data.draw(st.lists(KEYS, min_size=1, max_size=40))
    count = len(keys)
    keyless = data.draw(st.integers(0, partitions - 1))
    explicit = data.draw(st.none() | st.lists(st.integers(-1, partitions - 1), min_size=count, max_size=count))
    values: list[bytes | None] = [b"%d" % i for i in range(count)]
    headers: list[HeaderList | None] = [[("h", b"%d" % i)] if i % 3 == 0 else None for i in range(count)]
    times: list[int | None] = [NOW_US - i if i % 2 else None for i in range(count)]
    sequences = list(range(10, 10 + count)) if data.draw(st.booleans()) else None
    given_body = body(values, keys, headers, times, explicit, sequences, columns=columns)
    parts = split(given_body, partitions, keyless, CONFIG, LIMIT, NOW_US)

    wanted = [
        explicit[i] if explicit and explicit[i] >= 0 else keyless if key is None else partition_of(key, partitions)
        for i, key in enumerate(keys)
    ]
    by_partition: dict[int, list[int]] = defaultdict(list)
    for i, partition in enumerate(wanted):
        by_partition[partition].append(i)
    assert [part.partition for part in parts.slices] == sorted(by_partition)
    for part in parts.slices:
        own = by_partition[part.partition]
        assert part.count == len(own)
        assert rows_of(part) == [(times[i] or NOW_US, keys[i], values[i], headers[i]) for i in own]
        assert (None if part.sequences is None else list(part.sequences)) == (
            None if sequences is None else [sequences[i] for i in own]
        )
    firsts: dict[int, int | None] = {partition: 100 * partition for partition in by_partition}
    firsts[wanted[0]] = None
    seen: dict[int, int] = defaultdict(int)
    places = []
    for partition in wanted:
        first = firsts[partition]
        places.append((partition, None if first is None else first + seen[partition]))
        seen[partition] += 1
    assert parts.positions(firsts) == places


@given(st.data(), st.integers(1, 9))
def test_what_is_known_of_all_records_need_not_be_said_of_each(data: st.DataObject, partitions: int) -> None:
    keys = data.draw(st.lists(KEYS, min_size=1, max_size=40))
    count, only = len(keys), data.draw(st.integers(0, partitions - 1))
    first = data.draw(st.none() | st.integers(0, 2**40))
    times: list[int | None] = [NOW_US - data.draw(st.integers(0, 1000)) for _ in keys]
    sequences = None if first is None else list(range(first, first + count))
    each = body([b"v"] * count, keys, None, times, [only] * count, sequences, columns=True)
    together = replace(
        each,
        partition=None,
        sequence=None,
        only_partition=only,
        first_sequence=first,
        time_bounds=(min(filter(None, times)), max(filter(None, times))),
    )
    wanted, found = (split(given, partitions, 0, CONFIG, LIMIT, NOW_US) for given in (each, together))
    [expected], [part] = wanted.slices, found.slices
    assert (part.partition, part.count, rows_of(part)) == (expected.partition, expected.count, rows_of(expected))
    assert (part.sequences and list(part.sequences)) == (sequences and [*sequences])
    assert found.partitions() == wanted.partitions() == [only] * count
    assert found.positions({only: 7}) == wanted.positions({only: 7})


@pytest.mark.parametrize("wrong", [-10, 10])
def test_times_that_are_known_by_their_bounds_are_held_to_the_limits(wrong: int) -> None:
    times: list[int | None] = [NOW_US, NOW_US + wrong * 1_000_000, NOW_US]
    config = {"timestamp.after.max.ms": 5_000, "timestamp.before.max.ms": 5_000}
    each = body([b"v"] * 3, timestamps=times, columns=True)
    known = replace(each, only_partition=0, time_bounds=(min(filter(None, times)), max(filter(None, times))))
    assert str(refusal(known, config)) == str(refusal(each, config))
    assert refusal(known, config).members["index"] == 1


def test_the_only_partition_is_one_of_the_topics() -> None:
    assert "partition 4" in str(refusal(replace(body([b"v"], columns=True), only_partition=4)))


def refusal(of: Body, config: dict[str, Any] | None = None, limit: int = LIMIT) -> Refused:
    with pytest.raises(Refused) as caught:
        split(of, 4, 0, TopicConfig(config or {}), limit, NOW_US)
    return caught.value


@pytest.mark.parametrize("columns", [False, True])
def test_a_record_that_is_too_large_is_named_with_the_limit(columns: bool) -> None:
    """Key, value and headers count; the lower of the topic's and the server's limit holds."""
    key, headers = b"k" * 30, [("é" * 5, b"v" * 10), ("n", None)]
    fits = body([b"x", b"v" * (LIMIT - 51)], [None, key], [None, headers], columns=columns)
    split(fits, 4, 0, CONFIG, LIMIT, NOW_US)
    above = body([b"x", b"v" * (LIMIT - 50)], [None, key], [None, headers], columns=columns)
    error = refusal(above)
    assert (error.error_code, error.status) == ("record_too_large", 413)
    assert (error.members["index"], error.members["limit"]) == (1, LIMIT)
    assert refusal(fits, {"max.record.bytes": LIMIT - 1}, 2 * LIMIT).members["limit"] == LIMIT - 1


@pytest.mark.rule("B8")
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(
    ("config", "moves", "words"),
    [
        ({}, [0, 3_600_000_001], "ahead"),
        ({"timestamp.after.max.ms": 5}, [5_000, 5_001], "timestamp.after.max.ms (5)"),
        ({}, [0, NOW_US // 1_000_000 * 1_000 - NOW_US], "looks like seconds"),
        ({}, [-50 * 365 * 86_400_000_000, -56 * 365 * 86_400_000_000], "timestamp.before.max.ms"),
        ({"timestamp.after.max.ms": -1}, [10**15, -NOW_US], "1970-01-01T00:00:00.000000Z"),
        ({"timestamp.before.max.ms": 5}, [-5_000, -5_001], "timestamp.before.max.ms (5)"),
        ({"timestamp.before.max.ms": 5}, [0, NOW_US // 1_000 - NOW_US], "looks like seconds"),
    ],
)
def test_a_timestamp_beyond_the_topics_limits(
    columns: bool, config: dict[str, Any], moves: list[int], words: str
) -> None:
    error = refusal(body([b"a", b"b"], timestamps=[NOW_US + move for move in moves], columns=columns), config)
    assert (error.error_code, error.members["index"]) == ("invalid_record", 1)
    assert words in error.detail


@pytest.mark.parametrize("columns", [False, True])
def test_append_time_and_no_limits(columns: bool) -> None:
    times: list[int | None] = [0, None, NOW_US * 10]
    given_body = body([b"a"] * 3, timestamps=times, columns=columns)
    [part] = split(given_body, 4, 2, TopicConfig({"timestamp.type": "append"}), LIMIT, NOW_US).slices
    assert [row[0] for row in rows_of(part)] == [NOW_US] * 3
    given_body = body([b"a"] * 3, timestamps=times, columns=columns)
    config = TopicConfig({"timestamp.after.max.ms": -1, "timestamp.before.max.ms": -1})
    [part] = split(given_body, 4, 2, config, LIMIT, NOW_US).slices
    assert [row[0] for row in rows_of(part)] == [0, NOW_US, NOW_US * 10]


@pytest.mark.rule("B8")
@pytest.mark.parametrize("columns", [False, True])
def test_what_was_stored_before_is_held_to_the_topics_own_limits_alone(columns: bool) -> None:
    times: list[int | None] = [0, NOW_US * 10]
    for own, taken in (({}, True), ({"timestamp.before.max.ms": 5}, False), ({"timestamp.after.max.ms": 5}, False)):
        stored = body([b"a", b"b"], timestamps=times, columns=columns)
        stored.stored = True
        if taken:
            [part] = split(stored, 4, 2, TopicConfig(own), LIMIT, NOW_US).slices
            assert [row[0] for row in rows_of(part)] == times
        else:
            with pytest.raises(Refused, match=next(iter(own))):
                split(stored, 4, 2, TopicConfig(own), LIMIT, NOW_US)


@pytest.mark.parametrize("columns", [False, True])
def test_a_partition_that_is_not_there(columns: bool) -> None:
    error = refusal(body([b"a"] * 3, partitions=[0, 4, 9], columns=columns))
    assert (error.error_code, error.status, error.members["index"]) == ("unknown_partition", 404, 1)


def test_a_sequence_that_is_missing_among_others() -> None:
    given_body = body([b"a", b"b"], columns=False)
    assert given_body.rows is not None
    given_body.rows.sequences = [1, None]
    assert refusal(given_body).members["index"] == 1
