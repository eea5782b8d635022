"""The stored form of a journal's objects."""

import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.errors import CorruptData
from siltlog.ingest.journal.codec import (
    HEADER_BYTES,
    ObjectKind,
    Read,
    decode_header,
    decode_object,
    encode_groups,
    encode_seal,
    same_object,
)
from siltlog.ingest.wal import Frame, FrameKind

FRAMES = st.builds(
    Frame,
    st.sampled_from([FrameKind.RECORDS, FrameKind.CONTROL]),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.integers(0, 2**31),
    st.binary(max_size=100),
)
GROUPS = st.lists(st.lists(FRAMES, min_size=1, max_size=4), max_size=4)
NONCE = uuid.UUID(int=1).bytes


def _read(data: bytes, number: int, cluster_id: str = "c", journal: str = "n/j") -> Read:
    return decode_object(data, cluster_id=cluster_id, journal=journal, number=number)


@given(GROUPS, st.integers(0, 2**60), st.text(max_size=100), st.text(max_size=100), st.binary(min_size=16, max_size=16))
def test_what_is_written_is_read(
    groups: list[list[Frame]], number: int, cluster_id: str, journal: str, nonce: bytes
) -> None:
    made = encode_groups(groups, cluster_id=cluster_id, journal=journal, number=number, first=number // 2, nonce=nonce)
    read = _read(made.data, number, cluster_id, journal)
    assert read.header == made.header
    assert made.header.first == number // 2 and made.header.kind is ObjectKind.GROUPS
    assert [[_told(frame) for frame in group] for group in read.groups] == [
        [_told(frame) for frame in group] for group in groups
    ]


def _told(frame: Frame) -> tuple[object, ...]:
    payload = frame.payload_whole.to_pybytes()
    return frame.kind, frame.topic_id, frame.partition, frame.epoch, frame.first_offset, frame.count, payload


@given(st.data(), GROUPS)
def test_no_flipped_bit_and_no_cut_passes(data: st.DataObject, groups: list[list[Frame]]) -> None:
    made = encode_groups(groups, cluster_id="c", journal="n/j", number=5, first=3, nonce=NONCE).data
    at = data.draw(st.integers(0, 8 * len(made) - 1))
    flipped = bytearray(made)
    flipped[at // 8] ^= 1 << at % 8
    with pytest.raises(CorruptData):
        _read(bytes(flipped), 5)
    with pytest.raises(CorruptData):
        _read(made[: data.draw(st.integers(0, len(made) - 1))], 5)


def test_an_object_of_another_place_is_refused_and_named() -> None:
    made = encode_groups([], cluster_id="c", journal="n/j", number=5, first=3, nonce=NONCE).data
    for place in (("c", "n/j", 6), ("c", "n/other", 5), ("d", "n/j", 5)):
        with pytest.raises(CorruptData, match="number 5 of journal n/j of cluster c"):
            decode_header(made, cluster_id=place[0], journal=place[1], number=place[2])


def test_an_object_of_a_newer_version_says_so() -> None:
    from siltlog.ingest.journal import codec

    header = encode_groups([], cluster_id="c", journal="n/j", number=5, first=3, nonce=NONCE).header
    with pytest.raises(CorruptData, match=r"format version 2.*start the newer"):
        _read(codec._encode_header(header._replace(format_version=2)), 5)


def test_a_seal_is_a_header_alone() -> None:
    made = encode_seal(cluster_id="c", journal="n/j", number=5, first=3, nonce=NONCE)
    assert len(made.data) == HEADER_BYTES
    read = _read(made.data, 5)
    assert read.header.kind is ObjectKind.SEAL and read.groups == []


@pytest.mark.rule("CJ2")
def test_a_nonce_alone_does_not_make_an_object_ones_own() -> None:
    """A clone of a running machine has the nonce, too."""
    frame = Frame(FrameKind.RECORDS, bytes(16), 0, 1, 0, 1, pa.py_buffer(b"one"))
    other = Frame(FrameKind.RECORDS, bytes(16), 0, 1, 0, 1, pa.py_buffer(b"two"))
    one, two = (
        encode_groups([[each]], cluster_id="c", journal="n/j", number=5, first=3, nonce=NONCE).header
        for each in (frame, other)
    )
    assert same_object(one, one)
    assert not same_object(one, two)
    assert not same_object(one, one._replace(nonce=bytes(16)))
