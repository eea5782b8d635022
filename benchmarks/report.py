"""Figures for people: one table for each benchmark."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from benchmarks.figure import Figure, Summary

OTHERS_MIN = 0.05


def machine() -> dict[str, str | int | float]:
    """What the figures were measured on."""
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


def table(name: str, sentence: str, found: Sequence[Summary], others: float) -> Table:
    """`others` is the share of the processors that other programs used meanwhile."""
    caption = f"Other programs used {others:.0%} of the processors meanwhile." if others >= OTHERS_MIN else None
    shown = Table(title=f"{name}: {sentence}", title_justify="left", title_style="bold", caption=caption)
    shown.caption_justify = "left"
    shown.add_column("")
    for heading in ("median", "lowest to highest", "MB/s", "p50 / p99 ms", "server µs", "target", "of limit"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for summary in found:
        shown.add_row(*_row(summary), style="dim" if summary.figure.kind != "siltlog" else None)
    return shown


def _row(summary: Summary) -> list[str]:
    figure = summary.figure
    return [
        f"{figure.kind}: {figure.label}" if figure.kind != "siltlog" else figure.label,
        f"{_number(figure.value)} {figure.unit}",
        f"{_number(summary.lowest)} to {_number(summary.highest)}",
        "" if figure.megabytes_per_second is None else f"{figure.megabytes_per_second:,.0f}",
        "" if figure.p50_ms is None or figure.p99_ms is None else f"{figure.p50_ms:.2f} / {figure.p99_ms:.2f}",
        "" if figure.cpu_us is None else f"{figure.cpu_us:,.2f}",
        _target(figure, summary.met),
        "" if summary.of_limit is None else f"{summary.of_limit:.0%}",
    ]


def _target(figure: Figure, met: bool | None) -> str:
    if met is None:
        return ""
    bound = f"≥ {_number(figure.at_least)}" if figure.at_least is not None else f"≤ {_number(figure.at_most or 0)}"
    return f"[green]{bound} met[/]" if met else f"[red]{bound} missed[/]"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def sentences(commands: str, runs: int, others: float) -> list[str]:
    """What to know of the tables above: the machine, and how to have them again."""
    described = machine()
    said = [
        f"{described['cpu']}, {described['cores']} cores, {described['memory_gib']} GiB, {described['system']}, "
        f"Python {described['python']}; clients, server and peers share it over loopback.",
        f"Medians of {runs}; 'of limit' is the median of the runs' own ratios. Again: make bench ARGS=\"{commands}\"",
    ]
    if others >= OTHERS_MIN:
        said.append("The machine was busy: go by the ratios, or repeat when it is idle.")
    return said


def _lines(path: str) -> list[str]:
    there = Path(path)
    return there.read_text().splitlines() if there.exists() else []
