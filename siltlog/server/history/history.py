"""What a node's metrics were: the last hour every ten seconds, the last day every minute, 30 days every hour."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.metrics.metrics import Metrics
from siltlog.server.history.ring import Rows, Values, folded
from siltlog.server.history.sampling import Sample, Sampler, Series
from siltlog.server.history.series_rings import (
    DAY_SECONDS,
    HOUR_SECONDS,
    MINUTE_SECONDS,
    STEP_SECONDS,
    STEPS_MORE,
    SeriesRings,
    highest,
)

POINTS = 360
"""How many points a series has where nobody says how many."""
POINTS_MAX = 1_440
HOURS_BACK = 24
"""How many hours can be folded from the minutes there are."""
_STEPS_A_MINUTE = MINUTE_SECONDS // STEP_SECONDS


class Grid(NamedTuple):
    """Steps of time: `steps` of them from `first_seconds` on, of `step_seconds` each."""

    first_seconds: int
    step_seconds: int
    steps: int


class Past(NamedTuple):
    """Values from `first_seconds` on, `step_seconds` apart; a row for each series, NaN where nothing was measured."""

    first_seconds: int
    step_seconds: int
    series: Sequence[Series]
    values: Values


def grid_of(from_seconds: int, to_seconds: int, now_seconds: int, step_seconds: int = 0) -> Grid:
    """The steps in which the time from one to another is told now.

    They are at least of `step_seconds`, and as long as it takes for a series to have 1,440 points, or 360 where nobody
    says how long; a whole number of those that are kept for so long.
    """
    span = max(to_seconds - from_seconds, 1)
    wanted = max(step_seconds, -(-span // (POINTS_MAX if step_seconds else POINTS)))
    kept = HOUR_SECONDS
    if wanted < MINUTE_SECONDS and from_seconds >= now_seconds - HOUR_SECONDS - STEPS_MORE * STEP_SECONDS:
        kept = STEP_SECONDS
    elif wanted < HOUR_SECONDS and from_seconds >= now_seconds - DAY_SECONDS - MINUTE_SECONDS:
        kept = MINUTE_SECONDS
    step = -(-wanted // kept) * kept
    first, last = from_seconds // step, max(to_seconds - 1, from_seconds) // step
    return Grid(first * step, step, last - first + 1)


class History:
    """Used on one event loop."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._clock = clock
        self._sampler = Sampler(metrics)
        self._rings = SeriesRings()
        self._minute_closed = asyncio.Event()

    async def run(self) -> None:
        """Samples for ever, at whole steps of the clock."""
        while True:
            now_seconds = self._clock.now_us() / MICROS_PER_SECOND
            await asyncio.sleep(STEP_SECONDS - now_seconds % STEP_SECONDS)
            sample = await self._sampler.sample(self._clock.monotonic())
            while not (rings := self._rings).has_room(len(sample)):
                await asyncio.to_thread(rings.reserve, len(sample))
            self.take(sample, self._clock.now_us() // MICROS_PER_SECOND)

    def take(self, sample: Sample, now_seconds: int) -> None:
        """Keeps a sample; nothing of it where the clock has gone back to a step that has one."""
        step, newest = now_seconds // STEP_SECONDS, self._rings.steps.newest
        if step <= newest:
            return
        minute, before = step // _STEPS_A_MINUTE, newest // _STEPS_A_MINUTE
        if minute > before >= 0:
            self._rings.close_minute(before)
            hour_before = before * MINUTE_SECONDS // HOUR_SECONDS
            if minute * MINUTE_SECONDS // HOUR_SECONDS > hour_before:
                self._rings.close_hour(hour_before)
            self._minute_closed.set()
        self._rings.take(sample, step)

    # What is recorded of it.

    async def minute_closed(self) -> None:
        """Returns when another minute has ended, or has since the last call."""
        await self._minute_closed.wait()
        self._minute_closed.clear()

    @property
    def newest_minute(self) -> int:
        """The last minute of which there is something to tell, or a lower one."""
        return self._rings.minutes.newest

    def minute(self, minute: int) -> Sample:
        """What was measured in a minute of the last day."""
        return self._rings.minute(minute)

    def hour(self, hour: int) -> tuple[Sample, Sample]:
        """The means and the highest of the minutes of an hour of the last day."""
        return self._rings.hour(hour)

    async def go_on_from(self, recorded: SeriesRings) -> None:
        """Has the past that was recorded before this process began, and what it has seen by itself since."""
        recorded.go_on_with(self._rings)
        self._rings = recorded
        # A process that ended before its hour did has told nothing of that hour.
        newest = self._rings.minutes.newest * MINUTE_SECONDS // HOUR_SECONDS
        for hour in range(max(newest - HOURS_BACK, 0), newest):
            # Others publish.
            await asyncio.sleep(0)
            self._rings.close_hour(hour)

    # What is asked of it.

    async def past(self, names: Collection[str], seen: Callable[[Series], bool], grid: Grid) -> Past:
        """What was measured of the series of some metrics that may be seen; of those of which something was."""
        while True:
            rings = self._rings
            forgotten = rings.forgotten
            series, rows = rings.matching(lambda one: one.name in names and seen(one))
            # On a thread: a day of two thousand series is 100 ms. What is sampled meanwhile is there or not.
            found = await asyncio.to_thread(_past, rings, series, rows, grid)
            if rings.forgotten == forgotten:
                return found
            # The row of one of them may be another's by now.


def _past(rings: SeriesRings, series: Sequence[Series], rows: Rows, grid: Grid) -> Past:
    longest_first = (rings.hours, rings.minutes, rings.steps)
    ring = next(ring for ring in longest_first if grid.step_seconds % ring.step_seconds == 0)
    width = grid.step_seconds // ring.step_seconds
    first = grid.first_seconds // ring.step_seconds
    values = rings.read(ring, rows, series, first, first + width * grid.steps - 1)
    told = folded(values, width, highest(series))
    there = np.flatnonzero(~np.isnan(told).all(axis=1))
    return Past(grid.first_seconds, grid.step_seconds, [series[at] for at in there.tolist()], told[there])
