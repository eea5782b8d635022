"""Bursts: what waits for their end, for how long, and what does not; pure, and on a real log."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_rig import LOGGER, body, running_log

from siltlog.infra.metrics.metrics import Metrics
from siltlog.ingest.flush import burst as bursts
from siltlog.ingest.flush.burst import BURST_BYTES, FLUSH_TIMES_MAX, LOOK_SECONDS, Burst
from siltlog.ingest.flush.due import EARLY_BYTES, Load
from siltlog.ingest.flush.flusher import Flusher
from siltlog.ingest.flush.retries import Retries
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.wal.disk import Disk

START = 100.0
CREDIT_SECONDS = 10
STEP = 0.5
LARGE_BYTES = 500_000
LARGE = Load("t", 0, 16 * EARLY_BYTES, START, 1_000, 1)


class Publishers:
    """Publishes to a server at a rate, and asks every half second what waits."""

    def __init__(self) -> None:
        self.burst = Burst(CREDIT_SECONDS * 1000)
        self.now = START
        self.bytes = 0
        self.burst.see(0, self.now)

    def waits(self, bytes_per_second: int, load: Load | None = None) -> bool:
        """Goes on for a step; whether `load` waits then, or one that has just come."""
        self.now += STEP
        self.bytes += int(bytes_per_second * STEP)
        self.burst.see(self.bytes, self.now)
        return not self.burst.without_waiting([load or LARGE._replace(oldest_seconds=self.now)], self.now)


def busy(publishers: Publishers) -> bool:
    return publishers.waits(BURST_BYTES)


def calm(publishers: Publishers) -> bool:
    return publishers.waits(BURST_BYTES - 2)


def test_files_wait_while_much_came_in_the_last_second() -> None:
    publishers = Publishers()
    assert not calm(publishers)
    assert publishers.waits(4 * BURST_BYTES)
    assert publishers.waits(0), "clients pause between two requests"
    assert not publishers.waits(0)
    assert [busy(publishers) for _ in range(2)] == [False, True]


def test_a_look_too_soon_after_another_changes_nothing() -> None:
    burst = Burst(1_000)
    burst.see(0, START)
    burst.see(BURST_BYTES, START + LOOK_SECONDS / 2)
    assert burst.without_waiting([LARGE], START + LOOK_SECONDS / 2) == [LARGE]
    burst.see(BURST_BYTES, START + LOOK_SECONDS)
    assert not burst.without_waiting([LARGE], START + LOOK_SECONDS)


@pytest.mark.rule("F9")
@given(st.integers(1, 40), st.floats(0.01, 0.3))
def test_large_requests_that_come_seldom_are_no_burst(seconds: int, step: float) -> None:
    burst = Burst(CREDIT_SECONDS * 1000)
    now = START
    while now < START + seconds:
        # One of a third of a burst's bytes each second.
        burst.see(int(now - START) * BURST_BYTES // 3, now)
        assert burst.without_waiting([LARGE], now)
        now += step
    assert burst.seconds_left == CREDIT_SECONDS


@pytest.mark.rule("F9")
def test_who_is_never_calm_is_flushed_as_usual() -> None:
    publishers = Publishers()
    waited = [busy(publishers) for _ in range(100)]
    assert waited[1:] == sorted(waited[1:], reverse=True)
    assert sum(waited) * STEP == pytest.approx(CREDIT_SECONDS, abs=STEP)
    for _ in range(int(3 / STEP)):
        calm(publishers)
    assert sum(busy(publishers) for _ in range(100)) * STEP == pytest.approx(3, abs=2 * STEP), "as long as it was calm"


@pytest.mark.rule("F9")
@given(st.lists(st.booleans(), max_size=200))
def test_no_more_is_waited_than_was_earned(steps: list[bool]) -> None:
    publishers = Publishers()
    waited = sum((busy if is_busy else calm)(publishers) for is_busy in steps) * STEP
    assert waited <= CREDIT_SECONDS + steps.count(False) * STEP


@pytest.mark.rule("F9")
@given(
    st.builds(
        Load,
        topic=st.just("t"),
        partition=st.just(0),
        bytes=st.integers(1, 4 * EARLY_BYTES),
        oldest_seconds=st.floats(START - 20, START),
        flush_ms=st.integers(1, 3_000),
        flush_bytes=st.just(1),
        pins_oldest_segment=st.booleans(),
        hidden=st.booleans(),
        awaited=st.booleans(),
    )
)
def test_only_what_makes_large_files_waits_and_nobody_needs(load: Load) -> None:
    publishers = Publishers()
    if publishers.waits(4 * BURST_BYTES, load):
        age = publishers.now - load.oldest_seconds
        assert not (load.awaited or load.hidden or load.pins_oldest_segment)
        assert age < FLUSH_TIMES_MAX * load.flush_ms / 1000
        assert load.bytes / EARLY_BYTES >= max(age * 1000 / load.flush_ms, 1)


def test_what_gets_little_is_flushed_as_often_as_before_a_burst() -> None:
    """And so does not wait beside others of its topic, whose files it would have go with it."""
    publishers = Publishers()
    rates = {EARLY_BYTES - 1: False, EARLY_BYTES: True}
    for a_second, waits in rates.items():
        for seconds in range(1, FLUSH_TIMES_MAX):
            load = LARGE._replace(bytes=a_second * seconds, oldest_seconds=publishers.now + STEP - seconds)
            assert publishers.waits(4 * BURST_BYTES, load) is waits, (a_second, seconds)


def test_another_credit_leaves_spent_what_was_spent() -> None:
    publishers = Publishers()
    for _ in range(4):
        publishers.waits(4 * BURST_BYTES)
    burst = publishers.burst
    assert burst.seconds_left == CREDIT_SECONDS - 4 * STEP
    burst.reconfigure((CREDIT_SECONDS + 10) * 1000)
    assert burst.seconds_left == CREDIT_SECONDS + 10 - 4 * STEP
    burst.reconfigure(0)
    assert not busy(publishers)
    assert burst.seconds_left == 0
    burst.reconfigure(CREDIT_SECONDS * 1000)
    assert burst.seconds_left == CREDIT_SECONDS - 4 * STEP


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[Burst]:
    """A burst that does not end, in which what one publish brings is much."""
    monkeypatch.setattr(bursts, "BURST_BYTES", 0)
    monkeypatch.setattr(bursts, "EARLY_BYTES", LARGE_BYTES)
    yield Burst(3_600_000)


async def publish(log: Log, topic: TopicLog, nbytes: int, partition: int = 0) -> None:
    await log.append(topic, body("x" * nbytes, partition=partition), None).durable
    log.flush_due.set()


async def publish_large(log: Log, topic: TopicLog) -> None:
    """Publishes what makes a file worth waiting for, at once: the flusher may look at any time."""
    await publish(log, topic, LARGE_BYTES)


async def until_flushed(topic: TopicLog, partition: int, offset: int) -> None:
    while topic.partitions[partition].offsets.table < offset:
        await asyncio.sleep(0.01)


@pytest.mark.rule("F9")
def test_a_burst_makes_files_of_what_is_small_awaited_or_too_much_for_the_log(tmp_path: Path, always: Burst) -> None:
    async def test() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            flusher = Flusher(log, Retries(log.clock), LOGGER, Metrics(), burst=always)
            try:
                topic = await topics.create("t", 2, {"flush.ms": 3_600_000, "flush.bytes": 1})
                large, small = topic.partitions
                while always.seconds_left == 3_600:
                    await asyncio.sleep(0.01)
                await publish_large(log, topic)
                await publish(log, topic, 1, partition=1)
                await until_flushed(topic, 1, 1)
                assert large.offsets.table == 0, "it waits"
                landed = large.when_in_table(large.offsets.synced)
                assert landed is not None
                log.flush_due.set()
                await landed
                assert large.offsets.table == large.offsets.synced
                await publish_large(log, topic)
                waiting = large.offsets.synced
                while not log.admission.wal_holds_much():
                    await publish_large(log, topic)
                # The last of them may have come once that was flushed, and waits then.
                await until_flushed(topic, 0, waiting)
                assert small.offsets.table == 1
            finally:
                await flusher.stop(5)

    asyncio.run(asyncio.wait_for(test(), 60))
