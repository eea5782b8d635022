"""Clients that hang up while they wait: nothing waits on for them."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_rig import API_VERSIONS, FETCH, Tape, fetch, served, the_part

from siltlog.infra.clock import SystemClock
from siltlog.infra.http.memory import InFlight
from siltlog.server.kafka.connection import KafkaConnection
from siltlog.server.kafka.incoming import scratch
from siltlog.server.kafka.session import FAILED_SECONDS, Session

LONG_SECONDS = 3_600.0


def connection() -> KafkaConnection:
    served: Any = SimpleNamespace(in_flight=InFlight(1, SystemClock()), scratch=scratch())
    return KafkaConnection(served)


@pytest.mark.rule("P1")
def test_a_fetch_ends_with_its_connection() -> None:
    """It ends before another that came later and waits for a shorter time; what came behind it is answered, too."""
    with served() as (http, bootstrap, _):
        http.create("waited")
        with Tape(bootstrap) as gone, Tape(bootstrap) as stays:
            gone.send(FETCH, 11, **(fetch("waited", 0) | {"max_wait_ms": 30_000}))
            gone.send(API_VERSIONS, 0)
            gone.socket.shutdown(socket.SHUT_WR)
            stays.ask(FETCH, 11, **(fetch("waited", 0) | {"max_wait_ms": 3_000}))
            gone.socket.setblocking(False)
            assert the_part(gone.answer(FETCH, 11))["error_code"] == 0
            assert gone.answer(API_VERSIONS, 0)["error_code"] == 0
            gone.socket.settimeout(LONG_SECONDS)
            assert gone.is_closed()


@pytest.mark.rule("KF31")
def test_who_fails_to_log_in_is_told_a_moment_later() -> None:
    async def test() -> None:
        said: list[Any] = []

        async def rest(seconds: float) -> None:
            said.append(seconds)

        fake: Any = SimpleNamespace(
            rest=rest, shutdown=lambda: said.append("ends"), peer=SimpleNamespace(certificate=None)
        )
        sasl: Any = SimpleNamespace()
        fetches: Any = None
        await Session(fake, sasl, None, fetches).failed()
        assert said == [FAILED_SECONDS, "ends"]

    asyncio.run(test())


@pytest.mark.rule("KF31")
@pytest.mark.parametrize("late", [False, True])
def test_a_rest_ends_with_its_connection(late: bool) -> None:
    async def test() -> None:
        rests = connection()
        if late:
            rests.hang_up.told()
        resting = asyncio.create_task(rests.rest(LONG_SECONDS))
        await asyncio.sleep(0)
        rests.hang_up.told()
        await resting
        await connection().rest(0.0)

    asyncio.run(test())
