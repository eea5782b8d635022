"""Records of a message are the same records in whichever format they are handed to HTTP."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.infra import names
from siltlog.infra.grpc.made import silt_pb2 as pb
from siltlog.infra.grpc.records import FEW_BYTES_MAX, FEW_RECORDS_MAX, published_stream
from siltlog.ingest.records.arrow import parse_arrow
from siltlog.ingest.records.body import ROWS_MAX
from siltlog.ingest.records.json import parse_json
from siltlog.server.grpc.asking import publish

BYTES_MAX = 1024 * 1024
records = st.builds(
    pb.PublishRecord, key=st.none() | st.binary(max_size=9), value=st.none() | st.binary(max_size=40)
).filter(lambda record: record.HasField("key") or record.HasField("value"))


def request(*records: pb.PublishRecord, **more: Any) -> pb.PublishRequest:
    return pb.PublishRequest(topic="t", records=records, **more)


@settings(max_examples=100, deadline=None)
@given(st.lists(records, min_size=1, max_size=FEW_RECORDS_MAX))
def test_few_records_stay_records_and_are_those_of_the_message(said: list[pb.PublishRecord]) -> None:
    asked = publish(request(*said))
    assert asked.headers["Content-Type"] == names.MEDIA_JSON
    rows = parse_json(asked.body).rows
    assert rows is not None, "they became columns"
    columns = parse_arrow(published_stream(said), BYTES_MAX)
    assert columns.value is not None
    assert rows.values == columns.value.to_pylist()
    assert rows.keys == ([None] * len(said) if columns.key is None else columns.key.to_pylist())
    assert [*rows.timestamps, *rows.headers, *rows.sequences] == [None] * len(said) * 3
    assert rows.partitions == [-1] * len(said)


def test_whatever_is_more_than_that_is_arrow() -> None:
    one = pb.PublishRecord(value=b"v")
    for message in (
        request(*[one] * (FEW_RECORDS_MAX + 1)),
        request(pb.PublishRecord(value=b"v" * FEW_BYTES_MAX)),
        request(one, pb.PublishRecord(value=b"v", timestamp_us=1)),
        request(one, pb.PublishRecord(value=b"v", headers=[pb.Header(key="h")])),
        request(one, pb.PublishRecord(value=b"v", partition=0)),
        request(one, pb.PublishRecord(value=b"v", sequence=0)),
    ):
        asked = publish(message)
        assert asked.headers["Content-Type"] == names.MEDIA_ARROW
        assert asked.body == published_stream(message.records)


def test_a_key_of_idempotency_knows_the_bytes_that_former_releases_made() -> None:
    message = request(pb.PublishRecord(value=b"v"), idempotency_key="k")
    assert publish(message).body == published_stream(message.records)


def test_as_many_are_few_as_stay_records() -> None:
    assert FEW_RECORDS_MAX == ROWS_MAX
