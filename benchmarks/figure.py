"""Figures: what one run of a benchmark measured, and what several runs say together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

Kind = Literal["siltlog", "limit", "peer"]


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
    """Of values; 10^6 bytes."""


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
        members = {name: getattr(figure, name) for name in Figure.__slots__}
        members |= {"lowest": self.lowest, "highest": self.highest, "of_limit": self.of_limit, "met": self.met}
        return {name: value for name, value in members.items() if value not in (None, "")}


def summaries(runs: Sequence[Sequence[Figure]]) -> list[Summary]:
    """One summary for each label, in the order of the first run."""
    found = []
    for first in runs[0]:
        same = [figure for run in runs for figure in run if figure.label == first.label]
        values = [figure.value for figure in same]
        ratios = [figure.value / limit.value for run in runs for figure, limit in _pairs(run, first.label)]
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
        )
        found.append(Summary(figure, min(values), max(values), median(ratios) if ratios else None))
    return found


def _pairs(run: Sequence[Figure], label: str) -> Iterable[tuple[Figure, Figure]]:
    by_label = {figure.label: figure for figure in run}
    figure = by_label.get(label)
    if figure is not None and figure.limit in by_label:
        yield figure, by_label[figure.limit]


def _median(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return median(there) if there else None
