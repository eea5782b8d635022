"""Where a Spark stream stands: the checkpoint's form, limits, tasks, and what was lost meanwhile."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.errors import ConfigError, OffsetOutOfRange, Refused, UnknownTopic
from siltlog.infra.records import OFFSET_JUMP, Bounds
from siltlog.spark.positions import (
    GAP_OFFSETS,
    Part,
    Span,
    TopicBounds,
    TopicPosition,
    advanced,
    dense,
    from_json,
    gathered,
    limited,
    loss,
    present,
    spans_between,
    split,
    to_json,
)

offsets = st.integers(0, 2**53)
topics = st.sampled_from(["a", "b", "c.dlq"])
positions = st.dictionaries(
    topics,
    st.builds(TopicPosition, st.sampled_from(["id-1", "id-2"]), st.dictionaries(st.integers(0, 9), offsets)),
)
IN_ORDER = Bounds(10, 50, 100)


@pytest.mark.rule("Q1")
@given(positions)
def test_a_checkpoint_reads_back_and_is_always_written_alike(stands: dict[str, TopicPosition]) -> None:
    text = json.dumps(to_json(stands))
    again = from_json(json.loads(text))
    assert again == stands
    backwards = {
        topic: TopicPosition(one.topic_id, dict(reversed(one.offsets.items())))
        for topic, one in reversed(stands.items())
    }
    assert json.dumps(to_json(backwards)) == text


@pytest.mark.parametrize("document", [{"a": 1}, {"a": {"offsets": {}}}, {"a": {"topic_id": "i", "offsets": {"x": 1}}}])
def test_what_is_no_checkpoint_of_ours_is_told(document: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="checkpoint"):
        from_json(document)


@given(positions, positions, st.integers(1, 1000))
def test_a_limit_goes_on_to_the_end_and_never_back(
    start: dict[str, TopicPosition], target: dict[str, TopicPosition], count_max: int
) -> None:
    end = advanced(start, target)
    total = sum(span.end - span.start for span in spans_between(start, end))
    reached = limited(start, end, count_max)
    taken = list(spans_between(start, reached))
    assert sum(span.end - span.start for span in taken) == min(total, count_max)
    left = {(span.topic, span.partition): span for span in spans_between(start, end)}
    for span in taken:
        whole = left[span.topic, span.partition]
        assert (span.start, span.topic_id) == (whole.start, whole.topic_id)
        assert span.end <= whole.end
    assert limited(end, end, count_max) == end


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 9))
def test_a_limited_stream_reads_every_offset_once(ends: list[int], count_max: int) -> None:
    at: dict[str, TopicPosition] = {}
    end = {"t": TopicPosition("id", dict(enumerate(ends)))}
    read: list[tuple[int, int]] = []
    for _ in range(sum(ends) + 1):
        reached = limited(at, end, count_max)
        read += [(one.partition, n) for one in spans_between(at, reached) for n in range(one.start, one.end)]
        at = reached
    assert sorted(read) == [(number, offset) for number, last in enumerate(ends) for offset in range(last)]


@pytest.mark.rule("Q9")
@given(st.integers(0, 10**9), st.integers(1, 10**6), st.integers(1, 100))
def test_a_limit_does_not_count_offsets_before_the_first_record(hole: int, count: int, count_max: int) -> None:
    end = {"t": TopicPosition("id", {0: hole + count})}
    reached = limited({}, end, count_max, lambda span: max(span.start, hole))
    assert reached["t"].offsets == {0: hole + min(count, count_max)}
    assert limited({}, end, count_max, lambda span: span.end) == end


logs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, GAP_OFFSETS * 3), st.integers(1, GAP_OFFSETS)), max_size=4)


@pytest.mark.rule("Q9")
@given(logs, st.integers(0, 2 * OFFSET_JUMP), st.integers(1, 3 * OFFSET_JUMP))
def test_what_take_overs_jumped_over_is_not_read(runs: list[tuple[int, int, int]], start: int, count: int) -> None:
    """`runs` are the log's offsets: in each stretch between multiples of OFFSET_JUMP those from one on."""
    there = [(era * OFFSET_JUMP + skipped, era * OFFSET_JUMP + skipped + size) for era, skipped, size in runs]

    def first_from(span: Span) -> int:
        return min([max(first, span.start) for first, last in there if last > span.start] + [span.end])

    whole = Span("t", "id", 0, start, start + count)
    parts = list(dense(whole, lambda span: min(first_from(span), span.end)))
    assert all(a.end <= b.start for a, b in pairwise(parts))
    for first, last in there:
        for offset in (first, (first + last) // 2, last - 1):
            if whole.start <= offset < whole.end:
                assert any(part.start <= offset < part.end for part in parts)
    records = sum(last - first for first, last in there)
    assert sum(part.end - part.start for part in parts) <= records + 4 * 4 * GAP_OFFSETS


@pytest.mark.rule("Q8")
@given(st.lists(st.integers(1, 40), max_size=20), st.integers(1, 60))
def test_small_parts_are_read_together(sizes: list[int], records_max: int) -> None:
    parts = [Part(Span("t", "id", number, 5, 5 + size), IN_ORDER, 0) for number, size in enumerate(sizes)]
    found = list(gathered(parts, records_max))
    assert [part for some in found for part in some] == parts
    held = [sum(part.span.end - part.span.start for part in some) for some in found]
    assert all(one <= records_max or len(some) == 1 for one, some in zip(held, found, strict=True))
    assert all(a + some[0].span.end - 5 > records_max for a, some in zip(held, found[1:], strict=False))


@given(st.integers(0, 50), st.integers(1, 500), st.integers(1, 60))
def test_a_span_is_split_without_gaps(start: int, count: int, records_max: int) -> None:
    parts = list(split(Span("t", "id", 0, start, start + count), records_max))
    assert [n for part in parts for n in range(part.start, part.end)] == list(range(start, start + count))
    assert all(0 < part.end - part.start <= records_max for part in parts)


def test_another_topic_of_the_name_begins_at_0() -> None:
    start = {"t": TopicPosition("old", {0: 70})}
    end = {"t": TopicPosition("new", {0: 3})}
    assert list(spans_between(start, end)) == [Span("t", "new", 0, 0, 3)]
    assert advanced(start, end) == end


@pytest.mark.parametrize(
    ("span", "error", "there"),
    [
        (Span("t", "id", 0, 10, 100), None, (10, 100)),
        (Span("t", "id", 0, 9, 100), OffsetOutOfRange, (10, 100)),
        (Span("t", "id", 0, 20, 101), OffsetOutOfRange, (20, 100)),
        (Span("t", "id", 0, 2, 7), OffsetOutOfRange, None),
        (Span("t", "id", 1, 20, 30), Refused, None),
        (Span("t", "other", 0, 20, 30), UnknownTopic, None),
    ],
    ids=["all", "retention", "set-back", "gone", "partition", "topic"],
)
def test_what_is_lost_is_told(span: Span, error: type[Exception] | None, there: tuple[int, int] | None) -> None:
    bounds = TopicBounds("id", {0: IN_ORDER}, 0)
    found = loss(span, bounds)
    assert (None if found is None else type(found)) is error
    left = present(span, bounds)
    assert (None if left is None else (left.start, left.end)) == there
