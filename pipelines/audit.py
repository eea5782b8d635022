"""Audit: everything that is stored is read, and has to be what the tables say it is.

It changes nothing and moves no rows, so it needs neither Spark nor Java: files are read side by side, each a row group
at a time, so that memory is bounded whatever the tables hold. Other machines can audit other topics.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from siltlog.infra import names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.data_file import DataFile
from siltlog.infra.errors import CorruptData, SiltlogError, UnknownTopic, problem
from siltlog.infra.settings import ServerSettings
from siltlog.infra.store import ObjectStore
from siltlog.infra.table_load import load
from siltlog.infra.table_snapshot import TableSnapshot
from siltlog.pipelines.audit_file import read_file
from siltlog.pipelines.audit_findings import Expected, FileRead, Finding, cover, expected_of
from siltlog.pipelines.topics import chosen_topics, store_of

Progress = Callable[[str, int, int], None]
"""Called with the topic, the bytes done and the bytes planned."""

FINDINGS_MAX = 1_000
"""Of one topic, told one by one; the others are counted."""
READS_AT_ONCE_MAX = 8
BATCH_FILES = 1_000
"""So many files are handed to the readers at a time."""


@dataclass(slots=True)
class AuditReport:
    """Of one topic at one version of its table; of a dry run what would be read. `error` ended it early."""

    topic: str
    dry_run: bool
    version: int | None = None
    partitions: int = 0
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    findings_left_out: int = 0
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
    chosen = chosen_topics(store, [*topics, *any_partition] if topics else ())
    if not topics:
        chosen_topics(store, any_partition)
    reports = []
    for topic in chosen:
        report = AuditReport(topic, dry_run)
        started = clock.monotonic()
        try:
            snapshot = load(store, topic).snapshot
            if snapshot.deleted:
                if not topics:
                    continue
                raise problem("unknown_topic", f"topic {topic!r} was deleted", topic=topic)
            audit(store, topic, snapshot, report, keys=topic not in any_partition, progress=progress)
        except UnknownTopic as error:
            # Without names: its creation was cut short before its first commit.
            if not topics:
                continue
            report.error = error
        except CorruptData as error:
            report.add([Finding("damaged_log", error.detail, path=error.members.get("path"))])
        except SiltlogError as error:
            report.error = error
        report.seconds = clock.monotonic() - started
        reports.append(report)
    return reports


def audit(
    store: ObjectStore,
    topic: str,
    snapshot: TableSnapshot,
    report: AuditReport,
    *,
    keys: bool = True,
    progress: Progress | None = None,
) -> None:
    """Reads every file that `snapshot` names. Raises Unavailable where the store cannot be read now."""
    report.version = snapshot.version
    report.partitions = snapshot.partitions
    if report.dry_run:
        report.files = len(snapshot.files)
        report.rows = sum(file.rows for file in snapshot.files.values())
        report.size_bytes = sum(file.size_bytes for file in snapshot.files.values())
        return
    planned = sum(file.size_bytes for file in snapshot.files.values())
    # A dead letter is where the record it was came from, by whatever count that was placed.
    keys = keys and not topic.endswith(names.DEAD_LETTER_SUFFIX)
    report.add([_foreign(file) for file in snapshot.files.values() if file.partition not in snapshot.offsets])
    with ThreadPoolExecutor(min(os.cpu_count() or 1, READS_AT_ONCE_MAX)) as pool:
        for partition in range(snapshot.partitions):
            expected = expected_of(snapshot, partition)
            reads: list[FileRead] = []
            files = snapshot.files_of(partition)
            for first in range(0, len(files), BATCH_FILES):
                for read in pool.map(
                    lambda file, expected=expected: _read(store, topic, file, expected, keys),
                    files[first : first + BATCH_FILES],
                ):
                    report.add(read.findings)
                    report.files += 1
                    report.rows += read.rows
                    report.size_bytes += read.file.size_bytes
                    reads.append(read)
                    if progress is not None:
                        progress(topic, report.size_bytes, planned)
            report.add(cover(expected, reads))


def _read(store: ObjectStore, topic: str, file: DataFile, expected: Expected, keys: bool) -> FileRead:
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
