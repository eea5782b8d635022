"""A topic's table made anew from what a backup has: the door's operation for restoring.

One commit, the first of its log, has properties, files and app transactions: the topic is there whole or not at all.
"""

from collections.abc import Mapping, Sequence

from siltlog.infra import names
from siltlog.infra.data_file import DataFile
from siltlog.infra.delta_log import Torn, cleaned_below, damaged, entry_path, log_folder, read_entry
from siltlog.infra.errors import problem
from siltlog.infra.log_clean_up import remove_strays
from siltlog.infra.store import ObjectStore
from siltlog.infra.table_commit import add_action, first_entry


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
    store.put_if_absent(entry_path(topic, 0), entry)
    if not restored_already(store, topic, commit_id):
        raise _exists(store, topic)


def released_transactions(transactions: Mapping[str, int]) -> dict[str, int]:
    """As they were, but that nobody owns a partition any more."""
    epoch_prefix = names.txn_epoch(0).removesuffix("0")
    released = {
        names.txn_released(int(name.removeprefix(epoch_prefix))): epoch
        for name, epoch in transactions.items()
        if name.startswith(epoch_prefix)
    }
    return {**transactions, **released}


def _exists(store: ObjectStore, topic: str) -> Exception:
    return problem(
        "topic_exists",
        f"the topic {topic!r} is, or was once, in {store.root_uri}: restore it to a root that never had it",
        topic=topic,
    )
