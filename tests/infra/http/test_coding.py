"""Content codings: what was compressed comes out as it was, or is refused with the place, and bombs cost nothing."""

import asyncio
import gzip
import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from bombs import zstd_bomb
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.infra.errors import Refused
from siltlog.infra.http.coding import INLINE_BYTES_MAX, MEMBERS_MAX, Inflater, inflated, request_coding

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 1024 * 1024
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": lambda content: zstd.compress(content, options={zstd.CompressionParameter.checksum_flag: 1}),
    "deflate": zlib.compress,
}
MEMBERED = ("gzip", "zstd")
"""A body may have several members of these, one behind the other."""


def refusal(body: bytes, coding: str, bytes_max: int = MIB) -> Refused:
    with pytest.raises(Refused) as caught:
        inflated(body, coding, bytes_max)
    return caught.value


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=300) | st.integers(0, 200_000).map(bytes), min_size=1, max_size=5),
    st.sampled_from(list(COMPRESS)),
)
def test_all_members_come_out_as_they_went_in(parts: list[bytes], coding: str) -> None:
    content = b"".join(parts)
    body = b"".join(map(COMPRESS[coding], parts if coding in MEMBERED else [content]))
    assert inflated(body, coding, len(content)) == content
    assert asyncio.run(Inflater().inflated(body, coding, len(content))) == content
    if content:
        error = refusal(body, coding, len(content) - 1)
        assert (error.error_code, error.status, error.members["limit"]) == ("request_too_large", 413, len(content) - 1)


def test_frames_to_be_skipped_are_skipped() -> None:
    skipped = bytes.fromhex("502a4d18") + (3).to_bytes(4, "little") + b"abc"
    assert inflated(skipped + COMPRESS["zstd"](b"x") + skipped, "zstd", 10) == b"x"


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_large_body_on_a_thread(coding: str) -> None:
    content = random.Random(1).randbytes(3 * INLINE_BYTES_MAX) + bytes(MIB)
    body = COMPRESS[coding](content)
    inflater = Inflater()
    assert asyncio.run(inflater.inflated(body, coding, len(content))) == content
    with pytest.raises(Refused):
        asyncio.run(inflater.inflated(body, coding, len(content) - 1))
    # Small as it is sent, and yet too much for the event loop.
    assert asyncio.run(inflater.inflated(COMPRESS[coding](bytes(MIB)), coding, MIB)) == bytes(MIB)


@pytest.mark.rule("B3")
def test_inflating_leaves_the_threads_of_others_alone() -> None:
    async def run() -> None:
        shared = ThreadPoolExecutor(1)
        shared.shutdown()
        asyncio.get_running_loop().set_default_executor(shared)
        with pytest.raises(RuntimeError):
            await asyncio.to_thread(bytes)
        assert await Inflater().inflated(gzip.compress(bytes(MIB)), "gzip", MIB) == bytes(MIB)

    asyncio.run(run())


@pytest.mark.rule("B1")
@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (zstd_bomb(10 << 30), "zstd"),
        (COMPRESS["gzip"](bytes(64 * MIB)) * 160, "gzip"),
        (COMPRESS["deflate"](bytes(64 * MIB)), "deflate"),
    ],
    ids=["zstd", "gzip", "deflate"],
)
def test_gigabytes_cost_no_memory(body: bytes, coding: str) -> None:
    tracemalloc.start()
    try:
        error = refusal(body, coding, 4 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 20 * MIB
    finally:
        tracemalloc.stop()
    assert error.error_code == "request_too_large"


@pytest.mark.rule("B9")
@pytest.mark.parametrize("coding", COMPRESS)
def test_broken_streams_are_refused_with_the_byte(coding: str) -> None:
    whole = COMPRESS[coding](random.Random(2).randbytes(200_000))
    damaged = whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:]
    cases = {
        b"": 0,
        whole[:-1]: len(whole) - 1,
        whole[:100_000]: 100_000,
        whole + whole[:10]: len(whole) + 10 if coding in MEMBERED else None,
        damaged: None,
        whole + b"garbage": None,
        whole + bytes(8): None,
        b"plain text": None,
    }
    for body, byte in cases.items():
        error = refusal(body, coding)
        assert (error.error_code, error.status) == ("malformed_body", 400)
        assert f"byte {error.members['byte']}" in error.detail
        if byte is not None:
            assert (error.members["byte"], "too early" in error.detail) == (byte, True)
        elif body.startswith(whole):
            assert len(whole) <= error.members["byte"] < len(body), "what follows is to blame"
    assert len(damaged) - 10 < refusal(damaged, coding).members["byte"] < len(damaged)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(list(COMPRESS)))
def test_damage_is_found_or_harmless(data: st.DataObject, coding: str) -> None:
    content = random.Random(3).randbytes(300) + bytes(3_000)
    body = bytearray(COMPRESS[coding](content) * (2 if coding in MEMBERED else 1))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))]
    try:
        out = inflated(bytes(body), coding, 2 * len(content))
    except Refused as error:
        if error.error_code == "malformed_body":
            assert 0 <= error.members["byte"] <= len(body)
    else:
        # A checksum says so, but for what is no content: a gzip header's time, a frame to be skipped.
        assert out in (content * 2, content, b"")


@pytest.mark.rule("B1")
def test_windows_are_bounded() -> None:
    wide = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    error = refusal(wide.compress(b"x" * 1000) + wide.flush(), "zstd")
    assert (error.error_code, "memory" in error.detail) == ("malformed_body", True)


@pytest.mark.rule("B2")
@pytest.mark.parametrize("coding", MEMBERED)
def test_members_are_bounded(coding: str) -> None:
    nothing = COMPRESS[coding](b"")
    assert inflated(nothing * MEMBERS_MAX, coding, 1) == b""
    error = refusal(nothing * (MEMBERS_MAX + 1), coding)
    assert (error.error_code, error.members["byte"]) == ("malformed_body", len(nothing) * MEMBERS_MAX)


def test_which_codings_are_taken() -> None:
    given = {"": "", "identity": "", " GZIP ": "gzip", "x-gzip": "gzip", "zstd": "zstd", "Deflate": "deflate"}
    assert {name: request_coding(name) for name in given} == given
    for name in ("br", "x-deflate", "gzip, gzip", "gzip;q=1", "zstd,gzip", "x" * 5_000):
        with pytest.raises(Refused) as caught:
            request_coding(name)
        assert (caught.value.error_code, caught.value.status) == ("unsupported_encoding", 415)
        assert "gzip, zstd, deflate" in caught.value.detail


def test_raw_deflate_is_no_gzip() -> None:
    assert refusal(zlib.compress(b"x"), "gzip").error_code == "malformed_body"


@pytest.mark.rule("B9")
def test_deflate_is_one_zlib_stream_and_says_so() -> None:
    packed = zlib.compress(b"x" * 100)
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    for body in (raw.compress(b"x" * 100) + raw.flush(), COMPRESS["gzip"](b"x"), b"plain"):
        error = refusal(body, "deflate")
        assert (error.error_code, error.members["byte"] <= 2) == ("malformed_body", True)
        assert "zlib format (RFC 1950), and raw deflate without its header is not taken" in error.detail
    error = refusal(packed + packed, "deflate")
    assert (error.members["byte"], "send one zlib stream" in error.detail) == (len(packed), True)
    error = refusal(packed[:10] + b"damaged" + packed[10:], "deflate")
    assert "RFC 1950" not in error.detail, "it began as one"
