"""The Arrow stream is taken out of a publish as protobuf itself would have read it."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from siltlog.infra.grpc.carried import FIELDS_MAX, carried
from siltlog.infra.grpc.made import silt_pb2 as pb

STREAM = pb.PublishRequest(arrow_stream=b"stream").SerializeToString()
messages = st.builds(
    pb.PublishRequest,
    topic=st.text(max_size=20),
    arrow_stream=st.none() | st.binary(max_size=300),
    acks=st.sampled_from([0, 1, 4]),
    timeout_ms=st.none() | st.integers(-1, 2**31 - 1),
    partition=st.none() | st.integers(0, 1000),
    idempotency_key=st.none() | st.text(max_size=9),
    producer=st.none() | st.builds(pb.Producer, id=st.text(max_size=9), epoch=st.integers(0, 9)),
    records=st.lists(st.builds(pb.PublishRecord, value=st.binary(max_size=9)), max_size=2),
)
fields = st.one_of(
    messages.map(pb.PublishRequest.SerializeToString),
    st.binary(max_size=12),
    st.sampled_from(
        [STREAM, b"\x18\x01", b"\x9a\x00\x00", b"\x1a\x83\x80\x80\x80\x00abc", b"\x02\x00", b"\x1b\x1c", b"\x1d4444"]
    ),
)


def read(data: bytes) -> pb.PublishRequest | None:
    try:
        message: pb.PublishRequest = pb.PublishRequest.FromString(data)
    except DecodeError:
        return None
    return message


@settings(max_examples=300, deadline=None)
@given(st.lists(fields, max_size=4).map(b"".join), st.integers(0, 400))
@example(STREAM + b"\x02\x00", 400)
@example(b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 400)
def test_what_is_split_says_what_protobuf_reads(data: bytes, cut: int) -> None:
    data = data[:cut]
    split = carried(data)
    if split is not None:
        message = read(split.rest)
        if message is not None:
            assert not message.HasField("arrow_stream")
            message.arrow_stream = split.stream
        assert message == read(data)


@settings(max_examples=100, deadline=None)
@given(messages)
@example(pb.PublishRequest(arrow_stream=b"", timeout_ms=-1))
def test_a_publish_is_split_if_it_carries_a_stream(message: pb.PublishRequest) -> None:
    split = carried(message.SerializeToString())
    assert (split is not None) == message.HasField("arrow_stream")
    if split is not None:
        assert split.stream == message.arrow_stream
        assert type(split.stream) is bytes


@pytest.mark.parametrize("data", [STREAM * 2, b"\x0a\x00" * FIELDS_MAX + STREAM, STREAM[:-1], b""])
def test_what_is_odd_is_left_to_protobuf(data: bytes) -> None:
    assert carried(data) is None
