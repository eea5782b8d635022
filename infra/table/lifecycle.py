"""Properties and app transactions of a table when its topic begins, grows, ends, or is restored from a backup."""

import json
from collections.abc import Mapping, Sequence

from siltlog.infra import delta_names, names
from siltlog.infra.clock import format_us
from siltlog.infra.errors import problem
from siltlog.infra.settings.topic_config import REMOVED_FILES_MS_MAX, TopicConfig
from siltlog.infra.store.once import put_once
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.clean_up import remove_strays
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.delta import add_action, first_entry
from siltlog.infra.table.entries import RETENTION_MS, Torn, cleaned_below, damaged, entry_path, log_folder, read_entry
from siltlog.infra.table.snapshot import (
    FALSE,
    STATISTICS_PROPERTIES,
    TRUE,
    TableSnapshot,
    interval,
    removed_files_property,
)

_LOG_PROPERTIES = {"delta.logRetentionDuration": interval(RETENTION_MS), **STATISTICS_PROPERTIES}
_OF_RECORDS = (
    delta_names.txn_shipped,
    delta_names.txn_state,
    delta_names.txn_compacted,
    delta_names.txn_erased,
    delta_names.txn_tombstones,
    delta_names.txn_tombstones_since,
)
"""The app transactions that say something of records: 0 where there are none any more."""


def new_properties(topic_id: str, partitions: int, config: TopicConfig, created_us: int) -> dict[str, str]:
    """Table properties of a new topic; the history says which partition count holds from which offsets on."""
    return {
        **_LOG_PROPERTIES,
        **removed_files_property(config.integer("removed.files.retention.ms")),
        **config.properties(),
        delta_names.PROPERTY_TOPIC_ID: topic_id,
        delta_names.PROPERTY_DELETED: FALSE,
        delta_names.PROPERTY_PARTITIONS: str(partitions),
        delta_names.PROPERTY_PARTITIONS_EVER: str(partitions),
        delta_names.PROPERTY_PARTITIONS_HISTORY: json.dumps([_history_entry(partitions, ())]),
        delta_names.PROPERTY_CREATED_AT: format_us(created_us),
    }


def _history_entry(partitions: int, first_offsets: Sequence[int]) -> dict[str, object]:
    return {"partitions": partitions, "first_offsets": list(first_offsets)}


def check_growth(topic: str, snapshot: TableSnapshot, partitions: int, config: TopicConfig) -> None:
    """Raises Refused `invalid_request` unless the topic may have `partitions`; `config` has what is set with them."""
    if partitions < snapshot.partitions:
        raise problem(
            "invalid_request",
            f"topic {topic} has {snapshot.partitions} partitions, and partitions only grow: {partitions} are fewer. "
            "Create another topic and copy the records there",
        )
    policies = {str(snapshot.config["cleanup.policy"]), str(config.own.get("cleanup.policy", ""))}
    if partitions > snapshot.partitions and any("compact" in policy for policy in policies):
        raise problem(
            "invalid_request",
            f"topic {topic} keeps the last record of each key (cleanup.policy), and a key's newer records would go to "
            "another partition than its older ones: it does not grow. Create a topic with more partitions and copy "
            "the records there",
        )


def grown_properties(snapshot: TableSnapshot, partitions: int, first_offsets: Sequence[int]) -> dict[str, str]:
    """`first_offsets` has, for each partition there was, where the new count begins to hold; new ones begin at 0."""
    history = [_history_entry(*entry) for entry in snapshot.partition_history]
    return {
        delta_names.PROPERTY_PARTITIONS: str(partitions),
        delta_names.PROPERTY_PARTITIONS_EVER: str(max(partitions, snapshot.partitions_ever)),
        delta_names.PROPERTY_PARTITIONS_HISTORY: json.dumps([*history, _history_entry(partitions, first_offsets)]),
    }


def grown_transactions(snapshot: TableSnapshot, partitions: int, epoch: int) -> dict[str, int]:
    """App transactions of the partitions that come, owned from their first offset on."""
    transactions: dict[str, int] = {}
    for partition in range(snapshot.partitions, partitions):
        transactions[delta_names.txn_offset(partition)] = 0
        transactions[delta_names.txn_start(partition)] = 0
        transactions[delta_names.txn_epoch(partition)] = epoch
        if snapshot.shipped(0) == epoch:
            transactions[delta_names.txn_shipped(partition)] = epoch
    return transactions


def deleted_properties(snapshot: TableSnapshot) -> dict[str, str]:
    """All that stays of a topic: nothing of its configuration may reach its successor."""
    return {
        **_LOG_PROPERTIES,
        **removed_files_property(REMOVED_FILES_MS_MAX),
        delta_names.PROPERTY_TOPIC_ID: snapshot.topic_id,
        delta_names.PROPERTY_DELETED: TRUE,
        delta_names.PROPERTY_PARTITIONS: str(snapshot.partitions),
        delta_names.PROPERTY_PARTITIONS_EVER: str(snapshot.partitions_ever),
    }


def reset_transactions(snapshot: TableSnapshot, partitions_ever: int) -> dict[str, int]:
    """App transactions with which a topic starts or ends; epochs of a name never go back."""
    transactions: dict[str, int] = {}
    for partition in range(partitions_ever):
        transactions[delta_names.txn_offset(partition)] = 0
        transactions[delta_names.txn_start(partition)] = 0
        epoch = snapshot.transactions.get(delta_names.txn_epoch(partition), 0) + 1
        transactions[delta_names.txn_epoch(partition)] = epoch
        # Nobody owns it yet: whoever claims it first takes nothing away from anyone.
        transactions[delta_names.txn_released(partition)] = epoch
        for app_id in _OF_RECORDS:
            if app_id(partition) in snapshot.transactions:
                transactions[app_id(partition)] = 0
    return transactions


def restored_already(store: ObjectStore, topic: str, commit_id: str) -> bool:
    """Whether that very commit made the table; False where the name has no log. Raises TopicExists for another."""
    try:
        first = read_entry(store, topic, 0)
    except FileNotFoundError:
        entries = (info.path for info in store.list(log_folder(topic)))
        if any(path.endswith((".json", ".parquet")) for path in entries):
            raise _exists(store, topic) from None
        return False
    except Torn as torn:
        raise damaged(topic, str(torn), "it is cut short") from torn
    if cleaned_below(store, topic) > 0:
        # Not the log's first entry: that one was cleaned.
        remove_strays(store, topic)
        raise _exists(store, topic)
    if first.commit_id != commit_id:
        raise _exists(store, topic)
    return True


def restore_table(
    store: ObjectStore,
    topic: str,
    properties: Mapping[str, str],
    transactions: Mapping[str, int],
    files: Sequence[DataFile],
    commit_id: str,
) -> None:
    """The files lie at their paths already; they are checked and synced before the commit.

    Every partition comes back released: whoever claims it first goes on behind its last record and takes nothing away
    from anyone. Raises TopicExists unless the name was never used under this root, Unavailable.
    """
    paths = [f"{names.topic_path(topic)}/{file.path}" for file in files]
    for file, path, size in zip(files, paths, store.sizes(paths), strict=True):
        if size != file.size_bytes:
            raise problem("topic_unavailable", f"{path} has {size} bytes, not {file.size_bytes}", topic=topic)
    store.sync(paths)
    actions = [add_action(file, data_change=True) for file in files]
    entry = first_entry(properties, actions, released_transactions(transactions), commit_id)
    put_once(store, entry_path(topic, 0), entry)
    if not restored_already(store, topic, commit_id):
        raise _exists(store, topic)


def released_transactions(transactions: Mapping[str, int]) -> dict[str, int]:
    """The transactions as they were, except that nobody owns a partition any more."""
    epoch_prefix = delta_names.txn_epoch(0).removesuffix("0")
    released = dict(transactions)
    for name, epoch in transactions.items():
        if name.startswith(epoch_prefix):
            released[delta_names.txn_released(int(name.removeprefix(epoch_prefix)))] = epoch
    return released


def _exists(store: ObjectStore, topic: str) -> Exception:
    return problem(
        "topic_exists",
        f"the topic {topic!r} is, or was once, in {store.root_uri}: restore it to a root that never had it",
        topic=topic,
    )
