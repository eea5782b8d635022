"""Every bit of a data file is accounted for: by its checksum, and in a file without one by its pages."""

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_tables import CLOCK, records
from topic_writer import TopicWriter

from siltlog.infra import names
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table import data_file
from siltlog.infra.table.data_file import DataFile, write_data_file
from siltlog.pipelines.audit.file import read_file
from siltlog.pipelines.audit.findings import Expected
from siltlog.pipelines.audit.parquet_pages import chunks_without_checksum
from siltlog.pipelines.audit.thrift_compact import I32, ListOf, Reader
from siltlog.pipelines.compaction.compact import compact

ROWS = 30
Written = tuple[DataFile, bytes]


class Held:
    """A store of one file, in memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def size(self, path: str) -> int:
        return len(self.content)

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.content)


def found_in(file: DataFile, content: bytes) -> list[str]:
    expected = Expected(0, 0, ROWS, (), 0, ((0, 1),))
    return [finding.kind for finding in read_file(Held(content), "t", file, expected, keys=False).findings]  # type: ignore[arg-type]


def flushed(store: ObjectStore) -> Written:
    """Writes it like a flush, in two row groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "ROW_GROUP_ROWS_MAX", 20)
        file = write_data_file(store, "t", 0, records(0, ROWS, full=True), compression="zstd", now_ms=0)
    return file, store.get(f"{names.topic_path('t')}/{file.path}")


def compacted(store: ObjectStore, spark: Any) -> Written:
    """Writes it like Spark."""
    topic = TopicWriter(store, "t", partitions=1)
    for _ in range(3):
        topic.append(ROWS // 3)
    assert compact(spark, store, topic.table, CLOCK).error is None
    [file] = topic.table.snapshot.files_of(0)
    return file, store.get(f"{names.topic_path('t')}/{file.path}")


@pytest.fixture(params=["flushed", pytest.param("compacted", marks=pytest.mark.spark)])
def written(request: pytest.FixtureRequest, store: ObjectStore) -> Written:
    if request.param == "flushed":
        return flushed(store)
    return compacted(store, request.getfixturevalue("spark"))


def flips(content: bytes, positions: Sequence[int]) -> Iterator[tuple[int, int, bytes]]:
    """Every single bit that can flip there."""
    for position in positions:
        for bit in range(8):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            yield position, bit, bytes(damaged)


@pytest.mark.rule("T23")
def test_every_flipped_bit_is_found(written: Written) -> None:
    file, content = written
    assert file.content_crc is not None and found_in(file, content) == []
    for position, bit, damaged in flips(content, range(len(content))):
        assert found_in(file, damaged) == ["damaged_file"], (position, bit)


def outside_pages(content: bytes) -> list[int]:
    """Where no checksum of a page reaches, before the footer."""
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    places = list(range(4))
    metadata = pq.read_metadata(pa.BufferReader(content))
    position = 4
    for group in (metadata.row_group(index) for index in range(metadata.num_row_groups)):
        for chunk in (group.column(index) for index in range(group.num_columns)):
            end = position + chunk.total_compressed_size
            while position < end:
                reader = Reader(content, position)
                header = reader.struct()
                places += range(position, reader.position)
                position = reader.position + header[3]
    return places + list(range(position, footer))


def test_a_file_without_a_checksum_of_its_own_is_read_by_others_when_it_passes(
    written: Written, tmp_path: Path
) -> None:
    """Each bit that no checksum covers may flip: audit finds it, or DuckDB and Arrow read what was written."""
    file, content = written
    file = replace(file, content_crc=None)
    whole = pq.read_table(pa.BufferReader(content))
    path = tmp_path / "flipped.parquet"
    ask = f"select * from read_parquet('{path}', hive_partitioning = false)"
    path.write_bytes(content)
    told = duckdb.sql(ask).fetchall()
    assert found_in(file, content) == []
    passed = set()
    places = random.Random(3).sample(outside_pages(content), 60)
    for position, _, damaged in flips(content, [24, *places]):
        found = found_in(file, damaged)
        assert found in ([], ["damaged_file"])
        if not found:
            passed.add(position)
            path.write_bytes(damaged)
            assert duckdb.sql(ask).fetchall() == told, position
            assert pq.read_table(pa.BufferReader(damaged)).equals(whole), position
    assert len(passed) < len(places) / 2, "statistics alone may differ"


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_many_pages_of_every_shape(compression: str) -> None:
    table = records(0, 3_000, full=True)
    sink = pa.BufferOutputStream()
    for version in ("1.0", "2.0"):
        options = {"data_page_size": 500, "write_batch_size": 100, "dictionary_pagesize_limit": 200}
        pq.write_table(
            table,
            sink,
            row_group_size=1_000,
            compression=compression,
            data_page_version=version,
            write_page_checksum=True,
            write_page_index=True,
            **options,
        )
        content = sink.getvalue()
        assert chunks_without_checksum(pa.BufferReader(content), pq.read_metadata(pa.BufferReader(content))) == set()
        sink = pa.BufferOutputStream()


@pytest.mark.parametrize("checksums", [True, False])
def test_pages_without_checksums(checksums: bool) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(records(0, 500, full=True), sink, write_page_checksum=checksums)
    content = sink.getvalue()
    without = chunks_without_checksum(pa.BufferReader(content), pq.read_metadata(pa.BufferReader(content)))
    assert ("offset" in without, "headers.list.element.value" in without) == (not checksums, not checksums)


@pytest.mark.parametrize(
    "content", [b"", b"\x15", b"\x15\x80", b"\x15\x80\x00\x00", b"\x05\x00", b"\x25\x00\x00", b"\x18\x7fx", b"\x19\xf5"]
)
def test_bytes_that_are_no_struct(content: bytes) -> None:
    with pytest.raises(ValueError):
        Reader(content).struct({1: I32, 3: ListOf(I32)})


@given(st.binary(max_size=60))
def test_any_bytes_are_a_struct_or_are_refused(content: bytes) -> None:
    with suppress(ValueError, RecursionError):
        Reader(content).struct()
