"""The content codings: bodies of requests inflated to a limit, however much they stand for; files encoded once.

A few kilobytes may stand for gigabytes, so nothing is made beyond the limit, and what a decoder itself may take is
bounded too: a zstd frame's window by RFC 9659, the gzip members or zstd frames of one body by `MEMBERS_MAX`. The coding
`deflate` is one zlib stream (RFC 9110, section 8.4.1.2), and nothing else.
"""

import asyncio
import gzip
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, cast

from siltlog.infra.errors import SiltlogError, problem

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODINGS = ("gzip", "zstd", "deflate")
PIECE_BYTES = 64 * 1024
MEMBERS_MAX = 10_000
ZSTD_WINDOW_LOG_MAX = 23
"""8 MiB: what every decoder of this content coding takes, and no encoder may go above (RFC 9659)."""

THREADS = 2
INLINE_BYTES_MAX = 16 * 1024
INLINE_INFLATED_BYTES_MAX = 256 * 1024
"""Bodies up to the first, that become no more than the second, are inflated on the event loop."""

_GZIP_WBITS = 16 + zlib.MAX_WBITS
_ZSTD_LEVEL = 15
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG_MAX}


class _Decoder(Protocol):
    """Decodes one gzip member, zstd frame or zlib stream; has what `zlib` and `compression.zstd` have in common."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "gzip": lambda: cast(_Decoder, zlib.decompressobj(_GZIP_WBITS)),
    "zstd": lambda: zstd.ZstdDecompressor(options=_ZSTD_OPTIONS),
    "deflate": lambda: cast(_Decoder, zlib.decompressobj()),
}


def request_coding(content_encoding: str) -> str:
    """The coding that a request's Content-Encoding names; empty for none. Raises `unsupported_encoding`."""
    coding = content_encoding.strip().lower()
    if coding in ("", "identity"):
        return ""
    # RFC 9110, section 8.4.1.3: an old name of the same.
    coding = "gzip" if coding == "x-gzip" else coding
    if coding not in CODINGS:
        raise problem(
            "unsupported_encoding",
            f"the content encoding {content_encoding[:40]!r} is not taken; send the body with one of "
            f"{', '.join(CODINGS)}, or as it is",
        )
    return coding


class Inflater:
    """Inflates off the event loop what may take long, on threads of its own: nothing else waits for hostile bodies."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "inflate")

    async def inflated(self, body: bytes, coding: str, bytes_max: int) -> bytes:
        """Does the same as the function `inflated`."""
        if len(body) <= INLINE_BYTES_MAX:
            inline_max = min(bytes_max, INLINE_INFLATED_BYTES_MAX)
            try:
                return inflated(body, coding, inline_max)
            except SiltlogError as error:
                if error.error_code != "request_too_large" or inline_max == bytes_max:
                    raise
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, inflated, body, coding, bytes_max)


def inflated(body: bytes, coding: str, bytes_max: int) -> bytes:
    """Inflates all gzip members or zstd frames of `body`, or its one zlib stream, to at most `bytes_max` bytes.

    Raises Refused: `request_too_large` as soon as it is known to be, `malformed_body` that names the byte.
    """
    parts: list[bytes] = []
    size = at = members = 0
    while at < len(body) or not members:
        members += 1
        if coding == "deflate" and members > 1:
            raise problem(
                "malformed_body",
                f"the deflate body goes on behind its end, at byte {at}; send one zlib stream",
                byte=at,
            )
        if members > MEMBERS_MAX:
            raise problem(
                "malformed_body",
                f"the {coding} body has more than {MEMBERS_MAX} members, at byte {at}; compress it as one",
                byte=at,
            )
        start, decoder = at, _DECODERS[coding]()
        while not decoder.eof:
            piece = body[at : at + PIECE_BYTES]
            if not piece:
                raise problem(
                    "malformed_body", f"the {coding} body ends too early, at byte {len(body)}", byte=len(body)
                )
            try:
                # One more than may be, so that what is above the limit shows.
                out = decoder.decompress(piece, bytes_max - size + 1)
            except (zlib.error, zstd.ZstdError) as error:
                raise _broken(body, coding, start, at, bytes_max, error) from None
            size += len(out)
            if size > bytes_max:
                raise problem(
                    "request_too_large",
                    f"the inflated body is above the limit of {bytes_max} bytes; send smaller batches",
                    limit=bytes_max,
                )
            parts.append(out)
            at += len(piece) - len(decoder.unused_data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _broken(body: bytes, coding: str, start: int, at: int, bytes_max: int, error: Exception) -> SiltlogError:
    """The refusal of a body that its decoder stopped at within the piece at `at`, of the member that began at `start`.

    Decoders do not say where they stopped: the piece is gone through again, byte by byte.
    """
    decoder = _DECODERS[coding]()
    for piece_at in range(start, at, PIECE_BYTES):
        decoder.decompress(body[piece_at : min(piece_at + PIECE_BYTES, at)], bytes_max + 1)
    byte = at
    try:
        for byte in range(at, min(at + PIECE_BYTES, len(body))):
            decoder.decompress(body[byte : byte + 1], bytes_max + 1)
    except (zlib.error, zstd.ZstdError):
        pass
    what = str(error).rpartition(": ")[2]
    if coding == "deflate" and start == 0 and not _is_zlib(body):
        what += "; deflate is the zlib format (RFC 1950), and raw deflate without its header is not taken"
    return problem("malformed_body", f"the body is not valid {coding} at byte {byte}: {what}", byte=byte)


def _is_zlib(body: bytes) -> bool:
    """Tells whether `body` begins as a zlib stream does (RFC 1950, section 2.2)."""
    return len(body) > 1 and body[0] & 15 == zlib.DEFLATED and int.from_bytes(body[:2]) % 31 == 0


def encoded(content: bytes, coding: str) -> bytes:
    """Encodes `content` by gzip or zstd, slowly and small: for what is encoded once and sent often."""
    if coding == "zstd":
        return zstd.compress(content, _ZSTD_LEVEL)
    return gzip.compress(content, mtime=0)
