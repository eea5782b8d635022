"""`make bench`: what Siltlog reaches on this machine, each figure beside its limit."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.arrow import arrow
from benchmarks.bench import Bench
from benchmarks.figure import Figure, Summary, summaries
from benchmarks.flights import flights_as_json
from benchmarks.flushing import flushing
from benchmarks.freshness import freshness
from benchmarks.json_bodies import json_bodies
from benchmarks.memory import memory
from benchmarks.producing import producer
from benchmarks.publish import publish
from benchmarks.reading import read
from benchmarks.report import machine, sentences, table

TOP = Path(__file__).parents[1]
SECONDS = 4.0
QUICK_SECONDS = 1.5
BENCHMARKS: dict[str, tuple[Callable[[Bench], Iterator[Figure]], str]] = {
    "publish": (publish, "one record of 100 B a request, acknowledged once it is on the disk"),
    "arrow": (arrow, "10,000 records a request from one Python process, acknowledged once they are on the disk"),
    "json": (json_bodies, "500 records of 100 B in a JSON body, acknowledged once they are on the disk"),
    "producer": (producer, "Producer.send, one record of 100 B a call, acknowledged exactly once"),
    "freshness": (freshness, "seconds from an acknowledgement until the record is in the Delta table"),
    "read": (read, "records of 100 B, one client"),
    "flushing": (flushing, "latency of single publishes at 64 connections while tables are written"),
    "flights": (flights_as_json, "real flights of about 300 B"),
    "memory": (memory, "a large flow through a small server, read at the same time"),
}


@click.command(help=__doc__, epilog="Benchmarks: " + ", ".join(BENCHMARKS))
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1), help="Runs; medians of them are shown.")
@click.option("--quick", is_flag=True, help="Shorter runs over less data, to see that all works.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Also writes a document.")
@click.option("--dir", "folder", type=click.Path(file_okay=False, path_type=Path), help="The disk to measure.")
def main(names: tuple[str, ...], runs: int, quick: bool, json_path: Path | None, folder: Path | None) -> None:
    console = Console(width=None if sys.stdout.isatty() else 180, highlight=False)
    # Not the folder for temporary files: on many machines that is memory, where a sync means nothing.
    folder = folder or TOP / ".cache"
    folder.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"machine": machine(), "runs": runs, "quick": quick, "benchmarks": {}}
    most = 0.0
    for name in names or tuple(BENCHMARKS):
        benchmark, sentence = BENCHMARKS[name]
        usage = _Usage()
        found = summaries([_run(name, benchmark, folder, quick, run, runs) for run in range(runs)])
        others = usage.others()
        most = max(most, others)
        console.print(table(name, sentence, found, others))
        document["benchmarks"][name] = _document(found, others)
        if json_path is not None:
            json_path.write_text(json.dumps(document, indent=1) + "\n")
    commands = " ".join([*names, *(["--quick"] if quick else []), f"--runs {runs}"])
    for sentence in sentences(commands, runs, most):
        console.print(sentence)


def _run(
    name: str,
    benchmark: Callable[[Bench], Iterator[Figure]],
    folder: Path,
    quick: bool,
    run: int,
    runs: int,
) -> list[Figure]:
    progress = Console(stderr=True)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as scratch:
        bench = Bench(Path(scratch), QUICK_SECONDS if quick else SECONDS, quick)
        with progress.status(f"{name}, run {run + 1} of {runs}") as status:
            for figure in benchmark(bench):
                figures.append(figure)
                status.update(f"{name}, run {run + 1} of {runs}: {figure.label} {figure.value:,.0f} {figure.unit}")
    return figures


class _Usage:
    """How much of the processors others used since it was made."""

    def __init__(self) -> None:
        self._busy, self._own, self._wall = self._now()

    def others(self) -> float:
        busy, own, wall = self._now()
        used = (busy - self._busy) - (own - self._own)
        return max(0.0, used / ((wall - self._wall) * (os.cpu_count() or 1)))

    def _now(self) -> tuple[float, float, float]:
        stat = Path("/proc/stat")
        own = sum(os.times()[:4])
        if not stat.exists():
            return own, own, time.monotonic()
        fields = [int(field) for field in stat.read_text().split("\n", 1)[0].split()[1:]]
        busy = sum(fields) - fields[3] - fields[4] - sum(fields[8:])
        return busy / os.sysconf("SC_CLK_TCK"), own, time.monotonic()


def _document(found: list[Summary], others: float) -> dict[str, Any]:
    return {"used_by_others": round(others, 3), "figures": [summary.document() for summary in found]}


if __name__ == "__main__":
    main()
