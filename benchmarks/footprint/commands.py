"""How soon a program has imported Siltlog, and a command line answers: each a new process, by turns."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure

TURNS, QUICK_TURNS = 20, 2
PYTHON = "Python itself"
PROCESSES: Mapping[str, tuple[Sequence[str], float | None]] = {
    PYTHON: (("-c", "pass"), None),
    "import siltlog": (("-c", "import siltlog"), 100),
    "from siltlog import Admin": (("-c", "from siltlog import Admin"), None),
    "from siltlog import Producer": (("-c", "from siltlog import Producer"), 400),
    "from siltlog import Consumer": (("-c", "from siltlog import Consumer"), 400),
    "silt --help": (("-m", "siltlog.cli", "--help"), 300),
    "silt topic --help": (("-m", "siltlog.cli", "topic", "--help"), None),
    "silt publish --help": (("-m", "siltlog.cli", "publish", "--help"), None),
    "silt serve --help": (("-m", "siltlog.cli", "serve", "--help"), None),
}
"""Maps what is measured to the arguments of Python and the milliseconds that it may take on a quiet machine."""


def commands(bench: Bench) -> Iterator[Figure]:
    """Milliseconds until the process is gone, and of processor time; medians of so many turns."""
    wall: dict[str, list[float]] = {label: [] for label in PROCESSES}
    used: dict[str, list[float]] = {label: [] for label in PROCESSES}
    for _ in range(QUICK_TURNS if bench.quick else TURNS):
        for label, (arguments, _) in PROCESSES.items():
            before, started = os.times(), time.perf_counter()
            subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, cwd=bench.scratch)
            ended, after = time.perf_counter(), os.times()
            wall[label].append((ended - started) * 1000)
            processor = after.children_user + after.children_system - before.children_user - before.children_system
            used[label].append(processor * 1000)
    for label, (_, most) in PROCESSES.items():
        kind = "limit" if label == PYTHON else "siltlog"
        yield Figure(label, median(wall[label]), "ms", kind, at_most=most, column="until it ends, ms")
        yield Figure(label, median(used[label]), "ms", kind, column="processor time, ms")
