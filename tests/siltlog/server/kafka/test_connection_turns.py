"""Requests that wait for nothing leave others their turn."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.http.memory import InFlight
from siltlog.server.kafka.connection import TURN_REQUESTS, KafkaConnection
from siltlog.server.kafka.incoming import scratch

REQUESTS = 100 * TURN_REQUESTS


@pytest.mark.rule("P12")
def test_very_many_requests_at_once_are_answered_some_at_a_time() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        answered, most, last = 0, 0, 0
        done = asyncio.Event()

        async def begin(frame: Any, held: Any) -> None:
            nonlocal answered
            answered += 1
            if answered == REQUESTS:
                done.set()

        def turn() -> None:
            nonlocal most, last
            most, last = max(most, answered - last), answered
            if not done.is_set():
                loop.call_soon(turn)

        served: Any = SimpleNamespace(
            answering=lambda connection: SimpleNamespace(begin=begin, end=lambda: None),
            in_flight=InFlight(1_000_000, SystemClock()),
            request_bytes=lambda: 1_000_000,
            scratch=scratch(),
        )
        connection = KafkaConnection(served)
        transport: Any = SimpleNamespace(is_closing=lambda: False, resume_reading=lambda: None, close=lambda: None)
        connection.transport = transport
        connection._intake.begin(cast(Any, transport))
        serving = loop.create_task(connection._serve())
        sent = (bytes((0, 0, 0, 1)) + b"x") * REQUESTS
        connection.get_buffer(-1)[: len(sent)] = sent
        connection.buffer_updated(len(sent))
        turn()
        await done.wait()
        serving.cancel()
        assert most == TURN_REQUESTS

    asyncio.run(test())
