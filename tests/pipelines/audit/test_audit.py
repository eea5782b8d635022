"""Audit on real tables: what is whole is clean, and each kind of damage is named."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chaos import CHAOS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placed_records import keys_of, placed
from record_tables import CLOCK, new_id, records
from s3_server import S3Server
from topic_writer import TopicWriter

from siltlog.infra import delta_names, names
from siltlog.infra.arrow.partitioner import MURMUR2
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table import data_file
from siltlog.infra.table.data_file import DataFile, data_file_from_footer, write_data_file
from siltlog.infra.table.delta import add_action, commit_actions, commit_properties, open_handle, remove_action
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.pipelines.audit.audit import AuditReport, audit_topics
from siltlog.pipelines.audit.findings import REMEDIES, Expected, FileRead, Hole, Kind, cover, without

PARTITIONS = 2
Place = tuple[ServerSettings, ObjectStore]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    root = (tmp_path / "the lake [1]").as_uri()
    return ServerSettings(data_dir=tmp_path, root=root), open_store(root)


def filled(store: ObjectStore, topic: str = "t", files: int = 3) -> TopicWriter:
    """Files of ten records in each of two partitions."""
    writer = TopicWriter(store, topic, PARTITIONS)
    for number in range(files):
        writer.append_tables({p: placed(10 * number, 10, p, PARTITIONS) for p in range(PARTITIONS)})
    return writer


def audited(place: Place, topic: str = "t", **options: Any) -> AuditReport:
    [report] = audit_topics(place[0], [topic], **options)
    return report


def kinds(report: AuditReport) -> list[str]:
    return sorted({finding.kind for finding in report.findings})


def some_file(writer: TopicWriter, partition: int = 0, index: int = 1) -> DataFile:
    return writer.table.refresh().files_of(partition)[index]


def path_of(store: ObjectStore, file: DataFile) -> str:
    return f"{names.topic_path('t')}/{file.path}"


def exchange(writer: TopicWriter, removed: DataFile | None, added: DataFile | None) -> None:
    """A commit that the door would refuse."""
    for action in (
        None if removed is None else remove_action(removed, data_change=False, now_ms=CLOCK.now_us() // 1000),
        None if added is None else add_action(added, data_change=False),
    ):
        if action is not None:
            delta = open_handle(writer.store, writer.topic)
            commit_actions(delta, [action], {"test": delta.version() + 1}, new_id())


def written(writer: TopicWriter, table: pa.Table, partition: int = 0) -> DataFile:
    """Whatever order its rows are in."""
    file = write_data_file(
        writer.store, writer.topic, partition, table, compression="zstd", now_ms=CLOCK.now_us() // 1000
    )
    offsets = table.column("offset").to_numpy()
    return replace(file, first_offset=int(offsets.min()), last_offset=int(offsets.max()))


def rewritten(writer: TopicWriter, change: Callable[[pa.Table], pa.Table]) -> None:
    """The second file of partition 0 with other rows, about which statistics tell the truth."""
    file = some_file(writer)
    before = pq.read_table(pa.BufferReader(writer.store.get(path_of(writer.store, file))))
    exchange(writer, file, written(writer, _completed(change(before))))


def _completed(table: pa.Table) -> pa.Table:
    from siltlog.infra.columns import FILE_SCHEMA

    return pa.table(
        [
            table.column(field.name).cast(field.type)
            if field.name in table.column_names
            else pa.nulls(table.num_rows, field.type)
            for field in FILE_SCHEMA
        ],
        schema=FILE_SCHEMA,
    )


def flip(store: ObjectStore, path: str, position: int) -> None:
    content = bytearray(store.get(path))
    content[position] ^= 0x10
    store.put(path, bytes(content))


def page_byte(store: ObjectStore, file: DataFile) -> int:
    """The place of a byte of a page, behind its header."""
    column = pq.read_metadata(pa.BufferReader(store.get(path_of(store, file)))).row_group(0).column(0)
    return int(column.data_page_offset + column.total_compressed_size - 3)


def test_what_is_whole_is_clean(place: Place) -> None:
    writer = filled(place[1])
    version = writer.table.snapshot.version
    report = audited(place)
    assert report.clean, report.findings
    assert (report.version, report.partitions, report.files, report.rows) == (version, 2, 6, 60)
    assert report.size_bytes == sum(file.size_bytes for file in writer.table.snapshot.files.values())
    said = audited(place, dry_run=True)
    assert (said.files, said.rows, said.size_bytes) == (6, 60, report.size_bytes)


def test_it_changes_nothing(place: Place) -> None:
    filled(place[1])
    before = place[1].list("")
    audited(place)
    assert place[1].list("") == before


@pytest.mark.s3
def test_on_s3(s3_server: S3Server, tmp_path: Path) -> None:
    root = s3_server.root_uri(f"audit/{tmp_path.name}")
    found = ServerSettings(data_dir=tmp_path, root=root, s3_endpoint=s3_server.endpoint)
    store = open_store(root, s3_endpoint=s3_server.endpoint)
    writer = filled(store)
    assert audited((found, store)).clean
    file = some_file(writer)
    flip(store, path_of(store, file), page_byte(store, file))
    assert kinds(audited((found, store))) == ["damaged_file"]


def drop_row(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 4), table.slice(5)])


def double_row(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 5), table.slice(4)])


def double_rows(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(3, 4)])


def swap_rows(table: pa.Table) -> pa.Table:
    order = list(range(table.num_rows))
    order[3], order[4] = order[4], order[3]
    return table.take(pa.array(order))


def foreign_key(table: pa.Table) -> pa.Table:
    keys = table.column("key").to_pylist()
    keys[7] = keys_of(1, PARTITIONS, 1)[0]
    return table.set_column(table.column_names.index("key"), "key", pa.array(keys, pa.binary()))


@pytest.mark.parametrize(
    ("change", "kind", "first", "last"),
    [
        pytest.param(drop_row, "missing_offsets", 14, 14, id="row-dropped"),
        pytest.param(lambda table: table.slice(0, 7), "missing_offsets", 17, 19, id="end-dropped"),
        pytest.param(lambda table: table.slice(3), "missing_offsets", 10, 12, id="beginning-dropped"),
        pytest.param(double_row, "repeated_offsets", 14, 14, id="row-doubled"),
        pytest.param(double_rows, "repeated_offsets", 13, 16, id="rows-doubled-apart"),
        pytest.param(swap_rows, "unordered_offsets", 10, 19, id="rows-swapped"),
        pytest.param(foreign_key, "wrong_partition", 17, 17, id="key-of-another-partition"),
    ],
)
def test_other_rows_are_found_though_statistics_are_true(
    place: Place, change: Callable[[pa.Table], pa.Table], kind: str, first: int, last: int
) -> None:
    rewritten(filled(place[1]), change)
    report = audited(place)
    assert [(one.kind, one.partition, one.first_offset, one.last_offset) for one in report.findings] == [
        (kind, 0, first, last)
    ]


def test_a_file_that_is_gone_or_not_committed_is_named(place: Place) -> None:
    writer = filled(place[1])
    gone, dropped = some_file(writer), some_file(writer, partition=1)
    place[1].delete(path_of(place[1], gone))
    exchange(writer, dropped, None)
    report = audited(place)
    assert [(one.kind, one.path, one.partition, one.first_offset, one.last_offset) for one in report.findings] == [
        ("missing_file", gone.path, 0, 10, 19),
        ("missing_offsets", None, 1, 10, 19),
    ]


def test_rows_that_come_again_in_another_row_group(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = filled(place[1])
    monkeypatch.setattr(data_file, "ROW_GROUP_ROWS_MAX", 10)
    rewritten(writer, lambda table: pa.concat_tables([table, table]))
    [finding] = audited(place).findings
    assert (finding.kind, finding.first_offset, finding.last_offset, finding.records) == (
        "repeated_offsets",
        10,
        19,
        10,
    )


def test_a_file_that_is_there_twice_over_the_log_start(place: Place) -> None:
    writer = filled(place[1])
    snapshot = writer.table.refresh()
    move_starts(writer.table, snapshot.version, {0: start_move(snapshot, 0, 15)}, new_id(), now_ms=0)
    exchange(writer, None, written(writer, placed(10, 10, 0, PARTITIONS)))
    found = [(one.kind, one.first_offset, one.last_offset) for one in audited(place).findings]
    assert found == [("repeated_offsets", 15, 19)]


def test_rows_that_two_files_have(place: Place) -> None:
    writer = filled(place[1])
    exchange(writer, None, written(writer, placed(15, 10, 0, PARTITIONS)))
    report = audited(place)
    assert [(one.kind, one.first_offset, one.last_offset) for one in report.findings] == [
        ("repeated_offsets", 15, 19),
        ("repeated_offsets", 20, 24),
    ]


@pytest.mark.parametrize("where", ["magic", "page", "header", "footer", "end", "length"])
def test_a_flipped_bit_and_a_file_cut_short(place: Place, where: str) -> None:
    writer = filled(place[1])
    file = some_file(writer)
    path = path_of(place[1], file)
    if where == "length":
        place[1].put(path, place[1].get(path)[:-10])
    elif where == "header":  # of which Arrow tells in several lines
        content = bytearray(place[1].get(path))
        content[4:60] = bytes(56)
        place[1].put(path, bytes(content))
    else:
        flip(
            place[1],
            path,
            {
                "magic": 0,
                "page": page_byte(place[1], file),
                "footer": file.size_bytes - 100,
                "end": file.size_bytes - 2,
            }[where],
        )
    report = audited(place)
    [finding] = report.findings
    assert (finding.kind, finding.path, finding.first_offset, finding.last_offset) == (
        "damaged_file",
        file.path,
        10,
        19,
    )
    assert "\n" not in finding.detail


@pytest.mark.rule("ER6")
def test_what_was_erased_meanwhile_is_not_missing(place: Place) -> None:
    """`silt erase` writes files anew without the key, and deletes those that had it at once."""
    writer = filled(place[1])
    gone = [some_file(writer, 1, index) for index in (1, 2)]

    def erase(*_: Any) -> None:
        if gone:
            file = gone.pop()
            exchange(writer, file, written(writer, placed(file.first_offset, 10, 1, PARTITIONS), 1))
            place[1].delete(path_of(place[1], file))

    report = audited(place, progress=erase)
    assert not gone
    assert report.clean, report.findings
    assert report.version == writer.table.refresh().version
    assert (report.files, report.rows) == (6, 60)


@pytest.mark.parametrize("name", ["rows", "first_offset", "last_offset", "min_timestamp_us", "max_timestamp_us"])
def test_statistics_that_are_not_true(place: Place, name: str) -> None:
    writer = filled(place[1])
    file = some_file(writer)
    exchange(writer, file, replace(file, **{name: getattr(file, name) + (1 if name != "min_timestamp_us" else -1000)}))
    report = audited(place)
    if name == "max_timestamp_us":
        assert report.clean, "it is raised to the millisecond"
        exchange(writer, some_file(writer), replace(file, max_timestamp_us=file.max_timestamp_us + 5000))
        report = audited(place)
    assert [(one.kind, one.path) for one in report.findings] == [("wrong_statistics", file.path)]


def test_files_without_checksums(place: Place) -> None:
    writer = filled(place[1])
    file = some_file(writer)
    content = pq.read_table(pa.BufferReader(place[1].get(path_of(place[1], file))))
    sink = pa.BufferOutputStream()
    pq.write_table(content, sink, use_dictionary=["key"])
    place[1].put(path_of(place[1], file), sink.getvalue())
    bare = data_file_from_footer(place[1], "t", file.path, 0)
    exchange(writer, file, bare)
    assert kinds(audited(place)) == ["unprotected_file"]
    exchange(writer, bare, replace(bare, footer_crc=None))
    found = audited(place).findings
    assert [one.kind for one in found] == ["unprotected_file", "unprotected_file"]
    assert "key" in found[1].detail and "offset" in found[1].detail


def test_rows_where_none_may_be(place: Place) -> None:
    writer = filled(place[1])
    exchange(writer, None, written(writer, placed(30, 5, 0, PARTITIONS)))
    exchange(writer, None, replace(written(writer, records(0, 5)), partition=9))
    commit_properties(
        open_handle(place[1], "t"), {f"{delta_names.PROPERTY_GAPS_PREFIX}1": "[[12, 14]]"}, {"x": 1}, new_id()
    )
    found = [(one.kind, one.partition, one.first_offset, one.last_offset) for one in audited(place).findings]
    assert found == [
        ("out_of_bounds", 9, 0, 4),
        ("out_of_bounds", 0, 30, 34),
        ("out_of_bounds", 1, 12, 13),
    ]


def test_what_retention_removed_and_gaps_are_not_missed(place: Place) -> None:
    writer = filled(place[1])
    table = writer.table
    snapshot = table.refresh()
    moves = {0: start_move(snapshot, 0, 15), 1: start_move(snapshot, 1, 20)}
    move_starts(table, snapshot.version, moves, new_id(), now_ms=CLOCK.now_us() // 1000)
    assert len(table.snapshot.files) == 3
    writer.epochs = {0: 7, 1: 7}
    table.claim(writer.epochs, new_id(), offsets={0: 100})
    writer.append_tables({0: placed(100, 10, 0, PARTITIONS), 1: placed(30, 10, 1, PARTITIONS)})
    report = audited(place)
    assert report.clean, report.findings


def test_below_the_mark_of_key_compaction_records_may_be_missing(place: Place) -> None:
    writer = filled(place[1])
    rewritten(writer, drop_row)
    for mark, found in ((14, ["missing_offsets"]), (15, []), (30, [])):
        commit_actions(open_handle(place[1], "t"), [], {delta_names.txn_compacted(0): mark}, new_id())
        assert kinds(audited(place)) == found


def test_keys_went_by_the_count_of_their_time(place: Place) -> None:
    writer = filled(place[1])
    writer.table.grow(5, [30, 30], writer.epochs[0], new_id(), config=TopicConfig({}))
    writer.epochs = dict.fromkeys(range(5), writer.epochs[0])
    writer.append_tables({p: placed(30 if p < 2 else 0, 10, p, 5) for p in range(5)})
    assert audited(place).clean
    writer.append_tables({0: placed(40, 10, 0, PARTITIONS)})
    found = audited(place)
    assert kinds(found) == ["wrong_partition"] and all(one.partition == 0 for one in found.findings)
    assert audited(place, any_partition=["t"]).clean


def test_keys_of_rows_that_are_out_of_order_went_by_the_count_of_their_time(place: Place) -> None:
    writer = filled(place[1])
    writer.table.grow(5, [30, 30], writer.epochs[0], new_id(), config=TopicConfig({}))
    old, new = placed(20, 10, 0, PARTITIONS), placed(30, 10, 0, 5)
    writer.epochs = dict.fromkeys(range(5), writer.epochs[0])
    writer.append_tables({0: new})
    both = [writer.table.refresh().files_of(0)[index] for index in (2, 3)]
    for file, put in zip(both, (None, pa.concat_tables([new, old])), strict=True):
        exchange(writer, file, None if put is None else written(writer, put))
    assert kinds(audited(place)) == ["unordered_offsets"]


@pytest.mark.rule("KF23")
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_where_kafkas_clients_place_keys_those_elsewhere_are_warned_of(place: Place, policy: str) -> None:
    """What another hash has placed lies elsewhere; a key in two partitions is wrong where keys are compacted."""
    writer = TopicWriter(place[1], "t", PARTITIONS, partitioner="murmur2", cleanup_policy=policy)
    home = {MURMUR2.partition_of(key, PARTITIONS): key for key in (b"k%d" % number for number in range(20))}
    writer.append_tables({p: with_key(placed(0, 10, p, PARTITIONS), home[p]) for p in range(PARTITIONS)})
    report = audited(place)
    assert report.clean and not report.warnings
    foreign = next(
        key for key in (b"foreign%d" % number for number in range(20)) if MURMUR2.partition_of(key, PARTITIONS) == 1
    )
    assert foreign != home[1]
    writer.append_tables({0: with_key(placed(10, 10, 0, PARTITIONS), foreign)})
    report = audited(place)
    assert report.clean
    assert [(one.kind, one.partition, one.records) for one in report.warnings] == [("wrong_partition", 0, 10)]
    writer.append_tables({0: with_key(placed(20, 10, 0, PARTITIONS), home[1])})
    report = audited(place)
    assert kinds(report) == ([] if policy == "delete" else ["split_key"])
    assert all(home[1].decode() in one.detail and "0, 1" in one.detail for one in report.findings)


def with_key(table: pa.Table, key: bytes) -> pa.Table:
    """The same records, each with this key."""
    keys = pa.array([key] * table.num_rows, pa.binary())
    return table.set_column(table.column_names.index("key"), "key", keys)


def test_one_bad_topic_does_not_stop_the_others(place: Place) -> None:
    filled(place[1], "a")
    filled(place[1], "c")
    writer = filled(place[1], "b")
    entry = f"{names.topic_path('b')}/_delta_log/{writer.table.refresh().version:020d}.json"
    place[1].put(entry, place[1].get(entry)[:50])
    TopicWriter(place[1], "gone").table.delete(new_id())
    reports = {report.topic: report for report in audit_topics(place[0])}
    assert list(reports) == ["a", "b", "c"]
    assert reports["a"].clean and reports["c"].clean
    assert kinds(reports["b"]) == ["damaged_log"] and "b/_delta_log" in (reports["b"].findings[0].path or "")


def log_file(writer: TopicWriter, name: str = "") -> str:
    """The newest entry of the log, or the file of that name."""
    return f"{names.topic_path(writer.topic)}/_delta_log/{name or f'{writer.table.refresh().version:020d}.json'}"


def without_log(store: ObjectStore, writer: TopicWriter) -> None:
    for info in store.list(f"{names.topic_path(writer.topic)}/_delta_log"):
        store.delete(info.path)
    store.prune(f"{names.topic_path(writer.topic)}/_delta_log")


def with_property(name: str, value: str) -> Callable[[ObjectStore, TopicWriter], None]:
    return lambda store, writer: commit_properties(open_handle(store, "b"), {name: value}, {"x": 1}, new_id())


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda store, writer: store.put(log_file(writer), b""), id="entry-empty"),
        pytest.param(
            lambda store, writer: store.put(log_file(writer), store.get(log_file(writer)).split(b"\n")[0] + b"\n"),
            id="entry-cut-at-a-line",
        ),
        pytest.param(
            lambda store, writer: store.put(log_file(writer, "_last_checkpoint"), b"{"), id="last-checkpoint-cut"
        ),
        pytest.param(without_log, id="log-gone"),
        pytest.param(with_property(delta_names.PROPERTY_PARTITIONS, "x"), id="partitions-no-number"),
        pytest.param(with_property(delta_names.PROPERTY_PARTITIONS_HISTORY, "[{}]"), id="history-none"),
        pytest.param(with_property(f"{delta_names.PROPERTY_GAPS_PREFIX}0", "zz"), id="gaps-none"),
        pytest.param(with_property(f"{delta_names.PROPERTY_CONFIG_PREFIX}retention.ms", "soon"), id="setting-none"),
    ],
)
def test_a_damaged_log_is_a_finding_of_its_topic_alone(
    place: Place, damage: Callable[[ObjectStore, TopicWriter], None]
) -> None:
    filled(place[1], "a")
    damage(place[1], filled(place[1], "b"))
    reports = {report.topic: report for report in audit_topics(place[0])}
    assert reports["a"].clean and kinds(reports["b"]) == ["damaged_log"]


def test_a_damaged_checkpoint(place: Place) -> None:
    filled(place[1], "b")
    open_handle(place[1], "b").create_checkpoint()
    [checkpoint] = [info for info in place[1].list(names.topic_path("b")) if info.path.endswith(".checkpoint.parquet")]
    content = place[1].get(checkpoint.path)
    assert audited(place, "b").clean
    choose = random.Random(3)
    found = []
    for _ in range(25):
        flip(place[1], checkpoint.path, choose.randrange(len(content)))
        found += kinds(audited(place, "b"))
        place[1].put(checkpoint.path, content)
    assert "damaged_log" in found


@pytest.mark.parametrize(
    ("app_id", "number", "said"),
    [
        pytest.param(delta_names.txn_start(0), 31, "the log start is 31", id="start-past-the-end"),
        pytest.param(delta_names.txn_start(0), -1, "the log start is -1", id="start-negative"),
        pytest.param(delta_names.txn_start(0), 20, "20 records below it", id="start-over-live-files"),
        pytest.param(delta_names.txn_compacted(0), 31, "mark of key compaction is 31", id="compacted-past-the-end"),
        pytest.param(delta_names.txn_epoch(0), 0, "nobody has ever claimed", id="epoch-lost"),
    ],
)
def test_numbers_that_cannot_be(place: Place, app_id: str, number: int, said: str) -> None:
    filled(place[1])
    commit_actions(open_handle(place[1], "t"), [], {app_id: number}, new_id())
    found = audited(place).findings
    assert {one.kind for one in found} == {"wrong_bounds"} and any(said in one.detail for one in found)


def test_a_log_that_lost_its_end(place: Place) -> None:
    """What a server wrote beside the table tells that it was longer."""
    writer = filled(place[1])
    state = f"{names.topic_path('t')}/{names.state_folder(writer.table.topic_id)}"
    place[1].put(f"{state}/1/{30:020d}", b"")
    place[1].put(f"{names.topic_path('t')}/{names.state_folder('another')}/1/{99:020d}", b"")
    assert audited(place).clean
    place[1].delete(log_file(writer))
    [finding] = audited(place).findings
    assert (finding.kind, finding.partition, finding.first_offset, finding.last_offset) == ("lost_commits", 1, 20, 29)


def test_producer_state_that_is_gone(place: Place) -> None:
    writer = filled(place[1])
    state = f"{names.topic_path('t')}/{names.state_folder(writer.table.topic_id)}"
    place[1].put(f"{state}/1/{10:020d}", b"")
    place[1].put(f"{state}/1/{30:020d}", b"")
    writer.table.release(writer.epochs, new_id(), states={1: 30})
    assert audited(place).clean
    place[1].delete(f"{state}/1/{30:020d}")
    [finding] = audited(place).findings
    assert (finding.kind, finding.partition) == ("lost_state", 1) and "ends at 10" in finding.detail
    writer.table.delete(new_id())
    again = TopicWriter(place[1], "t", PARTITIONS)
    assert again.table.topic_id != writer.table.topic_id and audited(place).clean


def test_every_finding_says_what_to_do() -> None:
    assert set(REMEDIES) == set(get_args(Kind))


@given(
    start=st.integers(0, 30),
    length=st.integers(0, 60),
    gaps=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 9)), max_size=3),
    cuts=st.sets(st.integers(0, 90), max_size=6),
    lost=st.sets(st.integers(0, 90), max_size=4),
)
def test_what_is_missed_is_what_was_lost(
    start: int, length: int, gaps: list[tuple[int, int]], cuts: set[int], lost: set[int]
) -> None:
    end = start + length
    jumped = tuple((low, low + size) for low, size in gaps)
    in_gaps = {offset for low, high in jumped for offset in range(low, high)}
    offsets = [offset for offset in range(start, end) if offset not in in_gaps and offset not in lost]
    files: list[list[int]] = [[]]
    for offset in offsets:
        if offset in cuts and files[-1]:
            files.append([])
        files[-1].append(offset)
    reads = [_read_of(rows) for rows in files if rows]
    random.Random(3).shuffle(reads)
    found = cover(Expected(0, start, end, jumped, 0, ((0, 1),)), reads)
    told = [offset for one in found for offset in range(one.first_offset or 0, (one.last_offset or 0) + 1)]
    assert {one.kind for one in found} <= {"missing_offsets"}
    assert sorted(told) == sorted(offset for offset in lost if start <= offset < end and offset not in in_gaps)


def _read_of(rows: list[int]) -> FileRead:
    holes = [Hole(low + 1, high) for low, high in pairwise(rows) if high - low > 1]
    file = DataFile(f"f{rows[0]}", 0, len(rows), 1, rows[0], rows[-1], 0, 0, 0)
    return FileRead(file, rows=len(rows), first=rows[0], last=rows[-1], holes=holes)


RANGES = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: (min(pair), max(pair)))


@given(RANGES, st.lists(RANGES))
def test_without(whole: tuple[int, int], holes: list[tuple[int, int]]) -> None:
    left = [offset for start, end in without(whole, holes) for offset in range(start, end)]
    removed = {offset for start, end in holes for offset in range(start, end)}
    assert left == [offset for offset in range(*whole) if offset not in removed]


@pytest.mark.chaos
@settings(max_examples=12 * CHAOS, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000))
def test_a_topic_of_any_history_is_clean(place: Place, seed: int) -> None:
    """Appends, jumps, growth and log starts that move, in any order."""
    choose = random.Random(seed)
    topic = f"t{new_id()}"
    writer = TopicWriter(place[1], topic, 1)
    for _ in range(8):
        snapshot = writer.table.refresh()
        count = snapshot.partitions
        step = choose.choice(["append", "append", "append", "jump", "grow", "start"])
        if step == "append":
            chosen = choose.sample(range(count), choose.randint(1, count))
            writer.append_tables({p: placed(snapshot.offsets[p], choose.randint(1, 40), p, count) for p in chosen})
        elif step == "jump":
            epoch = max(snapshot.epochs.values()) + 1
            writer.epochs = dict.fromkeys(range(count), epoch)
            jumped = choose.randrange(count)
            writer.table.claim(writer.epochs, new_id(), offsets={jumped: snapshot.offsets[jumped] + 50})
        elif step == "grow":
            first = [snapshot.offsets[p] for p in range(count)]
            epoch = max(snapshot.epochs.values()) + 1
            writer.table.claim(dict.fromkeys(range(count), epoch), new_id())
            writer.table.grow(count + 1, first, epoch, new_id(), config=TopicConfig({}))
            writer.epochs = dict.fromkeys(range(count + 1), epoch)
        else:
            p = choose.randrange(count)
            move = start_move(snapshot, p, choose.randint(snapshot.starts[p], snapshot.offsets[p]))
            move_starts(writer.table, snapshot.version, {p: move}, new_id(), now_ms=CLOCK.now_us() // 1000)
    report = audited(place, topic)
    assert report.clean, report.findings


def test_reports_are_json(place: Place) -> None:
    import msgspec

    rewritten(filled(place[1]), drop_row)
    [finding] = audited(place).findings
    assert json.loads(msgspec.json.encode(finding))["kind"] == "missing_offsets"
