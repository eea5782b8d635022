"""When a connection is read, and when not."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.http.connection import intake
from siltlog.infra.http.connection.intake import Intake
from siltlog.infra.http.memory import SMALL_BYTES, InFlight

MAX = 4 * SMALL_BYTES


class Transport:
    def __init__(self) -> None:
        self.reads = True
        self.closing = False

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True

    def is_closing(self) -> bool:
        return self.closing


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def made(in_flight: InFlight, pending: list[int], given_up: list[bool]) -> tuple[Intake, Transport]:
    one, transport = Intake(in_flight, lambda: pending[0], lambda: given_up.append(True)), Transport()
    one.begin(transport)  # type: ignore[arg-type]
    return one, transport


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "ROOM_LOOK_SECONDS", 0.001)


def test_it_rests_while_anybody_has_a_reason() -> None:
    async def test() -> None:
        one, transport = made(InFlight(MAX, SystemClock()), [0], [])
        one.pause("busy")
        one.pause("server")
        one.resume("busy")
        one.resume("never said")
        assert not transport.reads
        one.resume("server")
        assert transport.reads

    asyncio.run(test())


def test_without_room_it_rests_until_there_is_some() -> None:
    async def test() -> None:
        in_flight, given_up = InFlight(MAX, SystemClock()), list[bool]()
        other = in_flight.hold()
        other.add(MAX)
        one, transport = made(in_flight, [MAX], given_up)
        one.count(2 * SMALL_BYTES)
        assert not transport.reads
        other.release()
        await until(lambda: transport.reads)
        assert not given_up
        one.held.release()
        assert in_flight.room()

    asyncio.run(test())


def test_without_room_for_long_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "STALL_SECONDS", 0.0)

    async def test() -> None:
        in_flight, given_up = InFlight(MAX, SystemClock()), list[bool]()
        in_flight.hold().add(2 * MAX)
        one, transport = made(in_flight, [MAX], given_up)
        one.count(2 * SMALL_BYTES)
        await until(lambda: given_up)
        assert not transport.reads

    asyncio.run(test())


def test_only_what_is_pending_stays_counted() -> None:
    async def test() -> None:
        in_flight, pending = InFlight(MAX, SystemClock()), [SMALL_BYTES + 1]
        whole = in_flight.room()
        one, _ = made(in_flight, pending, [])
        one.count(2 * SMALL_BYTES)
        one.recount()
        assert in_flight.room() == whole - pending[0]
        pending[0] = SMALL_BYTES
        one.recount()
        assert in_flight.room() == whole

    asyncio.run(test())


def test_what_is_taken_of_a_connection_that_is_lost_keeps_no_room() -> None:
    async def test() -> None:
        in_flight, pending = InFlight(MAX, SystemClock()), [2 * SMALL_BYTES]
        whole = in_flight.room()
        one, _ = made(in_flight, pending, [])
        one.count(2 * SMALL_BYTES)
        one.end()
        assert in_flight.room() == whole
        pending[0] = SMALL_BYTES + 1
        one.recount()
        assert in_flight.room() == whole

    asyncio.run(test())
