"""The memory of requests under way, and how fast it empties: never above its bound, all of it given back."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import Unavailable
from siltlog.infra.http.drain_rate import RETRY_MS_MAX, RETRY_MS_MIN, WINDOW_SECONDS, DrainRate
from siltlog.infra.http.memory import LARGE_SHARE, SMALL_BYTES, InFlight
from siltlog.infra.http.requests import BodyReader

BOUND = 16 * SMALL_BYTES


@pytest.mark.rule("P5")
@given(st.lists(st.lists(st.integers(1, 3 * SMALL_BYTES), max_size=6), max_size=40), st.integers())
def test_it_is_never_above_its_bound_and_all_comes_back(requests: list[list[int]], seed: int) -> None:
    rng = random.Random(seed)

    async def run() -> None:
        in_flight = InFlight(BOUND, SystemClock())

        async def request(parts: list[int]) -> int:
            held = 0
            account = in_flight.hold()
            try:
                for part in parts:
                    account.take(part)
                    held += part
                    # A large one never takes what is kept for small ones.
                    assert in_flight.used_bytes <= (BOUND if held <= SMALL_BYTES else BOUND * LARGE_SHARE)
                    for _ in range(rng.randrange(3)):
                        await asyncio.sleep(0)
                return held
            finally:
                account.release()
                account.release()

        outcomes = await asyncio.gather(*map(request, requests), return_exceptions=True)
        for parts, outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, int):
                assert outcome == sum(parts)
            else:
                assert isinstance(outcome, Unavailable)
                assert (outcome.error_code, outcome.status) == ("overloaded", 503)
                assert outcome.retry_after_ms
        assert in_flight.used_bytes == 0

    asyncio.run(run())


def test_what_outlives_its_request_keeps_others_out() -> None:
    async def run() -> None:
        in_flight = InFlight(BOUND, SystemClock())
        outlives, request = in_flight.hold(), in_flight.hold()
        outlives.add(BOUND)
        with pytest.raises(Unavailable):
            request.take(1)
        assert request.room() == 0
        outlives.release()
        request.take(1)
        assert in_flight.used_bytes == 1

    asyncio.run(run())


def test_bodies_that_stand_still_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at once: only once somebody was refused, and not those that moved meanwhile."""
    # Longer than a busy machine lets one wait that goes on.
    monkeypatch.setattr("siltlog.infra.http.requests.STALL_SECONDS", 3.0)

    async def run() -> None:
        in_flight = InFlight(BOUND, SystemClock())
        bodies = BodyReader(BOUND, 600_000, in_flight)

        async def one(parts: list[int], pause_seconds: float) -> int:
            left = iter(parts)

            async def receive() -> dict[str, object]:
                part = next(left, None)
                if part is None:
                    await asyncio.Event().wait()
                assert part is not None
                await asyncio.sleep(pause_seconds)
                return {"type": "http.request", "body": b"x" * abs(part), "more_body": part > 0}

            held = in_flight.hold()
            try:
                return len(await bodies.read(receive, "", held))
            finally:
                held.release()

        large = BOUND // 2
        stalled = asyncio.create_task(one([large], 0.0))
        moving = asyncio.create_task(one([SMALL_BYTES] * 2 + [-1], 1.2))
        await asyncio.sleep(0.05)
        with pytest.raises(Unavailable):
            await one([-large], 0.0)
        assert not stalled.done()
        with pytest.raises(Unavailable) as given_up:
            await asyncio.wait_for(stalled, 60)
        assert given_up.value.error_code == "request_timeout"
        assert await moving == 2 * SMALL_BYTES + 1
        assert await one([-large], 0.0) == large
        assert in_flight.used_bytes == 0

    asyncio.run(run())


def test_a_reader_that_is_closed_refuses_what_it_reads_and_what_comes() -> None:
    async def run() -> None:
        bodies = BodyReader(100)

        async def never() -> dict[str, object]:
            await asyncio.Event().wait()
            raise AssertionError

        waiting = asyncio.create_task(bodies.read(never, ""))
        await asyncio.sleep(0)
        reason = Unavailable("over", error_code="shutting_down")
        bodies.close(reason)
        for reading in (waiting, bodies.read(never, "")):
            with pytest.raises(Unavailable) as refused:
                await reading
            assert refused.value is reason

    asyncio.run(run())


@given(st.floats(1, 1e9), st.integers(1, 10**10))
def test_a_steady_rate_is_what_a_retry_time_is_made_of(per_second: float, wanted: int) -> None:
    rate = DrainRate(0.0)
    assert rate.retry_ms(wanted, 0.0) is None
    for tick in range(1, 400):
        rate.left(int(per_second / 10), tick / 10)
    steady = int(per_second / 10) * 10
    if steady < 1:
        return
    assert rate.per_second(40.0) == pytest.approx(steady, rel=0.05)
    retry_ms = rate.retry_ms(wanted, 40.0)
    assert retry_ms == pytest.approx(min(max(wanted / steady * 1000, RETRY_MS_MIN), RETRY_MS_MAX), rel=0.1, abs=2)
    # Nothing left for a while: what was, says nothing any more.
    assert rate.retry_ms(wanted, 40.0 + 10 * WINDOW_SECONDS) is None
