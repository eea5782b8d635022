"""Answers of other nodes that are none."""

import pyarrow as pa
import pytest

from siltlog.consumers.remote.messages import batches_read, error_of
from siltlog.infra.columns import FETCH_SCHEMA


@pytest.mark.parametrize("producers", [False, True])
def test_records_with_other_columns_are_none(producers: bool) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, FETCH_SCHEMA):
        pass
    with pytest.raises(pa.ArrowInvalid, match="other columns"):
        batches_read(sink.getvalue().to_pybytes(), producers)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"\xff"])
def test_a_refusal_that_says_nothing_is_one_all_the_same(body: bytes) -> None:
    error = error_of(502, body)
    assert error.status == 502
    assert error.detail
