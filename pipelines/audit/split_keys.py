"""Finds keys that lie in several partitions of a topic that keeps the last record of each: each of them keeps one."""

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra.errors import CorruptData
from siltlog.infra.store.store import ReadableStore
from siltlog.infra.table.data_file import DataFile, opened_data_file
from siltlog.pipelines.audit.file import shown
from siltlog.pipelines.audit.findings import FileRead, Finding

KEYS_MAX = 10_000
"""So many keys that lie where their hash does not say are looked for in other partitions."""


class SplitKeys:
    """Takes in the keys that lie where their hash does not say: of a key in two partitions one at least does."""

    def __init__(self) -> None:
        self._places: dict[bytes, set[int]] = {}

    def add(self, read: FileRead) -> None:
        for key in read.misplaced_keys:
            if key in self._places or len(self._places) < KEYS_MAX:
                self._places.setdefault(key, set()).add(read.file.partition)

    def find(self, store: ReadableStore, topic: str, files: Iterable[DataFile]) -> list[Finding]:
        """Reads the keys of `files`, which are all of the topic. Raises Unavailable."""
        if not self._places:
            return []
        wanted = pa.array(self._places, pa.binary())
        for file in files:
            try:
                self._look(store, topic, file, wanted)
            except CorruptData:  # what is wrong with it has been told
                continue
        return _told(self._places)

    def _look(self, store: ReadableStore, topic: str, file: DataFile, wanted: pa.Array) -> None:
        with opened_data_file(store, topic, file) as parquet:
            for index in range(parquet.metadata.num_row_groups):
                keys = parquet.read_row_group(index, columns=["key"], use_threads=False).column("key")
                for key in pc.unique(keys.filter(pc.is_in(keys, value_set=wanted))).to_pylist():
                    self._places[bytes(key)].add(file.partition)


def _told(places: Mapping[bytes, set[int]]) -> list[Finding]:
    split = {key: sorted(partitions) for key, partitions in places.items() if len(partitions) > 1}
    if not split:
        return []
    key, partitions = next(iter(split.items()))
    many = "1 key is" if len(split) == 1 else f"{len(split)} keys are"
    detail = f"{many} in several partitions: the key {shown(key)} in {', '.join(map(str, partitions))}"
    return [Finding("split_key", detail, partition=partitions[0])]
