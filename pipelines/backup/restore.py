"""Restore: topics of a backup made anew under another root, then audited.

Files are copied first; one commit makes each topic, whole or not at all. Killed at any point and run again, it goes on
where it was: a topic that this backup made already is left alone.
"""

import builtins
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from siltlog.infra import delta_names, names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import ConfigError, SiltlogError, TopicExists, problem
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.checksum import crc32c
from siltlog.infra.store.store import ObjectInfo, ObjectStore
from siltlog.infra.table.lifecycle import restore_table, restored_already
from siltlog.infra.table.opening import load
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.pipelines import backup_names
from siltlog.pipelines.audit.audit import AuditReport, audit
from siltlog.pipelines.backup.access import AccessRestored, restore_access
from siltlog.pipelines.backup.copying import Copy, copy_all, left_to_copy
from siltlog.pipelines.backup.format import Manifest, TopicBackup, manifest_at, read_topic
from siltlog.pipelines.backup.group_cut import Ends, cut_offsets
from siltlog.pipelines.topics import other_store, store_of

Progress = Callable[[str, int, int], None]
"""Called with the topic, the bytes done and the bytes planned."""


@dataclass(slots=True)
class TopicRestoreReport:
    """The restore of one topic; a dry run has what would be restored, and audits the backup itself.

    `error` ended it early: then the topic is not there.
    """

    topic: str
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    already: bool = False
    """It was restored from this backup before."""
    cut_offsets: int = 0
    """Only of `_offsets`: how many offsets of groups lay behind the end of what was restored."""
    seconds: float = 0.0
    audit: AuditReport | None = None
    error: SiltlogError | None = None


@dataclass(slots=True)
class RestoreReport:
    dry_run: bool
    backup_id: str
    taken_at: str
    topics: list[TopicRestoreReport] = field(default_factory=list)
    groups_left_out: bool = False
    """The root has offsets of groups of its own: those of the backup were left alone."""
    access: AccessRestored | None = None
    """None where the backup has no access document, or only some topics were asked for."""


def find_backup(settings: ServerSettings, source_uri: str, at_us: int | None = None) -> Manifest:
    """The newest backup at `source_uri`, or the newest that was taken by `at_us`. Raises Refused, CorruptData."""
    return manifest_at(_source(settings, source_uri), at_us)


def restore_topics(
    settings: ServerSettings,
    source_uri: str,
    manifest: Manifest,
    topics: Sequence[str] = (),
    *,
    keys: bool = False,
    any_partition: Sequence[str] = (),
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> RestoreReport:
    """Restores `topics` of a backup, or all of them when empty, to the root of `settings`.

    With all of them come the grants of its access document, and with `keys` its API keys, as they were then. Publishers
    of `any_partition` choose partitions themselves: the audit does not look where their keys are.

    A topic that fails has its `error` in its report and the others go on. Raises UnknownTopic for one that the backup
    has not, TopicExists, naming them, when the root has any of them: then nothing is written.
    """
    clock = clock or SystemClock()
    source = _source(settings, source_uri)
    target = other_store(settings, settings.root_uri, make=not dry_run)
    result = RestoreReport(dry_run, manifest.backup_id, manifest.taken_at)
    _require_known(manifest, any_partition)
    done = _chosen(target, manifest, topics, result)
    if manifest.access is not None and not topics:
        result.access = restore_access(
            settings, source, target, manifest.backup_id, manifest.access, clock, keys=keys, dry_run=dry_run
        )
    ends: Ends = {}
    # Groups last: where they go on is not behind what was restored, and nothing is known of them before all is there.
    for topic in sorted(done, key=lambda topic: topic == names.OFFSETS_TOPIC):
        report = TopicRestoreReport(topic, already=done[topic])
        result.topics.append(report)
        started = clock.monotonic()
        try:
            entry = manifest.entry(topic)
            assert entry is not None
            report.files, report.rows, report.size_bytes = entry.files, entry.rows, entry.size_bytes
            backup = read_topic(source, manifest.backup_id, entry)
            ends[backup.topic_id] = _ends(backup)
            if topic == names.OFFSETS_TOPIC and any(other.error is not None for other in result.topics):
                raise problem(
                    "topic_unavailable", "offsets of groups wait until every other topic is restored; run it again"
                )
            if dry_run:
                _check_there(source, manifest.backup_id, backup)
                report.audit = _audited_there(
                    source, manifest.backup_id, backup, clock, progress, keys=topic not in any_partition
                )
            elif target is not None:
                if not report.already:
                    _restore(source, target, manifest.backup_id, backup, ends, report, clock, progress)
                report.audit = _audited(store_of(settings), topic, clock, keys=topic not in any_partition)
        except SiltlogError as error:
            report.error = error
        report.seconds = clock.monotonic() - started
    return result


def _source(settings: ServerSettings, uri: str) -> ObjectStore:
    source = other_store(settings, uri, make=False)
    if source is None:
        raise ConfigError(f"there is no backup at {uri}: no such folder")
    return source


def _chosen(
    target: ObjectStore | None, manifest: Manifest, topics: Sequence[str], result: RestoreReport
) -> dict[str, bool]:
    """The topics to restore, and whether this backup made them before."""
    known = _require_known(manifest, topics)
    chosen = list(dict.fromkeys(topics)) or known
    if names.OFFSETS_TOPIC in known and names.OFFSETS_TOPIC not in chosen:
        chosen.append(names.OFFSETS_TOPIC)
    done: dict[str, bool] = {}
    there = []
    for topic in chosen:
        try:
            done[topic] = target is not None and restored_already(target, topic, _commit_id(manifest.backup_id, topic))
        except TopicExists:
            if topic == names.OFFSETS_TOPIC and topics and topic not in topics:
                result.groups_left_out = True
            else:
                there.append(topic)
    if there and target is not None:
        raise problem(
            "topic_exists",
            f"{target.root_uri} has, or once had, {', '.join(there)}, and nothing of it is overwritten: restore to "
            "another root, or name other topics",
            topics=there,
        )
    return done


def _require_known(manifest: Manifest, topics: Sequence[str]) -> list[str]:
    """The topics that the backup has. Raises UnknownTopic where one of `topics` is none of them."""
    known = [entry.topic for entry in manifest.topics]
    for topic in topics:
        if topic not in known:
            there_are = ", ".join(known)
            raise problem("unknown_topic", f"the backup has no topic {topic!r}; it has: {there_are}", topic=topic)
    return known


def _commit_id(backup_id: str, topic: str) -> str:
    """The same in every run, so that a topic that was restored before is known by its first commit."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"siltlog:restore/{backup_id}/{topic}"))


def _check_there(source: ObjectStore, backup_id: str, backup: TopicBackup) -> None:
    """Raises CorruptData where the backup lacks something that it names, or has it cut short."""
    folder = backup_names.data_file(backup.topic_id, "")
    there = {info.path: info.size for info in source.list(folder)}
    state = backup_names.state(backup_id, backup.topic_id, "")
    there |= {info.path: info.size for info in source.list(state)} if backup.state else {}
    wrong = [file.path for file in backup.files if there.get(f"{folder}{file.path}") != file.size_bytes]
    wrong += [path for path in backup.state if f"{state}{path}" not in there]
    for path in () if wrong else backup.state:
        _state_of(source, backup_id, backup, path)
    if wrong:
        raise problem(
            "corrupt_data",
            f"the backup lacks {len(wrong)} files of topic {backup.topic}, or has them cut short, {wrong[0]} among "
            f"them; restore an older one with --at, or the other topics with --topic",
            topic=backup.topic,
        )


def _ends(backup: TopicBackup) -> Mapping[int, int]:
    prefix = delta_names.txn_offset(0).removesuffix("0")
    return {
        int(name.removeprefix(prefix)): number
        for name, number in backup.transactions.items()
        if name.startswith(prefix)
    }


def _restore(
    source: ObjectStore,
    target: ObjectStore,
    backup_id: str,
    backup: TopicBackup,
    ends: Ends,
    report: TopicRestoreReport,
    clock: Clock,
    progress: Progress | None,
) -> None:
    topic_path = names.topic_path(backup.topic)
    there = {info.path: info.size for info in target.list(topic_path)}
    every = (
        Copy(backup_names.data_file(backup.topic_id, file.path), f"{topic_path}/{file.path}", file.size_bytes)
        for file in backup.files
    )
    copies = left_to_copy(every, there)
    planned = sum(copy.size_bytes for copy in copies)
    copied_bytes = 0

    def done(copy: Copy) -> None:
        nonlocal copied_bytes
        copied_bytes += copy.size_bytes
        if progress is not None:
            progress(backup.topic, copied_bytes, planned)

    copy_all(source, target, copies, done)
    _copy_state(source, target, backup_id, backup)
    files, transactions = backup.files, backup.transactions
    if backup.topic == names.OFFSETS_TOPIC:
        cut = cut_offsets(target, backup, ends, now_us=clock.now_us())
        if cut is not None:
            files = [*files, cut]
            transactions = {**transactions, delta_names.txn_offset(cut.partition): cut.last_offset + 1}
            report.cut_offsets = cut.rows
    commit_id = _commit_id(backup_id, backup.topic)
    restore_table(target, backup.topic, backup.properties, transactions, files, commit_id)


def _copy_state(source: ObjectStore, target: ObjectStore, backup_id: str, backup: TopicBackup) -> None:
    folder = f"{names.topic_path(backup.topic)}/{names.state_folder(backup.topic_id)}"
    for path in backup.state:
        target.put(f"{folder}/{path}", _state_of(source, backup_id, backup, path))
    target.sync(f"{folder}/{path}" for path in backup.state)


def _state_of(source: ObjectStore, backup_id: str, backup: TopicBackup, path: str) -> bytes:
    """Raises CorruptData where it is gone or damaged."""
    kept = backup_names.state(backup_id, backup.topic_id, path)
    try:
        content = source.get(kept)
    except FileNotFoundError:
        raise problem("corrupt_data", f"the backup lacks {source.uri(kept)}", path=kept) from None
    if backup.state_crcs.get(path, crc32c(content)) != crc32c(content):
        raise problem(
            "corrupt_data",
            f"{source.uri(kept)} is damaged: it fails its checksum; restore an older backup with --at",
            path=kept,
        )
    return content


class _AsRestored:
    """A store that shows a topic as it will be under its root, and reads it where the backup has it."""

    def __init__(self, source: ObjectStore, backup_id: str, backup: TopicBackup) -> None:
        self._source = source
        self._topic_path = f"{names.topic_path(backup.topic)}/"
        self._state_path = f"{self._topic_path}{names.state_folder(backup.topic_id)}/"
        self._files = backup_names.data_file(backup.topic_id, "")
        self._state = backup_names.state(backup_id, backup.topic_id, "")

    def open(self, path: str) -> pa.NativeFile:
        return self._source.open(self._files + path.removeprefix(self._topic_path))

    def size(self, path: str) -> int | None:
        return self._source.size(self._files + path.removeprefix(self._topic_path))

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """Producer state, which is all that an audit lists."""
        assert self._state_path.startswith(prefix), prefix
        return [
            info._replace(path=self._state_path + info.path.removeprefix(self._state))
            for info in self._source.list(self._state)
        ]


def _audited_there(
    source: ObjectStore,
    backup_id: str,
    backup: TopicBackup,
    clock: Clock,
    progress: Progress | None,
    *,
    keys: bool,
) -> AuditReport:
    report = AuditReport(backup.topic, dry_run=False)
    started = clock.monotonic()
    store = _AsRestored(source, backup_id, backup)
    snapshot = TableSnapshot.build(backup.version, backup.properties, backup.transactions, backup.files)
    audit(store, backup.topic, snapshot, report, keys=keys, progress=progress)
    report.seconds = clock.monotonic() - started
    return report


def _audited(target: ObjectStore, topic: str, clock: Clock, *, keys: bool) -> AuditReport:
    report = AuditReport(topic, dry_run=False)
    started = clock.monotonic()
    audit(target, topic, load(target, topic).snapshot, report, keys=keys)
    report.seconds = clock.monotonic() - started
    return report
