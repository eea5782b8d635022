import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from record_tables import CLOCK, append, claimed

from siltlog.infra.errors import CorruptData
from siltlog.infra.store.local import LocalStore
from siltlog.infra.table.data_file import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from siltlog.infra.table.entries import (
    JOB_MS_MAX,
    OUTAGE_MS_MAX,
    RETENTION_MS,
    Torn,
    last_checkpoint,
    newest_checkpoint,
    parse_entry,
    replay,
)
from siltlog.infra.table.table import TopicTable

ADD = {
    "path": "partition=1/a%20b.parquet",
    "partitionValues": {"partition": "1"},
    "size": 10,
    "modificationTime": 5,
    "dataChange": True,
    "stats": json.dumps(
        {
            "numRecords": 2,
            "minValues": {"offset": 3, "timestamp": "2026-11-21T07:36:00.123Z"},
            "maxValues": {"offset": 4, "timestamp": "2026-11-21T07:36:00.124Z"},
            "tightBounds": True,
        }
    ),
}


def entry(*actions: dict[str, object]) -> bytes:
    return "\n".join(json.dumps(action) for action in actions).encode()


def test_an_entry_of_another_writer_is_read() -> None:
    content = entry(
        {"commitInfo": {"operation": "WRITE", "engineInfo": "x"}},
        {"add": ADD},
        {"remove": {"path": "partition=0/c%3Dd.parquet", "dataChange": True}},
        {"txn": {"appId": "offset/1", "version": 5, "lastUpdated": 1}},
        {"domainMetadata": {"domain": "x"}},
        {"cdc": {"path": "x"}},
    )
    found = parse_entry("t", "path", 9, content + b"\n")
    assert (found.version, found.commit_id, found.properties) == (9, None, None)
    assert found.removes == ("partition=0/c=d.parquet",)
    assert found.transactions == {"offset/1": 5}
    (file,) = found.adds
    assert (file.path, file.partition, file.rows, file.size_bytes) == ("partition=1/a b.parquet", 1, 2, 10)
    assert (file.first_offset, file.last_offset, file.modified_ms, file.footer_crc) == (3, 4, 5, None)
    assert file.max_timestamp_us - file.min_timestamp_us == 1_000


def test_a_file_without_times_has_the_widest() -> None:
    stats = json.dumps({"numRecords": 1, "minValues": {"offset": 0}, "maxValues": {"offset": 0}})
    (file,) = parse_entry("t", "path", 0, entry({"add": {**ADD, "stats": stats}})).adds
    assert (file.min_timestamp_us, file.max_timestamp_us) == (TIMESTAMP_MIN_US, TIMESTAMP_MAX_US)


@pytest.mark.parametrize("stats", [None, "", "{}", '{"numRecords": 1}', '{"numRecords": 1, "minValues": {}}'])
def test_a_file_without_statistics_of_its_offsets_is_named_apart(stats: str | None) -> None:
    found = parse_entry("t", "path", 0, entry({"add": {**ADD, "stats": stats}}))
    assert (found.adds, found.undescribed) == ((), ("partition=1/a b.parquet",))


def test_statistics_that_are_cut_short_are_damage() -> None:
    with pytest.raises(CorruptData, match=r"the statistics of partition=1/a%20b.parquet"):
        parse_entry("t", "path", 0, entry({"add": {**ADD, "stats": '{"numRecords"'}}))


@pytest.mark.rule("T21")
def test_torn_and_damaged_are_told_apart() -> None:
    info = {"commitInfo": {"siltlog.commit": "c", "siltlog.transactions": 2}}
    txns = [{"txn": {"appId": f"offset/{p}", "version": 1}} for p in range(2)]
    assert parse_entry("t", "path", 0, entry(info, *txns)).commit_id == "c"
    for content in (b"", b"\n", bytes(100), entry(info, txns[0]), entry(info, *txns)[:-1], entry(info) + bytes(9)):
        with pytest.raises(Torn):
            parse_entry("t", "path", 0, content)
    with pytest.raises(CorruptData, match="line 2"):
        parse_entry("t", "path", 0, entry(info) + b"\n{nonsense}\n" + entry(*txns))


def test_a_checkpoint_in_parts_is_read(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    table = claimed(store)
    for _ in range(3):
        append(store, table, {0: 3, 1: 1})
    table.checkpoint()
    append(store, table, {0: 1})
    version = table.snapshot.version - 1
    log = tmp_path / "topics/t/_delta_log"
    whole = log / f"{version:020d}.checkpoint.parquet"
    rows = pq.read_table(whole)
    half = rows.num_rows // 2
    for number, part in enumerate((rows.slice(0, half), rows.slice(half)), 1):
        pq.write_table(part, log / f"{version:020d}.checkpoint.{number:010d}.{2:010d}.parquet")
    whole.unlink()
    (log / "_last_checkpoint").write_text(json.dumps({"version": version, "size": rows.num_rows, "parts": 2}))
    found = last_checkpoint(store, "t")
    assert found is not None and len(found.paths) == 2
    newest = newest_checkpoint(store, "t")
    assert newest is not None and (newest.version, sorted(newest.paths)) == (version, sorted(found.paths))
    assert newest_checkpoint(store, "t", version - 1) is None
    assert TopicTable.open(store, "t", CLOCK).snapshot == table.snapshot
    (log / "_last_checkpoint").unlink()
    assert TopicTable.open(store, "t", CLOCK).snapshot == table.snapshot


def test_an_older_version_is_replayed(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    table = claimed(store)
    files = [append(store, table, {0: 2})[0] for _ in range(3)]
    assert replay(store, "t", 2).files == {files[0].path: files[0]}
    assert replay(store, "t", 2).transactions["offset/0"] == 2
    assert [entry.version for entry in replay(store, "t", 4).entries] == [0, 1, 2, 3, 4]
    with pytest.raises(FileNotFoundError):
        replay(store, "t", 5)


def test_entries_outlive_jobs_and_outages() -> None:
    assert RETENTION_MS > JOB_MS_MAX + OUTAGE_MS_MAX
