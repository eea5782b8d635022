"""The files of a table as rows, a page at a time: values in, values out."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from siltlog.consumers.reading.reader import last_offset_of
from siltlog.infra import names
from siltlog.infra.clock import MICROS_PER_SECOND, format_us
from siltlog.infra.errors import problem
from siltlog.infra.http.answers import Time, Whole
from siltlog.infra.limits import COMPACTED_FILE_BYTES_MIN, whole_number
from siltlog.infra.table.data_file import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US, DataFile
from siltlog.infra.table.snapshot import TableSnapshot

US_PER_MS = MICROS_PER_SECOND // 1000


class FileRow(msgspec.Struct):
    """A file of the table. Its records are read by their offsets."""

    partition: Whole
    first_offset: Whole
    last_offset: Annotated[Whole, Meta(description="Inclusive; offsets between the two may be missing")]
    rows: Whole
    bytes: Whole
    min_timestamp: Annotated[Time | None, Meta(description="Of its records; null where that was not noted")]
    max_timestamp: Time | None
    written_at: Time
    small: Annotated[bool, Meta(description="Smaller than compaction leaves files")]
    compacted: Annotated[bool, Meta(description="Written by a job, of files that were there before")]


class FilePage(msgspec.Struct):
    topic: str
    topic_id: str
    version: Annotated[Whole, Meta(description="The version of the table whose files these are")]
    files: Annotated[list[FileRow], Meta(description="By partition, then ascending by offset")]
    next: Annotated[str | None, Meta(description="Give it as `after` for what follows; null: nothing does")]


class Place(NamedTuple):
    """The end of a page: files come after it whose last offset is above this one, or that are of a later partition."""

    partition: int
    offset: int

    @classmethod
    def read(cls, text: str) -> "Place":
        """Raises Refused `invalid_parameter`."""
        parts = [whole_number(part) for part in text.split(":")]
        if len(parts) != 2 or parts[0] is None or parts[1] is None:
            raise problem(
                "invalid_parameter", f"after must be `next` of a former page, not {text[:80]!r}", parameter="after"
            )
        return cls(parts[0], parts[1])

    def text(self) -> str:
        return f"{self.partition}:{self.offset}"


def is_small(file: DataFile) -> bool:
    return file.size_bytes < COMPACTED_FILE_BYTES_MIN


def page(topic: str, snapshot: TableSnapshot, partition: int | None, after: Place | None, limit: int) -> FilePage:
    """`limit` files at most after a place: of one partition, or of all of them.

    It takes as long as its page and the number of partitions, not as the number of files.
    """
    found = list(islice(_files(snapshot, partition, after), limit + 1))
    shown = found[:limit]
    rest = None
    if len(found) > limit:
        end = shown[-1].partition
        # The highest of them, which leads on also where files overlap.
        rest = Place(end, max(file.last_offset for file in shown if file.partition == end)).text()
    return FilePage(
        topic,
        snapshot.topic_id,
        snapshot.version,
        [_row(file) for file in shown],
        rest,
    )


def _files(snapshot: TableSnapshot, partition: int | None, after: Place | None) -> Iterator[DataFile]:
    partitions = range(snapshot.partitions) if partition is None else (partition,)
    for each in partitions:
        files = snapshot.files_of(each)
        if after is None or each > after.partition:
            yield from files
        elif each == after.partition:
            first = bisect_right(files, after.offset, key=last_offset_of)
            yield from (files[at] for at in range(first, len(files)))


def _row(file: DataFile) -> FileRow:
    return FileRow(
        file.partition,
        file.first_offset,
        file.last_offset,
        file.rows,
        file.size_bytes,
        _time(file.min_timestamp_us),
        _time(file.max_timestamp_us),
        format_us(file.modified_ms * US_PER_MS),
        is_small(file),
        file.path.startswith(names.REWRITE_PREFIX),
    )


def _time(micros: int) -> str | None:
    return None if micros in (TIMESTAMP_MIN_US, TIMESTAMP_MAX_US) else format_us(micros)
