"""What a power cut can leave of a table on a local disk, and how it is opened all the same.

The last files of a log may be empty, cut short or full of zeros: they were not synced, so nobody was told that they are
there. They are moved beside the log, never deleted.
"""

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from siltlog.infra import names
from siltlog.infra.delta_log import (
    Checkpoint,
    Torn,
    checkpoint_path,
    damaged,
    entry_path,
    last_checkpoint,
    last_checkpoint_path,
    log_folder,
    newest_checkpoint,
    read_entry,
)
from siltlog.infra.local_store import LocalStore

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
