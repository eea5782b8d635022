import asyncio
import itertools
from typing import Any

import pytest

from siltlog.infra.http.pace import REST_S, Pace
from siltlog.infra.http.replies import SENT_BYTES, PiecesResponse


def test_it_rests_between_its_parts_while_others_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    async def send(message: Any) -> None:
        """It takes everything at once."""

    async def body() -> None:
        pace = Pace()
        scope: Any = {"method": "GET", "type": "http"}
        pace.give(scope)
        for publishing, expected in ((False, [0, 0]), (True, [REST_S, REST_S])):
            if publishing:
                pace.published()
            rests.clear()
            await PiecesResponse([b"a" * (2 * SENT_BYTES + 1), b"b"], {}, "text/plain")(scope, receive, send)
            assert rests == expected

    monkeypatch.setattr("siltlog.infra.http.pace.asyncio.sleep", noted)
    asyncio.run(body())


async def receive() -> Any:
    raise AssertionError("a reply reads nothing")


def test_a_large_reply_leaves_the_loop_to_others_between_its_parts() -> None:
    """Also where the socket takes all of it at once."""
    pieces = [b"a" * (3 * SENT_BYTES + 1), b"b" * 10, b"c" * SENT_BYTES]
    sent: list[bytes] = []
    turns: list[int] = []

    async def body() -> None:
        ended = False

        async def others() -> None:
            while not ended:
                turns.append(sum(map(len, sent)))
                await asyncio.sleep(0)

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                sent.append(bytes(message["body"]))

        beside = asyncio.ensure_future(others())
        await PiecesResponse(pieces, {}, "application/octet-stream")({"method": "GET", "type": "http"}, receive, send)
        ended = True
        await beside

    asyncio.run(body())
    assert b"".join(sent) == b"".join(pieces)
    assert max(map(len, sent)) == SENT_BYTES
    assert all(after - before < 2 * SENT_BYTES for before, after in itertools.pairwise(turns))
