"""Journals that no topic can need any more, of starts of nodes that are long over.

A node lets its own journal's objects go while it runs. What is left is of starts that ended, or were ended by another
with a seal. The objects without records stay, as one of them is the seal: a machine that slept for months must meet it.
"""

from siltlog.infra import names
from siltlog.infra.cluster.beat import decode_beat
from siltlog.infra.cluster.view import decode_view
from siltlog.infra.errors import SiltlogError
from siltlog.infra.store.store import ObjectInfo, ObjectStore

GONE_MS = 30 * 86_400_000
"""How long nothing may have come to a journal, beside no view naming it."""
HEADER_BYTES = 1024
"""An object of a journal that is no larger has no records."""


def left_journals(store: ObjectStore, now_ms: int) -> list[ObjectInfo]:
    """Lists what may be deleted of journals, of each in rising order: nothing where a view cannot be read. Raises
    Unavailable."""
    journals: dict[tuple[str, str], list[ObjectInfo]] = {}
    # Before the views: a journal that is named first in a later view is not among these.
    for info in store.list(names.JOURNALS_FOLDER):
        node, _, rest = info.path.removeprefix(f"{names.JOURNALS_FOLDER}/").partition("/")
        journals.setdefault((node, rest.partition("/")[0]), []).append(info)
    over = {
        journal: objects
        for journal, objects in journals.items()
        if max(info.modified_ms for info in objects) < now_ms - GONE_MS
    }
    if not over:
        return []
    needed = _needed(store)
    if needed is None:
        return []
    return [
        info
        for (_, journal), objects in sorted(over.items())
        if journal not in needed
        for info in objects
        if info.size > HEADER_BYTES
    ]


def _needed(store: ObjectStore) -> set[str] | None:
    """The journals that a view or a beat names; None where there is no view, or one that this release cannot read."""
    needed: set[str] = set()
    found = 0
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
        found += 1
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
    return needed if found else None
