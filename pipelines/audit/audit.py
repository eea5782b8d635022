"""Audit: everything that is stored is read, and has to be what the tables say it is.

It changes nothing and moves no rows, so it needs neither Spark nor Java: files are read side by side, each a row group
at a time, so that memory is bounded whatever the tables hold. Other machines can audit other topics.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType

from siltlog.infra import names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import ConfigError, CorruptData, SiltlogError, UnknownTopic, problem
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ReadableStore
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.entries import damaged, log_folder
from siltlog.infra.table.opening import load
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.pipelines.audit.file import read_file
from siltlog.pipelines.audit.findings import Expected, FileRead, Finding, cover, expected_of, lost_state, marks_of
from siltlog.pipelines.audit.split_keys import SplitKeys
from siltlog.pipelines.topics import chosen_topics, have_gone, store_of

Progress = Callable[[str, int, int], None]
"""Called with the topic, the bytes done and the bytes planned."""

KnownEnds = Mapping[tuple[str, int], int]
"""An offset that the table has once reached, by topic id and partition."""
FINDINGS_MAX = 1_000
"""Findings of one topic that are told one by one; the others are counted."""
READS_AT_ONCE_MAX = 8
BATCH_FILES = 1_000
"""How many files are handed to the readers at a time."""
TRIES_MAX = 5
"""How often a topic is read anew because files have gone since its table was looked at."""
_LACKING = ("missing_file", "damaged_file")
"""What is found of a file that has gone."""


@dataclass(slots=True)
class AuditReport:
    """The audit of one topic at one version of its table; a dry run has what would be read. `error` ended it early."""

    topic: str
    dry_run: bool
    version: int | None = None
    partitions: int = 0
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    findings_left_out: int = 0
    warnings: list[Finding] = field(default_factory=list)
    """What may be as its publishers want it; no more than FINDINGS_MAX of them."""
    seconds: float = 0.0
    error: SiltlogError | None = None

    @property
    def clean(self) -> bool:
        """Whether it was read to its end and nothing is wrong."""
        return self.error is None and not self.findings

    def add(self, findings: Sequence[Finding]) -> None:
        room = max(FINDINGS_MAX - len(self.findings), 0)
        self.findings.extend(findings[:room])
        self.findings_left_out += max(len(findings) - room, 0)


def audit_topics(
    settings: ServerSettings,
    topics: Sequence[str] = (),
    *,
    dry_run: bool = False,
    any_partition: Sequence[str] = (),
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> list[AuditReport]:
    """Audits `topics`, or every topic when empty.

    Publishers of `any_partition` choose partitions themselves: keys of those topics are not checked. A topic that
    cannot be read has its `error` in its report and the others go on. Raises UnknownTopic for a name that is none.
    """
    clock = clock or SystemClock()
    store = store_of(settings)
    chosen_topics(store, any_partition)
    # A folder that has lost its log is no topic to anybody else.
    chosen = chosen_topics(store, topics) if topics else store.folders(names.TOPICS_FOLDER)
    reports = []
    for topic in chosen:
        report = AuditReport(topic, dry_run)
        started = clock.monotonic()
        try:
            for _ in range(TRIES_MAX):
                report = AuditReport(topic, dry_run)
                known = known_ends(store, topic)
                snapshot = load(store, topic).snapshot
                if snapshot.deleted:
                    break
                audit(store, topic, snapshot, report, known, keys=topic not in any_partition, progress=progress)
                lacking = [found.path for found in report.findings if found.kind in _LACKING and found.path]
                if not (lacking and have_gone(store, topic, lacking)):
                    break
            if snapshot.deleted:
                if not topics:
                    continue
                raise problem("unknown_topic", f"topic {topic!r} was deleted", topic=topic)
        except UnknownTopic as error:
            lost = None if report.version is not None else _without_log(store, topic)
            if lost is not None:
                report.add([lost])
            elif topics:
                report.error = error
            else:
                # Its creation was cut short before its first commit.
                continue
        except CorruptData as error:
            report.add([Finding("damaged_log", error.detail, path=error.members.get("path"))])
        except SiltlogError as error:
            report.error = error
        report.seconds = clock.monotonic() - started
        reports.append(report)
    return reports


def audit(
    store: ReadableStore,
    topic: str,
    snapshot: TableSnapshot,
    report: AuditReport,
    known: KnownEnds = MappingProxyType({}),
    *,
    keys: bool = True,
    progress: Progress | None = None,
) -> None:
    """Reads every file that `snapshot` names. `known` is of `known_ends` before the snapshot was taken.

    Raises Unavailable where the store cannot be read now, CorruptData for properties that say nothing.
    """
    report.version = snapshot.version
    report.partitions = snapshot.partitions
    if report.dry_run:
        report.files = len(snapshot.files)
        report.rows = sum(file.rows for file in snapshot.files.values())
        report.size_bytes = sum(file.size_bytes for file in snapshot.files.values())
        return
    planned = sum(file.size_bytes for file in snapshot.files.values())
    # Listed after the snapshot: what it notes was there before it.
    states = known_ends(store, topic)
    # A dead letter is where the record it was came from, by whatever count that was placed.
    keys = keys and not topic.endswith(names.DEAD_LETTER_SUFFIX)
    split_keys = SplitKeys()
    report.add([_foreign(file) for file in snapshot.files.values() if file.partition not in snapshot.offsets])
    with ThreadPoolExecutor(min(os.cpu_count() or 1, READS_AT_ONCE_MAX)) as pool:
        for partition in range(snapshot.partitions):
            expected = _expected(topic, snapshot, partition)
            place = snapshot.topic_id, partition
            report.add([*marks_of(snapshot, partition, known.get(place, 0))])
            report.add([*lost_state(snapshot, partition, states.get(place, 0))])
            reads: list[FileRead] = []
            files = snapshot.files_of(partition)
            for first in range(0, len(files), BATCH_FILES):
                for read in pool.map(
                    lambda file, expected=expected: _read(store, topic, file, expected, keys),
                    files[first : first + BATCH_FILES],
                ):
                    report.add(read.findings)
                    report.warnings += read.warnings[: max(FINDINGS_MAX - len(report.warnings), 0)]
                    split_keys.add(read)
                    report.files += 1
                    report.rows += read.rows
                    report.size_bytes += read.file.size_bytes
                    reads.append(read)
                    if progress is not None:
                        progress(topic, report.size_bytes, planned)
            report.add(cover(expected, reads))
    if "compact" in str(snapshot.config["cleanup.policy"]):
        report.add(split_keys.find(store, topic, snapshot.files.values()))


def known_ends(store: ReadableStore, topic: str) -> KnownEnds:
    """Reads from the names of objects beside the table how far it has come: each was written once the table was there.

    It must run before the table is looked at, which goes on meanwhile.
    """
    folder = f"{names.topic_path(topic)}/{names.STATE_FOLDER}/"
    ends: dict[tuple[str, int], int] = {}
    for info in store.list(folder):
        topic_id, partition, offset, *_ = [*info.path.removeprefix(folder).split("/"), "", ""]
        if partition.isdigit() and offset.isdigit():
            place = topic_id, int(partition)
            ends[place] = max(int(offset), ends.get(place, 0))
    return ends


def _without_log(store: ReadableStore, topic: str) -> Finding | None:
    """Finds a folder that has data files, and no log that would say what they are."""
    files = [info for info in store.list(names.topic_path(topic)) if info.path.endswith(".parquet")]
    if not files:
        return None
    return Finding("damaged_log", f"the topic has {len(files)} data files and no log: nobody can read them as a table")


def _expected(topic: str, snapshot: TableSnapshot, partition: int) -> Expected:
    try:
        TopicConfig.from_properties(snapshot.properties)
        return expected_of(snapshot, partition)
    except (ValueError, KeyError, TypeError, ConfigError) as error:
        what = f"its properties at version {snapshot.version}: {error!r}"
        raise damaged(topic, log_folder(topic), what) from error


def _read(store: ReadableStore, topic: str, file: DataFile, expected: Expected, keys: bool) -> FileRead:
    return read_file(store, topic, file, expected, keys=keys)


def _foreign(file: DataFile) -> Finding:
    return Finding(
        "out_of_bounds",
        f"{file.path} is of partition {file.partition}, which the topic has not",
        partition=file.partition,
        path=file.path,
        first_offset=file.first_offset,
        last_offset=file.last_offset,
        records=file.rows,
    )
