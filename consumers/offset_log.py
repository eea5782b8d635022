"""`_offsets`: committed offsets of groups as records of a topic, so that they outlive Redis."""

import asyncio
from collections.abc import Mapping, Sequence

from siltlog.consumers.budget import Budget, Share
from siltlog.consumers.group_scripts import Key
from siltlog.consumers.log_view import LogView
from siltlog.consumers.offset_table import OffsetTable, SavedOffset, forgotten_record, saved_record
from siltlog.consumers.reader import Reader
from siltlog.consumers.row_groups import RowGroups
from siltlog.consumers.system_log import SystemLog
from siltlog.infra import names
from siltlog.infra.errors import UnknownTopic, problem
from siltlog.infra.new_record import NewRecord
from siltlog.infra.topic_config import Value

CONFIG: Mapping[str, Value] = {
    "cleanup.policy": "compact",
    # What is durable is read after a restart, whatever the server's own acks are.
    "acks": "wal",
    # What is not in the table is in the write-ahead log: a commit for every snapshot would only make small files.
    "flush.ms": 30_000,
}
APPEND_RECORDS_MAX = 2_000
READ_RECORDS = 100_000
READ_BYTES = 32 * 1024 * 1024


class OffsetLog:
    """Used on one event loop. `cluster_id` says of which log the offsets are."""

    def __init__(
        self, log: LogView, system: SystemLog, row_groups: RowGroups, *, cluster_id: str, interval_ms: int
    ) -> None:
        self.cluster_id = cluster_id
        self.interval_ms = interval_ms
        """How old what it says of a group may be."""
        self.table = OffsetTable()
        """Complete once it was loaded: only this node appends."""
        self.loaded = asyncio.Event()
        self._log = log
        self._system = system
        self._reader = Reader(row_groups)

    async def load(self) -> int:
        """Reads `_offsets` to its end; the records read. Raises CorruptData, Unavailable; nothing is known then."""
        try:
            topic = self._log.topic(names.OFFSETS_TOPIC)
        except UnknownTopic:
            self.loaded.set()
            return 0
        view = topic.partitions[0]
        table = OffsetTable()
        offset = view.bounds().log_start_offset
        end = view.bounds().high_watermark
        records = 0
        while offset < end:
            budget = Budget(READ_RECORDS, READ_BYTES)
            read = await self._reader.read(topic, view, offset, budget, Share(), "wal")
            try:
                await asyncio.to_thread(table.fold, read.batches)
            except ValueError as error:
                raise problem(
                    "corrupt_data",
                    f"topic {names.OFFSETS_TOPIC}, from offset {offset}: a record is no offset of a group: {error}",
                    topic=names.OFFSETS_TOPIC,
                    partition=0,
                    first_offset=offset,
                    last_offset=read.next_offset - 1,
                ) from error
            records += sum(batch.num_rows for batch in read.batches)
            offset = read.next_offset
        self.table = table
        self.loaded.set()
        return records

    async def save(self, entries: Sequence[tuple[str, SavedOffset]]) -> None:
        """(group, entry); durable when it returns. Raises Unavailable or OutcomeUnknown."""
        for first in range(0, len(entries), APPEND_RECORDS_MAX):
            part = entries[first : first + APPEND_RECORDS_MAX]
            await self._append([saved_record(group, entry) for group, entry in part])
            for group, entry in part:
                self.table.put(group, entry)

    async def forget(self, places: Sequence[tuple[str, Key]]) -> None:
        """(group, partition): they have no offset any more, and get none back. Raises as `save`."""
        for first in range(0, len(places), APPEND_RECORDS_MAX):
            part = places[first : first + APPEND_RECORDS_MAX]
            await self._append([forgotten_record(group, key) for group, key in part])
            for group, key in part:
                self.table.drop(group, key.topic_id, key.partition)

    async def _append(self, records: Sequence[NewRecord]) -> None:
        await self._system.ensure(names.OFFSETS_TOPIC, 1, CONFIG)
        await self._system.append(names.OFFSETS_TOPIC, 0, records)
