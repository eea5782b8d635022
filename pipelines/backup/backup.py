"""Backup: topics, their settings, the offsets of groups and who may do what, copied while everything goes on.

Each table is pinned at one version, and what that version names is copied; the manifest comes last. A data file never
changes, so the next backup copies only what is new. Killed at any point, it leaves files that the next one finds.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from siltlog.infra import delta_names, names
from siltlog.infra.clock import Clock, SystemClock, format_us
from siltlog.infra.errors import CorruptData, SiltlogError, UnknownTopic, problem
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.checksum import crc32c
from siltlog.infra.store.once import put_once
from siltlog.infra.store.store import ObjectInfo, ObjectStore
from siltlog.infra.table.opening import load
from siltlog.infra.table.producer_objects import covered_offsets
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.pipelines import backup_names
from siltlog.pipelines.backup.access import back_up_access
from siltlog.pipelines.backup.copying import Copy, copy_all, left_to_copy
from siltlog.pipelines.backup.format import FORMAT, Manifest, TopicBackup, TopicEntry, encoded, totals
from siltlog.pipelines.backup.pruning import Pruned, prune, remove_cut_short
from siltlog.pipelines.topics import chosen_topics, have_gone, other_store, store_of

Progress = Callable[[str, int, int], None]
"""Called with the topic, the bytes done and the bytes planned."""

PINS_MAX = 5
"""How often a table is looked at again because what is beside it was just replaced."""


@dataclass(slots=True)
class TopicBackupReport:
    """`copied_*` are what earlier backups did not have; of a dry run what would be copied. `error` ended it early."""

    topic: str
    version: int | None = None
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    copied_files: int = 0
    copied_bytes: int = 0
    seconds: float = 0.0
    error: SiltlogError | None = None


@dataclass(slots=True)
class BackupReport:
    dry_run: bool
    backup_id: str | None = None
    """None of a dry run, and where no topic could be read."""
    taken_at: str = ""
    topics: list[TopicBackupReport] = field(default_factory=list)
    pruned: Pruned | None = None
    """Older backups that were removed, where it was asked for; of a dry run those that would be."""
    not_pruned: SiltlogError | None = None
    """Why none were."""


@dataclass(frozen=True, slots=True)
class _Pinned:
    snapshot: TableSnapshot
    state: Mapping[str, int]
    """Objects beside the table that were copied and that it covers, relative to the topic's state folder, and their
    CRCs."""


def backup_topics(
    settings: ServerSettings,
    target_uri: str,
    topics: Sequence[str] = (),
    *,
    keep: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> BackupReport:
    """Backs up `topics`, or every topic when empty, and with them the offsets of all groups.

    A topic that cannot be read has its `error` in its report and is not in the backup; the others are. With `keep` only
    the newest so many backups stay at the target, once this one is whole; not after one that lacks a topic. Raises
    UnknownTopic for a name that is none, Refused when the target is in the root or `keep` comes with `topics`,
    Unavailable.
    """
    if keep is not None and topics:
        raise problem("invalid_parameter", "a backup of some topics takes the place of none: leave out keep, or topics")
    clock = clock or SystemClock()
    store = store_of(settings)
    target = other_store(settings, target_uri, make=not dry_run)
    if target is not None and f"{target.root_uri}/".startswith(f"{store.root_uri}/"):
        raise problem("invalid_parameter", f"{target.root_uri} is in the root {store.root_uri} that is backed up")
    taken_us = clock.now_us()
    backup_id = _backup_id(taken_us)
    result = BackupReport(dry_run, None, format_us(taken_us))
    chosen = _with_groups(store, topics)
    if target is not None and not dry_run:
        put_once(target, backup_names.begun(backup_id), result.taken_at.encode(), clock)
    # Groups first: what they have read was in the tables that are looked at after it, or soon will be.
    chosen.sort(key=lambda topic: topic != names.OFFSETS_TOPIC)
    pinned: dict[str, _Pinned] = {}
    for topic in chosen:
        report = TopicBackupReport(topic)
        try:
            if dry_run or target is None:
                found = _Pinned(load(store, topic).snapshot, {})
            else:
                found = _pin(store, target, topic, backup_id)
            if found.snapshot.deleted:
                if topic not in topics:
                    continue
                raise problem("unknown_topic", f"topic {topic!r} was deleted", topic=topic)
            pinned[topic] = found
        except UnknownTopic as error:
            if topic not in topics:
                continue
            report.error = error
        except SiltlogError as error:
            report.error = error
        result.topics.append(report)
    entries = []
    for report in result.topics:
        started = clock.monotonic()
        try:
            if report.topic in pinned:
                copies = _planned(target, pinned[report.topic].snapshot, report)
                if target is not None and not dry_run:
                    entries.append(_backed_up(store, target, backup_id, pinned, copies, report, progress))
        except SiltlogError as error:
            report.error = error
        report.seconds = clock.monotonic() - started
    failed = [report.topic for report in result.topics if report.error is not None]
    if target is not None and entries:
        access = None if topics else back_up_access(store, target, backup_id)
        manifest = Manifest(FORMAT, backup_id, result.taken_at, store.root_uri, entries, failed, access)
        put_once(target, backup_names.manifest(backup_id), msgspec.json.encode(manifest), clock)
        result.backup_id = backup_id
        with suppress(SiltlogError):  # the next one tries again
            remove_cut_short(target, now_ms=clock.now_us() // 1000)
    if target is not None and keep is not None and not failed and (entries or dry_run):
        coming = _files_of(pinned) if dry_run else None
        try:
            result.pruned = prune(target, keep, now_ms=clock.now_us() // 1000, coming=coming)
        except SiltlogError as error:
            result.not_pruned = error
    return result


def _files_of(pinned: Mapping[str, _Pinned]) -> set[str]:
    return {
        backup_names.data_file(found.snapshot.topic_id, path)
        for found in pinned.values()
        for path in found.snapshot.files
    }


def _with_groups(store: ObjectStore, topics: Sequence[str]) -> list[str]:
    chosen = chosen_topics(store, topics)
    if names.OFFSETS_TOPIC not in chosen and names.OFFSETS_TOPIC in chosen_topics(store, ()):
        chosen.append(names.OFFSETS_TOPIC)
    return chosen


def _backup_id(taken_us: int) -> str:
    """Sorts by time."""
    second = format_us(taken_us)[:19].replace("-", "").replace(":", "")
    return f"{second}Z-{uuid.uuid4().hex[:8]}"


def _pin(store: ObjectStore, target: ObjectStore, topic: str, backup_id: str) -> _Pinned:
    """The table at one version, with what is known beside it of producers up to there.

    What is beside the table is copied first: rows behind it say the rest, unless retention removes them in between.
    """
    folder = f"{names.topic_path(topic)}/{names.STATE_FOLDER}/"
    for _ in range(PINS_MAX):
        crcs = {info: _copy_state(store, target, info, folder, backup_id) for info in store.list(folder)}
        copied = {info: crc for info, crc in crcs.items() if crc is not None}
        target.sync(_state_copy(info, folder, backup_id) for info in copied)
        snapshot = load(store, topic).snapshot
        own = f"{folder}{snapshot.topic_id}/"
        state = {
            info.path.removeprefix(own): crc
            for info, crc in copied.items()
            if info.path.startswith(own) and _is_covered(info.path.removeprefix(own), snapshot)
        }
        covered = _newest(state)
        now = covered_offsets(store, topic, snapshot.topic_id, snapshot.offsets)
        if not any(
            covered.get(partition, 0) < now.get(partition, 0)
            and covered.get(partition, 0) < max(start, snapshot.transactions.get(delta_names.txn_state(partition), 0))
            for partition, start in snapshot.starts.items()
        ):
            break
    return _Pinned(snapshot, state)


def _copy_state(store: ObjectStore, target: ObjectStore, info: ObjectInfo, folder: str, backup_id: str) -> int | None:
    """The CRC of the object; None of one that a newer has replaced."""
    try:
        content = store.get(info.path)
    except FileNotFoundError:
        return None
    target.put(_state_copy(info, folder, backup_id), content)
    return crc32c(content)


def _state_copy(info: ObjectInfo, folder: str, backup_id: str) -> str:
    topic_id, _, path = info.path.removeprefix(folder).partition("/")
    return backup_names.state(backup_id, topic_id, path)


def _is_covered(path: str, snapshot: TableSnapshot) -> bool:
    partition, _, number = path.partition("/")
    if not partition.isdigit():
        return True
    return int(number) <= snapshot.offsets.get(int(partition), -1)


def _newest(state: Iterable[str]) -> dict[int, int]:
    newest: dict[int, int] = {}
    for path in state:
        partition, _, number = path.partition("/")
        if partition.isdigit():
            newest[int(partition)] = max(int(number), newest.get(int(partition), 0))
    return newest


def _planned(target: ObjectStore | None, snapshot: TableSnapshot, report: TopicBackupReport) -> list[Copy]:
    """Plans the copies of the objects that no backup at the target has yet."""
    report.version = snapshot.version
    report.files, report.rows, report.size_bytes = totals(list(snapshot.files.values()))
    folder = backup_names.data_file(snapshot.topic_id, "")
    there = {} if target is None else {info.path: info.size for info in target.list(folder)}
    every = (
        Copy(f"{names.topic_path(report.topic)}/{file.path}", f"{folder}{file.path}", file.size_bytes, file.content_crc)
        for file in snapshot.files.values()
    )
    copies = left_to_copy(every, there)
    report.copied_files, report.copied_bytes = len(copies), sum(copy.size_bytes for copy in copies)
    return copies


def _backed_up(
    store: ObjectStore,
    target: ObjectStore,
    backup_id: str,
    pinned: dict[str, _Pinned],
    copies: list[Copy],
    report: TopicBackupReport,
    progress: Progress | None,
) -> TopicEntry:
    """Looks at the table again where files have gone since. A newer one is never behind the groups that read it."""
    topic = report.topic
    for _ in range(PINS_MAX):
        try:
            return _back_up(store, target, backup_id, pinned[topic], copies, report, progress)
        except CorruptData:
            if not have_gone(store, topic, pinned[topic].snapshot.files):
                raise
        pinned[topic] = _pin(store, target, topic, backup_id)
        if pinned[topic].snapshot.deleted:
            raise problem("unknown_topic", f"topic {topic!r} was deleted", topic=topic)
        copies = _planned(target, pinned[topic].snapshot, report)
    return _back_up(store, target, backup_id, pinned[topic], copies, report, progress)


def _back_up(
    store: ObjectStore,
    target: ObjectStore,
    backup_id: str,
    pinned: _Pinned,
    copies: list[Copy],
    report: TopicBackupReport,
    progress: Progress | None,
) -> TopicEntry:
    snapshot, topic = pinned.snapshot, report.topic
    copied_bytes = 0

    def done(copy: Copy) -> None:
        nonlocal copied_bytes
        copied_bytes += copy.size_bytes
        if progress is not None:
            progress(topic, copied_bytes, report.copied_bytes)

    copy_all(store, target, copies, done)
    document = TopicBackup(
        topic,
        snapshot.topic_id,
        snapshot.version,
        dict(snapshot.properties),
        dict(snapshot.transactions),
        sorted(snapshot.files.values(), key=lambda file: (file.partition, file.first_offset, file.path)),
        list(pinned.state),
        dict(pinned.state),
    )
    content, crc = encoded(document)
    path = backup_names.table(backup_id, topic)
    target.put(path, content)
    target.sync([path])
    return TopicEntry(topic, snapshot.topic_id, snapshot.version, report.files, report.rows, report.size_bytes, crc)
