import asyncio
import itertools
from typing import Any

from siltlog.consumers.replies import SENT_BYTES, PiecesResponse


def test_a_large_reply_leaves_the_loop_to_others_between_its_parts() -> None:
    """Also where the socket takes all of it at once."""
    pieces = [b"a" * (3 * SENT_BYTES + 1), b"b" * 10, b"c" * SENT_BYTES]
    sent: list[bytes] = []
    turns: list[int] = []

    async def body() -> None:
        ended = False

        async def others() -> None:
            while not ended:
                turns.append(len(sent))
                await asyncio.sleep(0)

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                sent.append(bytes(message["body"]))

        async def receive() -> Any:
            raise AssertionError("a reply reads nothing")

        beside = asyncio.ensure_future(others())
        await PiecesResponse(pieces, {}, "application/octet-stream")({"method": "GET", "type": "http"}, receive, send)
        ended = True
        await beside

    asyncio.run(body())
    assert b"".join(sent) == b"".join(pieces)
    assert max(map(len, sent)) == SENT_BYTES
    assert all(after - before <= 1 for before, after in itertools.pairwise(turns))
