"""`make bench`: what Siltlog reaches on this machine, each figure beside its limit."""

import json
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.bench import TRIES, Bench
from benchmarks.cluster.cluster import cluster
from benchmarks.cluster.failover import failover, failover_s3
from benchmarks.cluster.hand_over import hand_over
from benchmarks.figures.figure import Figure, Summary, summaries
from benchmarks.figures.report import machine, markdown, sentences, tables
from benchmarks.figures.usage import Usage
from benchmarks.footprint.commands import commands
from benchmarks.footprint.memory import memory
from benchmarks.footprint.page import page
from benchmarks.groups.groups import groups
from benchmarks.groups.latency import latency
from benchmarks.groups.rebalance import rebalance
from benchmarks.groups.sharing import sharing
from benchmarks.pipelines.audit import audit
from benchmarks.pipelines.compaction import compaction
from benchmarks.pipelines.keeping_up import keeping_up
from benchmarks.pipelines.retention import retention
from benchmarks.pipelines.starting import starting
from benchmarks.protocols.grpc_calls import grpc_calls
from benchmarks.protocols.kafka import kafka
from benchmarks.protocols.tls import tls
from benchmarks.publishing.access import access
from benchmarks.publishing.arrow import arrow
from benchmarks.publishing.compression import compression
from benchmarks.publishing.connections import connections
from benchmarks.publishing.exactly_once import exactly_once
from benchmarks.publishing.flights import flights_as_json
from benchmarks.publishing.json_bodies import json_bodies
from benchmarks.publishing.object_acks import object_acks
from benchmarks.publishing.producing import producer
from benchmarks.publishing.publish import publish
from benchmarks.publishing.shared import shared
from benchmarks.publishing.sizes import sizes
from benchmarks.publishing.stages import stages
from benchmarks.reading.catch_up import catch_up
from benchmarks.reading.read_stages import read_stages
from benchmarks.reading.reading import read
from benchmarks.reading.spark_source import spark_source
from benchmarks.tables.commits import commits
from benchmarks.tables.flushing import flushing
from benchmarks.tables.freshness import freshness
from benchmarks.tables.growth import growth
from benchmarks.tables.small_files import small_files
from benchmarks.tables.sustained import sustained
from benchmarks.tables.week import week

TOP = Path(__file__).parents[1]
SECONDS = 4.0
QUICK_SECONDS = 1.5
BENCHMARKS: dict[str, tuple[Callable[[Bench], Iterator[Figure]], str]] = {
    "publish": (publish, "one record of 100 B a request, acknowledged once it is on the disk"),
    "object_acks": (object_acks, "one record a request, acknowledged once it is in the object store too"),
    "access": (access, "one record of 100 B a request at 64 connections, with a key and without"),
    "shared": (shared, "one AsyncProducer, tasks that each await the acknowledgement of one record of 100 B"),
    "tls": (tls, "publishes with TLS, beside the same without it"),
    "grpc": (grpc_calls, "publishes over gRPC beside the same over HTTP"),
    "kafka": (kafka, "clients of Kafka, beside a broker of Kafka that syncs before it acknowledges"),
    "arrow": (arrow, "10,000 records a request from one Python process, acknowledged once they are on the disk"),
    "json": (json_bodies, "500 records of 100 B in a JSON body, acknowledged once they are on the disk"),
    "producer": (producer, "Producer.send, one record of 100 B a call, acknowledged exactly once"),
    "sustained": (sustained, "flights as JSON, published and moved into Delta tables for a minute"),
    "flushing": (flushing, "latency of single publishes at 64 connections while tables are written"),
    "freshness": (freshness, "seconds from a publish until its record is in a new Delta snapshot"),
    "small_files": (small_files, "files an hour of a topic that gets little, and how fresh its table is"),
    "growth": (growth, "the same rate of single publishes, on more and more partitions"),
    "commits": (
        commits,
        "one commit to a table of up to 2,000 files, or that removed up to 600,000 in a day, and its checkpoints",
    ),
    "week": (
        week,
        "the log of a topic that makes 3,600 files an hour, merged every hour, for a week at an hour a second",
    ),
    "compaction": (compaction, "Spark merges files of records of 100 B, and keeps the last of each key"),
    "starting": (starting, "a Spark job until it is at work, with each option that hastens it left out"),
    "commands": (commands, "a program that imports Siltlog, a command line until it has answered"),
    "keeping_up": (keeping_up, "a table that gets 100 small files a second, and silt compact again and again"),
    "retention": (retention, "a table of 100,000 files, of which most have expired"),
    "audit": (audit, "everything that a topic of 3,000,000 records has stored is read and proved"),
    "exactly_once": (exactly_once, "the same publishes plain, by a producer id, by an idempotency key"),
    "compression": (compression, "the same flights with and without compression"),
    "sizes": (sizes, "one record a request, of more and more bytes, 16 connections"),
    "connections": (connections, "one record of 100 B a request, more and more connections, at most 64 of them busy"),
    "stages": (stages, "processor time of the server by stage, in microseconds"),
    "read": (read, "records of 100 B, one client"),
    "read_stages": (read_stages, "processor time of a read by stage, in microseconds"),
    "catch_up": (catch_up, "latency of 1,000 publishes a second while four consumers read a topic from its start"),
    "latency": (latency, "from sending a record until a live consumer has it, 1,000 records/s"),
    "sharing": (sharing, "a group keeps up with 200,000 records/s of 100 B"),
    "rebalance": (rebalance, "a member joins a group and leaves it, while records come"),
    "groups": (groups, "members over HTTP until a large group rests; processor time while they wait"),
    "flights": (flights_as_json, "real flights of about 300 B"),
    "cluster": (cluster, "publishes of a node of a cluster beside a server alone, and of several nodes beside one"),
    "failover": (failover, "an owner is lost, over a folder: the longest time without an acknowledgement"),
    "failover_s3": (failover_s3, "an owner is lost, over S3: the longest time without an acknowledgement"),
    "hand_over": (hand_over, "topics are moved and nodes drained while they are published to"),
    "spark": (spark_source, "a Spark stream of a topic, its head included, at 50 records/s"),
    "page": (page, "the page in a browser, at a server of 1,000 topics; publishes while 50 watch"),
    "memory": (memory, "a large flow through a small server, read at the same time"),
}


@click.command(help=__doc__, epilog="Benchmarks: " + ", ".join(BENCHMARKS))
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1), help="Runs; medians of them are shown.")
@click.option(
    "--tries", default=TRIES, show_default=True, type=click.IntRange(1), help="Of each kind, where something is tried."
)
@click.option("--quick", is_flag=True, help="Shorter runs over less data, to see that all works.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Prints a Markdown document.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Also writes a document.")
@click.option(
    "--pictures", type=click.Path(file_okay=False, path_type=Path), help="Also draws curves, as SVG files in a folder."
)
@click.option(
    "--from",
    "measured",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measures nothing: shows what a document (of --json) has. Repeatable; of each benchmark the last one counts.",
)
@click.option("--dir", "folder", type=click.Path(file_okay=False, path_type=Path), help="The disk to measure.")
def main(
    names: tuple[str, ...],
    runs: int,
    tries: int,
    quick: bool,
    as_markdown: bool,
    json_path: Path | None,
    pictures: Path | None,
    measured: tuple[Path, ...],
    folder: Path | None,
) -> None:
    if measured:
        _show(names, measured, as_markdown, pictures)
        return
    # So that servers are stopped and folders removed then too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = _console()
    # Not the folder for temporary files: on many machines that is memory, where a sync means nothing.
    folder = (folder or TOP / ".cache").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    tried = [] if tries == TRIES else [f"--tries {tries}"]
    commands = " ".join([*names, *(["--quick"] if quick else []), *tried, f"--runs {runs}"])
    document: dict[str, Any] = {"machine": machine(), "runs": runs, "commands": commands, "benchmarks": {}}
    most = 0.0
    failed = []
    if as_markdown:
        print("# Figures\n")
    for name in names or tuple(BENCHMARKS):
        usage = Usage()
        try:
            found = summaries([_run(name, folder, quick, tries, run, runs) for run in range(runs)])
        except Exception:
            # The others are worth having all the same.
            failed.append(name)
            traceback.print_exc()
            continue
        others = usage.others()
        most = max(most, others)
        _show_one(console, name, found, others, as_markdown, pictures)
        document["benchmarks"][name] = _document(found, others)
        if json_path is not None:
            json_path.write_text(json.dumps(document, indent=1) + "\n")
    _say(console, sentences(machine(), [(commands, runs)], most), as_markdown)
    if failed:
        sys.exit(f"These failed: {', '.join(failed)}")


def _show(names: Sequence[str], measured: Sequence[Path], as_markdown: bool, pictures: Path | None) -> None:
    """The figures of earlier runs, as one."""
    console = _console()
    documents = [json.loads(path.read_text()) for path in measured]
    of: dict[str, Any] = {name: document for document in documents for name in document["benchmarks"]}
    shown = [name for name in BENCHMARKS if name in of and name in (names or BENCHMARKS)]
    machines = {json.dumps(of[name]["machine"]) for name in shown}
    if len(machines) != 1:
        raise click.UsageError(f"the documents have figures of {len(machines)} machines: {', '.join(sorted(machines))}")
    if as_markdown:
        print("# Figures\n")
    for name in shown:
        part = of[name]["benchmarks"][name]
        found = [Summary.of(figure) for figure in part["figures"]]
        _show_one(console, name, found, part["used_by_others"], as_markdown, pictures)
    most = max(of[name]["benchmarks"][name]["used_by_others"] for name in shown)
    runs = [(document["commands"], document["runs"]) for document in documents]
    _say(console, sentences(of[shown[0]]["machine"], runs, most), as_markdown)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 180, highlight=False)


def _show_one(
    console: Console, name: str, found: list[Summary], others: float, as_markdown: bool, pictures: Path | None
) -> None:
    drawn: list[Path] = []
    if pictures is not None:
        # Drawing is the one thing here that needs matplotlib.
        from benchmarks.figures.pictures import draw

        drawn = draw(found, pictures)
    sentence = BENCHMARKS[name][1]
    if as_markdown:
        print(markdown(name, sentence, found, others, [path.name for path in drawn]), flush=True)
    else:
        console.print(*tables(name, sentence, found, others))


def _say(console: Console, said: Sequence[str], as_markdown: bool) -> None:
    for sentence in said:
        if as_markdown:
            print(f"- {sentence}")
        else:
            console.print(sentence)


def _run(name: str, folder: Path, quick: bool, tries: int, run: int, runs: int) -> list[Figure]:
    progress = Console(stderr=True)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as scratch:
        bench = Bench(Path(scratch), QUICK_SECONDS if quick else SECONDS, quick, tries, kept=None if quick else folder)
        with progress.status(f"{name}, run {run + 1} of {runs}") as status:
            for figure in BENCHMARKS[name][0](bench):
                figures.append(figure)
                status.update(f"{name}, run {run + 1} of {runs}: {figure.label} {figure.value:,.0f} {figure.unit}")
    return figures


def _document(found: list[Summary], others: float) -> dict[str, Any]:
    return {"used_by_others": round(others, 3), "figures": [summary.document() for summary in found]}


if __name__ == "__main__":
    main()
