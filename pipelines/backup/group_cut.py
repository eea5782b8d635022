"""Offsets of groups that lie behind the end of what was restored are cut to it.

What a group had read of a record that the backup has not, it reads again when that offset is given to another record.
"""

from collections.abc import Mapping

import pyarrow as pa

from siltlog.infra import delta_names
from siltlog.infra.columns import FILE_SCHEMA
from siltlog.infra.errors import problem
from siltlog.infra.records import StoredOffset
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile, row_groups, write_data_file
from siltlog.pipelines.backup.format import TopicBackup

Ends = dict[str, Mapping[int, int]]
"""The table offset, by topic id and partition."""


def cut_offsets(store: ObjectStore, backup: TopicBackup, ends: Ends, *, now_us: int) -> DataFile | None:
    """A file of new records for `_offsets`, at its end; None when no offset of a group lies behind `ends`.

    The files of `backup` are at their places in `store`. Raises CorruptData, Unavailable.
    """
    cut = {
        key: StoredOffset(
            known.topic, end, known.version + 1, known.metadata, known.committed_ms, known.partitions_seen
        )
        for key, known in _newest(store, backup).items()
        if (end := _end_of(key, ends)) is not None and known.offset > end
    }
    if not cut:
        return None
    first = backup.transactions.get(delta_names.txn_offset(0), 0)
    columns = {
        "offset": pa.array(range(first, first + len(cut)), pa.int64()),
        "timestamp": pa.array([now_us] * len(cut), FILE_SCHEMA.field("timestamp").type),
        "key": pa.array(list(cut), pa.binary()),
        "value": pa.array([entry.encode() for entry in cut.values()], pa.binary()),
    }
    table = pa.table(
        [columns.get(field.name, pa.nulls(len(cut), field.type)) for field in FILE_SCHEMA], schema=FILE_SCHEMA
    )
    compression = str(TopicConfig.from_properties(backup.properties)["compression"])
    return write_data_file(store, backup.topic, 0, table, compression=compression, now_ms=now_us // 1000)


def _newest(store: ObjectStore, backup: TopicBackup) -> dict[bytes, StoredOffset]:
    """Returns the newest entry of each key. In memory is one for each partition of each group."""
    newest: dict[bytes, StoredOffset] = {}
    for file in sorted(backup.files, key=lambda file: file.first_offset):
        for group in row_groups(store, backup.topic, file, columns=("key", "value")):
            # Of a key the last one counts: only one server appends.
            last: dict[bytes, bytes | None] = dict(
                zip(group.column("key").to_pylist(), group.column("value").to_pylist(), strict=True)
            )
            for key, value in last.items():
                if value is None:
                    newest.pop(key, None)
                else:
                    newest[key] = _decoded(backup.topic, file, value)
    return newest


def _decoded(topic: str, file: DataFile, value: bytes) -> StoredOffset:
    try:
        return StoredOffset.decode(value)
    except ValueError as error:
        raise problem(
            "corrupt_data", f"a record of {topic} in {file.path} is no offset of a group: {error}", topic=topic
        ) from error


def _end_of(key: bytes, ends: Ends) -> int | None:
    """The key is `names.offset_key`: group, topic id and partition."""
    place, _, partition = key.decode().rpartition("/")
    return ends.get(place.rpartition("/")[2], {}).get(int(partition))
