"""Journals that no topic can need any more, of starts of nodes that are long over.

A node lets its own journal's objects go while it runs. What is left is of starts that ended, or were ended by another
with a seal. The objects without records stay, as one of them is the seal: a machine that slept for months must meet it.
"""

from siltlog.infra import names
from siltlog.infra.cluster.beat import decode_beat
from siltlog.infra.cluster.view import ClusterView, decode_view
from siltlog.infra.errors import SiltlogError, UnknownTopic
from siltlog.infra.store.store import ObjectInfo, ObjectStore
from siltlog.infra.table.opening import load
from siltlog.infra.table.table import topic_names

GONE_MS = 30 * 86_400_000
"""How long nothing may have come to a journal, beside no view naming it."""
HEADER_BYTES = 1024
"""An object of a journal that is no larger has no records."""


def left_journals(
    store: ObjectStore, journals_store: ObjectStore, now_ms: int, gone_ms: int = GONE_MS
) -> list[ObjectInfo]:
    """Lists what may be deleted of the journals in `journals_store` to which nothing has come for `gone_ms`, of each in
    rising order: nothing where a view of `store` cannot be read. Raises Unavailable."""
    journals: dict[tuple[str, str], list[ObjectInfo]] = {}
    # Before the views: a journal that is named first in a later view is not among these.
    for info in journals_store.list(names.JOURNALS_FOLDER):
        node, _, rest = info.path.removeprefix(f"{names.JOURNALS_FOLDER}/").partition("/")
        journals.setdefault((node, rest.partition("/")[0]), []).append(info)
    over = {
        journal: objects
        for journal, objects in journals.items()
        if max(info.modified_ms for info in objects) < now_ms - gone_ms
    }
    if not over:
        return []
    needed = _needed(store)
    if needed is None:
        return []
    named, shared = needed
    if not shared:
        # One server at a time: every journal but the last is of a start that is over.
        newest = max(journals, key=lambda journal: max(info.modified_ms for info in journals[journal]))
        named.add(newest[1])
    return [
        info
        for (_, journal), objects in sorted(over.items())
        if journal not in named
        for info in objects
        if info.size > HEADER_BYTES
    ]


def _needed(store: ObjectStore) -> tuple[set[str], bool] | None:
    """The journals that a table, a view or a beat names, and whether nodes share the root.

    None where one of those cannot be read.
    """
    try:
        needed = {
            journal.rpartition("/")[2] for topic in topic_names(store) for _, journal in _table_journals(store, topic)
        }
    except SiltlogError:
        return None
    newest: ClusterView | None = None
    for info in store.list(names.VIEWS_FOLDER):
        number = info.path.rpartition("/")[2]
        if not number.isdigit():
            continue
        try:
            view = decode_view(store.get(info.path), int(number))
        except FileNotFoundError:
            continue  # one of the oldest: newer ones have come
        except SiltlogError:
            return None
        newest = view if newest is None or view.number > newest.number else newest
        needed.update(node.journal for node in view.nodes.values())
        needed.update(term.journal for topic in view.topics.values() for term in topic.terms)
    for info in store.list(names.NODES_FOLDER):
        try:
            beat = decode_beat(store.get(info.path), info.path.rpartition("/")[2])
        except FileNotFoundError:
            continue
        except SiltlogError:
            return None
        needed.add(beat.journal)
    return needed, newest is not None and not newest.dissolved


def _table_journals(store: ObjectStore, topic: str) -> list[tuple[int, str]]:
    """Lists the journals that may have records which the table has not. Raises SiltlogError where it cannot be read."""
    try:
        snapshot = load(store, topic).snapshot
    except UnknownTopic:
        if store.list(names.topic_path(topic)):
            raise  # it has lost its log
        return []  # its creation was cut short
    return [] if snapshot.deleted else snapshot.journals
