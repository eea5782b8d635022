"""Figures for people: tables of each benchmark, on the terminal or as Markdown."""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from benchmarks.figures.figure import Figure, Summary

OTHERS_MIN = 0.05
HEADINGS = ("median", "lowest to highest", "MB/s", "p50 / p99 ms", "server µs", "target", "of limit")
_TARGET = HEADINGS.index("target")


class Row(NamedTuple):
    label: str
    cells: list[str]
    dim: bool
    """Whether the row is of something other than Siltlog."""
    met: bool | None


class Grid(NamedTuple):
    headings: Sequence[str]
    rows: list[Row]


def machine() -> dict[str, str | int | float]:
    """Describes what the figures were measured on."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "cpu": model,
        "cores": os.cpu_count() or 0,
        "memory_gib": round(memory / 1024**2, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def tables(name: str, sentence: str, found: Sequence[Summary], others: float) -> Iterator[Table]:
    """`others` is the share of the processors that other programs used meanwhile."""
    for grid in _grids(found):
        shown = Table(title=f"{name}: {sentence}", title_justify="left", title_style="bold", caption=_busy(others))
        shown.caption_justify = "left"
        shown.add_column("")
        for heading in grid.headings:
            shown.add_column(heading, justify="right", no_wrap=True)
        for row in grid.rows:
            cells = list(row.cells)
            if row.met is not None:
                cells[_TARGET] = f"[{'green' if row.met else 'red'}]{cells[_TARGET]}[/]"
            shown.add_row(row.label, *cells, style="dim" if row.dim else None)
        yield shown


def markdown(name: str, sentence: str, found: Sequence[Summary], others: float, pictures: Sequence[str] = ()) -> str:
    """The same as a part of a document that lies beside its `pictures`; columns that nothing is in are left out."""
    lines = [f"## {name}: {sentence}", ""]
    for picture in pictures:
        lines += [f"![{picture.partition('.')[0]}]({picture})", ""]
    for grid in _grids(found):
        kept = [index for index, _ in enumerate(grid.headings) if any(row.cells[index] for row in grid.rows)]
        lines.append("| | " + " | ".join(grid.headings[index] for index in kept) + " |")
        lines.append("|---|" + "---:|" * len(kept))
        for row in grid.rows:
            label = f"*{row.label}*" if row.dim else row.label
            lines.append(f"| {label} | " + " | ".join(row.cells[index] for index in kept) + " |")
        lines.append("")
    caption = _busy(others)
    return "\n".join([*lines, *([caption, ""] if caption else [])])


def sentences(
    described: Mapping[str, str | int | float], measured: Sequence[tuple[str, int]], others: float
) -> list[str]:
    """Says what to know of the tables above: the machine, and how to have them again (arguments and how many runs)."""
    said = [
        f"{described['cpu']}, {described['cores']} cores, {described['memory_gib']} GiB, {described['system']}, "
        f"Python {described['python']}; clients, server and peers share it over loopback.",
        f"Medians of {' or '.join(str(runs) for runs in sorted({runs for _, runs in measured}))} runs; 'of limit' is "
        "the median of the runs' own ratios. Again: "
        + "; ".join(dict.fromkeys(f'make bench ARGS="{arguments}"' for arguments, _ in measured)),
    ]
    if others >= OTHERS_MIN:
        said.append("The machine was busy: go by the ratios, or repeat when it is idle.")
    return said


def _busy(others: float) -> str | None:
    return f"Other programs used {others:.0%} of the processors meanwhile." if others >= OTHERS_MIN else None


def _grids(found: Sequence[Summary]) -> Iterator[Grid]:
    shown = [summary for summary in found if summary.figure.kind != "sample"]
    plain = [summary for summary in shown if not summary.figure.column]
    if plain:
        yield Grid(HEADINGS, [_row(summary) for summary in plain])
    crossed = [summary for summary in shown if summary.figure.column]
    if crossed:
        yield _crossed(crossed)


def _crossed(found: Sequence[Summary]) -> Grid:
    """A row for each label, a column for each of the figures' columns."""
    headings = list(dict.fromkeys(summary.figure.column for summary in found))
    labels = dict.fromkeys(summary.figure.label for summary in found)
    values = {(summary.figure.label, summary.figure.column): summary.figure.value for summary in found}
    rows = []
    for label in labels:
        cells = [_fine(values[label, column]) if (label, column) in values else "" for column in headings]
        rows.append(Row(label, cells, False, None))
    return Grid(headings, rows)


def _row(summary: Summary) -> Row:
    figure = summary.figure
    cells = [
        f"{_number(figure.value)} {figure.unit}",
        f"{_number(summary.lowest)} to {_number(summary.highest)}",
        "" if figure.megabytes_per_second is None else f"{figure.megabytes_per_second:,.0f}",
        "" if figure.p50_ms is None or figure.p99_ms is None else f"{figure.p50_ms:.2f} / {figure.p99_ms:.2f}",
        "" if figure.cpu_us is None else f"{figure.cpu_us:,.2f}",
        _target(figure, summary.met),
        "" if summary.of_limit is None else f"{summary.of_limit:.0%}",
    ]
    own = figure.kind == "siltlog"
    return Row(figure.label if own else f"{figure.kind}: {figure.label}", cells, not own, summary.met)


def _target(figure: Figure, met: bool | None) -> str:
    if met is None:
        return ""
    bound = f"≥ {_number(figure.at_least)}" if figure.at_least is not None else f"≤ {_number(figure.at_most or 0)}"
    return f"{bound} {'met' if met else 'missed'}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def _fine(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1 else _number(value)


def _lines(path: str) -> list[str]:
    there = Path(path)
    return there.read_text().splitlines() if there.exists() else []
