"""Calls of gRPC on their way through a door: what it hears of their caller, and what they hear of it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.grpc.calls import Answer, Asked, Calls
from siltlog.infra.http.connection.hang_up import waits, when_hung_up
from siltlog.infra.http.connection.peer import Peer
from siltlog.infra.http.requests import problem_reply
from siltlog.infra.security.grant import EVERYTHING, GRANT

Door = Callable[[Any, Any, Any], Awaitable[None]]
ASKED = Asked(method="POST", path="/v1/topics/t/records")
CONTEXT = cast(Any, SimpleNamespace(peer=lambda: "unix:", invocation_metadata=tuple))


def calls(door: Door) -> Calls:
    connection = SimpleNamespace(peer=Peer(), known=lambda: None, called=nullcontext)
    return Calls(door, cast(Any, SimpleNamespace(connection=lambda peer: connection)))


async def answered(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


@pytest.mark.rule("P1")
def test_what_a_call_waits_for_ends_once_its_caller_is_gone() -> None:
    async def run() -> None:
        waiting, ended = asyncio.Event(), asyncio.Event()
        heard: list[str] = []

        async def door(scope: Any, receive: Any, send: Any) -> None:
            hung_up = asyncio.Event()
            waits(scope["state"])
            forget = when_hung_up(hung_up.set)
            await receive()
            waiting.set()
            await hung_up.wait()
            forget()
            heard.append((await receive())["type"])
            scope["state"][GRANT] = EVERYTHING
            await answered(send, 200)
            ended.set()

        call = asyncio.create_task(calls(door).ask(CONTEXT, ASKED))
        async with asyncio.timeout(30):
            await waiting.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await ended.wait()
        assert heard == ["http.disconnect"]

    asyncio.run(run())


@pytest.mark.rule("A9")
def test_an_answer_has_the_grant_that_the_door_gave_and_no_other() -> None:
    def door(status: int, **state: Any) -> Door:
        async def served(scope: Any, receive: Any, send: Any) -> None:
            scope["state"] |= state
            if status == 200:
                await answered(send, status)
            else:
                await problem_reply(problem("tls_required", "in clear"), "r")(scope, receive, send)

        return served

    async def ask(door: Door) -> Answer:
        return await calls(door).ask(CONTEXT, ASKED)

    assert Answer().grant is None
    assert asyncio.run(ask(door(200, **{GRANT: EVERYTHING}))).grant is EVERYTHING
    with pytest.raises(KeyError, match=GRANT):
        asyncio.run(ask(door(200)))
    # Who is refused on the way in has none, and hears why.
    with pytest.raises(SiltlogError, match="in clear"):
        asyncio.run(ask(door(403)))
