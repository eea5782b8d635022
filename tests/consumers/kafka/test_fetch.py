"""What a fetch found as batches of Kafka: offsets that were passed over behind the last record are told of."""

from typing import Any

import pyarrow as pa
import pytest

from siltlog.consumers.kafka.fetch import _batches
from siltlog.consumers.reading.budget import Share
from siltlog.consumers.reading.fetch import FetchPosition, PartitionFetch
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.kafka.batch import HEAD


def found(offsets: list[int], next_offset: int, offset: int = 0) -> PartitionFetch:
    rows: dict[str, list[Any]] = {name: [None] * len(offsets) for name in RECORD_SCHEMA.names}
    rows |= {"offset": offsets, "timestamp": [0] * len(offsets), "value": [b"x"] * len(offsets)}
    batches = pa.table(rows, schema=RECORD_SCHEMA).to_batches() if offsets else []
    return PartitionFetch(FetchPosition("t", 0, offset), next_offset, Share(), batches=batches)


def ends_of(part: PartitionFetch) -> list[tuple[int, int, bool]]:
    """(first offset, last offset, whether it is a control batch) of each."""
    data = b"".join(_batches(part))
    ends = []
    while data:
        fields = HEAD.unpack_from(data)
        ends.append((fields[0], fields[0] + fields[6], bool(fields[5] & 0x20)))
        data = data[fields[1] + 12 :]
    return ends


@pytest.mark.rule("KF7")
def test_a_gap_at_the_end_is_a_marker_on_its_last_offset() -> None:
    assert ends_of(found([3, 4, 9], 10)) == [(3, 9, False)]
    assert ends_of(found([3, 4], 12)) == [(3, 4, False), (11, 11, True)]
    assert ends_of(found([], 7, offset=2)) == [(6, 6, True)]
    assert ends_of(found([], 2, offset=2)) == []


@pytest.mark.rule("KF7")
def test_a_gap_that_a_batch_cannot_have_is_between_two() -> None:
    assert ends_of(found([0, 1 << 33], (1 << 33) + 1)) == [(0, 0, False), (1 << 33, 1 << 33, False)]
