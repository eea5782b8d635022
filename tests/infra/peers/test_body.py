"""What was little of a body is read again from its beginning; of what was much nothing is kept."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from siltlog.infra.http.memory import SMALL_BYTES
from siltlog.infra.http.requests import BODIES
from siltlog.infra.peers.body import RepeatedBody

PARTS = (b"a" * 10, b"b" * (SMALL_BYTES - 10))


def body_of(*parts: bytes) -> RepeatedBody:
    messages = iter([{"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts])

    async def receive() -> Message:
        return next(messages)

    return RepeatedBody(receive)


async def read(body: RepeatedBody) -> bytes:
    found = b""
    while True:
        message = await body.receive()
        found += bytes(message["body"])
        if not message["more_body"]:
            return found


@pytest.mark.parametrize(("more", "again"), [(b"", True), (b"c", False)])
def test_what_was_little_comes_again(more: bytes, again: bool) -> None:
    async def run() -> None:
        parts = (PARTS[0], PARTS[1] + more)
        body = body_of(*parts)
        assert await read(body) == b"".join(parts)
        assert body.rewind() is again
        if again:
            assert await read(body) == b"".join(parts)

    asyncio.run(run())


def test_what_was_read_half_goes_on_from_the_connection() -> None:
    async def run() -> None:
        body = body_of(*PARTS)
        await body.receive()
        assert body.rewind()
        assert await read(body) == b"".join(PARTS)

    asyncio.run(run())


def test_what_was_read_whole_is_read_once() -> None:
    asked: list[str] = []

    class Bodies:
        async def read(self, receive: Any, length: str, held: Any) -> bytes:
            asked.append(length)
            return bytes((await receive())["body"] + (await receive())["body"])

    async def run() -> None:
        scope = {"headers": [(b"content-length", b"7")], "state": {BODIES: Bodies()}}
        body = body_of(PARTS[0], PARTS[1] + b"c")
        whole = await body.whole(scope)
        assert whole == PARTS[0] + PARTS[1] + b"c"
        assert await body.whole(scope) is whole
        assert body.rewind()
        assert await read(body) == whole
        assert asked == ["7"]

    asyncio.run(run())
