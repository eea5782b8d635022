"""How soon a Spark job is at work, with each of the options that are for it left out: what `silt compact` waits for."""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure

SECONDS_MAX = 300
STAGES = ("Python", "JVM", "Spark", "first merge", "first query", "end", "CPU")
"""Columns: imports of Python; the JVM until it answers; Spark's context and session; a merge of two files; a query of
the table with Delta; until the process is gone; processor time of all of it."""


def as_it_is() -> None:
    """Changes nothing."""


def no_archive() -> None:
    from siltlog.pipelines.spark import session

    session.class_archive = lambda *_: Path("/nonexistent")


def optimising_compiler() -> None:
    _without_option("-XX:TieredStopAtLevel=1")


def default_collector() -> None:
    _without_option("-XX:+UseSerialGC")


def _without_option(option: str) -> None:
    from siltlog.pipelines.spark import session

    kept = tuple(each for each in session.SHORT_JOB_OPTIONS if each != option)
    setattr(session, "SHORT_JOB_OPTIONS", kept)  # noqa: B010 (its type is a pair)


def with_ui() -> None:
    from siltlog.pipelines.spark import session

    session.STARTING |= {"spark.ui.enabled": "true", "spark.ui.port": "0"}


def default_snapshot_partitions() -> None:
    from siltlog.pipelines.spark import session

    del session.STARTING["spark.databricks.delta.snapshotPartitions"]


CASES: dict[str, Callable[[], None]] = {
    "as it is": as_it_is,
    "without the archive of classes": no_archive,
    "with the optimising compiler": optimising_compiler,
    "with the default collector": default_collector,
    "with Spark's web pages": with_ui,
    "with 50 partitions for Delta's log": default_snapshot_partitions,
}


def starting(bench: Bench) -> Iterator[Figure]:
    for label in list(CASES)[: 1 if bench.quick else None]:
        given = (label, str(time.time()), str(bench.scratch / "start"))
        command = [sys.executable, "-m", "benchmarks.pipelines.starting", *given]
        done = subprocess.run(command, capture_output=True, check=True, timeout=SECONDS_MAX)
        ended = time.time()
        found = json.loads(done.stdout.splitlines()[-1])
        found["end"] = ended - found.pop("ended")
        for stage in STAGES:
            yield Figure(f"start of a job, {label}", found[stage], "s", column=f"{stage}, s")


def main(label: str, spawned: str, folder: str) -> None:
    import os
    import uuid

    from pyspark import SparkContext, java_gateway

    from siltlog.infra.clock import SystemClock
    from siltlog.infra.store.store import open_store
    from siltlog.pipelines.compaction.compact import compact
    from siltlog.pipelines.setup.class_archive import small_topic
    from siltlog.pipelines.spark.query import run_query
    from siltlog.pipelines.spark.session import spark_session

    CASES[label]()
    clock = SystemClock()
    store = open_store((Path(folder) / uuid.uuid4().hex).as_uri())
    table = small_topic(store, clock, "delete")
    at = [float(spawned), time.time()]

    launch_gateway: Any = java_gateway.launch_gateway

    def launched(*arguments: Any) -> Any:
        gateway = launch_gateway(*arguments)
        at.append(time.time())
        return gateway

    java_gateway.launch_gateway = launched
    with spark_session(store) as spark:
        at.append(time.time())
        compact(spark, store, table, clock)
        at.append(time.time())
        list(run_query(spark, store, f"select count(*) from {table.topic}").rows)
        at.append(time.time())
        assert SparkContext._gateway is not None
    used = os.times()
    found = dict(zip(STAGES, (after - before for before, after in itertools.pairwise(at)), strict=False))
    print(json.dumps(found | {"ended": at[-1], "CPU": sum(used[:4])}))


if __name__ == "__main__":
    main(*sys.argv[1:])
