"""A week of a topic that makes as many small files as it may, in minutes: an hour takes a second, with all its periods.

Its files are merged every hour. What a day leaves (removals, entries) goes after a day, so nothing may grow.
"""

import resource
import time
import uuid
from collections.abc import Iterator

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures.figure import Figure
from benchmarks.tables.log_only import LogOnly
from siltlog.infra.clock import SystemClock
from siltlog.infra.settings.topic_config import SETTINGS, TopicConfig
from siltlog.infra.store.store import open_store
from siltlog.infra.table.entries import RETENTION_MS
from siltlog.infra.table.table import TopicTable

DAYS = 7
QUICK_DAYS = 3
HOUR_S = 1.0
QUICK_HOUR_S = 0.1
COMMITS = 20
"""How many commits an hour has; in truth there are more, with fewer files each."""
QUICK_COMMITS = 4
FILES = int(SETTINGS["flush.files.per.hour"].default) // COMMITS
_clock = SystemClock()


def week(bench: Bench) -> Iterator[Figure]:
    topic = LogOnly(open_store((bench.scratch / "week").as_uri()), "week")
    hour_s = QUICK_HOUR_S if bench.quick else HOUR_S
    day_ms = int(24 * hour_s * 1000)
    topic.door.set_config(TopicConfig({}), str(uuid.uuid4()), removed_files_ms=day_ms)
    for day in range(1, (QUICK_DAYS if bench.quick else DAYS) + 1):
        committed: list[float] = []
        maintained: list[float] = []
        for _ in range(24):
            ends = time.perf_counter() + hour_s
            _hour(topic, QUICK_COMMITS if bench.quick else COMMITS, committed, maintained)
            topic.door.clean_log(_clock.now_us() // 1000 + RETENTION_MS - day_ms)
            _clock.sleep(max(0.0, ends - time.perf_counter()))
        started = time.perf_counter()
        TopicTable.open(topic.store, topic.topic, _clock)
        opened = time.perf_counter() - started
        column = f"day {day}"
        yield Figure("commit and refresh, p50, ms", float(np.median(committed)) * 1000, "ms", column=column)
        share = sum(maintained) / (sum(maintained) + sum(committed)) * 100
        yield Figure("of their time, checkpoints, %", share, "%", column=column)
        yield Figure("the newest checkpoint, MB", topic.checkpoint_bytes() / 1e6, "MB", column=column)
        yield Figure("open the table, ms", opened * 1000, "ms", column=column)
        yield Figure("the log on the disk, MB", topic.log_bytes() / 1e6, "MB", column=column)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield Figure("memory of the process, at most, MiB", memory, "MiB", column=column)


def _hour(topic: LogOnly, commits: int, committed: list[float], maintained: list[float]) -> None:
    small = []
    for _ in range(commits):
        files = topic.files(FILES)
        small += files
        started = time.perf_counter()
        topic.commit(files)
        between = time.perf_counter()
        topic.door.maintain()
        committed.append(between - started)
        maintained.append(time.perf_counter() - between)
    # One large file of all; it is replaced as well, so that what is live stays the same.
    large = topic.files(1)
    topic.commit(large, small)
    topic.commit([], large)
