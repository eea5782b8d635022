"""Keeps a server at work for an hour, and looks whether anything grows without bound: ends with 1 where it does.

Two topics get 2,200 records a second; a group reads them while members come and go; tables are flushed, merged and
retained. Memory, descriptors, live files, the log and the lag are sampled all the time, and drawn at the end.
"""

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console

from benchmarks.bench import Server
from benchmarks.figures.figure import Figure, Point, Summary
from benchmarks.figures.pictures import draw
from benchmarks.servers.warden import guarded
from benchmarks.soak.traffic import TOPICS, Traffic
from benchmarks.soak.trend import trend
from siltlog.server_process import ServerProcess

TOP = Path(__file__).parents[2]
MIB = 1024 * 1024
SECONDS = 3_600.0
SAMPLES = 240
SAMPLE_SECONDS_MIN = 0.25
JOB_SECONDS_MIN, VISIT_SECONDS_MIN, RETENTION_SECONDS_MIN = 10.0, 3.0, 10.0
SETTINGS = {
    "log_level": "warning",
    "schedule": "on",
    **{f"schedule_{job}": "off" for job in ("audit", "catalog")},
    "head_bytes_max": 16 * MIB,
    "wal_bytes_max": 256 * MIB,
}


class Looked(NamedTuple):
    chart: str
    unit: str
    allowance: float
    """What may be added over the time without being called growth."""
    look: Callable[[Server, Traffic], float]


def descriptors(server: Server) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def live_files(server: Server) -> int:
    """Counts the files that the tables have; what was removed from them stays for hours, and is not counted."""
    return sum(int(server.admin.topic(topic)["files"]) for topic in TOPICS)


LOOKED: Mapping[str, Looked] = {
    "memory": Looked("soak-memory", "MiB", 64, lambda server, _: server.memory_bytes() / MIB),
    "descriptors": Looked("soak-descriptors", "descriptors", 50, lambda server, _: descriptors(server)),
    "live files": Looked("soak-files", "files", 150, lambda server, _: live_files(server)),
    "write-ahead log": Looked("soak-log", "MiB", 64, lambda server, _: server.wal_bytes() / MIB),
    "lag": Looked("soak-lag", "records", 20_000, lambda server, traffic: traffic.lag(server.admin)),
}


@click.command(help=__doc__)
@click.option("--seconds", default=SECONDS, show_default=True, type=click.FloatRange(30), help="How long.")
@click.option(
    "--pictures",
    default=TOP / "build" / "soak",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where curves are drawn, as SVG files; build/soak unless said.",
)
@click.option("--dir", "folder", type=click.Path(file_okay=False, path_type=Path), help="The disk to work on.")
def main(seconds: float, pictures: Path, folder: Path | None) -> None:
    # So that the server is stopped and its folder removed then too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = (folder or TOP / ".cache").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="soak-", dir=folder, ignore_cleanup_errors=True) as scratch,
        guarded(Path(scratch)),
    ):
        samples, traffic = soaked(Path(scratch) / "node", seconds)
    for path in draw(summaries_of(samples), pictures):
        print(path)
    print(f"{traffic.published:,} published, {traffic.read:,} read, {traffic.jobs} runs of jobs begun")
    problems = [*traffic.problems, *growing(samples)]
    if problems:
        sys.exit("\n".join(problems))
    print(f"Nothing grew without bound in {seconds:g} s.")


def soaked(folder: Path, seconds: float) -> tuple[dict[str, list[tuple[float, float]]], Traffic]:
    """Samples of each thing that is looked at, (seconds since the start, value), and what flowed."""
    keeps_ms = int(max(RETENTION_SECONDS_MIN, seconds / 6) * 1000)
    process = ServerProcess(folder, SETTINGS)
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in LOOKED}
    try:
        process.start()
        server = Server(process)
        for topic, (policy, _) in TOPICS.items():
            config: dict[str, int | str] = {"cleanup.policy": policy, "retention.ms": keeps_ms}
            server.admin.create_topic(topic, 4, config)
        traffic = Traffic(server.url, max(JOB_SECONDS_MIN, seconds / 30), max(VISIT_SECONDS_MIN, seconds / 40))
        began = time.monotonic()
        with traffic.flowing(), Console(stderr=True).status("") as status:
            while (passed := time.monotonic() - began) < seconds and not traffic.problems:
                for name, looked in LOOKED.items():
                    samples[name].append((passed, looked.look(server, traffic)))
                now = ", ".join(f"{name} {samples[name][-1][1]:,.0f} {LOOKED[name].unit}" for name in LOOKED)
                status.update(f"{passed:,.0f} of {seconds:,.0f} s: {now}")
                time.sleep(max(SAMPLE_SECONDS_MIN, seconds / SAMPLES))
        failed = sorted({run["job"] for run in server.admin.jobs() if run["outcome"] == "failed"})
        traffic.problems += [f"a run of {job} failed" for job in failed]
    finally:
        process.stop()
    return samples, traffic


def growing(samples: Mapping[str, list[tuple[float, float]]]) -> list[str]:
    """Prints what each was at first and at last; says of each that grows without bound that it does."""
    found = []
    for name, looked in LOOKED.items():
        seen = trend([value for _, value in samples[name]], looked.allowance)
        told = f"{name}: {seen.first:,.0f} {looked.unit} at first, {seen.last:,.0f} at last"
        print(told)
        if seen.grows:
            found.append(f"{told}: it grows without bound")
    return found


def summaries_of(samples: Mapping[str, list[tuple[float, float]]]) -> list[Summary]:
    return [
        Summary(
            Figure(f"{name} after {at:.1f} s", value, looked.unit, "sample", points=(Point(looked.chart, name, at),)),
            value,
            value,
            None,
        )
        for name, looked in LOOKED.items()
        for at, value in samples[name]
    ]


if __name__ == "__main__":
    main()
