"""Three rings over the same series: ten seconds, minutes, hours. Each longer step is folded from the shorter ones."""

from collections.abc import Callable, Sequence, Set

import numpy as np

from siltlog.server.history.kept import KEPT
from siltlog.server.history.ring import Mask, Ring, Rows, Values, folded
from siltlog.server.history.sampling import QUANTILE, Sample, Series

STEP_SECONDS = 10
MINUTE_SECONDS = 60
HOUR_SECONDS = 3_600
DAY_SECONDS = 86_400
MONTH_SECONDS = 30 * DAY_SECONDS
STEPS_MORE = 6
"""Room for whoever asks for the last hour a moment later."""
SERIES_MAX = 2_000
"""About 20 MB, when there are so many."""
_MINUTES_A_HOUR = HOUR_SECONDS // MINUTE_SECONDS
_HIGHEST = {kept.metric.name for kept in KEPT if kept.fold == "max"}
UNKNOWN = -1
"""Stands for a row, or a step, that is not known."""


class SeriesRings:
    """Used by one thread at a time."""

    def __init__(self) -> None:
        self.steps = Ring(STEP_SECONDS, HOUR_SECONDS // STEP_SECONDS + STEPS_MORE)
        self.minutes = Ring(MINUTE_SECONDS, DAY_SECONDS // MINUTE_SECONDS)
        self.hours = Ring(HOUR_SECONDS, MONTH_SECONDS // HOUR_SECONDS)
        self.forgotten = 0
        """How many series had a row and have none any more: whoever remembers rows looks whether it rose."""
        self._rows: dict[Series, int] = {}
        self._free: list[int] = []
        self._told = np.zeros(SERIES_MAX, np.int64)
        """The time, by row, at which its series was last told, in seconds."""
        self._first = UNKNOWN
        """The first step that was sampled here: of what was before there are minutes at most."""

    @property
    def _all_rings(self) -> tuple[Ring, Ring, Ring]:
        return self.steps, self.minutes, self.hours

    def take(self, sample: Sample, step: int) -> None:
        """Keeps a sample of the newest step."""
        if self._first == UNKNOWN:
            self._first = step
        self.put(self.steps, step, self.rows_of(list(sample), step * STEP_SECONDS), list(sample.values()))

    def put(self, ring: Ring, step: int, rows: Rows, values: Sequence[float | None]) -> None:
        """Writes what was measured in a step in the rows that `rows_of` gave for it."""
        ring.advance(step)
        there = rows >= 0
        ring.put(step, rows[there], np.array(values, np.float32)[there])

    def rows_of(self, series: Sequence[Series], told: int) -> Rows:
        """The rows of series that are told at a time; -1 where too many were told as lately."""
        found = np.array([self._rows.get(one, UNKNOWN) for one in series], np.intp)
        self.told(found, told)
        # Those with a row were told first: none of them is taken for one that is silent.
        for at in np.flatnonzero(found == UNKNOWN).tolist():
            row = self._new_row(told)
            if row == UNKNOWN:
                break
            self._rows[series[at]] = found[at] = row
            self._told[row] = told
        return found

    def told(self, rows: Rows, told: int) -> None:
        """Notes that the series of some rows were told at a time."""
        known = rows[rows >= 0]
        self._told[known] = np.maximum(self._told[known], told)

    def _new_row(self, told: int) -> int:
        if self._free:
            return self._free.pop()
        if len(self._rows) < SERIES_MAX:
            return len(self._rows)
        silent = int(self._told.argmin())
        if self._told[silent] >= told:
            return UNKNOWN
        self._forget({silent})
        return silent

    def _forget(self, rows: Set[int]) -> None:
        for series in [one for one, row in self._rows.items() if row in rows]:
            for ring in self._all_rings:
                ring.clear(self._rows[series])
            del self._rows[series]
            self.forgotten += 1

    def close_minute(self, minute: int) -> None:
        """Folds its steps, and its hour's minutes where that ends with it."""
        series, rows = self._all()
        self.minutes.advance(minute)
        self.minutes.put(minute, rows, self._minute(rows, minute, highest(series))[:, 0])

    def close_hour(self, hour: int) -> None:
        """Folds its minutes, where there is nothing of it yet; forgets series of which no hour tells any more."""
        series, rows = self._all()
        self.hours.advance(hour)
        self.hours.fill(rows, hour, self._hour(rows, hour, highest(series)))
        gone = {int(row) for row in rows[self._told[rows] < (hour - self.hours.steps) * HOUR_SECONDS]}
        self._forget(gone)
        self._free += sorted(gone)

    def _minute(self, rows: Rows, minute: int, most: Mask) -> Values:
        width = MINUTE_SECONDS // STEP_SECONDS
        return folded(self.steps.read(rows, minute * width, (minute + 1) * width - 1), width, most)

    def _hour(self, rows: Rows, hour: int, most: Mask) -> Values:
        first = hour * _MINUTES_A_HOUR
        return folded(self.minutes.read(rows, first, first + _MINUTES_A_HOUR - 1), _MINUTES_A_HOUR, most)

    def _all(self) -> tuple[list[Series], Rows]:
        return list(self._rows), np.array(list(self._rows.values()), np.intp)

    def minute(self, minute: int) -> Sample:
        """What was measured in a minute."""
        series, rows = self._all()
        return _sample(series, self.minutes.read(rows, minute, minute)[:, 0])

    def hour(self, hour: int) -> tuple[Sample, Sample]:
        """The means and the highest of the minutes of an hour."""
        series, rows = self._all()
        each, none = np.ones(len(series), bool), np.zeros(len(series), bool)
        return _sample(series, self._hour(rows, hour, none)[:, 0]), _sample(series, self._hour(rows, hour, each)[:, 0])

    def matching(self, wanted: Callable[[Series], bool]) -> tuple[list[Series], Rows]:
        """Finds series and their rows, sorted."""
        series = sorted(one for one in self._rows if wanted(one))
        return series, np.array([self._rows[one] for one in series], np.intp)

    def read(self, ring: Ring, rows: Rows, series: Sequence[Series], first: int, last: int) -> Values:
        """The values of a ring; of what it does not have because it had not begun, or goes on, what another has."""
        values = ring.read(rows, first, last)
        if ring is self.steps:
            self._before(values, rows, first, last)
            return values
        fold = self._hour if ring is self.hours else self._minute
        for step in range(max(first, last - 1, ring.newest + 1), last + 1):
            values[:, step - first] = fold(rows, step, highest(series))[:, 0]
        return values

    def _before(self, values: Values, rows: Rows, first: int, last: int) -> None:
        """Puts each minute from before this process began in the place of its steps."""
        width = MINUTE_SECONDS // STEP_SECONDS
        # Of the minute in which it began there are steps.
        end = last + 1 if self._first == UNKNOWN else min(self._first // width * width, last + 1)
        if first < end:
            minutes = self.minutes.read(rows, first // width, (end - 1) // width)
            values[:, : end - first] = np.repeat(minutes, width, axis=1)[:, first % width :][:, : end - first]

    def go_on_with(self, later: "SeriesRings") -> None:
        """Takes in what another has seen since; what both have is the same."""
        self._first = later._first
        series, theirs = later._all()
        mine = np.full(len(series), UNKNOWN, np.intp)
        for told in sorted(set(later._told[theirs].tolist()), reverse=True):
            at = np.flatnonzero(later._told[theirs] == told)
            mine[at] = self.rows_of([series[each] for each in at.tolist()], told)
        there = mine >= 0
        for ring, other in zip(self._all_rings, later._all_rings, strict=True):
            ring.advance(other.newest)
            first = max(other.oldest, later._first * STEP_SECONDS // other.step_seconds, 0)
            if first <= other.newest:
                ring.fill(mine[there], first, other.read(theirs[there], first, other.newest))

    def has_room(self, series: int) -> bool:
        """Whether so many more have a place already."""
        wanted = min(len(self._rows) + series, SERIES_MAX)
        return all(ring.rows >= wanted for ring in self._all_rings)

    def reserve(self, series: int) -> None:
        """Makes room for so many more, which takes longer than the event loop has."""
        last = min(len(self._rows) + series, SERIES_MAX) - 1
        for ring in self._all_rings:
            ring.grow(np.array([last]))


def highest(series: Sequence[Series]) -> Mask:
    """Says which of them count by their highest value: the worst of ten seconds is the worst of the minute."""
    return np.array([counts_highest(one.name, one.label) for one in series], bool)


def counts_highest(name: str, label: str) -> bool:
    return label == QUANTILE or name in _HIGHEST


def _sample(series: Sequence[Series], values: Values) -> Sample:
    return {one: value for one, value in zip(series, values.tolist(), strict=True) if value == value}
