"""Figures: what one run of a benchmark measured, and what several runs say together."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, NamedTuple

Kind = Literal["siltlog", "limit", "peer", "sample"]
"""A sample is a point of a picture; tables leave it out."""


class Point(NamedTuple):
    """Where a figure's value lies in a picture: at `x` on the line `series` of `chart`."""

    chart: str
    series: str
    x: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. `limit` is the label of the figure of the same run that it is held against."""

    label: str
    value: float
    unit: str
    kind: Kind = "siltlog"
    limit: str = ""
    at_least: float | None = None
    """The target."""
    at_most: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    cpu_us: float | None = None
    """Processor time of the server per record, all its threads, in microseconds."""
    megabytes_per_second: float | None = None
    """Only values are counted; 10^6 bytes."""
    column: str = ""
    """Figures that have one are shown together: a row for each label, a column for each of these."""
    points: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """Medians of a figure over its runs."""

    figure: Figure
    lowest: float
    highest: float
    of_limit: float | None
    """The median of the runs' own ratios: what slowed a whole run slowed its limit too."""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        figure = self.figure
        if figure.at_least is not None:
            return figure.value >= figure.at_least
        if figure.at_most is not None:
            return figure.value <= figure.at_most
        return None

    def document(self) -> dict[str, Any]:
        figure = self.figure
        members = {name: getattr(figure, name) for name in Figure.__slots__ if name != "points"}
        members |= {"lowest": self.lowest, "highest": self.highest, "of_limit": self.of_limit, "met": self.met}
        members["points"] = [point._asdict() for point in figure.points] or None
        return {name: value for name, value in members.items() if value not in (None, "")}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Summary":
        """Reads what `document()` gave."""
        members = {name: document[name] for name in Figure.__slots__ if name in document and name != "points"}
        points = tuple(Point(**point) for point in document.get("points", ()))
        figure = Figure(**{"unit": "", **members}, points=points)
        return cls(figure, document["lowest"], document["highest"], document.get("of_limit"))


def summaries(runs: Sequence[Sequence[Figure]]) -> list[Summary]:
    """One summary for each label (and column), in the order of the first run."""
    found = []
    for first in runs[0]:
        same = [figure for run in runs for figure in run if _name(figure) == _name(first)]
        values = [figure.value for figure in same]
        ratios = [figure.value / limit.value for run in runs for figure, limit in _pairs(run, first)]
        figure = Figure(
            first.label,
            median(values),
            first.unit,
            first.kind,
            first.limit,
            first.at_least,
            first.at_most,
            _median(figure.p50_ms for figure in same),
            _median(figure.p99_ms for figure in same),
            _median(figure.cpu_us for figure in same),
            _median(figure.megabytes_per_second for figure in same),
            first.column,
            first.points,
        )
        found.append(Summary(figure, min(values), max(values), median(ratios) if ratios else None))
    return found


def _name(figure: Figure) -> tuple[str, str]:
    return figure.column, figure.label


def _pairs(run: Sequence[Figure], first: Figure) -> Iterable[tuple[Figure, Figure]]:
    by_name = {_name(figure): figure for figure in run}
    figure, limit = by_name.get(_name(first)), by_name.get((first.column, first.limit))
    if figure is not None and limit is not None and limit.value:
        yield figure, limit


def _median(values: Iterable[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return median(given) if given else None
