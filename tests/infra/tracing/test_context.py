"""Trace context in header fields: what strangers send is passed over, what we write is read again."""

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from span_rig import Spans, traceparent

from siltlog.infra.columns import HEADERS
from siltlog.infra.tracing.context import FIELD_CHARS_MAX, fields_of, span_of, spans_in, with_headers

GOOD = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PAIRS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3)


def test_what_is_written_is_read_again() -> None:
    span = Spans().tracer.start_span("a")
    fields = fields_of(span)
    assert fields["traceparent"].encode() == traceparent(span)
    found = span_of([(name, text.encode()) for name, text in fields.items()])
    assert found is not None
    own = span.get_span_context()
    assert (found.trace_id, found.span_id, found.is_remote) == (own.trace_id, own.span_id, True)


def test_the_state_goes_along() -> None:
    found = span_of([("other", None), ("traceparent", GOOD), ("tracestate", b"a=1,b=2"), ("traceparent", b"x")])
    assert found is not None
    assert found.trace_state.to_header() == "a=1,b=2"


@pytest.mark.rule("V2")
@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"x",
        GOOD[:-1],
        GOOD + b"-more",
        GOOD.upper(),
        b"ff" + GOOD[2:],
        b"00-" + b"0" * 32 + GOOD[35:],
        GOOD[:36] + b"0" * 16 + b"-01",
        b"\xff" * 55,
        b"01" + GOOD[2:] + b"-" + b"x" * FIELD_CHARS_MAX,
        None,
    ],
)
def test_what_is_no_context_is_passed_over(value: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    assert span_of([("traceparent", value)]) is None
    assert span_of([("traceparent", GOOD), ("tracestate", b"a=" + b"1" * FIELD_CHARS_MAX)]) is not None
    assert caplog.records == []


@pytest.mark.rule("V2")
@given(st.binary(max_size=600), st.binary(max_size=600))
@example(GOOD, b"=,=,,;\xff")
def test_nothing_that_a_stranger_sends_is_an_error(parent: bytes, state: bytes) -> None:
    span_of([("traceparent", parent), ("tracestate", state)])
    assert span_of([("traceparent", GOOD), ("tracestate", state)]) is not None


def table(rows: list[list[tuple[str, bytes | None]] | None], chunks: int = 1) -> pa.Table:
    columns = {"value": pa.array([b"v"] * len(rows), pa.binary())}
    lists = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    columns["headers"] = pa.array(lists, HEADERS)
    whole = pa.table(columns)
    at = len(rows) // chunks
    return pa.concat_tables([whole.slice(0, at), whole.slice(at)])


def headers_of(records: pa.Table) -> list[list[tuple[str, bytes | None]]]:
    return [[(pair["key"], pair["value"]) for pair in row or ()] for row in records["headers"].to_pylist()]


@given(st.lists(st.none() | PAIRS, max_size=5), st.integers(1, 2), PAIRS.filter(bool))
def test_each_row_gets_the_headers_behind_its_own(
    rows: list[list[tuple[str, bytes | None]] | None], chunks: int, added: list[tuple[str, bytes]]
) -> None:
    told = with_headers(table(rows, chunks), added)
    assert headers_of(told) == [[*(row or ()), *added] for row in rows]
    assert told["headers"].type == HEADERS
    told.validate(full=True)
    plain = with_headers(table(rows).drop_columns(["headers"]), added)
    assert headers_of(plain) == [[*added] for _ in rows]


def test_rows_that_carry_a_context_keep_it() -> None:
    records = table([[("a", b"1")], [("traceparent", GOOD)]])
    assert with_headers(records, [("traceparent", b"another")]) is records


@pytest.mark.rule("V4")
def test_the_sampled_spans_of_records_are_found_once_each_and_no_more_than_asked_for() -> None:
    spans = [Spans().tracer.start_span("a") for _ in range(6)]
    fields = [traceparent(span) for span in spans]
    rows = [[("traceparent", field), ("other", field)] for field in (*fields, *fields)]
    unsampled = GOOD[:-2] + b"00"
    lists = table([None, [("traceparent", unsampled)], [], *rows, [("traceparent", b"x")]])["headers"].combine_chunks()
    assert [span.span_id for span in spans_in(lists, 4)] == [span.get_span_context().span_id for span in spans[:4]]
    assert len(spans_in(lists, 100)) == 6
    assert len(spans_in(lists.slice(3, 2), 100)) == 2
