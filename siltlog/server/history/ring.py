"""Values of many series at equal steps of time, as many steps as there is room for: the newest overwrite the oldest."""

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float32]
Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
_ROWS_MIN = 64


class Ring:
    """`steps` columns, each of a whole number of `step_seconds` since 1970; a row for each series. What is not there is
    NaN."""

    def __init__(self, step_seconds: int, steps: int) -> None:
        self.step_seconds = step_seconds
        self.steps = steps
        self._values: Values = np.full((_ROWS_MIN, steps), np.nan, np.float32)
        self.newest = -1
        """The newest step that there is room for."""

    @property
    def oldest(self) -> int:
        """The oldest step that there is room for."""
        return self.newest - self.steps + 1

    @property
    def rows(self) -> int:
        """How many series have a place; for more it grows."""
        return len(self._values)

    def advance(self, step: int) -> None:
        """Makes room for what comes at `step`; what was not told of the steps between is not there."""
        if step <= self.newest:
            return
        between = np.arange(max(self.newest + 1, step - self.steps + 1), step + 1)
        self._values[:, between % self.steps] = np.nan
        self.newest = step

    def put(self, step: int, rows: Rows, values: Values) -> None:
        """Writes at a step, where there is room for it."""
        if self.oldest <= step <= self.newest:
            self.grow(rows)
            self._values[rows, step % self.steps] = values

    def clear(self, row: int) -> None:
        """Forgets a series, whose row another may have."""
        if row < len(self._values):
            self._values[row] = np.nan

    def read(self, rows: Rows, first: int, last: int) -> Values:
        """The values of some series from step `first` to `last`; a row and a column for each."""
        out = np.full((len(rows), last - first + 1), np.nan, np.float32)
        steps = np.arange(max(first, self.oldest, 0), min(last, self.newest) + 1)
        there = rows < len(self._values)
        if len(steps) and there.any():
            out[np.ix_(there, steps - first)] = self._values[np.ix_(rows[there], steps % self.steps)]
        return out

    def fill(self, rows: Rows, first: int, values: Values) -> None:
        """Writes values from step `first` on where there is none yet."""
        last = first + values.shape[1] - 1
        self.grow(rows)
        low, high = max(first, self.oldest, 0), min(last, self.newest)
        if low > high or not len(rows):
            return
        at = np.ix_(rows, np.arange(low, high + 1) % self.steps)
        there = self._values[at]
        self._values[at] = np.where(np.isnan(there), values[:, low - first : high - first + 1], there)

    def grow(self, rows: Rows) -> None:
        """Makes room for some rows."""
        while len(rows) and rows.max() >= len(self._values):
            self._values = np.vstack([self._values, np.full_like(self._values, np.nan)])


def folded(values: Values, width: int, highest: Mask) -> Values:
    """Every `width` columns as one: their mean, or where it is what counts the highest; NaN where none is there."""
    groups = values.reshape(len(values), values.shape[1] // width, width)
    there = ~np.isnan(groups)
    counts = there.sum(axis=2)
    means = np.where(there, groups, 0.0).sum(axis=2) / np.maximum(counts, 1)
    most = np.where(there, groups, -np.inf).max(axis=2)
    found = np.where(highest[:, None], most, means)
    return np.where(counts > 0, found, np.nan).astype(np.float32)
