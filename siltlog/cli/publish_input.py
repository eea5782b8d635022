"""Where `silt publish` takes its records from: arguments, lines of standard input, a file."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

import click
import msgspec

from siltlog.cli.location import ending, opened
from siltlog.infra.errors import Refused, problem
from siltlog.rows import json_values, keys_of, pointer_parts

FILE_KINDS = {".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv", ".parquet": "parquet"}
KEYS_AT_ONCE = 1_024
_RAW = msgspec.json.Decoder(msgspec.Raw)


class Input(NamedTuple):
    values: Iterator[list[bytes]]
    """Runs of record values, in order; a run is as long as what was there at once."""
    total: int | None
    """Number of records, where it is known before reading."""


def from_arguments(values: tuple[str, ...]) -> Input:
    return Input(iter([[value.encode() for value in values]]), len(values))


def from_lines(stream: BinaryIO) -> Input:
    """Each line that is not blank is one value; its end (`\\n`, `\\r\\n`) is not part of it."""
    return Input(([value] for _, value in _lines(stream)), None)


def from_file(path: str) -> Input:
    """Lines of NDJSON, or rows of CSV or Parquet as JSON objects. Raises UsageError for any other ending."""
    kind = FILE_KINDS.get(ending(path))
    if kind is None:
        endings = ", ".join(FILE_KINDS)
        raise click.UsageError(f"{path}: files that can be published end in {endings}; for lines of text: `- < {path}`")
    if kind == "ndjson":
        return Input(_checked_lines(path), None)
    return _csv_rows(path) if kind == "csv" else _parquet_rows(path)


def keyed(values: Iterator[list[bytes]], key: str | None, key_from: str | None) -> Iterator[tuple[str | None, bytes]]:
    """Each value with its key: `key` for all, or what the value itself holds at `key_from`."""
    parts = pointer_parts(key_from) if key_from is not None else None
    first_line = 1
    for run in values:
        keys: Iterable[str | None] = [key] * len(run) if parts is None else keys_of(run, parts, first_line)
        yield from zip(keys, run, strict=True)
        first_line += len(run)


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(stream, 1):
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        if value.strip():
            yield number, value


def _checked_lines(path: str) -> Iterator[list[bytes]]:
    """The lines of an NDJSON file, each valid JSON, byte for byte."""
    run: list[bytes] = []
    with opened(path) as stream:
        for number, value in _lines(stream):
            try:
                _RAW.decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise _unreadable(path, f"line {number} is not JSON ({error})") from None
            run.append(value)
            if len(run) == KEYS_AT_ONCE:
                yield run
                run = []
    if run:
        yield run


def _csv_rows(path: str) -> Input:
    import pyarrow as pa
    import pyarrow.csv

    def rows() -> Iterator[list[bytes]]:
        try:
            with opened(path) as stream, pyarrow.csv.open_csv(stream) as batches:
                for batch in batches:
                    yield json_values(batch)
        except pa.ArrowInvalid as error:
            raise _unreadable(path, str(error)) from None

    return Input(rows(), None)


def _parquet_rows(path: str) -> Input:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(opened(path))
    except pa.ArrowInvalid as error:
        raise _unreadable(path, str(error)) from None
    return Input((json_values(batch) for batch in file.iter_batches()), file.metadata.num_rows)


def _unreadable(path: str, why: str) -> Refused:
    error = problem("invalid_record", f"{path}: {why}")
    assert isinstance(error, Refused)
    return error
