"""Whose partitions are, as a snapshot of their table says: what every commit of an owner is checked by."""

import json
from collections.abc import Mapping, Sequence

from siltlog.infra import delta_names
from siltlog.infra.errors import Fenced
from siltlog.infra.table.snapshot import NOT_RELEASED, TableSnapshot


def check_owned(topic: str, snapshot: TableSnapshot, partition: int, epoch: int) -> None:
    """Raises Fenced unless `epoch` is the partition's."""
    if snapshot.epochs.get(partition) != epoch:
        raise fenced(topic, partition, f"its epoch is {snapshot.epochs.get(partition)}, not {epoch}")


def check_expected(topic: str, snapshot: TableSnapshot, expected: Mapping[str, int] | None) -> None:
    """Raises Fenced unless app transactions of partitions still have these numbers, 0 standing for none."""
    for name, number in (expected or {}).items():
        found = snapshot.transactions.get(name, 0)
        if found != number:
            raise fenced(topic, _partition(name), f"{name} is {found}, not {number} any more")


def jumped(topic: str, snapshot: TableSnapshot, partition: int, offset: int) -> dict[str, str]:
    """The properties that note what lies between the partition's table offset and `offset` as a gap.

    Raises Fenced where `offset` is below.
    """
    table_offset = snapshot.offsets[partition]
    if offset < table_offset:
        raise fenced(topic, partition, f"its table offset is {table_offset}, above {offset}")
    if offset == table_offset:
        return {}
    gaps = [*snapshot.gaps(partition), (table_offset, offset)]
    return {f"{delta_names.PROPERTY_GAPS_PREFIX}{partition}": json.dumps(gaps)}


def journals_property(journals: Sequence[tuple[int, str]]) -> dict[str, str]:
    """The property that says which journals a successor has to read."""
    return {delta_names.PROPERTY_JOURNALS: json.dumps(list(journals))}


def confirmed(
    topic: str, snapshot: TableSnapshot, epochs: Mapping[int, int], transactions: Mapping[str, int]
) -> TableSnapshot:
    """Gives `snapshot`, read after a commit of an owner, when the partitions are still that owner's, and the log has
    what the commit set. Raises Fenced else: nothing may be concluded from the commit."""
    for partition, epoch in epochs.items():
        check_owned(topic, snapshot, partition, epoch)
    for name, number in transactions.items():
        found = snapshot.transactions.get(name)
        if found != number:
            raise fenced(topic, _partition(name), f"its log has {name} at {found}, where {number} was committed")
    return snapshot


def release_transactions(epochs: Mapping[int, int]) -> dict[str, int]:
    """The app transactions which say that partitions were handed back, each under its epoch."""
    return {delta_names.txn_released(partition): epoch for partition, epoch in epochs.items()}


def confirmed_release(topic: str, snapshot: TableSnapshot, epochs: Mapping[int, int]) -> TableSnapshot:
    """Gives `snapshot`, read after partitions were handed back, when the log has that. Raises Fenced else."""
    # Whoever waited for it may have claimed already, so it is not asked whose they are.
    for partition, epoch in epochs.items():
        if snapshot.released.get(partition, NOT_RELEASED) < epoch:
            raise fenced(topic, partition, f"its log does not have that {epoch} was released")
    return snapshot


def fenced(topic: str, partition: int, reason: str) -> Fenced:
    return Fenced(
        f"another writer took over partition {partition} of topic {topic}: {reason}; one server may write to a root",
        error_code="topic_unavailable",
        status=503,
        retryable="yes",
        retry_after_ms=1000,
        members={"topic": topic, "partition": partition},
    )


def _partition(transaction: str) -> int:
    return int(transaction.rpartition("/")[2])
