"""What one process knows of a table's log, and the two ways in which a commit becomes part of it.

Delta compares names of app transactions, never their numbers, and its retries would append behind a new owner. So a
commit may only become the version after the snapshot it was checked on (compare-and-set); one that lost that race is
checked again on the next snapshot. A rewrite alone is made on a handle at its plan's version: whatever changed
the same partitions in between refuses it.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.delta_log import Torn, checkpoint_path, damaged, entry_path, log_folder, read_entry
from siltlog.infra.errors import Fenced, OutcomeUnknown, SiltlogError, Unavailable, problem
from siltlog.infra.local_store import LocalStore
from siltlog.infra.store import ObjectStore
from siltlog.infra.table_checkpoints import Checkpoints
from siltlog.infra.table_commit import commit_actions, open_handle, translated
from siltlog.infra.table_handle import Make
from siltlog.infra.table_load import Loaded, load
from siltlog.infra.table_snapshot import TRUE, TableSnapshot

Outcome = Literal["landed", "not_landed", "unknown"]
CHECKPOINT_COMMITS = 20
COMMIT_ATTEMPTS_MAX = 20
"""Races that one commit may lose before it is given up for now."""
_REMOTE_ATTEMPTS_MAX = 3
_BACKOFF_S = 0.2


class TableLog:
    """A topic's log and its newest known snapshot. Used by one thread at a time; `snapshot` may be read by any."""

    def __init__(self, store: ObjectStore, topic: str, clock: Clock, loaded: Loaded) -> None:
        self.topic = topic
        self.topic_id = loaded.snapshot.topic_id
        self.snapshot = loaded.snapshot
        self._store = store
        self._clock = clock
        self._handle = loaded.handle
        self._checkpoint_version = loaded.checkpoint_version
        self._checkpoints = Checkpoints()

    def refresh(self) -> TableSnapshot:
        """Takes in what was committed since; raises Unavailable when the log cannot be read now."""
        try:
            self._handle.update()
        except Exception as error:
            raise translated(self._store, self.topic, error) from error
        version = self._handle.version
        if version < self.snapshot.version:
            raise damaged(
                self.topic,
                log_folder(self.topic),
                f"it ends at version {version}, below {self.snapshot.version}, which was read before",
            )
        if version > self.snapshot.version:
            self._take_in(version)
        return self.snapshot

    def _take_in(self, version: int) -> None:
        try:
            entries = [
                read_entry(self._store, self.topic, later) for later in range(self.snapshot.version + 1, version + 1)
            ]
        except FileNotFoundError:
            # Cleaned since: another process wrote a checkpoint after them.
            self._reopen()
            return
        except Torn as torn:
            raise damaged(self.topic, str(torn), "it is cut short") from torn
        # Whatever is built on these entries must not outlive them, whoever wrote them.
        self._store.sync(entry_path(self.topic, entry.version) for entry in entries)
        self.snapshot = self.snapshot.after(entries)

    def _reopen(self) -> None:
        loaded = load(self._store, self.topic)
        self._handle, self.snapshot, self._checkpoint_version = loaded[:3]

    def commit(
        self,
        commit_id: str,
        checked: Callable[[TableSnapshot], Make],
        *,
        over_deleted: bool = False,
    ) -> TableSnapshot:
        """Commits what `checked` says of the present snapshot, anew after every race that is lost."""
        failures = 0
        for _ in range(COMMIT_ATTEMPTS_MAX):
            if self._handle.version != self.snapshot.version:
                self.refresh()
            version = self.snapshot.version
            if not over_deleted and (self.snapshot.deleted or self.snapshot.topic_id != self.topic_id):
                raise self._gone()
            make = checked(self.snapshot)
            try:
                self._handle.commit(make)
                return self.refresh()
            except Exception as error:
                if self._after_failure(commit_id, version, error):
                    return self.snapshot
                if self.snapshot.version == version:
                    failures += 1
                    if failures == _REMOTE_ATTEMPTS_MAX:
                        raise self._unknown(commit_id, version, error) from error
                    self._clock.sleep(_BACKOFF_S * failures)
        raise Unavailable(
            f"topic {self.topic} is being changed by others all the time; {COMMIT_ATTEMPTS_MAX} commits lost the race",
            error_code="topic_unavailable",
            retry_after_ms=1000,
        )

    def _after_failure(self, commit_id: str, version: int, error: Exception) -> bool:
        """True when the commit landed all the same, False when it may be made again."""
        try:
            landed = self._landed(commit_id, version)
        except (SiltlogError, FileNotFoundError, Torn) as unreadable:
            raise self._unknown(commit_id, version, error) from unreadable
        if not landed and self.snapshot.version == version and isinstance(self._store, LocalStore):
            raise translated(self._store, self.topic, error) from error
        return landed

    def planned_handle(self, plan_version: int) -> DeltaTable:
        """For `commit_planned`: at the version that a plan read. Raises UnknownTopic where the topic was deleted."""
        handle = open_handle(self._store, self.topic, plan_version)
        configuration = handle.metadata().configuration
        if (
            configuration.get(names.PROPERTY_TOPIC_ID) != self.topic_id
            or configuration.get(names.PROPERTY_DELETED) == TRUE
        ):
            raise self._gone()
        return handle

    def commit_planned(
        self,
        handle: DeltaTable,
        actions: Sequence[AddAction | RemoveAction],
        transactions: Mapping[str, int],
        commit_id: str,
    ) -> TableSnapshot:
        """Commits on a handle that stays at its plan's version. Raises Fenced when others changed the same since."""
        plan_version = handle.version()
        try:
            commit_actions(handle, actions, transactions, commit_id, retries=None)
        except Exception as error:
            outcome = self.outcome(commit_id, plan_version)
            if outcome == "unknown":
                raise self._unknown(commit_id, plan_version, error) from error
            if outcome == "not_landed" and not isinstance(error, CommitFailedError):
                raise translated(self._store, self.topic, error) from error
            if outcome == "not_landed":
                raise Fenced(
                    f"topic {self.topic} changed after version {plan_version}, which this rewrite was planned on "
                    f"({error}); plan it anew",
                    error_code="topic_unavailable",
                    members={"topic": self.topic},
                ) from error
        return self.refresh()

    def outcome(self, commit_id: str, after_version: int) -> Outcome:
        """Whether the commit, made on a handle at `after_version`, landed; "unknown" while that cannot be told.

        "not_landed" is for good: it can also not land later.
        """
        try:
            if self._landed(commit_id, after_version):
                return "landed"
            if isinstance(self._store, LocalStore):
                return "not_landed"
            # A request may still be under way to a remote store: with the next version taken it cannot land.
            self._take_next_version()
            return "landed" if self._landed(commit_id, after_version) else "not_landed"
        except (SiltlogError, FileNotFoundError, Torn):
            return "unknown"

    def _landed(self, commit_id: str, after_version: int) -> bool:
        """Whether an entry after `after_version` is that commit; an error when one that may be it cannot be read."""
        if self.refresh().version < after_version:
            raise damaged(self.topic, log_folder(self.topic), f"it ends below version {after_version}")
        return any(
            read_entry(self._store, self.topic, version).commit_id == commit_id
            for version in range(after_version + 1, self.snapshot.version + 1)
        )

    def _take_next_version(self) -> None:
        try:
            self._handle.commit(lambda delta: commit_actions(delta, [], {}, str(uuid.uuid4())))
        except Exception as error:
            version = self.snapshot.version
            if self.refresh().version == version:
                raise translated(self._store, self.topic, error) from error

    def maintain(self) -> None:
        """A checkpoint when one is due; then, and only then, log entries past their period go."""
        version = self._handle.version
        if version - self._checkpoint_version < CHECKPOINT_COMMITS:
            return
        try:
            self._handle.checkpoint()
        except Exception as error:
            raise translated(self._store, self.topic, error) from error
        self._reopen()
        for older in self._checkpoints.written(version):
            self._store.delete(checkpoint_path(self.topic, older))
        self.clean_log()

    def clean_log(self) -> None:
        """Removes log entries past their period that lie below a checkpoint."""
        try:
            self._handle.clean(self._clock.now_us() // 1000)
        except Exception as error:
            raise translated(self._store, self.topic, error) from error

    def _gone(self) -> SiltlogError:
        return problem("unknown_topic", f"topic {self.topic} was deleted", topic=self.topic, topic_id=self.topic_id)

    def _unknown(self, commit_id: str, version: int, error: Exception) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"whether commit {commit_id} after version {version} of topic {self.topic} landed is not known: {error}",
            members={"topic": self.topic, "commit_id": commit_id, "after_version": version},
        )
