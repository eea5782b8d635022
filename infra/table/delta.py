"""Everything that this project asks of deltalake: it opens handles, makes commits, and translates errors.

On a local disk a handle reads a window of the log. What is committed is decided elsewhere.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from siltlog.infra import delta_names, names
from siltlog.infra.columns import TABLE_SCHEMA
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.store.disk_space import says_full
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.s3_denied import missing_permission, says_denied, says_skewed, skewed
from siltlog.infra.store.scratch_folder import scratch_folder
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.entries import (
    Checkpoint,
    Torn,
    checkpoint_path,
    damaged,
    entry_path,
    last_checkpoint,
    last_checkpoint_path,
    log_folder,
    newest_checkpoint,
    standing_checkpoint,
)
from siltlog.infra.table.window import LogWindow

# Checkpoints and log clean-up are steps of their own: inside a commit they would be neither synced nor off its path.
_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_REASON_CHARS_MAX = 200
_TREE = re.compile(r"\x1b\[[0-9;]*m|↳")
COMPARE_AND_SET = 0
"""Retries of a commit that may only become the version after its handle's."""
Make = Callable[[DeltaTable], None]
"""Commits, once and without retries, on the handle that it is given."""


def open_handle(store: ObjectStore, topic: str, version: int | None = None, *, uri: str | None = None) -> DeltaTable:
    """Opens the table, at `uri` if given. Raises UnknownTopic when there is no table, CorruptData or Unavailable when
    it cannot be opened."""
    try:
        return DeltaTable(uri or _uri(store, topic), version=version, storage_options=store.storage_options())
    except TableNotFoundError:
        raise problem("unknown_topic", f"there is no topic {topic!r}", topic=topic) from None
    except Exception as error:
        if isinstance(store, LocalStore) and isinstance(error, DeltaError) and "os error" not in str(error):
            raise damaged(topic, log_folder(topic), str(error)[:_REASON_CHARS_MAX]) from error
        raise translated(store, topic, error) from error


def translated(store: ObjectStore, topic: str, error: Exception) -> SiltlogError:
    """Translates an error of deltalake: on a disk the log is damaged or full, remotely it may pass."""
    return foreign_error(error, f"the log at {store.uri(log_folder(topic))}", topic=topic)


def foreign_error(error: Exception, place: str, **members: Any) -> SiltlogError:
    """Puts an error of deltalake about `place`, which is a coloured tree of lines, into a sentence."""
    text = str(error)
    if says_full(text):
        return problem("disk_full", f"no space is left for {place}; free space on its disk", **members)
    if says_denied(text):
        return missing_permission(text, place, **members)
    if says_skewed(text):
        return skewed(place, **members)
    reason = " ".join(_TREE.sub(" ", text).split())[:_REASON_CHARS_MAX]
    return problem("topic_unavailable", f"{place} cannot be used now: {reason}", **members)


def commit_actions(
    handle: DeltaTable,
    actions: Sequence[AddAction | RemoveAction],
    transactions: Mapping[str, int],
    commit_id: str,
    *,
    retries: int | None = COMPARE_AND_SET,
) -> None:
    """`retries` None is deltalake's own number, for a handle that is behind on purpose."""
    handle.create_write_transaction(
        list(actions),
        mode="append",
        schema=TABLE_SCHEMA,
        partition_by=[names.PARTITION_COLUMN],
        commit_properties=_properties(commit_id, transactions, retries),
        post_commithook_properties=_HOOKS,
    )


def commit_properties(
    handle: DeltaTable, properties: Mapping[str, str], transactions: Mapping[str, int], commit_id: str
) -> None:
    """Sets `properties` beside those the table has."""
    handle.alter.set_table_properties(
        dict(properties),
        raise_if_not_exists=False,
        commit_properties=_properties(commit_id, transactions, COMPARE_AND_SET),
        post_commithook_properties=_HOOKS,
    )


def commit_table(
    store: ObjectStore,
    uri: str,
    properties: Mapping[str, str],
    transactions: Mapping[str, int],
    commit_id: str,
    *,
    overwrite: bool,
) -> None:
    """A new table at `uri`; with `overwrite` on the same log, removing every live file and every property there was."""
    DeltaTable.create(
        uri,
        schema=TABLE_SCHEMA,
        mode="overwrite" if overwrite else "error",
        partition_by=[names.PARTITION_COLUMN],
        configuration=dict(properties),
        storage_options=store.storage_options(),
        commit_properties=_properties(commit_id, transactions, COMPARE_AND_SET),
        post_commithook_properties=_HOOKS,
        raise_if_key_not_exists=False,
    )


def first_entry(
    properties: Mapping[str, str], actions: Sequence[AddAction], transactions: Mapping[str, int], commit_id: str
) -> bytes:
    """The entry of a table that has properties, files and app transactions from its first version on.

    deltalake makes such a table in two commits only, so it makes them aside, and they become one.
    """
    with scratch_folder("restore") as aside:
        path = aside.as_uri()
        DeltaTable.create(
            path,
            schema=TABLE_SCHEMA,
            partition_by=[names.PARTITION_COLUMN],
            configuration=dict(properties),
            post_commithook_properties=_HOOKS,
            raise_if_key_not_exists=False,
        )
        commit_actions(DeltaTable(path), actions, transactions, commit_id)
        made, filled = (
            (aside / "_delta_log" / f"{version:020d}.json").read_bytes().splitlines() for version in range(2)
        )
    born = [line for line in made if line.startswith((b'{"protocol"', b'{"metaData"'))]
    head = [line for line in filled if line.startswith(b'{"commitInfo"')]
    rest = [line for line in filled if not line.startswith(b'{"commitInfo"')]
    return b"\n".join([*head, *born, *rest]) + b"\n"


def _properties(commit_id: str, transactions: Mapping[str, int], retries: int | None) -> CommitProperties:
    return CommitProperties(
        custom_metadata={
            delta_names.COMMIT_INFO_ID: commit_id,
            delta_names.COMMIT_INFO_TRANSACTIONS: len(transactions),
        },
        max_commit_retries=retries,
        app_transactions=[Transaction(app_id, number) for app_id, number in transactions.items()],
    )


def add_action(file: DataFile, *, data_change: bool) -> AddAction:
    values = {names.PARTITION_COLUMN: str(file.partition)}
    return AddAction(file.path, file.size_bytes, values, file.modified_ms, data_change, file.statistics())


def remove_action(file: DataFile, *, data_change: bool, now_ms: int) -> RemoveAction:
    values = {names.PARTITION_COLUMN: str(file.partition)}
    return RemoveAction(file.path, data_change, now_ms, file.size_bytes, values)


def live_paths(handle: DeltaTable) -> set[str]:
    """Paths of the files that deltalake sees at the handle's version, relative to the topic's path."""
    # pyarrow.table would import pandas for what it does not know.
    actions = pa.RecordBatchReader.from_stream(handle.get_add_actions(flatten=True).select(["path"]))
    return {unquote(path) for path in actions.read_all().column("path").to_pylist()}


def _uri(store: ObjectStore, topic: str) -> str:
    return store.uri(names.topic_path(topic))


class TableHandle:
    """The table at the newest version that was read. Used by one thread at a time."""

    def __init__(self, store: ObjectStore, topic: str) -> None:
        """Raises as `open_handle`."""
        self._store = store
        self._topic = topic
        self._delta = open_handle(store, topic)

    @property
    def version(self) -> int:
        version: int = self._delta.version()
        return version

    def configuration(self) -> Mapping[str, str]:
        configuration: Mapping[str, str] = self._delta.metadata().configuration
        return configuration

    def live_paths(self) -> set[str]:
        return live_paths(self._delta)

    def commit(self, make: Make) -> None:
        """The version after `version`, or nothing."""
        make(self._delta)

    def update(self) -> None:
        """Takes in what was committed since."""
        self._delta.update_incremental()

    def checkpoint(self) -> None:
        """Writes one of this version, durably. The handle is to be opened anew then: one that is kept never rebases,
        and its commits get slower and slower."""
        self._delta.create_checkpoint()
        self._store.sync([checkpoint_path(self._topic, self.version), last_checkpoint_path(self._topic)])


class WindowHandle(TableHandle):
    """A handle on a local disk. Raises OSError where a window cannot be made."""

    def __init__(self, store: LocalStore, topic: str) -> None:
        self._store = store
        self._topic = topic
        self._window = LogWindow(store, topic)
        self._open()

    def _open(self) -> None:
        last = self._window.fill(self._newest_checkpoint())
        if last is None:
            # Says that there is no log, or what is wrong with it.
            open_handle(self._store, self._topic)
            last = self._window.fill(self._newest_checkpoint())
        after = 0 if last is None else last + 1
        if (
            max(self._window.versions(), default=-1) >= after
            and self._store.size(entry_path(self._topic, after)) is None
        ):
            raise damaged(self._topic, log_folder(self._topic), f"the entry of version {after} is missing")
        self._delta = open_handle(self._store, self._topic, uri=self._window.uri)
        self._stale = False

    def _newest_checkpoint(self) -> Checkpoint | None:
        standing = standing_checkpoint(self._store, self._topic)
        if standing is not None and None not in self._store.sizes(standing.paths):
            return standing
        return newest_checkpoint(self._store, self._topic)

    def commit(self, make: Make) -> None:
        version = self.version + 1
        if self._stale or not self._goes_on():
            raise CommitFailedError(f"topic {self._topic} has changed after version {self.version}")
        # deltalake takes in what it has written before it is known to be in the log.
        self._stale = True
        make(self._delta)
        if not self._window.publish(entry_path(self._topic, version)):
            self._window.withdraw(entry_path(self._topic, version))
            self._stale = self.version == version
            raise CommitFailedError(f"version {version} of topic {self._topic} is another commit")
        self._stale = False

    def update(self) -> None:
        if self._stale or not self._goes_on():
            self._open()
        elif self._window.show_from(self.version + 1) is not None:
            self._delta.update_incremental()

    def _goes_on(self) -> bool:
        """Whether what follows `version` is the log's next entry: it was neither cleaned beyond it nor rolled back."""
        try:
            checkpoint = last_checkpoint(self._store, self._topic)
        except Torn:
            return False
        if checkpoint is not None and checkpoint.version >= self.version:
            return checkpoint.version == self.version
        return self._store.size(entry_path(self._topic, self.version)) is not None

    def checkpoint(self) -> None:
        self._delta.create_checkpoint()
        self._window.publish(checkpoint_path(self._topic, self.version))
        self._window.replace(last_checkpoint_path(self._topic))
        self._store.sync([checkpoint_path(self._topic, self.version), last_checkpoint_path(self._topic)])


def table_handle(store: ObjectStore, topic: str) -> TableHandle:
    """Raises as `open_handle`. Where a disk has no hard links between folders, commits are made in the log itself."""
    if isinstance(store, LocalStore):
        try:
            return WindowHandle(store, topic)
        except OSError:
            pass
    return TableHandle(store, topic)
