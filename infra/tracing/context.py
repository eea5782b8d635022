"""W3C trace context as requests and records carry it: https://www.w3.org/TR/trace-context/."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from siltlog.infra import names
from siltlog.infra.columns import HEADERS

FIELD_CHARS_MAX = 512
"""What is longer is nobody's: https://www.w3.org/TR/trace-context/#tracestate-limits."""
_FIELDS = (names.HEADER_TRACEPARENT, names.HEADER_TRACESTATE)
_W3C = TraceContextTextMapPropagator()
_NOWHERE = Context()


def context_of(pairs: Iterable[tuple[str, bytes | None]]) -> Context:
    """The context that some headers carry, with nothing in it where they have none or what is malformed.

    Of a header that is there more than once the first counts.
    """
    carrier: dict[str, str] = {}
    for name, value in pairs:
        if name in _FIELDS and value is not None and len(value) <= FIELD_CHARS_MAX:
            carrier.setdefault(name, value.decode("latin-1"))
    return _W3C.extract(carrier, _NOWHERE) if names.HEADER_TRACEPARENT in carrier else _NOWHERE


def span_of(pairs: Iterable[tuple[str, bytes | None]]) -> SpanContext | None:
    """The span that some headers carry; None where they have none."""
    context = get_current_span(context_of(pairs)).get_span_context()
    return context if context.is_valid else None


def fields_of(span: Span) -> dict[str, str]:
    """The header fields by which others go on from a span."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span, _NOWHERE))
    return carrier


def spans_in(headers: pa.ListArray, most: int) -> list[SpanContext]:
    """The sampled spans that the headers of some records carry, in their order; `most` at most, each once."""
    pairs = headers.flatten()
    carried = pc.equal(pairs.field("key"), names.HEADER_TRACEPARENT)
    found: dict[int, SpanContext] = {}
    for value in pc.unique(pairs.field("value").filter(carried)).to_pylist():
        span = span_of([(names.HEADER_TRACEPARENT, value)])
        if span is not None and span.trace_flags.sampled:
            found.setdefault(span.span_id, span)
            if len(found) == most:
                break
    return [*found.values()]


def with_headers(records: pa.Table, added: Sequence[tuple[str, bytes]]) -> pa.Table:
    """The records with these headers behind those of each row; as they are where some carry a context already."""
    rows = records.num_rows
    if "headers" in records.column_names:
        lists = records["headers"].combine_chunks()
        given = lists.flatten()
        if pc.any(pc.equal(given.field("key"), names.HEADER_TRACEPARENT)).as_py():
            return records
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        records = records.drop_columns(["headers"])
    else:
        given = pa.array([], HEADERS.value_type)
        lengths = np.zeros(rows, np.int32)
    ends = np.cumsum(lengths + len(added))
    taken = np.full(int(ends[-1]) if rows else 0, -1, np.int64)
    for place in range(len(added)):
        taken[ends - len(added) + place] = len(given) + place
    taken[taken < 0] = np.arange(len(given))
    own = pa.array([{"key": name, "value": value} for name, value in added], HEADERS.value_type)
    pairs = pa.concat_arrays([given, own]).take(pa.array(taken))
    offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
    return records.append_column(pa.field("headers", HEADERS), pa.ListArray.from_arrays(offsets, pairs, type=HEADERS))
