"""The objects beside a table that say what producers did: where they are, and up to where they say it."""

from collections.abc import Mapping

from siltlog.infra import names
from siltlog.infra.store import ObjectStore


def covered_offsets(store: ObjectStore, topic: str, topic_id: str, offsets: Mapping[int, int]) -> dict[int, int]:
    """By partition, the offset below which an object knows the producer of every record; those without one are absent.

    `offsets` are the table's: objects above them say what a table that was rolled back has not got.
    """
    folder = f"{names.topic_path(topic)}/{names.state_folder(topic_id)}"
    covered: dict[int, int] = {}
    for info in store.list(folder):
        partition, _, offset = info.path.removeprefix(f"{folder}/").partition("/")
        if partition.isdigit() and offset.isdigit() and int(offset) <= offsets.get(int(partition), -1):
            covered[int(partition)] = max(int(offset), covered.get(int(partition), 0))
    return covered
