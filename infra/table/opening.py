"""Opens a table at its newest or an older version, and mends first what a power cut left of it on a local disk.

The last files of a log may be empty, cut short or full of zeros: they were not synced, so nobody was told that they are
there. They are moved beside the log, never deleted.
"""

import fcntl
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from siltlog.infra import delta_names, names
from siltlog.infra.errors import CorruptData, SiltlogError, Unavailable, UnknownTopic, problem
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.delta import TableHandle, open_handle, table_handle
from siltlog.infra.table.entries import (
    Checkpoint,
    Entry,
    Torn,
    checkpoint_path,
    cleaned_below,
    damaged,
    entry_path,
    last_checkpoint,
    last_checkpoint_path,
    log_folder,
    newest_checkpoint,
    read_entry,
    replay,
    standing_checkpoint,
)
from siltlog.infra.table.snapshot import TRUE, TableSnapshot

_ID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")
_ATTEMPTS_MAX = 3
_GLANCE_ENTRIES_MAX = 64
"""A small table, as a deleted topic's, has fewer entries after its checkpoint."""
_GLANCE_STEP = 8
TORN_ENTRIES_MAX = 3
"""A half-written entry may have this many at and after it: each process has at most one that is not synced."""


def set_aside_torn(store: LocalStore, topic: str) -> list[str]:
    """Moves half-written log files of `topic` into a folder beside the log; the paths they had.

    Raises CorruptData when the damage is not one that a power cut leaves.
    """
    if not torn_files(store, topic):
        return []
    with _locked(store, topic):
        moved = torn_files(store, topic)
        for path in moved:
            target = f"{names.topic_path(topic)}/{names.SET_ASIDE_FOLDER}/{path.rpartition('/')[2]}.{uuid.uuid4().hex}"
            store.path(target).parent.mkdir(exist_ok=True)
            store.path(path).rename(store.path(target))
            store.sync([target])
        store.sync([log_folder(topic)])
    return moved


@contextmanager
def _locked(store: LocalStore, topic: str) -> Iterator[None]:
    """One repair at a time: a second one must see what the first left, not move what was committed since."""
    descriptor = os.open(store.path(log_folder(topic)), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def torn_files(store: LocalStore, topic: str) -> list[str]:
    """Paths of half-written log files of `topic`, relative to the root."""
    torn: list[str] = []
    checkpoint: Checkpoint | None = None
    try:
        checkpoint = last_checkpoint(store, topic)
        hinted = checkpoint is not None
    except Torn as error:
        torn.append(str(error))
        hinted = False
    if checkpoint is not None and not _whole(store, checkpoint):
        torn += [last_checkpoint_path(topic), *(path for path in checkpoint.paths if store.size(path) is not None)]
        hinted = False
    if not hinted:
        checkpoint, unreadable = _newest_whole_checkpoint(store, topic)
        torn += unreadable
    start = checkpoint.version + 1 if checkpoint else 0
    versions = list(_versions_from(store, topic, start))
    torn += [
        path
        for path in (checkpoint_path(topic, version) for version in versions)
        if path not in torn and store.size(path) is not None and not _whole(store, Checkpoint(0, (path,)))
    ]
    return list(dict.fromkeys(torn + _torn_entries(store, topic, versions)))


def _torn_entries(store: LocalStore, topic: str, versions: list[int]) -> list[str]:
    """The first half-written entry and everything after it: it was built on what is lost."""
    for position, version in enumerate(versions):
        try:
            read_entry(store, topic, version)
        except Torn as error:
            if len(versions) - position > TORN_ENTRIES_MAX:
                raise damaged(
                    topic,
                    entry_path(topic, version),
                    f"cut short, with {len(versions) - position - 1} entries after it",
                ) from error
            return [entry_path(topic, later) for later in versions[position:]]
    return []


def _versions_from(store: LocalStore, topic: str, version: int) -> Iterator[int]:
    while store.size(entry_path(topic, version)) is not None:
        yield version
        version += 1


def _newest_whole_checkpoint(store: LocalStore, topic: str) -> tuple[Checkpoint | None, list[str]]:
    unreadable: list[str] = []
    checkpoint = newest_checkpoint(store, topic)
    while checkpoint is not None and not _whole(store, checkpoint):
        unreadable += checkpoint.paths
        checkpoint = newest_checkpoint(store, topic, checkpoint.version - 1)
    return checkpoint, unreadable


def _whole(store: LocalStore, checkpoint: Checkpoint) -> bool:
    try:
        for path in checkpoint.paths:
            with store.open(path) as source:
                # Not read_table: it imports pandas, which takes longer than most tables do.
                pq.ParquetFile(source).read()
    except (FileNotFoundError, EOFError, OSError, pa.ArrowException):
        return False
    return True


class Loaded(NamedTuple):
    handle: TableHandle
    snapshot: TableSnapshot
    checkpoint_version: int
    """-1 when there is no checkpoint."""
    checkpoint_bytes: int
    entries: Sequence[Entry]
    """The entries after the checkpoint."""


def load(store: ObjectStore, topic: str) -> Loaded:
    """Raises UnknownTopic, CorruptData, Unavailable; ConfigError when the table is another program's."""
    for _ in range(_ATTEMPTS_MAX):
        try:
            handle = table_handle(store, topic)
            properties = _properties_of_topic(store, topic, handle)
            version = handle.version
            state = replay(store, topic, version)
        except FileNotFoundError as error:
            # Another process wrote a checkpoint and cleaned the log in between.
            missing = str(error)
            continue
        except Torn as torn:
            raise damaged(topic, str(torn), "it is cut short") from torn
        if state.files.keys() != handle.live_paths():
            raise damaged(topic, log_folder(topic), f"its entries and its state at version {version} differ")
        try:
            snapshot = TableSnapshot.build(version, properties, state.transactions, state.files.values())
        except ValueError as error:
            raise damaged(topic, log_folder(topic), f"a property of version {version}: {error}") from error
        return Loaded(handle, snapshot, state.checkpoint_version, state.checkpoint_bytes, state.entries)
    raise damaged(topic, log_folder(topic), f"an entry is missing: {missing}")


def _properties_of_topic(store: ObjectStore, topic: str, handle: TableHandle) -> Mapping[str, str]:
    """Raises ConfigError where the table is another program's, whose files are described in another way, or another
    program gave it an id that none has."""
    properties = handle.configuration()
    topic_id = properties.get(delta_names.PROPERTY_TOPIC_ID)
    if topic_id and not _ID.fullmatch(topic_id):
        raise problem(
            "invalid_config",
            f"the table of topic {topic} at {store.uri(names.topic_path(topic))} has the property "
            f"{delta_names.PROPERTY_TOPIC_ID} {topic_id[:80]!r}, which is no topic's id: another program has set it. "
            "Have Delta set it to what an older version of the table has, or restore the table to that version",
            topic=topic,
        )
    if not topic_id:
        raise problem(
            "invalid_config",
            f"{store.uri(names.topic_path(topic))} is a Delta table of another program, and only topics may lie there: "
            "move that folder out of the root. Where the program replaced a topic, have Delta restore the table to the "
            "version before instead",
        )
    return properties


def ends_deleted(store: ObjectStore, topic: str) -> bool:
    """Whether the log's newest entry is the one that deletes the topic. False also where that cannot be told at a
    glance, as of a log that is damaged, long or not there: then the table itself has to say it. Raises Unavailable."""
    try:
        checkpoint = standing_checkpoint(store, topic)
        start = checkpoint.version if checkpoint else 0
        after = _first_absent(store, topic, start)
        if after is None or after == start or cleaned_below(store, topic) > start:
            return False
        newest = read_entry(store, topic, after - 1)
    except (FileNotFoundError, Torn, CorruptData):
        return False
    return newest.properties is not None and newest.properties.get(delta_names.PROPERTY_DELETED) == TRUE


def _first_absent(store: ObjectStore, topic: str, start: int) -> int | None:
    """The first version from `start` on that the log has no entry of; None where there are very many."""
    for first in range(start, start + _GLANCE_ENTRIES_MAX, _GLANCE_STEP):
        sizes = store.sizes([entry_path(topic, version) for version in range(first, first + _GLANCE_STEP)])
        if None in sizes:
            return first + sizes.index(None)
    return None


def snapshot_at(store: ObjectStore, topic: str, version: int) -> TableSnapshot:
    """Reads the table at an older version. Raises UnknownTopic; `invalid_request` where the log no longer tells."""
    newest = load(store, topic).snapshot
    if version == newest.version:
        return newest
    gone = problem(
        "invalid_request",
        f"topic {topic} has no version {version} any more, or none yet: it is at version {newest.version}",
        topic=topic,
    )
    if not 0 <= version < newest.version:
        raise gone
    try:
        state = replay(store, topic, version)
        handle = open_handle(store, topic, version)
    except (FileNotFoundError, SiltlogError) as error:
        if isinstance(error, Unavailable) and not isinstance(store, LocalStore):
            raise
        raise gone from error
    properties: Mapping[str, str] = handle.metadata().configuration
    return TableSnapshot.build(version, properties, state.transactions, state.files.values())


def recover(store: LocalStore, topic: str) -> Loaded:
    """Puts right, or names, what a power cut can have left of a table on a disk, before it is trusted.

    A half-written end of the log is set aside; the newest entries and their files are synced and checked.
    """
    try:
        set_aside_torn(store, topic)
    except CorruptData:
        with suppress(UnknownTopic, CorruptData, Unavailable):
            _properties_of_topic(store, topic, table_handle(store, topic))
        raise
    loaded = load(store, topic)
    _check_newest(store, topic, loaded)
    return loaded


def _check_newest(store: LocalStore, topic: str, loaded: Loaded) -> None:
    """Raises CorruptData that names path, topic, partition and offsets of a file that is not there whole."""
    files = [file for entry in loaded.entries for file in entry.adds if file.path in loaded.snapshot.files]
    for file in files:
        path = f"{names.topic_path(topic)}/{file.path}"
        size = store.size(path)
        if size != file.size_bytes:
            raise problem(
                "corrupt_data",
                f"the file {store.path(path)} of topic {topic}, partition {file.partition}, offsets "
                f"{file.first_offset} to {file.last_offset}, "
                f"{'is missing' if size is None else f'has {size} bytes, not {file.size_bytes}'}; restore it from a "
                "backup of the root",
                topic=topic,
                path=path,
                partition=file.partition,
                first_offset=file.first_offset,
                last_offset=file.last_offset,
            )
    store.sync(f"{names.topic_path(topic)}/{file.path}" for file in files)
    store.sync(entry_path(topic, entry.version) for entry in loaded.entries)
