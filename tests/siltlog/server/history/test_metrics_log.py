"""`_metrics` on a real write-ahead log: what was measured is there after a restart, whatever fails meanwhile."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from failing_system import FailingSystem
from hypothesis import given
from hypothesis import strategies as st
from kept_log import KeptLog
from log_rig import GatedDisk, running_log

from siltlog.consumers.dead_letters.record import Stored
from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra import names
from siltlog.infra.clock import MICROS_PER_SECOND, SystemClock
from siltlog.infra.errors import problem
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.records import NewRecord
from siltlog.ingest.log.log import Log
from siltlog.ingest.topics.topics import Topics
from siltlog.server.history import metrics_log
from siltlog.server.history.history import History, Past, grid_of
from siltlog.server.history.kept import KEPT
from siltlog.server.history.metrics_log import HOURS, MINUTES, MetricsLog
from siltlog.server.history.record import columns_of, minute_of, minute_value
from siltlog.server.history.sampling import Sample, Series
from siltlog.server.history.series_rings import HOUR_SECONDS, STEP_SECONDS
from siltlog.server.topic_reading import stored_in

RATE = Series(catalogue.RECORDS.name)
MINE = Series(catalogue.RECORDS.name, "topic", "orders")
LAG = Series(catalogue.GROUP_LAG_SECONDS.name, "group", "billing")
P99 = Series(catalogue.ACK_SECONDS.name, "quantile", "0.99")
BEGIN = int(time.time()) // HOUR_SECONDS * HOUR_SECONDS - 5 * HOUR_SECONDS
"""Whole hours ago: the log takes no records of times that are to come."""


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


class Set(SystemClock):
    """A clock that is set."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def now_us(self) -> int:
        return self.seconds * MICROS_PER_SECOND


class Node:
    """A node on a log, from a time on."""

    def __init__(self, log: Log, topics: Topics, seconds: int, name: str = "node-0") -> None:
        self.log = log
        self.clock = Set(seconds)
        self.history = History(Metrics(), self.clock)
        self.fetcher = Fetcher(log, RowGroups(log.store))
        self.system = FailingSystem(log, topics)
        self.said = KeptLog()
        self.metrics_log = MetricsLog(self.history, log, self.fetcher, self.system, name, self.clock, self.said)

    async def runs(self, minutes: int, sample: Callable[[int], Sample], *, writes: bool = True) -> None:
        """Goes on for so many minutes; `sample` says what there is at a time."""
        for _ in range(minutes):
            for step in range(6):
                now = self.clock.seconds + step * STEP_SECONDS
                self.history.take(sample(now), now)
            self.clock.seconds += 60
            if writes:
                await self.metrics_log.write()

    async def records(self, partition: int = MINUTES) -> list[Stored]:
        topic = self.log.topic(names.METRICS_TOPIC)
        end = topic.partitions[partition].bounds().high_watermark
        return await stored_in(self.fetcher, topic, 0, end, partition)

    async def past(self, seconds: int, step_seconds: int = 0) -> Past:
        now = self.clock.seconds
        return await self.history.past(
            {kept.metric.name for kept in KEPT}, lambda _: True, grid_of(now - seconds, now, now, step_seconds)
        )


def counted(now: int) -> Sample:
    minute = float((now - BEGIN) // 60)
    return {RATE: minute, MINE: minute / 3, LAG: minute + now % 60, P99: 0.001}


@asynccontextmanager
async def running(folder: Path, seconds: int = BEGIN) -> AsyncIterator[Node]:
    async with running_log(folder, GatedDisk()) as (log, topics):
        yield Node(log, topics, seconds)


def by_series(past: Past) -> dict[Series, list[float]]:
    return {one: values.tolist() for one, values in zip(past.series, past.values, strict=True)}


@on_a_loop
async def test_each_minute_is_a_record_that_names_each_topic_once(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.runs(4, counted)
        records = await node.records()
        assert node.system.configs[0] == {"acks": "wal", "retention.ms": 30 * 86_400_000, "flush.ms": 600_000}
        assert node.log.topic(names.METRICS_TOPIC).partitions[HOURS].bounds().high_watermark == 0
    assert [record.key for record in records] == [b"node-0"] * 3, "the fourth goes on"
    assert [record.timestamp_us for record in records] == [(BEGIN + 60 * n) * MICROS_PER_SECOND for n in range(3)]
    told = msgspec.json.decode(records[1].value or b"")
    assert told["step_ms"] == 60_000
    assert told["values"]["node"] == {RATE.name: 1.0}
    assert told["values"]["by"]["topic"] == {"of": ["orders"], "series": {MINE.name: [0.333333]}}
    assert told["values"]["by"]["group"] == {"of": ["billing"], "series": {LAG.name: [51.0]}}


@pytest.mark.rule("MH1")
@on_a_loop
async def test_a_day_is_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.runs(200, counted)
        before = by_series(await node.past(3 * HOUR_SECONDS, 60))
        now = node.clock.seconds
    async with running(tmp_path, now) as node:
        assert by_series(await node.past(3 * HOUR_SECONDS)) == {}
        await node.runs(2, counted, writes=False)
        await node.metrics_log.restore()
        [(said, values)] = [each for each in node.said.said if "before this start was read" in each[0]]
        assert (values["records"], values["skipped"]) == (199, 0), said
        node.clock.seconds = now
        after = by_series(await node.past(3 * HOUR_SECONDS, 60))
        assert after.keys() == before.keys() == {RATE, MINE, LAG, P99}
        for series, were in before.items():
            # What went on when it ended was in no record yet.
            assert np.allclose(after[series][:-1], were[:-1], rtol=1e-5)
        node.clock.seconds = now + 120
        await node.runs(3, counted)
        minutes = [minute_of(record.value or b"")[0] for record in await node.records()]
        assert minutes == sorted(set(minutes)), "each is there once"
        assert minutes[-1] == now // 60 + 3


@on_a_loop
async def test_hours_have_their_mean_and_their_highest(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.metrics_log.restore()
        await node.runs(130, counted)
        first, second = await node.records(HOURS)
        told = msgspec.json.decode(second.value or b"")
        assert (told["mean"]["node"], told["max"]["node"]) == ({RATE.name: 89.5}, {RATE.name: 119.0})
        assert told["max"]["by"]["group"]["series"] == {LAG.name: [169.0]}
        assert first.timestamp_us == BEGIN * MICROS_PER_SECOND
        now = node.clock.seconds
    async with running(tmp_path, now) as node:
        await node.metrics_log.restore()
        month = by_series(await node.past(5 * 86_400, HOUR_SECONDS))
        assert month[RATE][-3:-1] == [29.5, 89.5]
        assert month[LAG][-3:-1] == [109.0, 169.0], "the worst of an hour"


@pytest.mark.rule("MH1")
@on_a_loop
async def test_an_hour_in_which_it_was_down_at_its_end_is_recorded_all_the_same(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.metrics_log.restore()
        await node.runs(55, counted)
    async with running(tmp_path, BEGIN + HOUR_SECONDS + 600) as node:
        await node.metrics_log.restore()
        await node.runs(2, counted)
        [hour] = await node.records(HOURS)
        assert hour.timestamp_us == BEGIN * MICROS_PER_SECOND
        told = msgspec.json.decode(hour.value or b"")
        assert told["max"]["node"] == {RATE.name: 53.0}
        await node.runs(60, counted)
        assert len(await node.records(HOURS)) == 2


@on_a_loop
async def test_nodes_have_records_of_their_own(tmp_path: Path) -> None:
    async with running_log(tmp_path, GatedDisk()) as (log, topics):
        one, other = Node(log, topics, BEGIN, "a"), Node(log, topics, BEGIN, "b")
        await one.runs(5, counted)
        await other.runs(5, lambda now: {RATE: 1_000.0})
        again = Node(log, topics, BEGIN + 300, "a")
        await again.metrics_log.restore()
        assert by_series(await again.past(300, 60))[RATE][:4] == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.rule("MH2")
@on_a_loop
async def test_what_cannot_be_written_is_said_once_and_written_later(tmp_path: Path) -> None:
    away = problem("topic_unavailable", "the object store does not answer")
    async with running(tmp_path) as node:
        writing = node.metrics_log._try_to_write
        node.system.before = away
        for _ in range(3):
            await node.runs(1, counted, writes=False)
            await writing()
        assert node.said.warnings == [
            "the history of the metrics is not recorded for now; this node keeps it in memory"
        ]
        node.system.before, node.system.after = None, problem("ack_timeout", "its answer was lost")
        await writing()
        node.system.after = None
        await node.runs(1, counted, writes=False)
        await writing()
        assert node.said.events()[-1] == "the history of the metrics is recorded again"
        await node.runs(1, counted)
        minutes = [minute_of(record.value or b"")[0] for record in await node.records()]
        assert minutes == [BEGIN // 60 + n for n in range(4)], "nothing twice, and no gap"


@pytest.mark.rule("MH2")
@on_a_loop
async def test_what_cannot_be_read_is_tried_again_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_log, "AGAIN_SECONDS", 0.001)
    async with running(tmp_path) as node:
        await node.runs(5, counted)
        tries, whole = 0, node.metrics_log.restore

        async def fails() -> None:
            nonlocal tries
            tries += 1
            if tries < 4:
                raise problem("topic_unavailable", "not now")
            await whole()

        node.metrics_log.restore = fails  # type: ignore[method-assign]
        await node.metrics_log.read_back()
        assert tries == 4
        assert len(node.said.warnings) == 1
        assert node.said.events()[-1] == "the history of the metrics before this start was read"


@on_a_loop
async def test_what_is_no_record_of_this_kind_is_passed_over(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.runs(3, counted)
        for value in (b"", b"{", b'{"time": "now", "step_ms": 1, "values": {"node": {}}}', None):
            record = NewRecord(b"node-0", value, (), (BEGIN + 100) * MICROS_PER_SECOND)
            await node.system.append(names.METRICS_TOPIC, MINUTES, [record])
        now = node.clock.seconds
    async with running(tmp_path, now) as node:
        await node.metrics_log.restore()
        assert node.said.said[-1][1]["skipped"] == 4
        assert RATE in by_series(await node.past(180, 60))


def test_series_of_another_version_are_left_out() -> None:
    known = minute_value(1, {RATE: 1.0, MINE: 2.0})
    _, told = minute_of(known.replace(b"silt_records_total", b"silt_of_tomorrow"))
    assert list(columns_of(told.values)) == []


@given(
    st.dictionaries(
        st.builds(
            Series,
            st.sampled_from([kept.metric.name for kept in KEPT]),
            st.sampled_from(["topic", "group", "quantile"]),
            st.text(min_size=1),
        )
        | st.sampled_from([Series(kept.metric.name) for kept in KEPT]),
        st.floats(0, 2.0**50, width=32),
    )
)
def test_a_record_is_read_as_it_was_written(sample: Sample) -> None:
    minute, told = minute_of(minute_value(29_000_000, sample))
    assert minute == 29_000_000
    found = {
        one: value
        for column in columns_of(told.values)
        for one, value in zip(column.series(), column.values, strict=True)
        if value is not None
    }
    assert found.keys() == sample.keys()
    assert all(value == pytest.approx(sample[one], rel=1e-5, abs=1e-30) for one, value in found.items())
