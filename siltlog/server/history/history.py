"""The last hour of a node's metrics every ten seconds, and its last day every minute."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.metrics.metrics import Metrics
from siltlog.server.history.kept import KEPT
from siltlog.server.history.ring import Ring, Values, folded
from siltlog.server.history.sampling import QUANTILE, Sample, Sampler, Series

STEP_SECONDS = 10
MINUTE_SECONDS = 60
HOUR_SECONDS = 3_600
DAY_SECONDS = 86_400
STEPS_MORE = 6
"""Room for whoever asks for the last hour a moment later."""
SERIES_MAX = 2_000
"""About 14 MB, when there are so many."""
POINTS = 360
"""So many of a series where nobody says how many."""
POINTS_MAX = 1_440
_HIGHEST = {kept.metric.name for kept in KEPT if kept.fold == "max"}


class Past(NamedTuple):
    """Values from `first_seconds` on, `step_seconds` apart; a row for each series, NaN where nothing was measured."""

    first_seconds: int
    step_seconds: int
    series: Sequence[Series]
    values: Values


class History:
    """Used on one event loop."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._clock = clock
        self._sampler = Sampler(metrics)
        self._steps = Ring(STEP_SECONDS, HOUR_SECONDS // STEP_SECONDS + STEPS_MORE)
        self._minutes = Ring(MINUTE_SECONDS, DAY_SECONDS // MINUTE_SECONDS)
        self._rows: dict[Series, int] = {}
        self._free: list[int] = []
        self._told: dict[Series, int] = {}
        """The step at which a series was last told."""

    async def run(self) -> None:
        """Samples for ever, at whole steps of the clock."""
        while True:
            now_seconds = self._clock.now_us() / MICROS_PER_SECOND
            await asyncio.sleep(STEP_SECONDS - now_seconds % STEP_SECONDS)
            sample = await self._sampler.sample(self._clock.monotonic())
            self.take(sample, self._clock.now_us() // MICROS_PER_SECOND)

    def take(self, sample: Sample, now_seconds: int) -> None:
        """Keeps a sample; nothing of it where the clock has gone back to a step that has one."""
        step = now_seconds // STEP_SECONDS
        if step <= self._steps.newest:
            return
        minute = step * STEP_SECONDS // MINUTE_SECONDS
        if minute > self._steps.newest * STEP_SECONDS // MINUTE_SECONDS >= 0:
            self._close_minute(self._steps.newest * STEP_SECONDS // MINUTE_SECONDS)
        self._steps.advance(step)
        rows = [(row, value) for series, value in sample.items() if (row := self._row(series, step)) is not None]
        self._steps.put(np.array([row for row, _ in rows], np.intp), np.array([value for _, value in rows], np.float32))

    def _row(self, series: Series, step: int) -> int | None:
        """The row of a series; None where there are too many."""
        row = self._rows.get(series)
        if row is None:
            if self._free:
                row = self._free.pop()
            elif len(self._rows) < SERIES_MAX:
                row = len(self._rows)
            else:
                silent = min(self._told, key=self._told.__getitem__)
                if self._told[silent] == step:
                    return None
                row = self._forget(silent)
            self._rows[series] = row
        self._told[series] = step
        return row

    def _forget(self, series: Series) -> int:
        row = self._rows.pop(series)
        del self._told[series]
        self._steps.clear(row)
        self._minutes.clear(row)
        return row

    def _close_minute(self, minute: int) -> None:
        first = minute * MINUTE_SECONDS // STEP_SECONDS
        width = MINUTE_SECONDS // STEP_SECONDS
        series = list(self._rows)
        rows = np.array(list(self._rows.values()), np.intp)
        values = self._steps.read(rows, first, first + width - 1)
        self._minutes.advance(minute)
        self._minutes.put(rows, folded(values, width, _highest(series))[:, 0])
        gone = (minute - self._minutes.steps) * width
        self._free += [self._forget(one) for one in series if self._told[one] < gone]

    def past(
        self,
        names: Collection[str],
        seen: Callable[[Series], bool],
        from_seconds: int,
        to_seconds: int,
        step_seconds: int = 0,
    ) -> Past:
        """What was measured between two times of the series of some metrics that may be seen.

        Steps are at least of `step_seconds`, and as long as it takes for a series to have 1,440 points, or 360 where
        nobody says how long; a whole number of those that are kept.
        """
        span = max(to_seconds - from_seconds, 1)
        wanted = max(step_seconds, -(-span // (POINTS_MAX if step_seconds else POINTS)))
        fine = wanted < MINUTE_SECONDS and from_seconds >= self._steps.oldest * STEP_SECONDS
        ring = self._steps if fine else self._minutes
        width = -(-wanted // ring.step_seconds)
        step = width * ring.step_seconds
        first, last = from_seconds // step, max(to_seconds - 1, from_seconds) // step
        series = sorted(one for one in self._rows if one.name in names and seen(one))
        rows = np.array([self._rows[one] for one in series], np.intp)
        values = ring.read(rows, first * width, (last + 1) * width - 1)
        return Past(first * step, step, series, folded(values, width, _highest(series)))


def _highest(series: Sequence[Series]) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Says which of them count by their highest value: the worst of ten seconds is the worst of the minute."""
    return np.array([one.label == QUANTILE or one.name in _HIGHEST for one in series], bool)
