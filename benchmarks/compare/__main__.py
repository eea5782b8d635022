"""Has Siltlog, Kafka, NATS, RabbitMQ and Valkey do the same work here, each asked to sync before it acknowledges.

What is missing is fetched first, into a folder of its own; what cannot be had is skipped, with a sentence.
"""

import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console

from benchmarks.compare.kafka import Kafka
from benchmarks.compare.nats import Nats
from benchmarks.compare.rabbitmq import RabbitMq
from benchmarks.compare.siltlog_server import Siltlog, SiltlogArrow
from benchmarks.compare.system import Missing, System
from benchmarks.compare.valkey import Valkey
from benchmarks.compare.work import SENTENCES, measured
from benchmarks.figures.figure import Figure, summaries
from benchmarks.figures.report import machine, markdown, tables
from benchmarks.figures.usage import Usage
from benchmarks.servers.warden import guarded

TOP = Path(__file__).parents[2]
SECONDS, QUICK_SECONDS = 4.0, 1.0
SYSTEMS: Mapping[str, Sequence[System]] = {
    "siltlog": (Siltlog(), SiltlogArrow()),
    "kafka": (Kafka(),),
    "nats": (Nats(),),
    "rabbitmq": (RabbitMq(),),
    "valkey": (Valkey(),),
}


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice(list(SYSTEMS)))
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1), help="Runs; medians of them are shown.")
@click.option("--quick", is_flag=True, help="Shorter runs, to see that all works.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Prints a Markdown document.")
@click.option(
    "--pictures",
    default=TOP / "build" / "compare",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where curves are drawn, as SVG files; build/compare unless said.",
)
@click.option("--dir", "folder", type=click.Path(file_okay=False, path_type=Path), help="The disk to measure.")
@click.option(
    "--cache",
    default=Path.home() / ".cache" / "siltlog" / "compare",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where what is fetched stays; ~/.cache/siltlog/compare unless said.",
)
def main(
    names: tuple[str, ...],
    runs: int,
    quick: bool,
    as_markdown: bool,
    pictures: Path,
    folder: Path | None,
    cache: Path,
) -> None:
    # So that servers are stopped and folders removed then too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    folder = (folder or TOP / ".cache").absolute()
    cache = cache.absolute()
    for each in (folder, cache):
        each.mkdir(parents=True, exist_ok=True)
    comparison = Comparison(folder, cache, QUICK_SECONDS if quick else SECONDS)
    usage = Usage()
    for _ in range(runs):
        for name in names or SYSTEMS:
            for system in SYSTEMS[name]:
                comparison.run(system)
    _show(console, comparison, usage.others(), as_markdown, pictures)
    if comparison.failed:
        sys.exit(f"These failed: {', '.join(comparison.failed)}")


class Comparison:
    """Figures by the name of their table, a list for each run of each system; and what was left out."""

    def __init__(self, folder: Path, cache: Path, seconds: float) -> None:
        self.found: dict[str, dict[str, list[list[Figure]]]] = {name: {} for name in SENTENCES}
        self.versions: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self.failed: list[str] = []
        self._folder = folder
        self._cache = cache
        self._seconds = seconds
        self._progress = Console(stderr=True)

    def run(self, system: System) -> None:
        """Adds a run of a system that was not skipped yet, with a server of its own."""
        if system.name in self.skipped or system.name in self.failed:
            return
        run: dict[str, list[Figure]] = {}
        with tempfile.TemporaryDirectory(prefix="compare-", dir=self._folder, ignore_cleanup_errors=True) as scratch:
            try:
                with (
                    guarded(Path(scratch)),
                    self._progress.status(f"{system.name}: fetching and starting") as status,
                    system.running(Path(scratch) / "server", self._cache) as running,
                ):
                    self.versions[system.name.partition(",")[0]] = running.version
                    only_bulk = isinstance(system, SiltlogArrow)
                    for name, figure in measured(system, running, self._seconds, Path(scratch), only_bulk=only_bulk):
                        run.setdefault(name, []).append(figure)
                        status.update(f"{figure.label} {figure.value:,.0f} {figure.unit}")
            except Missing as missing:
                self.skipped[system.name] = str(missing)
            except Exception:
                # The others are worth having all the same.
                self.failed.append(system.name)
                traceback.print_exc()
        for name, figures in run.items():
            self.found[name].setdefault(system.name, []).append(figures)


def _show(console: Console, comparison: Comparison, others: float, as_markdown: bool, pictures: Path) -> None:
    # Drawing is the one thing here that needs matplotlib.
    from benchmarks.figures.pictures import draw

    for name, by_system in comparison.found.items():
        found = [summary for runs in by_system.values() for summary in summaries(runs)]
        if not found:
            continue
        drawn = draw(found, pictures) if any(summary.figure.points for summary in found) else []
        if as_markdown:
            print(markdown(name, SENTENCES[name], found, others, [path.name for path in drawn]))
        else:
            console.print(*tables(name, SENTENCES[name], found, others))
    about = machine()
    versions = ", ".join(f"{name} {version}" for name, version in comparison.versions.items())
    said = [f"{about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB; {versions}. Again: make compare."]
    said += [f"{name} is left out: {why}." for name, why in comparison.skipped.items()]
    said.append(f"Curves: {pictures}")
    for sentence in said:
        print(f"- {sentence}" if as_markdown else sentence)


if __name__ == "__main__":
    main()
