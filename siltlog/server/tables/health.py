"""Judges a table by its files, its log and what jobs would do now: values in, values out."""

from collections.abc import Sequence
from typing import NamedTuple

from siltlog.infra.clock import format_ms, format_us
from siltlog.infra.errors import SiltlogError
from siltlog.infra.records import Bounds
from siltlog.infra.settings.topic_config import FLUSH_WAIT_MS_MAX, UNLIMITED, TopicConfig
from siltlog.infra.table.commits import COMMITS_MAX
from siltlog.infra.table.log_start import StartMove
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.pipelines.compaction import plan as compaction
from siltlog.pipelines.compaction.keys_plan import compacts_keys, may_be_due
from siltlog.pipelines.retention import plan as retention
from siltlog.server.tables.answers import (
    Compaction,
    NewStart,
    PartitionTable,
    Removal,
    Retention,
    TableProblem,
    TableState,
    TopicHealth,
)
from siltlog.server.tables.file_rows import US_PER_MS, is_small

OVERDUE_MS = 3_600_000
"""What has been expired for so long should be gone: retention runs every ten minutes."""
LIMITS = ("retention.ms", "retention.bytes", "retention.records")


class LogSeen(NamedTuple):
    """The log of a table as the object store has it; times are those of its objects, None where they are not there."""

    version: int
    committed_ms: int | None
    checkpoint_version: int | None
    checkpoint_ms: int | None
    trouble: str = ""
    """Why it could not be looked at."""


class Flushing(NamedTuple):
    """What the node that owns a topic says of its flushes."""

    trouble: str
    """Why it takes no records, or its last flush failed; empty without."""
    lag_ms: int | None
    """The age of the oldest record that is not in the table."""


def health_of(
    topic: str,
    snapshot: TableSnapshot,
    bounds: Sequence[tuple[int, Bounds]],
    seen: LogSeen,
    flushing: Flushing | None,
    now_us: int,
) -> TopicHealth:
    """Takes as long as the table has files: a second for some hundred thousand."""
    problems: list[TableProblem] = []
    config, now_ms = snapshot.config, now_us // US_PER_MS
    partitions = [_partition(snapshot, partition, each) for partition, each in bounds]
    state = _state(snapshot, partitions, seen, flushing, now_ms)
    merges = expired = None
    try:
        merges = _compaction(snapshot, config, now_ms)
        expired = _retention(snapshot, config, now_ms)
    except SiltlogError as error:
        # Files that overlap: no job touches them before somebody has said which are right.
        problems.append(TableProblem("error", error.detail))
    problems += _of_flushing(state, config, flushing)
    problems += _of_log(state, seen)
    problems += _of_jobs(snapshot, config, expired, now_ms)
    return TopicHealth(topic, snapshot.topic_id, format_us(now_us), state, partitions, expired, merges, problems)


def _partition(snapshot: TableSnapshot, partition: int, bounds: Bounds) -> PartitionTable:
    files = snapshot.files_of(partition)
    return PartitionTable(
        *bounds,
        partition=partition,
        files=len(files),
        bytes=sum(file.size_bytes for file in files),
        rows=sum(file.rows for file in files),
        small_files=sum(map(is_small, files)),
    )


def _state(
    snapshot: TableSnapshot,
    partitions: Sequence[PartitionTable],
    seen: LogSeen,
    flushing: Flushing | None,
    now_ms: int,
) -> TableState:
    files = len(snapshot.files)
    small = sum(each.small_files for each in partitions)
    checkpoint = -1 if seen.checkpoint_version is None else seen.checkpoint_version
    since = None if seen.trouble else max(snapshot.version - checkpoint, 0)
    return TableState(
        version=snapshot.version,
        committed_at=format_ms(seen.committed_ms),
        age_ms=_age(seen.committed_ms, now_ms),
        lag_ms=None if flushing is None else flushing.lag_ms,
        files=files,
        bytes=sum(each.bytes for each in partitions),
        rows=sum(each.rows for each in partitions),
        small_files=small,
        small_files_share=round(small / files, 4) if files else 0.0,
        checkpoint_version=seen.checkpoint_version,
        checkpoint_at=format_ms(seen.checkpoint_ms),
        checkpoint_age_ms=_age(seen.checkpoint_ms, now_ms),
        commits_since_checkpoint=since,
    )


def _age(ms: int | None, now_ms: int) -> int | None:
    return None if ms is None else max(now_ms - ms, 0)


# What jobs would do.


def _retention(snapshot: TableSnapshot, config: TopicConfig, now_ms: int) -> Retention:
    def by(name: str) -> Removal | None:
        if config.integer(name) == UNLIMITED:
            return None
        return Removal(*_removal(retention.plan(snapshot, _alone(config, name), now_ms).moves))

    deletes = "delete" in str(config["cleanup.policy"]).split(",")
    by_limits = [by(name) if deletes else None for name in LIMITS]
    return Retention(*_removal(retention.plan(snapshot, config, now_ms).moves), *by_limits)


def _alone(config: TopicConfig, name: str) -> TopicConfig:
    """The settings of a topic that has no other limit than this."""
    return config.with_own({**config.own, **{other: UNLIMITED for other in LIMITS if other != name}})


def _removal(moves: Sequence[StartMove]) -> tuple[int, int, int, list[NewStart]]:
    starts = [
        NewStart(move.partition, move.before, move.start, len(move.files), move.rows, move.size_bytes) for move in moves
    ]
    return (
        sum(each.files for each in starts),
        sum(each.rows for each in starts),
        sum(each.bytes for each in starts),
        starts,
    )


def _compaction(snapshot: TableSnapshot, config: TopicConfig, now_ms: int) -> Compaction:
    keys = may_be_due(snapshot, config, now_ms) if compacts_keys(config) else frozenset()
    made = compaction.plan(snapshot, config, now_ms, rewritten_next=keys)
    return Compaction(made.files, made.files_after, made.size_bytes, len(keys))


# What somebody should know.


def _of_flushing(state: TableState, config: TopicConfig, flushing: Flushing | None) -> list[TableProblem]:
    found = []
    if flushing is not None and flushing.trouble:
        found.append(TableProblem("error", flushing.trouble))
    late_ms = config.integer("flush.ms") + FLUSH_WAIT_MS_MAX
    if state.lag_ms is not None and state.lag_ms > late_ms:
        found.append(
            TableProblem(
                "error",
                f"the oldest record that is not in the table waits for {state.lag_ms // 1000:,} s, of "
                f"{late_ms // 1000:,} s that flushes may take: see the log of the node that owns the topic",
            )
        )
    return found


def _of_log(state: TableState, seen: LogSeen) -> list[TableProblem]:
    if seen.trouble:
        said = "when the table was committed and where its checkpoint is cannot be read"
        return [TableProblem("warning", f"{said}: {seen.trouble}")]
    if (state.commits_since_checkpoint or 0) <= 2 * COMMITS_MAX:
        return []
    return [
        TableProblem(
            "warning",
            f"{state.commits_since_checkpoint:,} commits came since the last checkpoint, which is made after "
            f"{COMMITS_MAX:,} at the latest: whoever opens the table reads each of them; see the log of the node that "
            "owns the topic",
        )
    ]


def _of_jobs(
    snapshot: TableSnapshot, config: TopicConfig, expired: Retention | None, now_ms: int
) -> list[TableProblem]:
    found = []
    crowded = len(snapshot.files) > compaction.LIVE_FILES_MAX
    if crowded:
        found.append(
            TableProblem(
                "warning",
                f"the table has {len(snapshot.files):,} files, and more than {compaction.LIVE_FILES_MAX:,} make reads "
                "slow: run `silt compact`, or see in GET /v1/jobs why it does not get on",
            )
        )
    overdue = expired is not None and expired.by_time is not None and expired.by_time.files > 0
    if overdue and (late := retention.plan(snapshot, _alone(config, LIMITS[0]), now_ms - OVERDUE_MS).files):
        found.append(
            TableProblem(
                "warning",
                f"{late:,} files are expired since {OVERDUE_MS // 60_000} minutes or longer and still there: see in "
                "GET /v1/jobs when retain ran last; `silt retain --dry-run` says what waits for what",
            )
        )
    return found
