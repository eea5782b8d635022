import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import Unavailable
from siltlog.infra.http.connection.connections import Connections
from siltlog.infra.http.memory import STALL_SECONDS, InFlight

NONE = cast(Any, None)


@pytest.mark.rule("U8")
def test_who_takes_nothing_has_a_second_once_memory_is_short() -> None:
    allowed: list[float] = []

    def look(now: float, stall_seconds: float) -> float:
        allowed.append(stall_seconds)
        return 1.0

    async def test() -> None:
        clock = SystemClock()
        in_flight = InFlight(1_000, clock)
        crowd = cast(Any, SimpleNamespace(open=[SimpleNamespace(look=look)], looked_at=lambda seconds: None))
        connections = Connections(
            crowd, NONE, NONE, NONE, stall_seconds=30.0, in_flight=in_flight, clock=clock, logger=NONE
        )
        await connections._look()
        with pytest.raises(Unavailable):
            in_flight.hold().take(2_000)
        await connections._look()
        await connections._look()

    asyncio.run(test())
    assert allowed == [30.0, STALL_SECONDS, 30.0]
