"""The one door to a topic's table: every commit to it, by the server or a job, is checked and made here."""

import uuid
from collections.abc import Collection, Mapping, Sequence

from siltlog.infra import delta_names, names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.clean_up import remove_strays
from siltlog.infra.table.commits import TableLog
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.delta import (
    Make,
    add_action,
    commit_actions,
    commit_properties,
    commit_table,
    live_paths,
    remove_action,
    translated,
)
from siltlog.infra.table.entries import entry_path, read_entry
from siltlog.infra.table.lifecycle import (
    check_growth,
    deleted_properties,
    grown_properties,
    grown_transactions,
    new_properties,
    reset_transactions,
)
from siltlog.infra.table.opening import load, recover
from siltlog.infra.table.ownership import (
    check_expected,
    check_owned,
    confirmed,
    confirmed_release,
    fenced,
    journals_property,
    jumped,
    release_transactions,
)
from siltlog.infra.table.producer_objects import state_transactions
from siltlog.infra.table.snapshot import STATISTICS_PROPERTIES, TableSnapshot, removed_files_property
from siltlog.infra.table.totals import Kept, check_cover, check_kept, compare_totals


class TopicTable(TableLog):
    """All that may be done to a topic's table, each as one commit. One thread at a time uses it; `snapshot`, any."""

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
                {delta_names.txn_offset(0): 0},
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
        table = cls.open(store, topic, clock)
        if table.topic_id != properties[delta_names.PROPERTY_TOPIC_ID]:
            # The name was used, and the beginning of its log cleaned, since this was begun.
            remove_strays(store, topic)
            raise _topic_exists(topic)
        return table

    @classmethod
    def open(cls, store: ObjectStore, topic: str, clock: Clock) -> "TopicTable":
        """The table of a topic, also of a deleted one.

        On a local root a log file that a power cut left half-written is set aside first, and the newest commits with
        their files are synced and checked. Raises UnknownTopic when there is no table; CorruptData, naming path,
        topic, partition and offsets, when a file is missing or the log is damaged; ConfigError when the table is
        another program's.
        """
        return cls(store, topic, clock, recover(store, topic) if isinstance(store, LocalStore) else load(store, topic))

    def claim(
        self,
        epochs: Mapping[int, int],
        commit_id: str,
        *,
        offsets: Mapping[int, int] | None = None,
        former: Mapping[int, int] | None = None,
        expected: Mapping[str, int] | None = None,
        marks: Mapping[str, int] | None = None,
        journals: Sequence[tuple[int, str]] = (),
        removed_files_ms: int | None = None,
    ) -> TableSnapshot:
        """Takes partitions over: `epochs` by partition, each above the table's, else Fenced.

        With `former` the table's epochs must also still be those, with `expected` these app transactions (0 without
        one): what the claim was decided on. `marks` has app transactions that go with it, `journals` what a successor
        has to read.
        `offsets` jumps partitions to a higher table offset; what is jumped is recorded as a gap in the same commit, and
        so is how long removed files stay from now on, and which columns have statistics.
        """

        def checked(snapshot: TableSnapshot) -> Make:
            check_expected(self.topic, snapshot, expected)
            transactions.update(marks or {})
            changed = journals_property(journals) if journals else {}
            for partition, epoch in epochs.items():
                if snapshot.epochs[partition] >= epoch:
                    raise fenced(self.topic, partition, f"its epoch is {snapshot.epochs[partition]}, not below {epoch}")
                if former is not None and snapshot.epochs[partition] != former[partition]:
                    raise fenced(
                        self.topic,
                        partition,
                        f"its epoch is {snapshot.epochs[partition]}, not {former[partition]} any more",
                    )
                offset = (offsets or {}).get(partition, snapshot.offsets[partition])
                changed |= jumped(self.topic, snapshot, partition, offset)
                transactions[delta_names.txn_epoch(partition)] = epoch
                transactions[delta_names.txn_offset(partition)] = offset
            if removed_files_ms is not None and snapshot.removed_files_ms != removed_files_ms:
                changed |= removed_files_property(removed_files_ms)
            if not STATISTICS_PROPERTIES.keys() <= snapshot.properties.keys():
                # Former releases made tables without.
                changed |= STATISTICS_PROPERTIES
            if changed:
                return lambda delta: commit_properties(delta, changed, transactions, commit_id)
            return lambda delta: commit_actions(delta, [], transactions, commit_id)

        transactions: dict[str, int] = {}
        return confirmed(self.topic, self.commit(commit_id, checked), epochs, transactions)

    def append(
        self,
        files: Sequence[DataFile],
        bounds: Mapping[int, tuple[int, int]],
        epochs: Mapping[int, int],
        commit_id: str,
        *,
        states: Mapping[int, int] | None = None,
        released: Mapping[int, int] | None = None,
    ) -> TableSnapshot:
        """Adds `files`, which hold offsets [first, end) of each partition in `bounds`, without a hole.

        `states` has, by partition, the offset of an object of producer state that came beside the table since;
        `released` the epochs that are handed back with what is added, as by `release`. Raises Fenced when a partition's
        epoch or table offset is not what the caller says, OutcomeUnknown when the answer was lost, Unavailable when
        nothing was committed.
        """
        check_cover(files, bounds)
        self._settle_files(files)

        def checked(snapshot: TableSnapshot) -> Make:
            for partition, (first, _) in bounds.items():
                check_owned(self.topic, snapshot, partition, epochs[partition])
                if snapshot.offsets[partition] != first:
                    raise fenced(
                        self.topic, partition, f"its table offset is {snapshot.offsets[partition]}, not {first}"
                    )
            for partition, epoch in (released or {}).items():
                check_owned(self.topic, snapshot, partition, epoch)
            return lambda delta: commit_actions(delta, actions, transactions, commit_id)

        actions = [add_action(file, data_change=True) for file in files]
        transactions = {delta_names.txn_offset(partition): end for partition, (_, end) in bounds.items()}
        transactions |= state_transactions(states or {}) | release_transactions(released or {})
        if released:
            return confirmed_release(self.topic, self.commit(commit_id, checked), released)
        owned = {partition: epochs[partition] for partition in bounds}
        return confirmed(self.topic, self.commit(commit_id, checked), owned, transactions)

    def mark(
        self,
        epochs: Mapping[int, int],
        marks: Mapping[str, int],
        commit_id: str,
        *,
        offsets: Mapping[int, int] | None = None,
        expected: Mapping[str, int] | None = None,
        journals: Sequence[tuple[int, str]] = (),
    ) -> TableSnapshot:
        """Sets app transactions as the owner under `epochs`, and jumps as `claim`, of which `expected` and `journals`
        are too. Errors are as of `append`."""

        def checked(snapshot: TableSnapshot) -> Make:
            check_expected(self.topic, snapshot, expected)
            changed = journals_property(journals) if journals else {}
            for partition, epoch in epochs.items():
                check_owned(self.topic, snapshot, partition, epoch)
                if partition in (offsets or {}):
                    changed |= jumped(self.topic, snapshot, partition, (offsets or {})[partition])
            if changed:
                return lambda delta: commit_properties(delta, changed, transactions, commit_id)
            return lambda delta: commit_actions(delta, [], transactions, commit_id)

        jumps = {delta_names.txn_offset(partition): offset for partition, offset in (offsets or {}).items()}
        transactions = {**marks, **jumps}
        return confirmed(self.topic, self.commit(commit_id, checked), epochs, transactions)

    def release(
        self, epochs: Mapping[int, int], commit_id: str, *, states: Mapping[int, int] | None = None
    ) -> TableSnapshot:
        """Hands partitions back, after everything of them is in the table. `states` and errors are as of `append`."""

        def checked(snapshot: TableSnapshot) -> Make:
            for partition, epoch in epochs.items():
                check_owned(self.topic, snapshot, partition, epoch)
            return lambda delta: commit_actions(delta, [], transactions, commit_id)

        transactions = release_transactions(epochs) | state_transactions(states or {})
        return confirmed_release(self.topic, self.commit(commit_id, checked), epochs)

    def take_back(self, epochs: Mapping[int, int], commit_id: str) -> TableSnapshot:
        """Undoes a `release` that landed, and shuts out one that may still be under way. Errors are as of `append`:
        Fenced where another has claimed since."""
        return self.mark(epochs, {delta_names.txn_released(partition): 0 for partition in epochs}, commit_id)

    def set_config(
        self,
        config: TopicConfig,
        commit_id: str,
        *,
        unset: Collection[str] = (),
        removed_files_ms: int | None = None,
    ) -> TableSnapshot:
        """Sets the topic's own settings and puts those in `unset` back; what neither names stays as it is.

        `removed_files_ms` is what then holds, be it the topic's or the server's.
        """

        def checked(snapshot: TableSnapshot) -> Make:
            # It changes nothing: an app transaction is the last action of an entry, and tells that it is whole.
            transactions = {delta_names.txn_offset(0): snapshot.offsets[0]}
            properties = config.properties(unset) | removed_files_property(removed_files_ms)
            return lambda delta: commit_properties(delta, properties, transactions, commit_id)

        return self.commit(commit_id, checked)

    def grow(
        self,
        partitions: int,
        first_offsets: Sequence[int],
        epoch: int,
        commit_id: str,
        *,
        config: TopicConfig,
        unset: Collection[str] = (),
        removed_files_ms: int | None = None,
    ) -> TableSnapshot:
        """More partitions, owned under `epoch` as the others are, and `set_config` in the same commit.

        `first_offsets` has, for each partition there is, the offset from which on records go by the new count.
        Raises Fenced as `append`, Refused `invalid_request` where the topic cannot grow to that count.
        """

        def checked(snapshot: TableSnapshot) -> Make:
            check_growth(self.topic, snapshot, partitions, config)
            if snapshot.partitions != len(first_offsets):
                raise fenced(self.topic, snapshot.partitions - 1, f"there are {snapshot.partitions} partitions by now")
            for partition in range(snapshot.partitions):
                check_owned(self.topic, snapshot, partition, epoch)
            transactions = grown_transactions(snapshot, partitions, epoch)
            for partition in range(snapshot.partitions, partitions):
                former = snapshot.transactions.get(delta_names.txn_epoch(partition), 0)
                if former >= epoch:
                    raise fenced(self.topic, partition, f"its epoch is {former}, not below {epoch}")
            properties = (
                config.properties(unset)
                | removed_files_property(removed_files_ms)
                | grown_properties(snapshot, partitions, first_offsets)
            )
            return lambda delta: commit_properties(delta, properties, transactions, commit_id)

        return confirmed(self.topic, self.commit(commit_id, checked), dict.fromkeys(range(partitions), epoch), {})

    def delete(self, commit_id: str, *, unclaimed: bool = False) -> TableSnapshot:
        """Empties the table and marks its topic deleted; the log stays, so that a stale handle commits nowhere.

        With `unclaimed` only one that nobody has ever taken; else it raises TopicExists.
        """

        def checked(snapshot: TableSnapshot) -> Make:
            if unclaimed and any(snapshot.epochs.values()):
                raise _topic_exists(self.topic)
            properties = deleted_properties(snapshot)
            transactions = reset_transactions(snapshot, snapshot.partitions_ever)
            return lambda delta: commit_table(
                self._store, delta.table_uri, properties, transactions, commit_id, overwrite=True
            )

        return self.commit(commit_id, checked)

    def _recreate(self, properties: Mapping[str, str], commit_id: str) -> None:
        """A new topic over a deleted one, whose table has no files; of racing creators one wins."""

        def checked(snapshot: TableSnapshot) -> Make:
            if not snapshot.deleted:
                raise _topic_exists(self.topic)
            ever = max(snapshot.partitions_ever, int(properties[delta_names.PROPERTY_PARTITIONS]))
            transactions = reset_transactions(snapshot, ever)
            whole = {**properties, delta_names.PROPERTY_PARTITIONS_EVER: str(ever)}
            return lambda delta: commit_properties(delta, whole, transactions, commit_id)

        self.commit(commit_id, checked, over_deleted=True)
        self.topic_id = properties[delta_names.PROPERTY_TOPIC_ID]

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
        fences = {delta_names.txn_rewrite(partition): plan_version + 1 for partition in sorted(partitions)}
        return self.commit_planned(handle, actions, {**(marks or {}), **fences}, commit_id)

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


def topic_names(store: ObjectStore) -> list[str]:
    """Topics that have a table, deleted ones included."""
    return [
        name
        for name in store.folders(names.TOPICS_FOLDER)
        if names.DELTA_LOG_FOLDER in store.folders(names.topic_path(name))
    ]


def _topic_exists(topic: str) -> SiltlogError:
    return problem("topic_exists", f"the topic {topic!r} exists", topic=topic)
