"""Where `silt publish` takes its records from: arguments, lines of standard input, a file."""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import click
import numpy as np
import pyarrow as pa

from siltlog.cli.records.lines import LineTooLong, lines_of
from siltlog.cli.records.location import endings, opened
from siltlog.cli.records.record_shape import RecordShape, Shaped, table_of
from siltlog.infra.errors import Refused, problem

Kind = Literal["ndjson", "csv", "parquet", "lines"]
KINDS: tuple[Kind, ...] = ("ndjson", "csv", "parquet", "lines")
ENDINGS: dict[str, Kind] = {".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv", ".parquet": "parquet"}
CODING_ENDINGS = (".gz", ".zst", ".zstd")
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
CSV_BLOCK_BYTES = 4 * 1024 * 1024
"""The types of the columns are those of the first block."""
PARQUET_ROWS = 16_384
NUMBER = "number"
"""The column that numbers records for people: lines or rows from 1."""


@dataclass(frozen=True, slots=True)
class Input:
    runs: Iterator[pa.Table]
    """Records in order, as columns NUMBER, value, and what the shape adds. Ends in BadRecord where one is bad."""
    name: str
    word: str
    """The word for a record in it: a line, a row, a value."""
    total: int | None = None
    """Bytes, or rows of Parquet, where that is known before reading."""
    position: Callable[[], int] = lambda: 0
    """How much of the total has been read."""


class BadRecord(Exception):
    """`number` is that of the record; None where only the reader of the format knows, and says, the place."""

    def __init__(self, number: int | None, why: str) -> None:
        super().__init__(why)
        self.number = number


def from_arguments(values: Sequence[str], shape: RecordShape) -> Input:
    _check_shape("lines", shape)
    encoded = pa.array([value.encode() for value in values], pa.binary())
    numbers = np.arange(1, len(values) + 1)
    run = _checked(shape.of_lines(encoded, json=False), numbers)
    return Input(run, "the command line", "value")


def from_stream(stream: BinaryIO, kind: Kind, shape: RecordShape) -> Input:
    """Passes records on as they come. Raises UsageError for Parquet, which is read from its end."""
    name = "standard input"
    if kind == "parquet":
        raise click.UsageError("Parquet is read from its end, so it cannot come through a pipe; give --file")
    _check_shape(kind, shape)
    coding = _coding(stream.peek(4))  # type: ignore[attr-defined]
    if kind == "csv":
        return Input(_csv_rows(_inflated(stream, coding), shape, _Place(stream, None)), name, "row")
    read = stream.read1 if coding is None else _inflated(stream, coding).read  # type: ignore[attr-defined]
    return Input(_lines(read, shape, json=kind == "ndjson"), name, "line")


def from_file(location: str, kind: Kind | None, shape: RecordShape) -> Input:
    """Lines, or rows of CSV or Parquet, also compressed. Raises UsageError where the name does not say which."""
    kind = kind or _kind_of(location)
    _check_shape(kind, shape)
    stream: Any = opened(location)
    if kind == "parquet":
        return _parquet(stream, location, shape)
    peeked = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)
    coding = _coding(peeked.peek(4))
    source = _inflated(peeked, coding)
    size = _size(peeked)
    place = _Place(peeked, size)
    if kind != "csv":
        return Input(_lines(source.read, shape, json=kind == "ndjson"), location, "line", size, place)
    if coding is None:
        place.blocks = 0
    return Input(_csv_rows(source, shape, place), location, "row", size, place)


def refusal(source: Input, error: BadRecord, rest: str) -> Refused:
    """The error of a bad record, by its place; `rest` says what became of the others."""
    place = source.name if error.number is None else f"{source.name}: {source.word} {error.number}"
    members: dict[str, Any] = {} if error.number is None else {source.word: error.number}
    refused = problem("invalid_record", f"{place}: {error}; {rest}", **members)
    assert isinstance(refused, Refused)
    return refused


def _check_shape(kind: Kind, shape: RecordShape) -> None:
    rows = kind in ("csv", "parquet")
    if not rows and shape.value_from is not None:
        raise click.UsageError("--value-from names a column of CSV or Parquet; of lines each is published whole")


def _kind_of(location: str) -> Kind:
    found = [suffix for suffix in endings(location) if suffix not in CODING_ENDINGS]
    kind = ENDINGS.get(found[-1] if found else "")
    if kind is None:
        if "://" not in location and not Path(location).exists():
            raise click.UsageError(f"{location}: there is no such file or folder")
        raise click.UsageError(
            f"{location}: files that can be published end in {', '.join(ENDINGS)}; say what it has with --format"
        )
    return kind


def _lines(read: Callable[[int], bytes], shape: RecordShape, *, json: bool) -> Iterator[pa.Table]:
    json = json and shape.lines == "value"
    try:
        for lines in lines_of(read):
            yield from _checked(shape.of_lines(lines.values, json=json), lines.numbers)
    except LineTooLong as error:
        raise BadRecord(error.number, str(error)) from None
    except (OSError, EOFError) as error:
        raise BadRecord(None, f"it cannot be read on: {error}") from None


def _csv_rows(source: Any, shape: RecordShape, place: "_Place") -> Iterator[pa.Table]:
    from pyarrow import csv

    from siltlog.cli.records.record_csv import read_options

    first = 1
    parsing, converting = read_options() if shape.lines == "record" else (None, None)
    try:
        with csv.open_csv(source, csv.ReadOptions(block_size=CSV_BLOCK_BYTES), parsing, converting) as batches:
            for batch in batches:
                place.passed()
                yield from _rows(batch, first, shape)
                first += batch.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise BadRecord(None, str(error)) from None


def _parquet(stream: BinaryIO, location: str, shape: RecordShape) -> Input:
    from pyarrow import parquet

    place = [0]

    def runs(file: Any) -> Iterator[pa.Table]:
        try:
            for batch in file.iter_batches(PARQUET_ROWS):
                first = place[0] + 1
                place[0] += batch.num_rows
                yield from _rows(batch, first, shape)
        except (pa.ArrowInvalid, OSError) as error:
            raise BadRecord(None, str(error)) from None

    try:
        opened_file = parquet.ParquetFile(stream, page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise problem("invalid_record", f"{location}: {error}; nothing was published") from None
    return Input(runs(opened_file), location, "row", opened_file.metadata.num_rows, lambda: place[0])


def _rows(batch: pa.RecordBatch, first: int, shape: RecordShape) -> Iterator[pa.Table]:
    try:
        shaped = shape.of_rows(batch)
    except ValueError as error:
        raise BadRecord(None, str(error)) from None
    yield from _checked(shaped, np.arange(first, first + batch.num_rows))


def _checked(shaped: Shaped, numbers: Any) -> Iterator[pa.Table]:
    """The records before the bad one, then the bad one as an error."""
    table = table_of(shaped.columns)
    if table.num_rows:
        yield table.append_column(NUMBER, pa.array(numbers[: table.num_rows], pa.int64()))
    if shaped.wrong is not None:
        raise BadRecord(int(numbers[shaped.wrong.at]), shaped.wrong.why)


def _coding(begin: bytes) -> str | None:
    return next((coding for magic, coding in MAGIC.items() if begin.startswith(magic)), None)


def _inflated(stream: Any, coding: str | None) -> Any:
    return stream if coding is None else pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), coding)


class _Place:
    """How far a stream was read; to its end once it is closed, which who reads it does on a thread of its own."""

    def __init__(self, stream: Any, size: int | None) -> None:
        self.blocks: int | None = None
        """Blocks that came out, by which a stream is counted that is read far ahead; None for other streams."""
        self._stream = stream
        self._size = size or 0

    def passed(self) -> None:
        if self.blocks is not None:
            self.blocks += 1

    def __call__(self) -> int:
        if self.blocks is not None:
            return min(self._size, self.blocks * CSV_BLOCK_BYTES)
        try:
            return int(self._stream.tell())
        except (OSError, ValueError):
            return self._size


def _size(stream: Any) -> int | None:
    if not stream.seekable():
        return None
    size: int = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    return size
