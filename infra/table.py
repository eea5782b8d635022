"""The one door to a topic's table: every commit to it, by the server or a job, is made here.

Delta compares names of app transactions, never their numbers, and its retries would append behind a new owner. So a
commit may only become the version after the snapshot it was checked on (compare-and-set); one that lost that race is
checked again on the next snapshot. A rewrite alone is made on a handle at its plan's version: whatever changed
the same partitions in between refuses it.
"""

import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.data_file import DataFile
from siltlog.infra.delta_log import (
    Torn,
    checkpoint_path,
    damaged,
    entry_path,
    log_folder,
    read_entry,
)
from siltlog.infra.errors import Fenced, OutcomeUnknown, SiltlogError, Unavailable, problem
from siltlog.infra.local_store import LocalStore
from siltlog.infra.store import ObjectStore
from siltlog.infra.table_birth import (
    check_growth,
    deleted_properties,
    grown_properties,
    grown_transactions,
    new_properties,
    reset_transactions,
)
from siltlog.infra.table_checkpoints import Checkpoints
from siltlog.infra.table_commit import (
    add_action,
    commit_actions,
    commit_properties,
    commit_table,
    live_paths,
    open_handle,
    remove_action,
    translated,
)
from siltlog.infra.table_handle import Make
from siltlog.infra.table_load import Loaded, load, recover
from siltlog.infra.table_snapshot import TRUE, TableSnapshot
from siltlog.infra.table_totals import Kept, check_cover, check_kept, compare_totals
from siltlog.infra.topic_config import TopicConfig

Outcome = Literal["landed", "not_landed", "unknown"]
CHECKPOINT_COMMITS = 20
COMMIT_ATTEMPTS_MAX = 20
"""Races that one commit may lose before it is given up for now."""
_REMOTE_ATTEMPTS_MAX = 3
_BACKOFF_S = 0.2


class TopicTable:
    """A topic's table and its newest known snapshot. Used by one thread at a time; `snapshot` may be read by any."""

    def __init__(self, store: ObjectStore, topic: str, clock: Clock, loaded: Loaded) -> None:
        self.topic = topic
        self.topic_id = loaded.snapshot.topic_id
        self.snapshot = loaded.snapshot
        self._store = store
        self._clock = clock
        self._handle = loaded.handle
        self._checkpoint_version = loaded.checkpoint_version
        self._checkpoints = Checkpoints()

    @classmethod
    def create(
        cls,
        store: ObjectStore,
        topic: str,
        *,
        topic_id: str,
        partitions: int,
        config: TopicConfig,
        created_us: int,
        clock: Clock,
    ) -> "TopicTable":
        """Raises TopicExists unless the name was never used or its topic is deleted."""
        properties = new_properties(topic_id, partitions, config, created_us)
        commit_id = str(uuid.uuid4())
        try:
            table = cls.open(store, topic, clock)
        except SiltlogError as error:
            if error.error_code != "unknown_topic":
                raise
            return cls._create_first(store, topic, properties, commit_id, clock)
        table._recreate(properties, commit_id)
        return table

    @classmethod
    def _create_first(
        cls, store: ObjectStore, topic: str, properties: Mapping[str, str], commit_id: str, clock: Clock
    ) -> "TopicTable":
        try:
            commit_table(
                store,
                store.uri(names.topic_path(topic)),
                properties,
                {names.txn_offset(0): 0},
                commit_id,
                overwrite=False,
            )
        except Exception as error:
            try:
                first = read_entry(store, topic, 0)
            except FileNotFoundError:
                raise translated(store, topic, error) from error
            if first.commit_id != commit_id:
                raise _topic_exists(topic) from error
        store.sync([entry_path(topic, 0)])
        return cls.open(store, topic, clock)

    @classmethod
    def open(cls, store: ObjectStore, topic: str, clock: Clock) -> "TopicTable":
        """The table of a topic, also of a deleted one.

        On a local root a log file that a power cut left half-written is set aside first, and the newest commits with
        their files are synced and checked. Raises UnknownTopic when there is no table; CorruptData, naming path,
        topic, partition and offsets, when a file is missing or the log is damaged; ConfigError when the table is
        another program's.
        """
        return cls(store, topic, clock, recover(store, topic) if isinstance(store, LocalStore) else load(store, topic))

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

    def claim(
        self,
        epochs: Mapping[int, int],
        commit_id: str,
        *,
        offsets: Mapping[int, int] | None = None,
        former: Mapping[int, int] | None = None,
    ) -> TableSnapshot:
        """Takes partitions over: `epochs` by partition, each above the table's, else Fenced.

        With `former` the table's epochs must also still be those: what the claim was decided on.
        `offsets` jumps partitions to a higher table offset; what is jumped is recorded as a gap in the same commit.
        """

        def checked(snapshot: TableSnapshot) -> Make:
            transactions: dict[str, int] = {}
            gaps: dict[str, str] = {}
            for partition, epoch in epochs.items():
                if snapshot.epochs[partition] >= epoch:
                    raise self._fenced(partition, f"its epoch is {snapshot.epochs[partition]}, not below {epoch}")
                if former is not None and snapshot.epochs[partition] != former[partition]:
                    raise self._fenced(
                        partition, f"its epoch is {snapshot.epochs[partition]}, not {former[partition]} any more"
                    )
                table_offset = snapshot.offsets[partition]
                offset = (offsets or {}).get(partition, table_offset)
                if offset < table_offset:
                    raise self._fenced(partition, f"its table offset is {table_offset}, above {offset}")
                if offset > table_offset:
                    jumped = [*snapshot.gaps(partition), (table_offset, offset)]
                    gaps[f"{names.PROPERTY_GAPS_PREFIX}{partition}"] = json.dumps(jumped)
                transactions[names.txn_epoch(partition)] = epoch
                transactions[names.txn_offset(partition)] = offset
            if gaps:
                return lambda delta: commit_properties(delta, gaps, transactions, commit_id)
            return lambda delta: commit_actions(delta, [], transactions, commit_id)

        return self._commit(commit_id, checked)

    def append(
        self,
        files: Sequence[DataFile],
        bounds: Mapping[int, tuple[int, int]],
        epochs: Mapping[int, int],
        commit_id: str,
    ) -> TableSnapshot:
        """Adds `files`, which hold offsets [first, end) of each partition in `bounds`, without a hole.

        Raises Fenced when a partition's epoch or table offset is not what the caller says, OutcomeUnknown when the
        answer was lost, Unavailable when nothing was committed.
        """
        check_cover(files, bounds)
        self._settle_files(files)

        def checked(snapshot: TableSnapshot) -> Make:
            for partition, (first, _) in bounds.items():
                self._check_owned(snapshot, partition, epochs[partition])
                if snapshot.offsets[partition] != first:
                    raise self._fenced(partition, f"its table offset is {snapshot.offsets[partition]}, not {first}")
            actions = [add_action(file, data_change=True) for file in files]
            transactions = {names.txn_offset(partition): end for partition, (_, end) in bounds.items()}
            return lambda delta: commit_actions(delta, actions, transactions, commit_id)

        return self._commit(commit_id, checked)

    def release(self, epochs: Mapping[int, int], commit_id: str) -> TableSnapshot:
        """Hands partitions back, after everything of them is in the table. Raises Fenced as `append`."""

        def checked(snapshot: TableSnapshot) -> Make:
            for partition, epoch in epochs.items():
                self._check_owned(snapshot, partition, epoch)
            transactions = {names.txn_released(partition): epoch for partition, epoch in epochs.items()}
            return lambda delta: commit_actions(delta, [], transactions, commit_id)

        return self._commit(commit_id, checked)

    def set_config(self, config: TopicConfig, commit_id: str, *, unset: Collection[str] = ()) -> TableSnapshot:
        """Sets the topic's own settings and puts those in `unset` back; what neither names stays as it is."""

        def checked(snapshot: TableSnapshot) -> Make:
            # It changes nothing: an app transaction is the last action of an entry, and tells that it is whole.
            transactions = {names.txn_offset(0): snapshot.offsets[0]}
            return lambda delta: commit_properties(delta, config.properties(unset), transactions, commit_id)

        return self._commit(commit_id, checked)

    def grow(
        self,
        partitions: int,
        first_offsets: Sequence[int],
        epoch: int,
        commit_id: str,
        *,
        config: TopicConfig,
        unset: Collection[str] = (),
    ) -> TableSnapshot:
        """More partitions, owned under `epoch` as the others are, and `set_config` in the same commit.

        `first_offsets` has, for each partition there is, the offset from which on records go by the new count.
        Raises Fenced as `append`, Refused `invalid_request` where the topic cannot grow to that count.
        """

        def checked(snapshot: TableSnapshot) -> Make:
            check_growth(self.topic, snapshot, partitions, config)
            if snapshot.partitions != len(first_offsets):
                raise self._fenced(snapshot.partitions - 1, f"there are {snapshot.partitions} partitions by now")
            for partition in range(snapshot.partitions):
                self._check_owned(snapshot, partition, epoch)
            transactions = grown_transactions(snapshot, partitions, epoch)
            for partition in range(snapshot.partitions, partitions):
                former = snapshot.transactions.get(names.txn_epoch(partition), 0)
                if former >= epoch:
                    raise self._fenced(partition, f"its epoch is {former}, not below {epoch}")
            properties = config.properties(unset) | grown_properties(snapshot, partitions, first_offsets)
            return lambda delta: commit_properties(delta, properties, transactions, commit_id)

        return self._commit(commit_id, checked)

    def delete(self, commit_id: str) -> TableSnapshot:
        """Empties the table and marks its topic deleted; the log stays, so that a stale handle commits nowhere."""

        def checked(snapshot: TableSnapshot) -> Make:
            properties = deleted_properties(snapshot)
            transactions = reset_transactions(snapshot, snapshot.partitions_ever)
            return lambda delta: commit_table(
                self._store, delta.table_uri, properties, transactions, commit_id, overwrite=True
            )

        return self._commit(commit_id, checked)

    def _recreate(self, properties: Mapping[str, str], commit_id: str) -> None:
        """A new topic over a deleted one, whose table has no files; of racing creators one wins."""

        def checked(snapshot: TableSnapshot) -> Make:
            if not snapshot.deleted:
                raise _topic_exists(self.topic)
            ever = max(snapshot.partitions_ever, int(properties[names.PROPERTY_PARTITIONS]))
            transactions = reset_transactions(snapshot, ever)
            whole = {**properties, names.PROPERTY_PARTITIONS_EVER: str(ever)}
            return lambda delta: commit_properties(delta, whole, transactions, commit_id)

        self._commit(commit_id, checked, over_deleted=True)
        self.topic_id = properties[names.PROPERTY_TOPIC_ID]

    def rewrite(
        self,
        plan_version: int,
        removes: Sequence[DataFile],
        adds: Sequence[DataFile],
        commit_id: str,
        *,
        kept: Mapping[int, Kept] | None = None,
        marks: Mapping[str, int] | None = None,
    ) -> TableSnapshot:
        """Replaces files by others with the same records (file compaction), or with those of each partition that
        `kept` says (key compaction, which sets `marks` by app id); streaming readers see no change.

        `plan_version` is the version that the plan read. Raises Fenced when another rewrite, a retention or a
        configuration change came first (plan anew, nothing is to be repeated); CorruptData when the records of
        `adds` are others or any of the files is damaged; OutcomeUnknown; Unavailable.
        """
        handle = self.planned_handle(plan_version)
        live = live_paths(handle)
        absent = [file.path for file in removes if file.path not in live]
        if absent:
            raise ValueError(f"{absent[0]} is not in version {plan_version} of topic {self.topic}")
        if kept is None:
            compare_totals(self._store, self.topic, removes, adds)
        else:
            check_kept(self._store, self.topic, adds, kept)
        self._settle_files(adds)
        now_ms = self._clock.now_us() // 1000
        actions = [
            *(remove_action(file, data_change=False, now_ms=now_ms) for file in removes),
            *(add_action(file, data_change=False) for file in adds),
        ]
        partitions = {file.partition for file in (*removes, *adds)} | (kept or {}).keys()
        fences = {names.txn_rewrite(partition): plan_version + 1 for partition in sorted(partitions)}
        return self.commit_planned(handle, actions, {**(marks or {}), **fences}, commit_id)

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
        try:
            self._handle.clean(self._clock.now_us() // 1000)
        except Exception as error:
            raise translated(self._store, self.topic, error) from error

    def _commit(
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

    def _settle_files(self, files: Sequence[DataFile]) -> None:
        paths = [f"{names.topic_path(self.topic)}/{file.path}" for file in files]
        for file, path, size in zip(files, paths, self._store.sizes(paths), strict=True):
            if size != file.size_bytes:
                raise problem(
                    "topic_unavailable",
                    f"{path} was written with {file.size_bytes} bytes and "
                    f"{'is gone' if size is None else f'has {size}'}; it has to be written anew",
                    topic=self.topic,
                    partition=file.partition,
                )
        self._store.sync(paths)

    def _check_owned(self, snapshot: TableSnapshot, partition: int, epoch: int) -> None:
        if snapshot.epochs.get(partition) != epoch:
            raise self._fenced(partition, f"its epoch is {snapshot.epochs.get(partition)}, not {epoch}")

    def _fenced(self, partition: int, reason: str) -> Fenced:
        return Fenced(
            f"another writer took over partition {partition} of topic {self.topic}: {reason}; "
            "one server may write to a root",
            error_code="topic_unavailable",
            status=503,
            retryable="yes",
            retry_after_ms=1000,
            members={"topic": self.topic, "partition": partition},
        )

    def _gone(self) -> SiltlogError:
        return problem("unknown_topic", f"topic {self.topic} was deleted", topic=self.topic, topic_id=self.topic_id)

    def _unknown(self, commit_id: str, version: int, error: Exception) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"whether commit {commit_id} after version {version} of topic {self.topic} landed is not known: {error}",
            members={"topic": self.topic, "commit_id": commit_id, "after_version": version},
        )


def topic_names(store: ObjectStore) -> list[str]:
    """Topics that have a table, deleted ones included."""
    return [
        name
        for name in store.folders(names.TOPICS_FOLDER)
        if names.DELTA_LOG_FOLDER in store.folders(names.topic_path(name))
    ]


def _topic_exists(topic: str) -> SiltlogError:
    return problem("topic_exists", f"the topic {topic!r} exists", topic=topic)
