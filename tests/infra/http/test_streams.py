import asyncio
from collections import Counter

import pytest

from siltlog.infra.http.draining import Draining
from siltlog.infra.http.streams import Stream, Streams

BEAT_SECONDS = 0.05


async def beats(stream: Stream, most: int) -> int:
    """How often it beat, until it ended or did `most` times."""
    count = 0
    dues: set[float] = set()
    while count < most:
        await stream.sleep()
        count += stream.beat
        stream.beat = False
        assert stream.due not in dues, "it beats once each time"
        dues |= {stream.due} if count else set()
        if stream.ended:
            break
    return count


@pytest.mark.rule("U6")
def test_every_stream_beats_again_and_again() -> None:
    async def test() -> None:
        streams = Streams(Draining(), BEAT_SECONDS)
        counted: Counter[str] = Counter()

        async def one(name: str) -> None:
            with streams.opened("events") as stream:
                counted[name] += await beats(stream, 3)

        await asyncio.wait_for(asyncio.gather(*(one(f"stream {number}") for number in range(50))), 60)
        assert set(counted.values()) == {3}
        assert len(counted) == 50
        assert len(streams) == 0
        # And once more, after a time without any.
        await asyncio.sleep(BEAT_SECONDS * 2)
        await asyncio.wait_for(one("late"), 60)

    asyncio.run(test())


@pytest.mark.rule("U6")
def test_a_thousand_idle_streams_have_one_timer() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        timers = 0
        call_at = loop.call_at

        def counting(*arguments: object, **named: object) -> asyncio.TimerHandle:
            nonlocal timers
            timers += 1
            return call_at(*arguments, **named)  # type: ignore[arg-type]

        loop.call_at = counting  # type: ignore[method-assign, assignment]
        streams = Streams(Draining(), BEAT_SECONDS)
        opened = [streams.opened("events") for _ in range(1_000)]
        entered = [each.__enter__() for each in opened]
        waiting = [asyncio.create_task(beats(stream, 1)) for stream in entered]
        await asyncio.wait_for(asyncio.gather(*waiting), 60)
        # Some may have come a moment later than others, never each by itself.
        assert timers < 20
        for each in opened:
            each.__exit__(None, None, None)

    asyncio.run(test())


def test_a_drain_ends_those_that_are_open_and_those_to_come() -> None:
    async def test() -> None:
        draining = Draining()
        streams = Streams(draining)
        with streams.opened("topic_socket") as stream:
            waiting = asyncio.create_task(stream.sleep())
            await asyncio.sleep(0)
            draining.begin(taking_runs=False)
            streams.drain()
            await asyncio.wait_for(waiting, 60)
            assert stream.ended
        with streams.opened("events") as late:
            assert late.ended

    asyncio.run(test())


def test_what_was_woken_before_it_sleeps_does_not_sleep() -> None:
    async def test() -> None:
        with Streams(Draining()).opened("events") as stream:
            stream.wake()
            await asyncio.wait_for(stream.sleep(), 60)
            stream.cut()
            assert stream.ended

    asyncio.run(test())


def test_it_counts_by_kind() -> None:
    async def test() -> None:
        streams = Streams(Draining())
        with streams.opened("events") as events, streams.opened("group_socket") as member:
            events.sent(3)
            member.sent(4)
            member.cut()
        assert streams.records == {"events": 3, "topic_socket": 0, "group_socket": 4, "search": 0, "live": 0}
        assert streams.too_slow == {"events": 0, "topic_socket": 0, "group_socket": 1, "search": 0, "live": 0}

    asyncio.run(test())
