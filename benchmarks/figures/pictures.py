"""Curves of what was measured, as SVG files that look the same each time and can be read on light and on dark pages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from benchmarks.figures.figure import Summary

INCHES = (7.2, 3.6)
GREY = "#808080"
COLOURS = ("#2f7fd1", "#d1662f", "#2f9e57", "#9a63d1", "#b8962e", "#c94f7c")
"""All are of middle brightness: at least three to one against white and against black."""
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "siltlog",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.titlecolor": GREY,
    "axes.grid": True,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


class Chart(NamedTuple):
    title: str
    x_label: str
    y_label: str
    log_x: bool = False
    log_y: bool = False
    target: float | None = None


CHARTS = {
    "publish": Chart("Durable single publishes", "connections", "records/s", log_x=True),
    "shared": Chart("Tasks that share one client", "tasks", "records/s"),
    "sizes-records": Chart("One record a request, 16 connections", "bytes of a record", "records/s", True, True),
    "sizes-bytes": Chart("One record a request, 16 connections", "bytes of a record", "MB/s", True, True),
    "connections-rate": Chart("At most 64 connections busy, the others idle", "connections", "records/s", True),
    "connections-p99": Chart("At most 64 connections busy, the others idle", "connections", "p99, ms", True),
    "partitions": Chart("1,000 publishes a second", "partitions", "ms", log_x=True, log_y=True),
    "commits": Chart("One commit and the refresh after it", "commits before it", "ms", target=15.0),
    "freshness": Chart("From a publish to a new snapshot", "active partitions", "s", target=3.0),
    "backlog": Chart("Published and not yet in the table", "seconds", "MiB"),
    "live-files": Chart(
        "Small files come while silt compact runs again and again", "seconds", "live files", target=5_000
    ),
    "compare-single": Chart("One record a request, synced", "connections", "records/s"),
    "compare-bulk": Chart("500 records in flight a connection, synced", "connections", "records/s"),
    "compare-latency": Chart("From sending a record until a reader has it", "percentile", "ms"),
    "soak-memory": Chart("Memory of the server", "seconds", "MiB"),
    "soak-descriptors": Chart("Open descriptors of the server", "seconds", "descriptors"),
    "soak-files": Chart("Live files of the tables", "seconds", "files"),
    "soak-log": Chart("The write-ahead log", "seconds", "MiB"),
    "soak-lag": Chart("Published and not yet read by its group", "seconds", "records"),
    "lag": Chart("Published and not yet read by its group", "seconds", "records"),
}


def draw(found: Sequence[Summary], folder: Path) -> list[Path]:
    """One file for each chart that `found` has points of."""
    folder.mkdir(parents=True, exist_ok=True)
    mpl.use("svg")
    charts = dict.fromkeys(point.chart for summary in found for point in summary.figure.points)
    with mpl.rc_context(STYLE):
        return [_draw(name, found, folder / f"{name}.svg") for name in charts]


def _draw(name: str, found: Sequence[Summary], path: Path) -> Path:
    chart = CHARTS[name]
    figure, axes = plt.subplots(figsize=INCHES, layout="constrained")
    lines: dict[str, list[tuple[float, Summary]]] = {}
    for summary in found:
        for point in summary.figure.points:
            if point.chart == name:
                lines.setdefault(point.series, []).append((point.x, summary))
    for colour, (series, points) in zip(COLOURS, lines.items(), strict=False):
        _line(axes, series, sorted(points, key=lambda point: point[0]), colour)
    if chart.target is not None:
        axes.axhline(chart.target, color=GREY, linestyle="--", linewidth=1, label="target")
    _scales(axes, chart)
    axes.set_title(chart.title, loc="left")
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.legend()
    # Without a date, so that the same figures give the same file.
    figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return path


def _line(axes: Axes, series: str, points: Sequence[tuple[float, Summary]], colour: str) -> None:
    x = [at for at, _ in points]
    few = len(points) <= 12
    axes.plot(
        x,
        [summary.figure.value for _, summary in points],
        "o-" if few else "-",
        color=colour,
        label=series,
        markersize=4,
    )
    axes.fill_between(
        x,
        [summary.lowest for _, summary in points],
        [summary.highest for _, summary in points],
        color=colour,
        alpha=0.15,
        linewidth=0,
    )


def _scales(axes: Axes, chart: Chart) -> None:
    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(plain)
    axes.yaxis.set_major_formatter(plain)
