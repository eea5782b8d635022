"""Export: records of a range into files elsewhere, as Parquet, lines, CSV or a plain Delta table.

What is to be written is fixed before the first file: the version of the table and which records make a file. A file is
there whole or not at all, so whoever goes on with a killed export writes those that are missing.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from siltlog.infra import names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.errors import problem
from siltlog.infra.locations import place_uri
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.local import PENDING_PREFIX
from siltlog.infra.store.scratch_folder import scratch_folder
from siltlog.infra.store.store import ObjectInfo, ObjectStore, open_store
from siltlog.infra.table.delta import foreign_error, live_paths
from siltlog.infra.table.opening import snapshot_at
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.pipelines.export.plan import (
    DONE_OBJECT,
    PLAN_OBJECT,
    Compression,
    ExportPlan,
    Format,
    Part,
    begun,
    parts_of,
)
from siltlog.pipelines.replay.query import matching, remove_matches
from siltlog.pipelines.replay.range import Selection, Slice, plan_slices, records_of, totals, version_named
from siltlog.pipelines.topics import opened, store_of

FILE_COLUMNS = pa.schema([field for field in RECORD_SCHEMA if field.name != names.PARTITION_COLUMN])
"""Columns of a file in a Delta table that is partitioned by the partition."""

Encode = Callable[[pa.Table], bytes]
"""Records (RECORD_SCHEMA) as the text of a format."""
Advance = Callable[[int, int], None]
"""Called with the files done and the files planned."""


@dataclass(frozen=True, slots=True)
class Text:
    """How a format of lines is written: what a file begins with, and its records."""

    head: bytes
    encode: Encode


@dataclass(frozen=True, slots=True)
class Asked:
    topic: str
    to: str
    """A URI, or a path."""
    format: Format
    compression: Compression = "none"
    selection: Selection = field(default_factory=Selection)
    version: int | None = None


@dataclass(slots=True)
class ExportReport:
    """The result of an export; a dry run has what would be read at most, and nothing written."""

    topic: str
    version: int
    to: str
    format: Format
    dry_run: bool
    files: int = 0
    """Files of the table that have records of the range."""
    rows: int = 0
    """Rows of these files, before the records are looked at."""
    size_bytes: int = 0
    records: int = 0
    """Written by this process."""
    written_files: int = 0
    written_bytes: int = 0
    present_files: int = 0
    """Written by an earlier process."""
    seconds: float = 0.0


class Done(msgspec.Struct):
    """Left behind by an export that has ended: its files, in the order of their records."""

    topic: str
    version: int
    files: list[str]
    partitions: int | None = None
    """How many partitions the topic had then, where that was noted."""


def export(
    settings: ServerSettings,
    asked: Asked,
    texts: Mapping[str, Text],
    *,
    dry_run: bool = False,
    advance: Advance | None = None,
    clock: Clock | None = None,
) -> ExportReport:
    """Writes what is not there yet. `texts` has a Text for each format that is not Parquet's.

    Raises UnknownTopic, Refused for what is asked, CorruptData, Unavailable.
    """
    clock = clock or SystemClock()
    started = clock.monotonic()
    store = store_of(settings)
    target = _target(settings, asked.to)
    table = opened(store, asked.topic, clock)
    if table.snapshot.deleted:
        raise problem("unknown_topic", f"topic {asked.topic!r} was deleted", topic=asked.topic)
    snapshot = table.snapshot if asked.version is None else snapshot_at(store, asked.topic, asked.version)
    plan_slices(asked.topic, snapshot, asked.selection)
    made = ExportPlan(
        asked.topic,
        snapshot.topic_id,
        snapshot.version,
        asked.selection,
        asked.format,
        asked.compression,
        f"export-{uuid.uuid4().hex}",
    )
    if not dry_run:
        made = begun(target, made, asked.version)
        if made.version != snapshot.version:
            snapshot = snapshot_at(store, made.topic, made.version)
    slices = plan_slices(made.topic, snapshot, made.selection)
    report = ExportReport(made.topic, made.version, target.root_uri, made.format, dry_run, *totals(slices))
    if not dry_run and target.size(DONE_OBJECT) is None:
        anew = f"export a newer one to another place than {target.root_uri}"
        with version_named(store, made.topic, made.version, clock, anew):
            _write(store, target, made, snapshot, slices, texts.get(made.format), report, advance)
    elif not dry_run:
        report.present_files = len(msgspec.json.decode(target.get(DONE_OBJECT), type=Done).files)
    report.seconds = clock.monotonic() - started
    return report


def _target(settings: ServerSettings, to: str) -> ObjectStore:
    uri = place_uri(to)
    topics = f"{settings.root_uri.rstrip('/')}/{names.TOPICS_FOLDER}"
    if f"{uri}/".startswith(f"{topics}/"):
        raise problem("invalid_parameter", f"{uri} is in {topics}, where only topics may lie: choose another place")
    return open_store(uri, **settings.s3_options())


def _write(
    store: ObjectStore,
    target: ObjectStore,
    made: ExportPlan,
    snapshot: TableSnapshot,
    slices: Sequence[Slice],
    text: Text | None,
    report: ExportReport,
    advance: Advance | None,
) -> None:
    if made.selection.where is not None:
        slices = matching(store, made.topic, snapshot, made.selection, made.run)
    parts = parts_of(made, slices)
    there = {info.path: info for info in target.list("")}
    half_written = target.unfinished("")
    files: list[str] = []
    for index, part in enumerate(parts):
        if part.path in there:
            report.present_files += 1
            files.append(part.path)
        else:
            records = _write_part(store, target, made, part, text)
            if records:
                report.records += records
                report.written_files += 1
                report.written_bytes += target.size(part.path) or 0
                files.append(part.path)
        if advance is not None:
            advance(index + 1, len(parts))
    target.sync(files)
    if made.format == "delta":
        _make_table(target, {part.path: part.records.partition for part in parts if part.path in set(files)})
    _remove_half_written(target, half_written, [*(part.path for part in parts), PLAN_OBJECT, DONE_OBJECT])
    target.put(DONE_OBJECT, msgspec.json.encode(Done(made.topic, made.version, files, snapshot.partitions)))
    target.sync([DONE_OBJECT])
    if made.selection.where is not None:
        remove_matches(store, made.topic, made.run)


def _write_part(store: ObjectStore, target: ObjectStore, made: ExportPlan, part: Part, text: Text | None) -> int:
    """Returns how many records it has; with none there is no file."""
    count = 0
    with scratch_folder("export") as folder:
        spill = folder / "part"
        with _writer(spill, made, text) as write:
            for records in records_of(store, made.topic, part.records, made.selection):
                write(records)
                count += records.num_rows
        if count:
            with pa.OSFile(str(spill)) as source:
                target.put_from(part.path, source)
    return count


@contextmanager
def _writer(spill: Path, made: ExportPlan, text: Text | None) -> Iterator[Callable[[pa.Table], Any]]:
    """Gives what writes a table of records to the end of the file."""
    if text is None:
        schema = FILE_COLUMNS if made.format == "delta" else RECORD_SCHEMA
        with pq.ParquetWriter(
            str(spill), schema, compression="zstd", compression_level=1, write_page_checksum=True
        ) as writer:
            yield lambda records: writer.write_table(records.select(schema.names))
        return
    with pa.OSFile(str(spill), "wb") as plain:
        sink = plain if made.compression == "none" else pa.CompressedOutputStream(plain, made.compression)
        with sink:
            sink.write(text.head)
            yield lambda records: sink.write(text.encode(records))


def _make_table(target: ObjectStore, partitions: Mapping[str, int]) -> None:
    """The Delta table of the files, in one commit; an earlier process, or try, may have made it.

    Raises `invalid_request` where another table is, Unavailable.
    """
    from deltalake import CommitProperties, Schema
    from deltalake.transaction import AddAction, create_table_with_add_actions

    if _is_made(target, partitions):
        return
    actions = []
    for info in target.list(""):
        partition = partitions.get(info.path)
        if partition is not None:
            values = {names.PARTITION_COLUMN: str(partition)}
            actions.append(
                AddAction(info.path, info.size, values, info.modified_ms, True, _statistics(target, info.path))
            )
    try:
        create_table_with_add_actions(
            target.uri(""),
            Schema.from_arrow(RECORD_SCHEMA),
            actions,
            mode="error",
            partition_by=[names.PARTITION_COLUMN],
            storage_options=target.storage_options(),
            # A repetition after a lost answer would be a second version.
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except Exception as error:
        if not _is_made(target, partitions):
            raise foreign_error(error, f"the Delta table at {target.root_uri}") from error
    target.sync([f"{names.DELTA_LOG_FOLDER}/{0:020d}.json"])


def _is_made(target: ObjectStore, partitions: Mapping[str, int]) -> bool:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        made = DeltaTable(target.uri(""), version=0, storage_options=target.storage_options())
    except TableNotFoundError:
        return False
    except Exception as error:
        raise foreign_error(error, f"the Delta table at {target.root_uri}") from error
    if live_paths(made) != partitions.keys():
        raise problem("invalid_request", f"{target.root_uri} has another Delta table; choose another place")
    return True


def _remove_half_written(target: ObjectStore, before: Sequence[ObjectInfo], paths: Sequence[str]) -> None:
    """Removes the objects of `before` that killed processes left half-written for `paths`: nobody went on with them."""
    folders = {path.rpartition("/")[0] for path in paths}
    for info in set(before).intersection(target.unfinished("")):
        folder, _, name = info.path.rpartition("/")
        if info.path.partition("?")[0] in paths or (name.startswith(PENDING_PREFIX) and folder in folders):
            target.delete(info.path)


def _statistics(target: ObjectStore, path: str) -> str:
    with target.open(path) as source:
        metadata = pq.read_metadata(source)
    offset = FILE_COLUMNS.get_field_index("offset")
    bounds = [metadata.row_group(index).column(offset).statistics for index in range(metadata.num_row_groups)]
    statistics = {
        "numRecords": metadata.num_rows,
        "minValues": {"offset": min(each.min for each in bounds)},
        "maxValues": {"offset": max(each.max for each in bounds)},
        "nullCount": {"offset": 0},
    }
    return msgspec.json.encode(statistics).decode()
