import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_tables import START_US, records, written
from s3_server import S3Server

from siltlog.infra.columns import FILE_SCHEMA, RECORD_SCHEMA, TABLE_SCHEMA, TIMESTAMP
from siltlog.infra.errors import CorruptData, Unavailable
from siltlog.infra.settings.topic_config import SETTINGS
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.store import open_store
from siltlog.infra.table import data_file
from siltlog.infra.table.data_file import (
    TIMESTAMP_MAX_US,
    TIMESTAMP_MIN_US,
    DataFile,
    bounded_timestamps,
    data_file_from_footer,
    read_data_file,
    read_row_group,
    row_group_ranges,
    row_groups,
    write_data_file,
)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path))


@pytest.mark.parametrize("compression", SETTINGS["compression"].choices)
@pytest.mark.parametrize("full", [False, True])
def test_what_is_written_is_read(store: LocalStore, compression: str, full: bool) -> None:
    table = records(100, 1_000, full=full)
    file = write_data_file(store, "t", 3, table, compression=compression, now_ms=77)
    assert (file.partition, file.rows, file.first_offset, file.last_offset, file.modified_ms) == (
        3,
        1000,
        100,
        1099,
        77,
    )
    assert file.path.startswith("partition=3/")
    assert store.size(f"topics/t/{file.path}") == file.size_bytes
    assert read_data_file(store, "t", file, columns=FILE_SCHEMA.names) == table
    whole = read_data_file(store, "t", file, columns=TABLE_SCHEMA.names)
    assert whole.schema == TABLE_SCHEMA
    assert whole.column("partition").unique().to_pylist() == [3]
    assert read_data_file(store, "t", file.path, columns=["offset", "value"]) == table.select(["offset", "value"])


@given(
    first=st.integers(0, 50),
    max_records=st.one_of(st.none(), st.integers(0, 60)),
    rows_max=st.integers(1, 20),
    columns=st.lists(st.sampled_from(RECORD_SCHEMA.names), unique=True, min_size=1),
)
@settings(max_examples=60, deadline=None)
def test_any_range_is_read(
    tmp_path_factory: pytest.TempPathFactory, first: int, max_records: int | None, rows_max: int, columns: list[str]
) -> None:
    store = LocalStore(str(tmp_path_factory.mktemp("range")))
    table = records(10, 30, full=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "ROW_GROUP_ROWS_MAX", rows_max)
        file = write_data_file(store, "t", 0, table, compression="zstd", now_ms=0)
    found = read_data_file(store, "t", file, columns=columns, first_offset=first, max_records=max_records)
    expected = table.slice(max(first - 10, 0), max_records)
    assert found.column_names == columns
    for name in columns:
        if name == "partition":
            assert found.column(name).to_pylist() == [0] * expected.num_rows
        else:
            assert found.column(name) == expected.column(name)
    group = read_row_group(store, "t", file, columns=["offset"], offset=first).column("offset").to_pylist()
    if first > 39:
        assert group == []
    else:
        start = max(first - 10, 0) // rows_max * rows_max + 10
        assert group == list(range(start, min(start + rows_max, 40)))


def test_row_groups_are_bounded_in_rows_and_bytes() -> None:
    small = records(0, 300_000, value=b"x")
    rows, bytes_max = data_file.ROW_GROUP_ROWS_MAX, data_file.ROW_GROUP_BYTES_MAX
    assert list(row_group_ranges(small)) == [(0, rows), (rows, 2 * rows), (2 * rows, 300_000)]
    sizes = [10_000_000, 10_000_000, 3_000_000, 20_000_000, 1, 1]
    block = pa.py_buffer(bytes(20_000_000))
    offsets = pa.array([0] * 6, pa.int64())
    large = pa.table({"offset": offsets, "value": pa.array([memoryview(block)[:size] for size in sizes], pa.binary())})
    ranges = list(row_group_ranges(large))
    assert ranges == [(0, 1), (1, 3), (3, 4), (4, 6)]
    assert all(end - start == 1 or sum(sizes[start:end]) <= bytes_max for start, end in ranges)


def test_the_footer_says_what_the_writer_said(store: LocalStore) -> None:
    file = written(store, "t", 1, 5, 20)
    info = store.info(f"topics/t/{file.path}")
    assert info is not None
    found = data_file_from_footer(store, "t", file.path, 1)
    assert found.modified_ms == info.modified_ms
    assert (found.path, found.partition, found.rows, found.size_bytes) == (file.path, 1, 20, file.size_bytes)
    assert (found.first_offset, found.last_offset) == (5, 24)
    assert (found.min_timestamp_us, found.max_timestamp_us) == (file.min_timestamp_us, file.max_timestamp_us)


def test_statistics_are_kept_of_offset_and_timestamp_only(store: LocalStore, tmp_path: Path) -> None:
    file = write_data_file(store, "t", 0, records(0, 10, full=True), compression="zstd", now_ms=0)
    group = pq.ParquetFile(tmp_path / "topics/t" / file.path).metadata.row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    assert {chunk.path_in_schema for chunk in chunks if chunk.is_stats_set} == {"offset", "timestamp"}
    dictionaries = {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}
    assert dictionaries == {"key", "producer_id", "headers.list.element.key"}


def test_columns_without_a_value_are_left_out(store: LocalStore, tmp_path: Path) -> None:
    file = write_data_file(store, "t", 0, records(0, 10), compression="zstd", now_ms=0)
    assert pq.read_schema(tmp_path / "topics/t" / file.path).names == ["offset", "timestamp", "value"]


def test_times_are_bounded_by_whole_milliseconds() -> None:
    assert bounded_timestamps(1_999, 2_001) == (1_000, 3_000)
    assert bounded_timestamps(-1, 5_000) == (-1_000, 5_000)
    assert bounded_timestamps(0, 2**62) == (TIMESTAMP_MIN_US, TIMESTAMP_MAX_US)
    assert bounded_timestamps(-(2**62), 0) == (TIMESTAMP_MIN_US, TIMESTAMP_MAX_US)


def test_times_that_no_calendar_has_are_kept(store: LocalStore) -> None:
    times = pa.array([START_US, 2**62], TIMESTAMP)
    table = records(0, 2).set_column(1, "timestamp", times)
    file = write_data_file(store, "t", 0, table, compression="zstd", now_ms=0)
    assert (file.min_timestamp_us, file.max_timestamp_us) == (TIMESTAMP_MIN_US, TIMESTAMP_MAX_US)
    assert '"timestamp"' not in file.statistics()
    assert read_data_file(store, "t", file, columns=["timestamp"]).column("timestamp").combine_chunks() == times


@pytest.mark.rule("T7", "T22")
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_a_flipped_byte_is_never_read_as_data(store: LocalStore, tmp_path: Path, compression: str) -> None:
    table = records(7, 400, full=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "ROW_GROUP_ROWS_MAX", 150)
        file = write_data_file(store, "t", 2, table, compression=compression, now_ms=0)
    path = tmp_path / "topics/t" / file.path
    whole = path.read_bytes()
    seeded = random.Random(1)
    detected = 0
    positions = seeded.sample(range(len(whole)), 1_500 if len(whole) > 1_500 else len(whole))
    for position in positions:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << seeded.randrange(8)
        path.write_bytes(damaged)
        try:
            found = read_data_file(store, "t", file, columns=FILE_SCHEMA.names)
        except CorruptData as error:
            detected += 1
            assert error.members["path"] == f"topics/t/{file.path}"
            assert (error.members["topic"], error.members["partition"]) == ("t", 2)
            assert (error.members["first_offset"], error.members["last_offset"]) == (7, 406)
        else:
            assert found == table, f"byte {position}"
    assert detected > len(positions) * 0.8


@pytest.mark.rule("T7")
def test_every_byte_of_a_page_is_under_its_checksum(store: LocalStore, tmp_path: Path) -> None:
    value = bytes(range(256)) * 8
    file = write_data_file(store, "t", 0, records(0, 3, value=value), compression="none", now_ms=0)
    path = tmp_path / "topics/t" / file.path
    whole = path.read_bytes()
    start = whole.index(value)
    for position in range(start, start + 3 * len(value), 37):
        damaged = bytearray(whole)
        damaged[position] ^= 0x01
        path.write_bytes(damaged)
        with pytest.raises(CorruptData, match="offsets 0 to 2, is damaged"):
            read_data_file(store, "t", file, columns=["value"])


def test_a_missing_or_shortened_file_is_named(store: LocalStore, tmp_path: Path) -> None:
    file = written(store, "t", 0, 0, 10)
    path = tmp_path / "topics/t" / file.path
    whole = path.read_bytes()
    for length in (0, 1, 4, 12, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptData, match="damaged"):
            read_data_file(store, "t", file, columns=["offset"])
        with pytest.raises(CorruptData, match="damaged"):
            data_file_from_footer(store, "t", file.path, 0)
    path.unlink()
    with pytest.raises(CorruptData, match="offsets 0 to 9, is missing"):
        read_data_file(store, "t", file, columns=["offset"])


@pytest.mark.rule("T22")
def test_another_file_in_its_place_is_found_out(store: LocalStore, tmp_path: Path) -> None:
    file, other = written(store, "t", 0, 0, 10), written(store, "t", 0, 10, 10)
    (tmp_path / "topics/t" / other.path).replace(tmp_path / "topics/t" / file.path)
    with pytest.raises(CorruptData, match="its footer fails its checksum"):
        read_data_file(store, "t", file, columns=["offset"])
    with pytest.raises(CorruptData, match="its footer says"):
        read_data_file(store, "t", replace(file, footer_crc=None), columns=["offset"])


def of_another_program(store: LocalStore, tmp_path: Path, table: pa.Table, row_group_rows: int) -> DataFile:
    path = tmp_path / "topics" / "t" / "x.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(table, path, row_group_size=row_group_rows)
    return data_file_from_footer(store, "t", "x.parquet", 0)


def test_rows_that_another_program_did_not_keep_in_order_are_read_in_it(store: LocalStore, tmp_path: Path) -> None:
    """As OPTIMIZE does, which puts files one behind another, the newest first."""
    table = records(0, 9)
    newest_first = pa.concat_tables([table.slice(6), table.slice(3, 3), table.slice(0, 3)])
    file = of_another_program(store, tmp_path, newest_first, 9)
    names = FILE_SCHEMA.names
    for offset in range(10):
        assert read_data_file(store, "t", file, columns=names, first_offset=offset) == table.slice(offset)
        [*found] = row_groups(store, "t", file, columns=names, first_offset=offset)
        assert found == ([table.slice(offset)] if offset < 9 else [])
        assert read_row_group(store, "t", file, columns=names, offset=offset) == table.slice(0, 9 if offset < 9 else 0)


@pytest.mark.parametrize("row_group_rows", [1, 2, 3, 4, 5, 6, 8])
def test_row_groups_that_lie_among_each_other_are_read_in_their_order(
    store: LocalStore, tmp_path: Path, row_group_rows: int
) -> None:
    table = records(0, 9)
    turned = pa.concat_tables([table.slice(4, 3), table.slice(0, 4), table.slice(7)])
    file = of_another_program(store, tmp_path, turned, row_group_rows)
    names = FILE_SCHEMA.names
    for offset in range(10):
        assert read_data_file(store, "t", file, columns=names, first_offset=offset) == table.slice(offset)
        found = pa.concat_tables([table.slice(9), *row_groups(store, "t", file, columns=names, first_offset=offset)])
        assert found == table.slice(offset)
        first = read_row_group(store, "t", file, columns=["offset"], offset=offset).column("offset").to_pylist()
        assert first == sorted(first)
        assert offset == 9 or offset in first
    assert read_data_file(store, "t", file, columns=names, max_records=2) == table.slice(0, 2)
    assert read_data_file(store, "t", file, columns=names, as_stored=True) == turned


def test_row_groups_that_are_too_large_to_put_in_order_are_refused(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_file, "TOGETHER_BYTES_MAX", 500)
    table = records(0, 9)
    file = of_another_program(store, tmp_path, pa.concat_tables([table.slice(3), table.slice(0, 3)]), 7)
    assert read_data_file(store, "t", file, columns=["offset"]).column("offset").to_pylist() == [*range(9)]
    with pytest.raises(CorruptData, match="too much to put in order"):
        read_data_file(store, "t", file, columns=FILE_SCHEMA.names)


def test_row_groups_that_hide_records_are_refused(store: LocalStore, tmp_path: Path) -> None:
    table = records(0, 9)
    twice = pa.concat_tables([table.slice(4), table.slice(0, 4), table.slice(2, 1)])
    file = of_another_program(store, tmp_path, twice, 5)
    with pytest.raises(CorruptData, match="its footer says 5 rows in offsets 0 to 3"):
        read_data_file(store, "t", file, columns=["offset"])


def test_a_file_without_statistics_is_refused(store: LocalStore, tmp_path: Path) -> None:
    path = tmp_path / "topics" / "t" / "x.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(records(0, 10), path, write_statistics=False)
    with pytest.raises(CorruptData, match="no statistics of offset"):
        data_file_from_footer(store, "t", "x.parquet", 0)


@pytest.mark.s3
def test_on_s3(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(s3_server.root_uri(f"files/{tmp_path.name}"), s3_endpoint=s3_server.endpoint)
    table = records(0, 5_000, full=True)
    file = write_data_file(store, "t", 1, table, compression="lz4", now_ms=5)
    assert read_data_file(store, "t", file, columns=FILE_SCHEMA.names) == table
    assert data_file_from_footer(store, "t", file.path, 1).rows == 5_000
    content = bytearray(store.get(f"topics/t/{file.path}"))
    content[len(content) // 2] ^= 1
    store.put(f"topics/t/{file.path}", bytes(content))
    with pytest.raises(CorruptData, match="is damaged"):
        read_data_file(store, "t", file, columns=FILE_SCHEMA.names)
    store.delete(f"topics/t/{file.path}")
    with pytest.raises(CorruptData, match="is missing"):
        read_data_file(store, "t", file, columns=["offset"])


def test_a_store_that_fails_is_no_damage(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(store, "t", 0, 0, 10)

    def failing(path: str) -> pa.NativeFile:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(pa, "OSFile", lambda path, mode: failing(path))
    with pytest.raises(Unavailable, match="Permission denied"):
        read_data_file(store, "t", file, columns=["offset"])


def test_equality_with_what_the_log_says() -> None:
    file = DataFile("p", 0, 1, 2, 3, 3, 1_000, 2_000, 4)
    assert file.statistics() == (
        '{"numRecords":1,"minValues":{"offset":3,"timestamp":"1970-01-01T00:00:00.001Z"},'
        '"maxValues":{"offset":3,"timestamp":"1970-01-01T00:00:00.002Z"},"nullCount":{"offset":0,"timestamp":0}}'
    )
