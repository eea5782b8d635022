"""The stored form: what goes in comes out, and what was changed does not."""

import dataclasses
import itertools
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.infra.store.checksum import crc32c
from siltlog.ingest.wal import codec
from siltlog.ingest.wal.codec import HEADER_BYTES, Frame, FrameKind, Position

SEGMENT = 7
frames = st.lists(
    st.builds(
        Frame,
        kind=st.sampled_from(FrameKind),
        topic_id=st.binary(min_size=16, max_size=16),
        partition=st.integers(0, 2**31 - 1),
        epoch=st.integers(0, 2**63 - 1),
        first_offset=st.integers(0, 2**63 - 1),
        count=st.integers(0, 2**32 - 1),
        payload=st.binary(max_size=300),
    ),
    max_size=8,
)


def header(segment: int = SEGMENT, nonce: bytes = bytes(16)) -> tuple[bytes, int]:
    return codec.encode_header(segment=segment, size_bytes=1 << 20, created_us=5, cluster_id="cluster", nonce=nonce)


def image(groups: list[list[Frame]], seed: int, segment: int = SEGMENT) -> bytes:
    """A segment's bytes with one entry per group."""
    data = bytes(HEADER_BYTES)
    synced = Position(segment - 1, 4444)
    for group in groups:
        start = Position(segment, len(data))
        buffers, length, locations = codec.encode_entry(group, start=start, seed=seed, synced=synced)
        entry = b"".join(bytes(buffer) for buffer in buffers)
        assert len(entry) == length and length % codec.ALIGN_BYTES == 0
        data += entry
        for frame, location in zip(group, locations, strict=True):
            assert data[location.position : location.position + location.length] == frame.payload
        synced = Position(segment, len(data))
    return data


def decoded(data: bytes, seed: int, segment: int = SEGMENT) -> list[list[Frame]]:
    buffer = pa.py_buffer(data)
    position = HEADER_BYTES
    groups = []
    while head := codec.decode_head(buffer, Position(segment, position), seed):
        group = []
        for frame, location in codec.decode_frames(buffer, segment, head):
            assert crc32c(frame.payload) == location.crc
            group.append(
                Frame(
                    frame.kind,
                    frame.topic_id,
                    frame.partition,
                    frame.epoch,
                    frame.first_offset,
                    frame.count,
                    bytes(frame.payload),
                )
            )
        groups.append(group)
        position = head.end
    return groups


@given(st.lists(frames, max_size=5))
def test_entries_come_back(groups: list[list[Frame]]) -> None:
    _, seed = header()
    assert decoded(image(groups, seed), seed) == groups


@given(frames, st.randoms(use_true_random=False))
def test_a_payload_in_pieces_is_stored_as_if_it_were_whole(group: list[Frame], rng: random.Random) -> None:
    def cut(frame: Frame) -> Frame:
        whole = bytes(frame.payload)
        at = sorted(rng.randint(0, len(whole)) for _ in range(rng.randint(0, 3)))
        pieces = tuple(whole[i:j] for i, j in itertools.pairwise([0, *at, len(whole)]))
        return dataclasses.replace(frame, payload=pieces)

    _, seed = header()
    place = {"start": Position(SEGMENT, HEADER_BYTES), "seed": seed, "synced": Position(SEGMENT, HEADER_BYTES)}
    buffers, length, locations = codec.encode_entry(group, **place)
    cut_buffers, cut_length, cut_locations = codec.encode_entry([cut(frame) for frame in group], **place)
    assert (b"".join(cut_buffers), cut_length, cut_locations) == (b"".join(buffers), length, locations)


@pytest.mark.rule("W1")
@given(st.lists(frames, min_size=1, max_size=4), st.data())
@settings(max_examples=300)
def test_no_changed_bit_goes_unseen(groups: list[list[Frame]], data: st.DataObject) -> None:
    _, seed = header()
    sound = image(groups, seed)
    bit = data.draw(st.integers(HEADER_BYTES * 8, len(sound) * 8 - 1))
    changed = bytearray(sound)
    changed[bit // 8] ^= 1 << (bit % 8)
    buffer = pa.py_buffer(bytes(changed))
    position = HEADER_BYTES
    for group in groups:
        head = codec.decode_head(buffer, Position(SEGMENT, position), seed)
        if head is None:
            return
        for frame, (found, location) in zip(group, codec.decode_frames(buffer, SEGMENT, head), strict=True):
            if crc32c(found.payload) != location.crc:
                return
            assert bytes(found.payload) == frame.payload
            assert (found.kind, found.topic_id, found.first_offset) == (frame.kind, frame.topic_id, frame.first_offset)
        position = head.end


@pytest.mark.rule("W1")
def test_an_entry_passes_only_in_its_own_segment_place_and_life() -> None:
    _, seed = header()
    frame = Frame(FrameKind.RECORDS, b"t" * 16, 0, 1, 0, 1, b"payload")
    data = image([[frame]], seed)
    assert len(decoded(data, seed)) == 1
    assert decoded(data, header(SEGMENT + 1)[1]) == []
    assert decoded(data, seed, SEGMENT + 1) == []
    assert decoded(data, header(nonce=b"n" * 16)[1]) == []
    moved = data[:HEADER_BYTES] + bytes(8) + data[HEADER_BYTES:]
    assert codec.decode_head(pa.py_buffer(moved), Position(SEGMENT, HEADER_BYTES + 8), seed) is None


@given(st.binary(max_size=200), frames)
def test_entries_are_found_behind_anything(junk: bytes, group: list[Frame]) -> None:
    _, seed = header()
    first = image([], seed) + junk.ljust(codec.aligned(len(junk)), b"\0")
    buffers, _, _ = codec.encode_entry(
        group, start=Position(SEGMENT, len(first)), seed=seed, synced=Position(SEGMENT, HEADER_BYTES)
    )
    data = pa.py_buffer(first + b"".join(bytes(buffer) for buffer in buffers))
    found = list(codec.find_heads(data, SEGMENT, seed, HEADER_BYTES))
    assert [head.position for head in found] == [len(first)]
    assert codec.has_traces(data, SEGMENT)
    assert not codec.has_traces(data, SEGMENT + 1)


@pytest.mark.parametrize("length", [0, 1, HEADER_BYTES, HEADER_BYTES + 8, HEADER_BYTES + 56])
def test_a_file_that_ends_too_early_has_no_entry(length: int) -> None:
    _, seed = header()
    data = image([[Frame(FrameKind.RECORDS, b"t" * 16, 0, 1, 0, 1, b"payload")]], seed)
    short = pa.py_buffer(data[:length])
    assert codec.decode_head(short, Position(SEGMENT, HEADER_BYTES), seed) is None
    assert list(codec.find_heads(short, SEGMENT, seed, HEADER_BYTES)) == []


@given(st.integers(0, 2**63), st.text(max_size=40), st.binary(min_size=16, max_size=16), st.integers(0, 4096 * 8 - 1))
def test_header_blocks_come_back_and_no_changed_bit_goes_unseen(
    segment: int, cluster_id: str, nonce: bytes, bit: int
) -> None:
    block, seed = codec.encode_header(segment=segment, size_bytes=64, created_us=9, cluster_id=cluster_id, nonce=nonce)
    assert codec.decode_header(block) == (codec.FORMAT_VERSION, segment, 64, 9, cluster_id, seed)
    changed = bytearray(block)
    changed[bit // 8] ^= 1 << (bit % 8)
    assert codec.decode_header(bytes(changed)) is None
    assert codec.decode_header(block[:-1]) is None
