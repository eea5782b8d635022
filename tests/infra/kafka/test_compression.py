"""Records are inflated to a limit, by each codec, and what is broken is refused before it takes memory."""

import random

import pyarrow as pa
import pytest
import xxhash

from siltlog.infra.kafka.compression import CODECS, GZIP, LZ4, NO_CODEC, SNAPPY, ZSTD, deflated, inflated

STREAMED = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}
XERIAL = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
LARGE = random.Random(1).randbytes(300_000) + bytes(1_000_000)


def by_arrow(data: bytes, codec: int) -> bytes:
    if codec == SNAPPY:
        return bytes(pa.compress(data, "snappy", asbytes=True))
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, STREAMED[codec]) as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def in_blocks(data: bytes, block_bytes: int) -> bytes:
    blocks = [by_arrow(data[at : at + block_bytes], SNAPPY) for at in range(0, len(data), block_bytes)]
    return XERIAL + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


@pytest.mark.parametrize("codec", [*STREAMED, SNAPPY])
@pytest.mark.parametrize("data", [b"a", b"records" * 50, LARGE], ids=len)
def test_what_was_compressed_is_inflated(codec: int, data: bytes) -> None:
    assert inflated(memoryview(by_arrow(data, codec)), codec, len(data)) == data
    with pytest.raises(OverflowError):
        inflated(memoryview(by_arrow(data, codec)), codec, len(data) - 1)


def test_without_a_codec_nothing_is_copied() -> None:
    data = memoryview(b"abc")
    assert inflated(data, NO_CODEC, 1) is data


@pytest.mark.parametrize("codec", [*STREAMED, SNAPPY])
def test_what_is_broken_is_refused(codec: int) -> None:
    data = by_arrow(LARGE, codec)
    for broken in (data[: len(data) // 2], data[:3], b"no such codec", b"\xff" * 20):
        with pytest.raises(ValueError, match=r"its records are not|its records end|cannot stand for"):
            inflated(memoryview(broken), codec, 10_000_000)


@pytest.mark.parametrize("rest", [bytes(1), bytes(9), b"rest", b"\x1f"])
def test_what_follows_a_stream_of_gzip_is_passed_over_as_kafkas_brokers_do(rest: bytes) -> None:
    data = memoryview(by_arrow(LARGE, GZIP) + rest)
    assert inflated(data, GZIP, len(LARGE)) == LARGE
    with pytest.raises(OverflowError):
        inflated(data, GZIP, len(LARGE) - 1)
    with pytest.raises(OverflowError):
        inflated(memoryview(by_arrow(bytes(50_000_000), GZIP) + rest), GZIP, 0)


@pytest.mark.parametrize("rest", [bytes(1), bytes(9), b"rest", b"\x04\x22\x4d\x18"])
@pytest.mark.parametrize("data", [b"a", LARGE], ids=len)
def test_what_follows_a_frame_of_lz4_is_passed_over_as_kafkas_brokers_do(data: bytes, rest: bytes) -> None:
    own = bytes(deflated(data, LZ4))
    with_checksums = bytes(own[:4]) + checked_lz4(data)
    for frame in (by_arrow(data, LZ4), own, with_checksums):
        assert inflated(memoryview(frame + rest), LZ4, len(data)) == data
        with pytest.raises(OverflowError):
            inflated(memoryview(frame + rest), LZ4, len(data) - 1)
        with pytest.raises(ValueError, match="its records are not lz4"):
            inflated(memoryview(frame[:-5] + rest[:1]), LZ4, len(data))


def checked_lz4(data: bytes) -> bytes:
    """What follows the magic of a frame that has its size, and checksums of its blocks and of all."""
    head = bytes((0b0111_1100, 7 << 4)) + len(data).to_bytes(8, "little")
    pieces = [head, bytes((xxhash.xxh32_intdigest(head) >> 8 & 0xFF,))]
    for at in range(0, len(data), 1 << 22):
        block = bytes(pa.Codec("lz4_raw").compress(data[at : at + (1 << 22)]))
        pieces += [len(block).to_bytes(4, "little"), block, xxhash.xxh32_intdigest(block).to_bytes(4, "little")]
    return b"".join([*pieces, bytes(4), xxhash.xxh32_intdigest(data).to_bytes(4, "little")])


def test_streams_of_gzip_follow_each_other_and_none_of_them_is_broken() -> None:
    stream = by_arrow(b"abc", GZIP)
    assert inflated(memoryview(stream * 3), GZIP, 9) == b"abc" * 3
    for broken in (stream + stream[:-3], stream + stream[:2], stream[:-1]):
        with pytest.raises(ValueError, match="its records are not gzip"):
            inflated(memoryview(broken), GZIP, 9)


def test_a_bomb_is_inflated_to_the_limit_only() -> None:
    for codec in STREAMED:
        bomb = memoryview(by_arrow(bytes(50_000_000), codec))
        for bytes_max in (1_000, 0, -1):
            with pytest.raises(OverflowError):
                inflated(bomb, codec, bytes_max)


def test_snappy_comes_as_a_block_and_in_javas_frames() -> None:
    assert inflated(memoryview(in_blocks(LARGE, 32_768)), SNAPPY, len(LARGE)) == LARGE
    with pytest.raises(OverflowError):
        inflated(memoryview(in_blocks(LARGE, 32_768)), SNAPPY, len(LARGE) - 1)
    for broken in (in_blocks(LARGE, 32_768)[:-1], XERIAL + b"\0", XERIAL + b"\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match="a block of snappy"):
            inflated(memoryview(broken), SNAPPY, 10_000_000)


def test_the_size_that_a_block_of_snappy_claims_takes_no_memory() -> None:
    before = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match="a block of snappy of 5 bytes cannot stand for 2147483647"):
        inflated(memoryview(b"\xff\xff\xff\xff\x07"), SNAPPY, 2**31 - 1)
    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize("codec", [*STREAMED, SNAPPY])
def test_mutated_bytes_are_refused_or_inflated(codec: int) -> None:
    chance = random.Random(codec)
    data = by_arrow(LARGE[299_000:301_000], codec)
    for _ in range(200):
        mutated = bytearray(data)
        mutated[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        try:
            found = inflated(memoryview(mutated), codec, 5_000)
        except (ValueError, OverflowError):
            continue
        assert len(found) <= 5_000


@pytest.mark.parametrize("codec", sorted(CODECS))
@pytest.mark.parametrize("data", [b"", b"a", b"records" * 50, bytes(70_000), LARGE, LARGE * 4], ids=len)
def test_what_is_deflated_is_inflated(codec: int, data: bytes) -> None:
    found = deflated(data, codec)
    assert inflated(memoryview(found), codec, len(data)) == data
    assert deflated(pa.py_buffer(data), codec) == found
    if data.startswith(b"records") or data == bytes(70_000):
        assert len(found) < len(data) or codec == NO_CODEC


def test_blocks_of_lz4_are_independent_and_have_a_size_that_their_number_says() -> None:
    for size, number in ((10, 4), (65_536, 4), (65_537, 5), (1_000_000, 6), (1_048_577, 7), (9_000_000, 7)):
        frame = deflated(bytes(size), LZ4)
        assert (frame[4] & 0b1110_0000, frame[5] >> 4) == (0b0110_0000, number)
