"""Reading a topic's Delta log: entries as they were committed, and the app transactions of its checkpoints.

deltalake answers for files and properties, but asks a table for one app transaction at a time; and what a commit with
a lost answer came to is only in the entries themselves. Protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from siltlog.infra import delta_names, names
from siltlog.infra.errors import problem
from siltlog.infra.store.store import REQUESTS_AT_ONCE, ObjectStore
from siltlog.infra.table.data_file import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US, DataFile, bounded_timestamps

HOUR_MS = 3_600_000
JOB_MS_MAX = 6 * HOUR_MS
OUTAGE_MS_MAX = 12 * HOUR_MS
RETENTION_MS = 24 * HOUR_MS
"""How long log entries and removed files are kept."""
assert RETENTION_MS > JOB_MS_MAX + OUTAGE_MS_MAX, "an open outcome or plan must not outlive its log entries"

LAST_CHECKPOINT = "_last_checkpoint"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class _CommitInfo(msgspec.Struct, frozen=True):
    commit_id: str | None = msgspec.field(name=delta_names.COMMIT_INFO_ID, default=None)
    transactions: int | None = msgspec.field(name=delta_names.COMMIT_INFO_TRANSACTIONS, default=None)


class _Add(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time: int
    stats: str | None = None


class _Remove(msgspec.Struct, frozen=True):
    path: str


class _Txn(msgspec.Struct, frozen=True, rename="camel"):
    app_id: str
    version: int


class _MetaData(msgspec.Struct, frozen=True):
    configuration: dict[str, str] = {}


class _Action(msgspec.Struct, frozen=True, rename="camel"):
    commit_info: _CommitInfo | None = None
    add: _Add | None = None
    remove: _Remove | None = None
    txn: _Txn | None = None
    meta_data: _MetaData | None = None


class _Bounds(msgspec.Struct, frozen=True):
    offset: int
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _Statistics(msgspec.Struct, frozen=True, rename="camel"):
    num_records: int
    min_values: _Bounds
    max_values: _Bounds
    footer_crc: int | None = msgspec.field(name=delta_names.STATISTICS_FOOTER_CRC, default=None)
    content_crc: int | None = msgspec.field(name=delta_names.STATISTICS_CONTENT_CRC, default=None)


class _LastCheckpoint(msgspec.Struct, frozen=True):
    version: int
    parts: int | None = None


_ACTION = msgspec.json.Decoder(_Action)
_STATISTICS = msgspec.json.Decoder(_Statistics)
_LAST_CHECKPOINT = msgspec.json.Decoder(_LastCheckpoint)


class Torn(Exception):
    """An entry ends too early: the power went before it was synced."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit of a topic table."""

    version: int
    commit_id: str | None
    """None when it was not committed through `infra/table/table.py`."""
    adds: tuple[DataFile, ...]
    removes: tuple[str, ...]
    transactions: Mapping[str, int]
    properties: Mapping[str, str] | None
    """All table properties after it; None when it does not touch them."""
    size_bytes: int = 0
    undescribed: tuple[str, ...] = ()
    """The paths of files that it adds without saying which offsets they have: another program's."""


class Checkpoint(msgspec.Struct, frozen=True):
    version: int
    paths: tuple[str, ...]
    """Relative to the root."""


def log_folder(topic: str) -> str:
    return f"{names.topic_path(topic)}/{names.DELTA_LOG_FOLDER}"


def entry_path(topic: str, version: int) -> str:
    return f"{log_folder(topic)}/{version:020d}.json"


def checkpoint_path(topic: str, version: int) -> str:
    return f"{log_folder(topic)}/{version:020d}.checkpoint.parquet"


def last_checkpoint_path(topic: str) -> str:
    return f"{log_folder(topic)}/{LAST_CHECKPOINT}"


def read_entry(store: ObjectStore, topic: str, version: int) -> Entry:
    """Raises FileNotFoundError when there is none, Torn when it is cut short, CorruptData when it is damaged."""
    path = entry_path(topic, version)
    return parse_entry(topic, path, version, store.get(path))


def read_entries(store: ObjectStore, topic: str, versions: range) -> list[Entry]:
    """Reads each entry as `read_entry` does, some at a time: on S3 each is a request."""
    if len(versions) < REQUESTS_AT_ONCE:
        return [read_entry(store, topic, version) for version in versions]
    paths = [entry_path(topic, version) for version in versions]
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        contents = pool.map(store.get, paths)
        return [parse_entry(topic, *found) for found in zip(paths, versions, contents, strict=True)]


def parse_entry(topic: str, path: str, version: int, content: bytes) -> Entry:
    """Raises Torn for an entry that is cut short, CorruptData for one that is damaged in another way."""
    info = _CommitInfo()
    adds: list[DataFile] = []
    undescribed: list[str] = []
    removes: list[str] = []
    transactions: dict[str, int] = {}
    properties: dict[str, str] | None = None
    for action in _actions(topic, path, content):
        if action.add is not None:
            file = _data_file(topic, path, action.add)
            if file is None:
                undescribed.append(unquote(action.add.path))
            else:
                adds.append(file)
        elif action.remove is not None:
            removes.append(unquote(action.remove.path))
        elif action.txn is not None:
            transactions[action.txn.app_id] = action.txn.version
        elif action.meta_data is not None:
            properties = action.meta_data.configuration
        elif action.commit_info is not None:
            info = action.commit_info
    # App transactions come last: with all of them, nothing before them is cut off.
    if info.transactions is not None and len(transactions) < info.transactions:
        raise Torn(path)
    files = tuple(adds), tuple(removes)
    return Entry(version, info.commit_id, *files, transactions, properties, len(content), tuple(undescribed))


def _actions(topic: str, path: str, content: bytes) -> list[_Action]:
    if not content.strip() or b"\0" in content:
        raise Torn(path)
    lines = content.splitlines()
    actions: list[_Action] = []
    for number, line in enumerate(lines):
        try:
            actions.append(_ACTION.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if number == len(lines) - 1:
                raise Torn(path) from error
            raise damaged(topic, path, f"line {number + 1}: {error}") from error
    return actions


def damaged(topic: str, path: str, reason: str) -> Exception:
    return problem(
        "corrupt_data",
        f"the log of topic {topic} is damaged at {path} ({reason}); restore it from a backup of the root",
        topic=topic,
        path=path,
    )


def _undescribed(topic: str, files: Mapping[str, int]) -> Exception:
    """The error for files of a table that say nothing of their offsets, by the version that has them."""
    path, version = next(iter(files.items()))
    return problem(
        "corrupt_data",
        f"the table of topic {topic} has the file {path} of another program since version {version}"
        f"{f', and {len(files) - 1} more' if len(files) > 1 else ''}, without statistics of the column `offset`, by "
        "which records are found. Have Delta restore the table to the version before that, and that program collect "
        "statistics (delta.dataSkippingNumIndexedCols) before it writes there again",
        topic=topic,
        path=path,
    )


def _data_file(topic: str, entry: str, add: _Add) -> DataFile | None:
    """None where nothing is said of the offsets in it. Raises CorruptData where what is said cannot be read."""
    try:
        if not add.stats:
            return None
        statistics = _STATISTICS.decode(add.stats or "")
        partition = int(add.partition_values[names.PARTITION_COLUMN] or "")
        lowest, highest = statistics.min_values.timestamp, statistics.max_values.timestamp
        if lowest is None or highest is None:
            times = TIMESTAMP_MIN_US, TIMESTAMP_MAX_US
        else:
            times = bounded_timestamps((lowest - _EPOCH) // _MICROSECOND, (highest - _EPOCH) // _MICROSECOND)
    except msgspec.ValidationError:
        # JSON that lacks what is needed: other programs tell no bounds of some columns, or of none.
        return None
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        raise damaged(topic, entry, f"the statistics of {add.path}: {error}") from error
    return DataFile(
        path=unquote(add.path),
        partition=partition,
        rows=statistics.num_records,
        size_bytes=add.size,
        first_offset=statistics.min_values.offset,
        last_offset=statistics.max_values.offset,
        min_timestamp_us=times[0],
        max_timestamp_us=times[1],
        modified_ms=add.modification_time,
        footer_crc=statistics.footer_crc,
        content_crc=statistics.content_crc,
    )


def last_checkpoint(store: ObjectStore, topic: str) -> Checkpoint | None:
    """The checkpoint that `_last_checkpoint` names; None when it is absent. Raises Torn when it is cut short."""
    path = last_checkpoint_path(topic)
    try:
        content = store.get(path)
    except FileNotFoundError:
        return None
    try:
        last = _LAST_CHECKPOINT.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Torn(path) from error
    if last.parts is None:
        return Checkpoint(last.version, (checkpoint_path(topic, last.version),))
    return Checkpoint(
        last.version,
        tuple(
            f"{log_folder(topic)}/{last.version:020d}.checkpoint.{part:010d}.{last.parts:010d}.parquet"
            for part in range(1, last.parts + 1)
        ),
    )


def cleaned_below(store: ObjectStore, topic: str) -> int:
    """Entries below this version were cleaned away, so that a name below it may be free, or taken by a stray."""
    marks = (info.path.rpartition("/")[2] for info in store.list(names.cleaned_folder(topic)))
    return max((int(mark) for mark in marks if mark.isdigit()), default=0)


def goes_on(store: ObjectStore, topic: str, version: int) -> bool:
    """Whether the entries after `version` that were read or made before this call are those of the log.

    Asked afterwards: when none of their names had been cleaned by now, none was free for a second commit then.
    """
    if cleaned_below(store, topic) > version + 1:
        return False
    if version < 0 or store.size(entry_path(topic, version)) is not None:
        return True
    # A program that leaves no mark has cleaned it.
    try:
        checkpoint = last_checkpoint(store, topic)
    except Torn:
        return False
    return checkpoint is not None and checkpoint.version == version


def standing_checkpoint(store: ObjectStore, topic: str) -> Checkpoint | None:
    """The checkpoint that `_last_checkpoint` names, or the newest where the log was cleaned beyond that one.

    A process that slept while it wrote a checkpoint has then named an old one. Raises Torn when the hint is cut short.
    """
    hinted = last_checkpoint(store, topic)
    if hinted is not None and cleaned_below(store, topic) > hinted.version:
        return newest_checkpoint(store, topic)
    return hinted


def newest_checkpoint(store: ObjectStore, topic: str, version_max: int | None = None) -> Checkpoint | None:
    """The newest checkpoint, at or below `version_max`, among the files of the log: for when no hint names it."""
    parts: dict[int, list[str]] = {}
    for info in store.list(log_folder(topic)):
        name = info.path.rpartition("/")[2]
        if name.endswith(".parquet") and ".checkpoint." in name:
            parts.setdefault(int(name.partition(".")[0]), []).append(info.path)
    versions = [version for version in parts if version_max is None or version <= version_max]
    return Checkpoint(max(versions), tuple(parts[max(versions)])) if versions else None


class State(NamedTuple):
    """The table at one version, as the log tells it."""

    transactions: dict[str, int]
    files: dict[str, DataFile]
    """Files of the table by their paths."""
    checkpoint_version: int
    """-1 when there is no checkpoint."""
    checkpoint_bytes: int
    entries: list[Entry]
    """The entries after the checkpoint."""


def replay(store: ObjectStore, topic: str, version: int) -> State:
    """App transactions and files at `version`: of the last checkpoint at or below it, and of the entries after that.

    Raises FileNotFoundError when an entry is gone, CorruptData when one is damaged.
    """
    checkpoint = standing_checkpoint(store, topic)
    if checkpoint is None or checkpoint.version > version:
        checkpoint = newest_checkpoint(store, topic, version)
    at = checkpoint.version if checkpoint else -1
    parts = [(path, store.get(path)) for path in (checkpoint.paths if checkpoint else ())]
    entries = read_entries(store, topic, range(at + 1, version + 1))
    state = State({}, {}, at, sum(len(content) for _, content in parts), entries)
    undescribed: dict[str, int] = {}
    for path, content in parts:
        undescribed |= dict.fromkeys(_read_checkpoint(topic, path, content, state), at)
    for entry in entries:
        for path in entry.removes:
            state.files.pop(path, None)
            undescribed.pop(path, None)
        for file in entry.adds:
            state.files[file.path] = file
            undescribed.pop(file.path, None)
        # What was known before is not forgotten.
        undescribed |= {path: entry.version for path in entry.undescribed if path not in state.files}
        state.transactions.update(entry.transactions)
    if undescribed:
        raise _undescribed(topic, undescribed)
    if cleaned_below(store, topic) > state.checkpoint_version + 1:
        raise FileNotFoundError(entry_path(topic, state.checkpoint_version + 1))
    return state


_ADD_FIELDS = ("path", "partitionValues", "size", "modificationTime", "stats")


def _read_checkpoint(topic: str, path: str, content: bytes, state: State) -> list[str]:
    """Takes in what it has; gives the paths of files of which it says no offsets."""
    try:
        table = pq.ParquetFile(io.BytesIO(content)).read(columns=["txn", *(f"add.{name}" for name in _ADD_FIELDS)])
        txns: Any = table.column("txn").combine_chunks().drop_null()
        numbers = dict(zip(txns.field("appId").to_pylist(), txns.field("version").to_pylist(), strict=True))
        added: Any = table.column("add").combine_chunks().drop_null()
        # A column at a time: rows as dictionaries take twice as long, and a table may have 100,000.
        columns = [added.field(name).to_pylist() for name in _ADD_FIELDS]
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise damaged(topic, path, f"it cannot be read: {error}") from error
    state.transactions.update(numbers)
    undescribed = []
    for file_path, values, size, modified, stats in zip(*columns, strict=True):
        file = _data_file(topic, path, _Add(file_path, dict(values), size, modified, stats))
        if file is None:
            undescribed.append(unquote(file_path))
        else:
            state.files[file.path] = file
    return undescribed
