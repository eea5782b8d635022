"""Cleaning the beginning of a topic's log without letting anybody commit there again.

A commit takes the next name of the log, where that is free. Deleting an entry frees its name, and a committer that
slept since it looked would put its own there: a *stray*, which no newer version is built on. So a mark says below
which version entries go before any of them goes. It only rises; who reads it after a commit knows whether the name had
been another's (`entries.goes_on`).
"""

import re
from typing import NamedTuple

from siltlog.infra import names
from siltlog.infra.store.store import ObjectInfo, ObjectStore, delete_all
from siltlog.infra.table.entries import (
    RETENTION_MS,
    Torn,
    cleaned_below,
    entry_path,
    log_folder,
    standing_checkpoint,
)

_VERSIONED = re.compile(r"(\d{20})\.(json|checkpoint\..*parquet)?")


class _LogFile(NamedTuple):
    version: int
    is_entry: bool
    is_checkpoint: bool
    info: ObjectInfo


def clean_up(store: ObjectStore, topic: str, now_ms: int) -> None:
    """Deletes what is past its period and below a checkpoint, and strays.

    It goes up to a checkpoint that stays, so that every version from there on can be read.
    """
    try:
        checkpoint = standing_checkpoint(store, topic)
    except Torn:
        return  # the next one that is written names itself
    if checkpoint is None:
        return
    floor = cleaned_below(store, topic)
    files = _files(store, topic)
    cutoff_ms = now_ms - RETENTION_MS
    young = (
        file.version for file in files if file.is_entry and file.version >= floor and file.info.modified_ms >= cutoff_ms
    )
    end = min(young, default=checkpoint.version)
    checkpoints = (
        file.version for file in files if file.is_checkpoint and file.version <= min(end, checkpoint.version)
    )
    floor = max(floor, *checkpoints, 0)
    doomed = [file.info for file in files if file.version < floor]
    if doomed:
        _mark(store, topic, floor)
        delete_all(store, doomed)


def _mark(store: ObjectStore, topic: str, version: int) -> None:
    mark = names.cleaned_object(topic, version)
    if store.size(mark) is None:
        store.put(mark, b"")
        store.sync([mark])
    for older in store.list(names.cleaned_folder(topic)):
        if older.path < mark:
            store.delete(older.path)


def remove_strays(store: ObjectStore, topic: str) -> set[int]:
    """Deletes entries that lie below a hole in the log, or where it was cleaned; their versions."""
    checkpoint = standing_checkpoint(store, topic)
    if checkpoint is None:
        return set()
    entries = {file.version for file in _files(store, topic) if file.is_entry}
    lowest = checkpoint.version
    while lowest - 1 in entries:
        lowest -= 1
    strays = {version for version in entries if version < max(lowest, cleaned_below(store, topic))}
    for version in sorted(strays):
        store.delete(entry_path(topic, version))
    return strays


def _files(store: ObjectStore, topic: str) -> list[_LogFile]:
    """Lists the files of the log that belong to a version, in no order."""
    found = []
    for info in store.list(log_folder(topic)):
        name = _VERSIONED.match(info.path.rpartition("/")[2])
        if name:
            kind = name[2] or ""
            found.append(_LogFile(int(name[1]), kind == "json", kind.startswith("checkpoint"), info))
    return found
