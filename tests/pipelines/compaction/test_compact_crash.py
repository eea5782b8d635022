"""Compaction as a process of its own that is killed, and on S3."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos import more
from processes import alive
from record_tables import CLOCK
from s3_server import S3Server
from topic_writer import TopicWriter

from siltlog.infra import names
from siltlog.infra.store.scratch_folder import scratch_folder
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import read_data_file
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.compaction.compact import compact, plan_of
from siltlog.pipelines.compaction.rewriting import run_chunk
from siltlog.pipelines.spark.query import run_query
from siltlog.pipelines.spark.session import spark_session
from siltlog.pipelines.topics import spark_uri

pytestmark = pytest.mark.spark
TOPIC = "flights"

CHILD = """
import os, signal, sys
from pathlib import Path
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.compaction import compact
from siltlog.pipelines.compaction import rewriting

root, data_dir = sys.argv[1:]
write_merged = rewriting.write_merged

def killed_rewrite(*args, **marks):
    os.kill(os.getpid(), signal.SIGKILL)

def told_write(spark, *args):
    print(spark.sparkContext._gateway.proc.pid, flush=True)
    write_merged(spark, *args)

TopicTable.rewrite, rewriting.write_merged = killed_rewrite, told_write
compact.compact_topics(ServerSettings(root=root, data_dir=Path(data_dir)))
"""


@pytest.fixture
def topic(store: ObjectStore) -> TopicWriter:
    topic = TopicWriter(store, TOPIC)
    for _ in range(5):
        topic.append(2_000, 50)
    return topic


def offsets(table: TopicTable) -> dict[int, list[int]]:
    snapshot = table.refresh()
    return {
        partition: [
            offset
            for file in snapshot.files_of(partition)
            for offset in read_data_file(table._store, TOPIC, file, columns=["offset"])["offset"].to_pylist()
        ]
        for partition in range(snapshot.partitions)
    }


def left_in(temporary: Path) -> list[str]:
    return [path.name for path in temporary.rglob("*") if path.name != f"silt-spark-{os.getuid()}"]


def run_folders(store: ObjectStore) -> list[str]:
    return [name for name in store.folders(names.topic_path(TOPIC)) if name.startswith(names.REWRITE_PREFIX)]


@pytest.fixture
def child(topic: TopicWriter, tmp_path: Path, temporary: Path) -> Iterator[Any]:
    """Starts a compaction that is killed at a moment, and returns when its JVM is gone as well."""
    processes = []

    def start(moment: str) -> None:
        command = [sys.executable, "-c", CHILD, topic.store.root_uri, str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        jvm = int(process.stdout.readline())
        if moment == "while Spark writes":
            while not run_folders(topic.store):
                time.sleep(0.005)
            process.kill()
        assert process.wait() == -signal.SIGKILL
        while alive(jvm):
            time.sleep(0.05)

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("moment", [more("while Spark writes"), "before the commit"])
def test_killed_and_run_again_the_result_is_the_same(
    spark: Any, topic: TopicWriter, child: Any, temporary: Path, moment: str
) -> None:
    before = offsets(topic.table)
    child(moment)
    assert offsets(topic.table) == before
    assert len(topic.table.snapshot.files) == 10
    report = compact(spark, topic.store, TopicTable.open(topic.store, TOPIC, CLOCK), CLOCK)
    assert report.error is None
    assert report.files_after == 2
    assert report.raced_chunks == 0
    assert offsets(topic.table) == before
    runs = {folder.split("-")[1] for folder in run_folders(topic.store)}
    assert len(runs) == 2, "what the killed run wrote stays for vacuum"
    assert list(temporary.glob("silt-spark-*/*"))
    with scratch_folder("spark"):
        pass
    assert left_in(temporary) == []


DYING = """
import os, signal, sys
from pathlib import Path
from siltlog.infra.settings.settings import ServerSettings
from siltlog.pipelines.compaction import compact
from siltlog.pipelines.compaction import rewriting

write_merged = rewriting.write_merged

def dying(spark, store, topic, *args):
    if topic == "flights":
        os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
        spark.sparkContext._gateway.proc.wait()
    write_merged(spark, store, topic, *args)

rewriting.write_merged = dying
settings = ServerSettings(root=sys.argv[1], data_dir=Path(sys.argv[2]))
print([(report.error and report.error.detail, report.files_after) for report in compact.compact_topics(settings)])
"""


@pytest.mark.rule("J1", "J2")
@pytest.mark.slow
def test_a_jvm_that_dies_is_told_in_a_sentence_and_others_get_another(
    topic: TopicWriter, tmp_path: Path, temporary: Path
) -> None:
    next_one = TopicWriter(topic.store, "next")
    for _ in range(2):
        next_one.append(10)
    command = [sys.executable, "-c", DYING, topic.store.root_uri, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    told = f"Spark could not merge files of topic {TOPIC}: its JVM ended, perhaps for want of memory"
    assert (run.stdout.strip(), run.returncode) == (str([(told, 10), (None, 1)]), 0)
    assert left_in(temporary) == []


@pytest.mark.slow
@pytest.mark.s3
def test_the_same_on_s3(spark: Any, s3_server: S3Server) -> None:
    store = open_store(s3_server.root_uri("compaction"), s3_endpoint=s3_server.endpoint, s3_region=s3_server.region)
    topic = TopicWriter(store, TOPIC)
    for _ in range(3):
        topic.append(200, 50)
    before = offsets(topic.table)
    raced, racer = (TopicTable.open(store, TOPIC, CLOCK) for _ in range(2))
    (chunk,) = plan_of(racer.snapshot, CLOCK).chunks
    plan_version = racer.snapshot.version
    with spark_session(store):
        assert run_chunk(spark, store, racer, chunk, CLOCK)
    raced_outputs = list(racer.snapshot.files.values())
    with pytest.raises(Exception, match="plan it anew"):
        raced.rewrite(plan_version, chunk.files, raced_outputs, "raced")
    topic.append(7)
    assert compact(spark, store, topic.table, CLOCK).error is None
    assert offsets(topic.table) == {0: [*before[0], *range(600, 607)], 1: before[1]}
    assert len(topic.table.snapshot.files) == 2
    frame = spark.read.format("delta").load(spark_uri(store, names.topic_path(TOPIC)))
    assert frame.count() == 757
    sql = f"select partition, count(*), max(offset) from {TOPIC} group by partition order by partition"
    assert list(run_query(spark, store, sql).rows) == [(0, 607, 606), (1, 150, 149)]
