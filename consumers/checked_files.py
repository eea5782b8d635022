"""The files of a partition at one version of its table, of which no two hold the same offset."""

from collections.abc import Sequence
from itertools import pairwise

from siltlog.infra.data_file import DataFile
from siltlog.infra.errors import problem
from siltlog.infra.table_snapshot import TableSnapshot

CHECKED_MAX = 10_000
"""For so many partitions it is remembered which list of files was checked; then all are forgotten."""


class CheckedFiles:
    """Each list is checked once. Used on one event loop."""

    def __init__(self) -> None:
        self._checked: dict[tuple[str, int], Sequence[DataFile]] = {}

    def of(self, topic: str, snapshot: TableSnapshot, partition: int) -> Sequence[DataFile]:
        """The partition's files, ascending. Raises CorruptData where two overlap: some rows would be given twice."""
        files = snapshot.files_of(partition)
        if self._checked.get((topic, partition)) is not files:
            for before, after in pairwise(files):
                if after.first_offset <= before.last_offset:
                    raise problem(
                        "corrupt_data",
                        f"the files {before.path} and {after.path} of topic {topic}, partition {partition} both hold "
                        f"offset {after.first_offset} in table version {snapshot.version}; "
                        "bring the table back to a version before they overlapped",
                        topic=topic,
                        partition=partition,
                        path=after.path,
                        first_offset=after.first_offset,
                        last_offset=min(before.last_offset, after.last_offset),
                    )
            if len(self._checked) >= CHECKED_MAX:
                self._checked.clear()
            self._checked[topic, partition] = files
        return files
