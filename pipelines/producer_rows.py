"""Records that alone tell of their producers: a server without the log's WAL reads them again, so they must not go.

What else is known of producers is in objects beside the table (`infra/table/producer_objects.py`), which a server
writes as it goes on.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from siltlog.infra.errors import CorruptData
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import read_data_file
from siltlog.infra.table.producer_objects import covered_offsets
from siltlog.infra.table.snapshot import TableSnapshot

READS_AT_ONCE = 8


def known_for_ms(snapshot: TableSnapshot) -> int:
    """How long a producer is remembered after its last use: rows that are older tell nothing."""
    config = snapshot.config
    return max(config.integer(f"{kind}.expiration.ms") for kind in ("producer", "idempotency"))


def has_producers(store: ObjectStore, topic: str, path: str) -> bool:
    """Tells whether a file has rows of producers; True too where it is damaged, and nobody can tell."""
    try:
        column = read_data_file(store, topic, path, columns=["producer_id"]).column("producer_id")
    except CorruptData:
        return True
    return bool(column.null_count < len(column))


def first_needed(
    store: ObjectStore, topic: str, snapshot: TableSnapshot, partitions: Sequence[int], now_ms: int
) -> dict[int, int]:
    """Finds an offset not above the first record with a producer that is still needed, by partition that has one."""
    if not partitions:
        return {}
    oldest_ms = now_ms - known_for_ms(snapshot)
    covered = covered_offsets(store, topic, snapshot.topic_id, snapshot.offsets)

    def first(partition: int) -> int | None:
        below = covered.get(partition, 0)
        for file in snapshot.files_of(partition):
            young = file.last_offset >= below and file.modified_ms > oldest_ms
            if young and has_producers(store, topic, file.path):
                return max(below, file.first_offset)
        return None

    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        found = zip(partitions, pool.map(first, partitions), strict=True)
        return {partition: offset for partition, offset in found if offset is not None}
