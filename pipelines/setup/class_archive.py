"""An archive of the classes that the jobs load, with which the JVM of a short job starts in about half the time.

The JVM checks that an archive is of its own build and class path and goes on without one that is not; a session that
does not start with it starts without it. So nothing depends on it (JEP 350: dynamic class data sharing).
"""

import os
import uuid
from pathlib import Path

import pyarrow as pa

from siltlog.infra.clock import MICROS_PER_SECOND, Clock, SystemClock
from siltlog.infra.columns import FILE_SCHEMA
from siltlog.infra.private_folder import PrivateFolder
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import write_data_file
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.compaction.compact import compact
from siltlog.pipelines.spark.jars import DELTA, S3A, resolve
from siltlog.pipelines.spark.java import find_java
from siltlog.pipelines.spark.query import run_query
from siltlog.pipelines.spark.session import class_archive, spark_session

UNUSED_SECONDS_MAX = 30 * 86_400
_TOPIC = "warm"
_QUERY = f"""
select get_json_object(string(value), '$.a') as a, avg(offset) as mean, max(timestamp), count(*)
from {_TOPIC} where partition = 0 and offset >= 0 group by 1 order by mean desc limit 3"""  # noqa: S608


def find_class_archive() -> Path:
    """Returns the path of the archive of this Java and these jars, which need not be made yet.

    Raises ConfigError when there is no Java, or the jars cannot be downloaded.
    """
    java = find_java()
    return class_archive(java, [resolve(jar_set, java)[0].parent for jar_set in (DELTA, S3A)])


def make_class_archive() -> None:
    """Runs each job once over a topic of a few records. Raises ConfigError when Spark does not start."""
    archive = find_class_archive()
    archive.parent.mkdir(parents=True, exist_ok=True)
    clock = SystemClock()
    for other in archive.parent.glob("*.jsa"):
        # 180 MB, of a Java or of jars that are no more: each start of a session touches its own.
        if other.stat().st_mtime < clock.now_us() / MICROS_PER_SECOND - UNUSED_SECONDS_MAX:
            other.unlink(missing_ok=True)
    # Goes also when this process is killed: with the next one that makes an archive.
    making = PrivateFolder(archive.parent / "making")
    try:
        pending = making.path / archive.name
        store = open_store((making.path / "lake").as_uri())
        table = small_topic(store, clock)
        with spark_session(store, archive_to=pending) as spark:
            compact(spark, store, table, clock)
            list(run_query(spark, store, _QUERY).rows)
        if pending.exists():
            with pending.open("rb") as written:
                os.fsync(written.fileno())
            pending.replace(archive)
    finally:
        making.remove()


def small_topic(store: ObjectStore, clock: Clock, cleanup_policy: str = "compact") -> TopicTable:
    """Two files with a record each, of one key: there is something to do for every job."""
    table = TopicTable.create(
        store,
        _TOPIC,
        topic_id=str(uuid.uuid4()),
        partitions=1,
        config=TopicConfig({"cleanup.policy": cleanup_policy}),
        created_us=clock.now_us(),
        clock=clock,
    )
    table.claim({0: 1}, str(uuid.uuid4()))
    for offset in range(2):
        row = {"offset": offset, "timestamp": clock.now_us(), "key": b"k", "value": b'{"a": 1}'}
        records = pa.Table.from_pylist([row], schema=FILE_SCHEMA)
        now_ms = clock.now_us() // 1000
        file = write_data_file(store, _TOPIC, 0, records, compression="zstd", now_ms=now_ms)
        table.append([file], {0: (offset, offset + 1)}, {0: 1}, str(uuid.uuid4()))
    return table
