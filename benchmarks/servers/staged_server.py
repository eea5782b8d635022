"""`silt serve` with a timer around each stage of what it does.

Run as `python -m benchmarks.servers.staged_server FOLDER WHICH`, where `OF` has the stages of WHICH. It listens on a
free port, prints where, and at its end prints what each stage took: how often it ran, and for how many seconds of time
and of its thread's processor time. A stage's time is its own: what it calls that is a stage too is counted there, and
what the timers themselves take is measured before and left out.
"""

import functools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from siltlog.infra.settings.loading import load
from siltlog.server.process import hide_pandas

CALIBRATION_CALLS = 50_000
STOP_SECONDS_MAX = 60.0
REST = "event loop and tasks: the rest"
"""What is in no stage."""
SYNC = "write-ahead log: sync"
STAGES: dict[str, tuple[str, ...]] = {
    "read the request": ("siltlog.infra.http.connection.connection:Connection.data_received",),
    "parse the body": ("siltlog.ingest.records.formats:_parse", "siltlog.ingest.publish.fast:parse_json"),
    "check and split by partition": ("siltlog.ingest.log.admission:split",),
    "sequence and reserve": ("siltlog.ingest.log.log:Log.append",),
    "gather a group into frames": ("siltlog.ingest.log.group_commit:GroupCommit._seal",),
    "write-ahead log: entry and checksums": (
        "siltlog.ingest.wal.wal:Wal.submit",
        "siltlog.ingest.wal.wal:encode_entry",
    ),
    "write-ahead log: write": ("siltlog.ingest.wal.disk:Disk.write",),
    SYNC: ("siltlog.ingest.wal.disk:Disk.sync",),
    "head, high watermark, wake": ("siltlog.ingest.log.group_commit:GroupCommit._durable",),
    "make the reply": (
        "siltlog.ingest.publish.http:publish_reply",
        "siltlog.ingest.publish.exchange:publish_reply",
    ),
    "write the reply to its socket": ("siltlog.infra.http.connection.gathering:Gathering.flush",),
    "flush: Parquet file": ("siltlog.ingest.flush.flush:Flush._write",),
    "flush: commit": ("siltlog.infra.table.table:TopicTable.append",),
    "flush: checkpoint": ("siltlog.infra.table.table:TopicTable.maintain",),
}

READ_STAGES: dict[str, tuple[str, ...]] = {
    "read the request": ("siltlog.infra.http.connection.connection:Connection.data_received",),
    "decode the request": ("siltlog.consumers.reading.http:decode",),
    "columns out of the head": ("siltlog.ingest.log.partition:PartitionLog._record_batches",),
    "count what fits": ("siltlog.consumers.reading.budget:Budget.take",),
    "make the reply: Arrow": ("siltlog.consumers.reading.fetch:FetchResult.arrow_buffers",),
    "make the reply: JSON": ("siltlog.consumers.reading.fetch:FetchResult.json_bytes",),
    "write the reply to its socket": (
        "siltlog.infra.http.connection.gathering:Gathering.flush",
        "siltlog.infra.http.connection.gathering:Gathering.write",
    ),
}
OF = {"publish": STAGES, "read": READ_STAGES}


class Stage:
    """Safe from several threads: each counts for itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: list[list[float]] = []
        self._local = threading.local()

    def counts(self) -> list[float]:
        """Calls, seconds of time, seconds of processor time: the calling thread's own."""
        counts: list[float] | None = getattr(self._local, "counts", None)
        if counts is None:
            counts = self._local.counts = [0, 0.0, 0.0]
            with self._lock:
                self._counts.append(counts)
        return counts

    def document(self) -> dict[str, float]:
        calls, wall, cpu = (sum(counts[index] for counts in self._counts) for index in range(3))
        return {"calls": calls, "wall": wall, "cpu": max(cpu - calls * _timer.inside, 0.0)}


class _Timer:
    """Seconds of processor time that timing one call takes: between its two looks at the clock, and around them."""

    inside = 0.0
    outside = 0.0


_timer = _Timer()


class _Inner(threading.local):
    """The time that stages inside the one under way took, by thread."""

    wall = 0.0
    cpu = 0.0


_inner = _Inner()


def timed(function: Callable[..., Any], stage: Stage) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        wall_before, cpu_before = _inner.wall, _inner.cpu
        _inner.wall = _inner.cpu = 0.0
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            cpu = time.thread_time() - cpu
            wall = time.perf_counter() - wall
            counts = stage.counts()
            counts[0] += 1
            counts[1] += wall - _inner.wall
            counts[2] += cpu - _inner.cpu
            _inner.wall, _inner.cpu = wall_before + wall, cpu_before + cpu + _timer.outside

    return run


def calibrate() -> None:
    """Measures what the timers take."""
    stage = Stage()

    def nothing() -> None:
        return

    run = timed(nothing, stage)
    started = time.thread_time()
    for _ in range(CALIBRATION_CALLS):
        nothing()
    bare = time.thread_time()
    for _ in range(CALIBRATION_CALLS):
        run()
    in_all = (time.thread_time() - bare - (bare - started)) / CALIBRATION_CALLS
    _timer.inside = stage.counts()[2] / CALIBRATION_CALLS
    _timer.outside = max(in_all - _timer.inside, 0.0)


def install(stages: Mapping[str, Sequence[str]]) -> dict[str, Stage]:
    """Puts the timers in place. Raises AttributeError where a stage's function is no longer there."""
    made = {}
    for name, places in stages.items():
        stage = made[name] = Stage()
        for place in places:
            owner, name_there, function = found(place)
            setattr(owner, name_there, timed(function, stage))
    return made


@contextmanager
def installed(stages: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Stage]]:
    """Does what `install` does, and takes the timers out again."""
    before = [found(place) for places in stages.values() for place in places]
    try:
        yield install(stages)
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def found(place: str) -> tuple[Any, str, Callable[..., Any]]:
    """Gives what has the function, its name there, and the function. Raises AttributeError where there is none."""
    module, _, path = place.partition(":")
    *owners, last = path.split(".")
    owner: Any = import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    return owner, last, getattr(owner, last)


@contextmanager
def staged_server(folder: Path, which: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Gives a server's URL and process; terminated, it says what its stages (`OF[which]`) took: see `told`."""
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        arguments = [sys.executable, "-m", "benchmarks.servers.staged_server", str(folder), which]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said.startswith("listening on "):
            raise RuntimeError(f"the server did not start: {(folder / 'log').read_text()[-2000:]}")
        yield said.split()[-1], process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def told(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Ends a staged server. What it took of the processors, in seconds, and each of its stages."""
    process.terminate()
    output, _ = process.communicate(timeout=STOP_SECONDS_MAX)
    document: dict[str, Any] = json.loads(output.splitlines()[-1])
    return document


def main() -> int:
    hide_pandas()
    # The server's modules are imported only here: a name that one of them has taken over cannot be replaced any more.
    from siltlog.server.wiring import serve

    calibrate()
    made = install(OF[sys.argv[2]])
    loaded = load({"data_dir": Path(sys.argv[1]) / "data", "port": 0, "log_level": "warning"})
    code = serve(loaded)
    documents = {name: each.document() for name, each in made.items()}
    timers = sum(each["calls"] for each in documents.values()) * (_timer.inside + _timer.outside)
    print(json.dumps({"cpu": time.process_time() - timers, "stages": documents}))
    return code


if __name__ == "__main__":
    sys.exit(main())
