"""deltalake's handle on a topic's table, and on a local disk the window on its log through which it commits.

deltalake lists a log whole, three times for one commit: on a disk that is 2.5 microseconds an entry, and a topic that
is flushed each second has 86,400 entries before the first may go, which a reader may want until then. A remote store
lists from a name on, a disk cannot. So there a handle commits in a folder of its own, which has hard links to the
newest checkpoint and the entries after it, and the entry made there is linked into the log: link(2) refuses a name that
is taken, which is put-if-absent. What was not linked was never committed.
"""

from collections.abc import Callable, Mapping

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

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
    standing_checkpoint,
)
from siltlog.infra.local_store import LocalStore
from siltlog.infra.log_window import LogWindow
from siltlog.infra.store import ObjectStore
from siltlog.infra.table_commit import live_paths, open_handle

Make = Callable[[DeltaTable], None]
"""Commits, once and without retries, on the handle that it is given."""


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
