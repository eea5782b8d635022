"""Erasing a key from real tables; it needs no Spark."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from record_tables import CLOCK, new_id, records
from s3_server import S3Server
from topic_writer import TopicWriter

from siltlog.infra import delta_names, names
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.errors import ConfigError, CorruptData, Refused, SiltlogError, UnknownTopic
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import read_data_file, write_data_file
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.audit.audit import audit_topics
from siltlog.pipelines.backup.backup import backup_topics
from siltlog.pipelines.erasure.erase import Erasure, erase_key
from siltlog.pipelines.erasure.looking import Left
from siltlog.pipelines.replay.plan import Progress, ReplayPlan, Target
from siltlog.pipelines.replay.range import Selection

KEY = b"person-4711"


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ServerSettings, ObjectStore]:
    settings: dict[str, Any] = {"root": (tmp_path / "lake").as_uri()}
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        settings = {"root": server.root_uri(f"erase/{tmp_path.name}"), "s3_endpoint": server.endpoint}
    store = open_store(settings["root"], s3_endpoint=settings.get("s3_endpoint", ""))
    return ServerSettings(data_dir=tmp_path, **settings), store


@pytest.fixture
def local(tmp_path: Path) -> tuple[ServerSettings, ObjectStore]:
    root = (tmp_path / "lake").as_uri()
    return ServerSettings(data_dir=tmp_path, root=root), open_store(root)


def keyed(first: int, keys: list[bytes | None], *, full: bool = False) -> pa.Table:
    table = records(first, len(keys), full=full)
    return table.set_column(table.schema.get_field_index("key"), "key", pa.array(keys, pa.binary()))


def others(count: int) -> list[bytes | None]:
    """Keys that are near to it, and none."""
    return [[b"person-471", b"person-4712", None, b"other"][number % 4] for number in range(count)]


def filled(store: ObjectStore, topic: str = "t", files: int = 4, **config: Any) -> TopicWriter:
    """Files of ten records in each of two partitions; in partition 0 the third and the last of each are of the key."""
    writer = TopicWriter(store, topic, **config)
    for number in range(files):
        keys = others(10)
        keys[2] = keys[9] = KEY
        writer.append_tables({0: keyed(10 * number, keys, full=True), 1: keyed(10 * number, others(10))})
    return writer


def erased(settings: ServerSettings, *topics: str, **options: Any) -> Erasure:
    return erase_key(settings, KEY, topics, clock=CLOCK, dry_run=False, settle=list, **options)


def rows_of(store: ObjectStore, topic: str = "t") -> dict[int, list[tuple[int, bytes | None, bytes]]]:
    snapshot = TopicTable.open(store, topic, CLOCK).snapshot
    found = {}
    for partition in range(snapshot.partitions):
        tables = [
            read_data_file(store, topic, file, columns=["offset", "key", "value"])
            for file in snapshot.files_of(partition)
        ]
        found[partition] = [tuple(row.values()) for table in tables for row in table.to_pylist()]
    return found


def places_of(store: ObjectStore, key: bytes = KEY) -> list[str]:
    """Every object under the root that has the key: in its bytes, or as Parquet or Arrow in any of its values."""
    found = []
    for info in store.list(""):
        content = store.get(info.path)
        decoded = [content]
        if info.path.endswith(".parquet"):
            decoded += [value for column in pq.read_table(pa.BufferReader(content)).columns for value in flat(column)]
        if any(key in piece for piece in decoded):
            found.append(info.path)
    return found


def flat(column: pa.ChunkedArray) -> list[bytes]:
    return [value if isinstance(value, bytes) else str(value).encode() for value in column.to_pylist()]


@pytest.mark.slow
def test_every_record_of_the_key_goes_and_the_others_stay_where_they_are(
    place: tuple[ServerSettings, ObjectStore],
) -> None:
    settings, store = place
    filled(store)
    filled(store, "t.dlq", 1)
    filled(store, "u", 2)
    before = rows_of(store)
    assert len(places_of(store)) == 7, "the rig finds what is there"

    said = erase_key(settings, KEY, ["t"], clock=CLOCK)
    assert [(each.topic, each.records, each.files, each.old_files) for each in said.topics] == [
        ("t", 8, 4, 0),
        ("t.dlq", 2, 1, 0),
    ]
    assert rows_of(store) == before and len(places_of(store)) == 7, "a dry run changes nothing"

    done = erased(settings, "t")
    assert done.whole
    assert [(each.topic, each.records, each.files, each.old_files) for each in done.topics] == [
        ("t", 8, 4, 4),
        ("t.dlq", 2, 1, 1),
    ]
    assert {path.split("/")[1] for path in places_of(store)} == {"u"}
    assert rows_of(store) == {partition: [row for row in rows if row[1] != KEY] for partition, rows in before.items()}
    assert erased(settings).whole and places_of(store) == []
    versions = TopicTable.open(store, "t", CLOCK).snapshot.version
    again = erased(settings)
    assert again.whole and not any(each.records or each.old_files for each in again.topics)
    assert TopicTable.open(store, "t", CLOCK).snapshot.version == versions, "again there is nothing to do"


@pytest.mark.rule("ER1")
def test_the_audit_passes_a_table_that_was_erased_from_and_publishing_goes_on(
    local: tuple[ServerSettings, ObjectStore],
) -> None:
    settings, store = local
    writer = filled(store)
    only = TopicWriter(store, "only", 1)
    only.append_tables({0: keyed(0, [KEY] * 5)})
    assert erased(settings).whole
    reports = {report.topic: report for report in audit_topics(settings, any_partition=["t", "only"])}
    assert all(not report.findings and report.error is None for report in reports.values()), reports
    snapshot = TopicTable.open(store, "only", CLOCK).snapshot
    assert snapshot.files == {} and snapshot.offsets == {0: 5} and snapshot.erased(0) == 5
    only.append_tables({0: keyed(5, [b"next"])})
    writer.append_tables({0: keyed(40, [b"next"])})
    assert rows_of(store, "only") == {0: [(5, b"next", b"value-5")]}
    assert not any(report.findings for report in audit_topics(settings, any_partition=["t", "only"]))


@pytest.mark.rule("ER3")
def test_files_of_former_versions_and_of_killed_writers_go_at_once(local: tuple[ServerSettings, ObjectStore]) -> None:
    settings, store = local
    writer = filled(store, files=2)
    snapshot = writer.table.refresh()
    sources = snapshot.files_of(0)
    merged = pa.concat_tables([read_data_file(store, "t", file, columns=WHOLE) for file in sources])
    output = write_data_file(store, "t", 0, merged, compression="zstd", now_ms=1)
    writer.table.rewrite(snapshot.version, sources, [output], new_id())
    orphan = write_data_file(store, "t", 0, merged, compression="zstd", now_ms=1)
    deleted = filled(store, "gone", 1)
    deleted.table.delete(new_id())
    again = filled(store, "again", 1)
    again.table.delete(new_id())
    TopicWriter(store, "again")
    for path in (settings.data_dir / "lake" / "topics").rglob("*.parquet"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    flushing = write_data_file(store, "t", 0, keyed(20, [KEY]), compression="zstd", now_ms=1)

    done = erased(settings)
    found = {each.topic: each for each in done.topics}
    assert (found["t"].records, found["t"].files, found["t"].old_files) == (4, 1, 4)
    assert (found["gone"].records, found["gone"].old_files) == (0, 1)
    assert (found["again"].records, found["again"].old_files) == (0, 1)
    assert [left.what for left in found["t"].left] == ["a file that is on its way into the table"]
    assert places_of(store) == [f"topics/t/{flushing.path}"]
    assert store.info(f"topics/t/{orphan.path}") is None
    writer.table.append([flushing], {0: (20, 21)}, writer.epochs, new_id())
    assert erased(settings).whole and places_of(store) == []


WHOLE = [field.name for field in records(0, 1).schema]


@pytest.mark.rule("ER2")
def test_a_rewrite_that_was_planned_before_does_not_bring_the_key_back(
    local: tuple[ServerSettings, ObjectStore],
) -> None:
    settings, store = local
    writer = filled(store, files=2)
    snapshot = writer.table.refresh()
    sources = snapshot.files_of(0)
    merged = pa.concat_tables([read_data_file(store, "t", file, columns=WHOLE) for file in sources])
    output = write_data_file(store, "t", 0, merged, compression="zstd", now_ms=1)
    late = TopicTable.open(store, "t", CLOCK)
    assert erased(settings).whole
    with pytest.raises(SiltlogError):
        late.rewrite(snapshot.version, sources, [output], new_id())
    assert places_of(store) == []


@pytest.mark.rule("ER2")
def test_an_old_file_goes_only_after_a_commit_that_fences_rewrites_which_could_name_it(
    local: tuple[ServerSettings, ObjectStore],
) -> None:
    settings, store = local
    writer = TopicWriter(store, "t", 1)
    writer.append_tables({0: keyed(0, others(10))})
    snapshot = writer.table.refresh()
    # What a job on its way has written; nothing of the table has the key by now.
    write_data_file(store, "t", 0, keyed(0, [KEY]), compression="zstd", now_ms=1)
    assert erased(settings).whole
    after = TopicTable.open(store, "t", CLOCK).snapshot
    assert after.transactions[delta_names.txn_rewrite(0)] > snapshot.transactions.get(delta_names.txn_rewrite(0), 0)


def test_what_lies_beside_the_tables_is_named_with_what_to_do(local: tuple[ServerSettings, ObjectStore]) -> None:
    settings, store = local
    filled(store, files=1)
    batch = pa.RecordBatch.from_pydict(
        {"key": [KEY], "value": [b"x"]}, pa.schema({"key": pa.binary(), "value": pa.binary()})
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_batch(batch)
    store.put(f"{names.STAGING_FOLDER}/w/{names.STAGED_FILES}/1", sink.getvalue())
    sink = pa.BufferOutputStream()
    whole = pa.Table.from_pylist(
        [{"partition": 0, "offset": 1, "timestamp": 0, "key": KEY, "value": b"x", "headers": None}], RECORD_SCHEMA
    )
    with pa.ipc.new_file(sink, RECORD_SCHEMA) as file:
        file.write_table(whole)
    inner = names.stranded_file("t", "id", 0, 1, 1)
    store.put(f"{names.SHARED_STRANDED_FOLDER}/{inner}", sink.getvalue())
    own = settings.data_dir / names.STRANDED_FOLDER / inner
    own.parent.mkdir(parents=True)
    own.write_bytes(sink.getvalue().to_pybytes())
    for run, finished in (("over", True), ("open", False)):
        plan = ReplayPlan("t", "id", 1, Selection(key=KEY), Target("t", "id", 1), True)
        store.put(names.replay_plan_object(run), msgspec.json.encode(plan))
        store.put(names.replay_progress_object(run), msgspec.json.encode(Progress({}, finished)))

    done = erased(settings)
    assert [left.place.removeprefix(f"{store.root_uri}/") for left in done.left] == [
        "staging/w/files/1",
        f"cluster/stranded/{inner}",
        own.as_uri(),
        "cluster/replay/open/plan",
    ]
    assert all(left.what and left.remedy for left in done.left)
    assert not done.whole and store.info(names.replay_plan_object("over")) is None


def test_backups_that_have_it_are_named_and_newer_ones_alone_do_not(local: tuple[ServerSettings, ObjectStore]) -> None:
    settings, store = local
    filled(store)
    place = (settings.data_dir / "backups").as_uri()
    store.put(names.CLUSTER_ID_OBJECT, b"\n".join([new_id().encode(), b""]))
    assert not any(each.error for each in backup_topics(settings, place).topics)
    [left] = erased(settings, backups=[place]).left
    assert (
        left.place == place and left.what.startswith("4 files") and f"silt backup --to {place} --keep 1" in left.remedy
    )
    backup_topics(settings, place, keep=1)
    assert erased(settings, backups=[place]).whole
    with pytest.raises(ConfigError, match="no backups"):
        erased(settings, backups=[f"{place}-elsewhere"])


def test_topics_of_the_system_are_left_alone_and_none_that_is_not_there_is_taken(
    local: tuple[ServerSettings, ObjectStore],
) -> None:
    settings, store = local
    filled(store, files=1)
    filled(store, "_jobs", 1)
    assert [each.topic for each in erased(settings).topics] == ["t"]
    with pytest.raises(Refused, match="the system's"):
        erased(settings, "_jobs")
    with pytest.raises(UnknownTopic):
        erased(settings, "nope")


def test_one_bad_topic_does_not_stop_the_others_and_a_file_that_cannot_be_read_is_named(
    local: tuple[ServerSettings, ObjectStore],
) -> None:
    settings, store = local
    bad = filled(store, "a", 1)
    filled(store, "b", 1)
    file = bad.table.refresh().files_of(0)[0]
    content = store.get(f"topics/a/{file.path}")
    torn = f"topics/b/rewrite-1/{file.path}"
    store.put(torn, content[: len(content) // 2])
    store.delete(f"topics/a/{file.path}")
    done = erased(settings)
    found = {each.topic: each for each in done.topics}
    assert isinstance(found["a"].error, CorruptData) and not done.whole
    assert found["b"].records == 2 and [left.place for left in found["b"].left] == [
        f"{store.uri('topics/b')}/{torn[9:]}"
    ]


def test_what_the_servers_could_not_do_is_told(local: tuple[ServerSettings, ObjectStore]) -> None:
    settings, store = local
    filled(store, files=1)
    calls = []

    def settle() -> list[Left]:
        calls.append(len(places_of(store)))
        return []

    assert erase_key(settings, KEY, clock=CLOCK, dry_run=False, settle=settle).whole
    assert calls == [1, 1], "before, and once the table names others; only then do the old files go"


KILLED = """
import os, signal, sys
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.erasure import erase
from siltlog.infra.store import store as store_module
from siltlog.infra.store.local import LocalStore

data_dir, root, step, at = sys.argv[1:5]
left = int(at)
def dies(function):
    def wrapped(*args, **options):
        global left
        result = function(*args, **options)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return wrapped
if step == "written":
    erase.write_data_file = dies(erase.write_data_file)
elif step == "committed":
    TopicTable.rewrite = dies(TopicTable.rewrite)
else:
    store_module.REQUESTS_AT_ONCE = 1
    LocalStore.delete = dies(LocalStore.delete)
erase.COMMIT_FILES_MAX = 2
from pathlib import Path
erase.erase_key(ServerSettings(data_dir=Path(data_dir), root=root), b"person-4711", dry_run=False, settle=list)
"""


@pytest.mark.rule("ER4")
@pytest.mark.parametrize(("step", "at"), [("written", 3), ("committed", 1), ("committed", 2), ("deleted", 2)])
def test_killed_at_any_step_and_run_again_it_comes_to_the_same(
    local: tuple[ServerSettings, ObjectStore], step: str, at: int
) -> None:
    settings, store = local
    filled(store)
    expected = {partition: [row for row in rows if row[1] != KEY] for partition, rows in rows_of(store).items()}
    command = [sys.executable, "-c", KILLED, str(settings.data_dir), store.root_uri, step, str(at)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert places_of(store), "it was cut short"
    assert erased(settings).whole
    assert places_of(store) == [] and rows_of(store) == expected
    assert not any(report.findings for report in audit_topics(settings, any_partition=["t"]))
