"""A topic table at one version. Immutable: a new version is a new snapshot."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from siltlog.infra import delta_names
from siltlog.infra.clock import parse_us
from siltlog.infra.settings.topic_config import REMOVED_FILES_MS_MAX, TopicConfig
from siltlog.infra.table.data_file import STATISTICS_COLUMNS, DataFile
from siltlog.infra.table.entries import HOUR_MS, Entry

NOT_RELEASED = -1
TRUE = "true"
FALSE = "false"
STATISTICS_PROPERTIES = {"delta.dataSkippingStatsColumns": ",".join(STATISTICS_COLUMNS)}
"""Names the columns of which files have bounds. Where nothing is said, deltalake's datasets look for those of all: a
file that has none of a column has no row for them that fits a condition on it."""
_REMOVED_FILES = "delta.deletedFileRetentionDuration"
_INTERVAL = re.compile(r"interval (\d+) (second|hour)s?", re.IGNORECASE)


def interval(period_ms: int) -> str:
    """Writes a period as Delta does; part of a second counts as one."""
    hours, rest = divmod(period_ms, HOUR_MS)
    return f"interval {hours} hours" if rest == 0 else f"interval {-(-period_ms // 1_000)} seconds"


def removed_files_property(period_ms: int | None) -> dict[str, str]:
    """Says how long removed files stay; nothing where that is None, and stays as it is."""
    return {} if period_ms is None else {_REMOVED_FILES: interval(period_ms)}


@dataclass(frozen=True)
class TableSnapshot:
    """App transactions and files of the same version. The maps by partition have every one of the topic."""

    version: int
    properties: Mapping[str, str]
    transactions: Mapping[str, int]
    """App id -> number, of every app transaction, those of partitions that are no more included."""
    files: Mapping[str, DataFile]
    """Files of the table by their paths, which are relative to the topic's."""
    offsets: Mapping[int, int]
    """The table offset of each partition; 0 in an empty one."""
    starts: Mapping[int, int]
    """The log start offset of each partition."""
    epochs: Mapping[int, int]
    """The epoch of each partition's owner; 0 when none has claimed it."""
    released: Mapping[int, int]
    """The epoch that was handed back last; -1 when none was."""
    _files_by_partition: Mapping[int, tuple[DataFile, ...]] = field(repr=False)

    @property
    def topic_id(self) -> str:
        return self.properties.get(delta_names.PROPERTY_TOPIC_ID, "")

    @property
    def deleted(self) -> bool:
        return self.properties.get(delta_names.PROPERTY_DELETED) == TRUE

    @property
    def partitions(self) -> int:
        return int(self.properties.get(delta_names.PROPERTY_PARTITIONS, "0"))

    @property
    def partitions_ever(self) -> int:
        """The largest count that the name ever had: epochs of all of them live on."""
        return max(int(self.properties.get(delta_names.PROPERTY_PARTITIONS_EVER, "0")), self.partitions)

    @property
    def partition_history(self) -> list[tuple[int, list[int]]]:
        """(count, first offset of each partition that was there before) of every count, the first one first.

        Below those offsets records went by the count before; at and above them, and in new partitions, by this one.
        """
        text = self.properties.get(delta_names.PROPERTY_PARTITIONS_HISTORY, "[]")
        return [(entry["partitions"], entry["first_offsets"]) for entry in json.loads(text)]

    @property
    def created_us(self) -> int:
        return parse_us(self.properties[delta_names.PROPERTY_CREATED_AT])

    @property
    def config(self) -> TopicConfig:
        """The topic's own settings over the defaults."""
        return TopicConfig.from_properties(self.properties)

    @property
    def removed_files_ms(self) -> int:
        """How long removed files stay: of the topic's own setting, or of the server that claimed it last."""
        found = _INTERVAL.fullmatch(self.properties.get(_REMOVED_FILES, ""))
        if found is None:
            return REMOVED_FILES_MS_MAX
        return int(found[1]) * (HOUR_MS if found[2].lower() == "hour" else 1_000)

    def gaps(self, partition: int) -> list[tuple[int, int]]:
        """Ranges of offsets [from, to) that were jumped and name no record."""
        text = self.properties.get(f"{delta_names.PROPERTY_GAPS_PREFIX}{partition}")
        return [] if text is None else [(start, end) for start, end in json.loads(text)]

    def shipped(self, partition: int) -> int:
        """The epoch under which nothing is acknowledged that is in neither a journal nor the table; 0 without one."""
        return self.transactions.get(delta_names.txn_shipped(partition), 0)

    @property
    def journals(self) -> list[tuple[int, str]]:
        """The epochs whose journals may have records that the table has not, with those journals; the newest last."""
        text = self.properties.get(delta_names.PROPERTY_JOURNALS) or "[]"
        return [(epoch, journal) for epoch, journal in json.loads(text)]

    def compacted(self, partition: int) -> int:
        """Below this offset key compaction may have removed records."""
        return self.transactions.get(delta_names.txn_compacted(partition), 0)

    def erased(self, partition: int) -> int:
        """Below this offset records of keys may have been erased."""
        return self.transactions.get(delta_names.txn_erased(partition), 0)

    def files_of(self, partition: int) -> Sequence[DataFile]:
        """Ascending by first offset."""
        return self._files_by_partition.get(partition, ())

    @classmethod
    def build(
        cls, version: int, properties: Mapping[str, str], transactions: Mapping[str, int], files: Iterable[DataFile]
    ) -> "TableSnapshot":
        by_path = {file.path: file for file in files}
        grouped: dict[int, list[DataFile]] = {}
        for file in by_path.values():
            grouped.setdefault(file.partition, []).append(file)
        return cls._with_numbers(
            version,
            properties,
            transactions,
            by_path,
            {partition: tuple(sorted(group, key=_order)) for partition, group in grouped.items()},
        )

    @classmethod
    def _with_numbers(
        cls,
        version: int,
        properties: Mapping[str, str],
        transactions: Mapping[str, int],
        files: Mapping[str, DataFile],
        by_partition: Mapping[int, tuple[DataFile, ...]],
    ) -> "TableSnapshot":
        partitions = range(int(properties.get(delta_names.PROPERTY_PARTITIONS, "0")))

        def numbers(app_id: Callable[[int], str], default: int) -> dict[int, int]:
            return {partition: transactions.get(app_id(partition), default) for partition in partitions}

        return cls(
            version=version,
            properties=properties,
            transactions=transactions,
            files=files,
            offsets=numbers(delta_names.txn_offset, 0),
            starts=numbers(delta_names.txn_start, 0),
            epochs=numbers(delta_names.txn_epoch, 0),
            released=numbers(delta_names.txn_released, NOT_RELEASED),
            _files_by_partition=by_partition,
        )

    def after(self, entries: Sequence[Entry]) -> "TableSnapshot":
        """The snapshot after `entries`, which follow this version without a gap."""
        properties = self.properties
        transactions = dict(self.transactions)
        files = dict(self.files)
        touched: set[int] = set()
        for entry in entries:
            for path in entry.removes:
                removed = files.pop(path, None)
                if removed is not None:
                    touched.add(removed.partition)
            for file in entry.adds:
                files[file.path] = file
                touched.add(file.partition)
            transactions.update(entry.transactions)
            if entry.properties is not None:
                properties = entry.properties
        version = entries[-1].version if entries else self.version
        by_partition = self._regrouped(files, touched)
        if properties is not self.properties:
            return self._with_numbers(version, properties, transactions, files, by_partition)
        return TableSnapshot(
            version=version,
            properties=properties,
            transactions=transactions,
            files=files,
            offsets=_updated(self.offsets, delta_names.txn_offset, entries),
            starts=_updated(self.starts, delta_names.txn_start, entries),
            epochs=_updated(self.epochs, delta_names.txn_epoch, entries),
            released=_updated(self.released, delta_names.txn_released, entries),
            _files_by_partition=by_partition,
        )

    def _regrouped(self, files: Mapping[str, DataFile], touched: set[int]) -> Mapping[int, tuple[DataFile, ...]]:
        if not touched:
            return self._files_by_partition
        grouped: dict[int, list[DataFile]] = {partition: [] for partition in touched}
        for file in files.values():
            if file.partition in touched:
                grouped[file.partition].append(file)
        by_partition = dict(self._files_by_partition)
        for partition, group in grouped.items():
            if group:
                by_partition[partition] = tuple(sorted(group, key=_order))
            else:
                by_partition.pop(partition, None)
        return by_partition


def _order(file: DataFile) -> tuple[int, str]:
    return file.first_offset, file.path


def _updated(numbers: Mapping[int, int], app_id: Callable[[int], str], entries: Sequence[Entry]) -> Mapping[int, int]:
    prefix = app_id(0).removesuffix("0")
    changed = {
        int(name.removeprefix(prefix)): number
        for entry in entries
        for name, number in entry.transactions.items()
        if name.startswith(prefix)
    }
    known = {partition: number for partition, number in changed.items() if partition in numbers}
    return {**numbers, **known} if known else numbers
