"""Replies of reads: in pieces, so that large ones are sent without being copied, and compressed where asked for."""

import asyncio
from collections.abc import Mapping, Sequence

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltlog.infra.http.media import chosen_coding
from siltlog.infra.http.pace import pace_of

CODINGS = ("zstd", "gzip")
COMPRESS_BYTES_MIN = 1024
THREAD_BYTES_MIN = 64 * 1024
"""From this size on compressing leaves the event loop."""

SENT_BYTES = 256 * 1024
"""Sent at once, then others have their turn on the event loop. What a client does not take of its reply stays counted
as under way."""

_LEVELS = {"zstd": 1, "gzip": 1}


class PiecesResponse(Response):
    """A response of known length whose body is sent piece by piece."""

    def __init__(self, pieces: Sequence[bytes | pa.Buffer], headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(b"", 200, headers, media_type)
        self.pieces = pieces
        self.headers["content-length"] = str(sum(len(piece) for piece in pieces))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            pace = pace_of(scope)
            for piece in self.pieces:
                view = memoryview(piece)
                for at in range(0, len(view), SENT_BYTES):
                    part = view[at : at + SENT_BYTES]
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                    if len(part) == SENT_BYTES:
                        await pace.rest()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def read_reply(
    request: Request, pieces: Sequence[bytes | pa.Buffer], media: str, headers: Mapping[str, str]
) -> Response:
    """200 with `pieces`, never to be stored, compressed when the request accepts that and it is worth it."""
    out = {"Cache-Control": "no-store", "Vary": "Accept, Accept-Encoding", **headers}
    size = sum(len(piece) for piece in pieces)
    coding = chosen_coding(request.headers.get("accept-encoding", ""), CODINGS)
    if coding is not None and size >= COMPRESS_BYTES_MIN:
        out["Content-Encoding"] = coding
        if size >= THREAD_BYTES_MIN:
            pieces = [await asyncio.to_thread(_compressed, pieces, coding)]
        else:
            pieces = [_compressed(pieces, coding)]
    return PiecesResponse(pieces, out, media)


def _compressed(pieces: Sequence[bytes | pa.Buffer], coding: str) -> bytes | pa.Buffer:
    whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return pa.Codec(coding, compression_level=_LEVELS[coding]).compress(whole, asbytes=True)
