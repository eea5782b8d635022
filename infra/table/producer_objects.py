"""The objects beside a table that say what producers did: which there are, and which of them are needed."""

from collections.abc import Iterable, Iterator, Mapping

from siltlog.infra import delta_names, names
from siltlog.infra.store.store import ObjectInfo, ObjectStore
from siltlog.infra.table.snapshot import TableSnapshot

OBJECTS_KEPT = 2
"""How many of each partition's newest objects are kept."""


def covered_offsets(store: ObjectStore, topic: str, topic_id: str, offsets: Mapping[int, int]) -> dict[int, int]:
    """Gives, by partition, the offset below which an object knows the producer of every record.

    Partitions without an object are absent. `offsets` are the table's: objects above them say what a table that was
    rolled back has not got.
    """
    folder = f"{names.topic_path(topic)}/{names.state_folder(topic_id)}"
    covered: dict[int, int] = {}
    for info in store.list(folder):
        partition, _, offset = info.path.removeprefix(f"{folder}/").partition("/")
        if partition.isdigit() and offset.isdigit() and int(offset) <= offsets.get(int(partition), -1):
            covered[int(partition)] = max(int(offset), covered.get(int(partition), 0))
    return covered


def state_transactions(states: Mapping[int, int]) -> dict[str, int]:
    """The app transactions which say, by partition, below which offset an object knows every producer."""
    return {delta_names.txn_state(partition): offset for partition, offset in states.items()}


def superseded_objects(listed: Iterable[ObjectInfo], topic: str, snapshot: TableSnapshot) -> Iterator[ObjectInfo]:
    """Gives those of `listed` that belong to a deleted topic, or are older than what a server would read.

    What lies above the table offset belongs to a table that was rolled back, and may be put back: it stays.
    """
    root = f"{names.topic_path(topic)}/{names.STATE_FOLDER}/"
    kinds: dict[str, list[tuple[int, ObjectInfo]]] = {}
    for info in listed:
        topic_id, _, path = info.path.removeprefix(root).partition("/")
        kind, _, number = path.partition("/")
        if not info.path.startswith(root) or not number.isdigit():
            continue
        if snapshot.deleted or topic_id != snapshot.topic_id:
            yield info
        elif not kind.isdigit() or int(number) <= snapshot.offsets.get(int(kind), -1):
            kinds.setdefault(kind, []).append((int(number), info))
    for kind, found in kinds.items():
        kept = OBJECTS_KEPT if kind.isdigit() else 1
        yield from (info for _, info in sorted(found)[:-kept])
