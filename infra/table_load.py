"""Opening a topic's table: the handle that commits are made on and the snapshot of the same version."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from siltlog.infra import names
from siltlog.infra.delta_log import Entry, Torn, damaged, entry_path, log_folder, replay
from siltlog.infra.errors import SiltlogError, Unavailable, problem
from siltlog.infra.local_store import LocalStore
from siltlog.infra.store import ObjectStore
from siltlog.infra.table_commit import open_handle
from siltlog.infra.table_handle import TableHandle, table_handle
from siltlog.infra.table_repair import set_aside_torn
from siltlog.infra.table_snapshot import TableSnapshot

_ATTEMPTS_MAX = 3


class Loaded(NamedTuple):
    handle: TableHandle
    snapshot: TableSnapshot
    checkpoint_version: int
    """-1 when there is no checkpoint."""
    checkpoint_bytes: int
    entries: Sequence[Entry]
    """Those after the checkpoint."""


def load(store: ObjectStore, topic: str) -> Loaded:
    """Raises UnknownTopic, CorruptData, Unavailable; ConfigError when the table is another program's."""
    for _ in range(_ATTEMPTS_MAX):
        try:
            handle = table_handle(store, topic)
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
        properties = handle.configuration()
        if not properties.get(names.PROPERTY_TOPIC_ID):
            raise problem(
                "invalid_config",
                f"{store.uri(names.topic_path(topic))} is a Delta table of another program; move it out of the root",
            )
        try:
            snapshot = TableSnapshot.build(version, properties, state.transactions, state.files.values())
        except ValueError as error:
            raise damaged(topic, log_folder(topic), f"a property of version {version}: {error}") from error
        return Loaded(handle, snapshot, state.checkpoint_version, state.checkpoint_bytes, state.entries)
    raise damaged(topic, log_folder(topic), f"an entry is missing: {missing}")


def snapshot_at(store: ObjectStore, topic: str, version: int) -> TableSnapshot:
    """What the table held at an older version. Raises UnknownTopic; `invalid_request` where the log no longer tells."""
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
    """What a power cut can have left of a table on a disk is put right, or named, before it is trusted.

    A half-written end of the log is set aside; the newest entries and their files are synced and checked.
    """
    set_aside_torn(store, topic)
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
