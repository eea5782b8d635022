"""`format("siltlog")` in a real Spark with a real server: batches and streams, the newest records included."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import siltlog.spark
from siltlog import Admin, Producer
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

pytestmark = pytest.mark.spark

NEVER_MS = 3_600_000
STREAM_SECONDS_MAX = 240


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """One that never flushes by itself: what is read beyond the tables comes from the head."""
    with running_server(redis_url="redis://127.0.0.1:1/0", flush_ms=NEVER_MS, log_level="warning") as server:
        yield server


@pytest.fixture
def admin(server: ServerProcess) -> Iterator[Admin]:
    with Admin(server.url) as admin:
        yield admin


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    siltlog.spark.register(spark)
    return spark


def publish(server: ServerProcess, topic: str, first: int, count: int, *, acks: str = "wal", **columns: Any) -> None:
    numbers = range(first, first + count)
    with Producer(server.url, acks=acks) as producer:
        rows = {"key": [f"k{n}" for n in numbers], "value": [f"v{n}" for n in numbers], **columns}
        producer.send_batch(topic, pa.table(rows))


def reading(session: Any, server: ServerProcess, topic: str, **options: Any) -> Any:
    """A batch of a topic."""
    return session.read.format("siltlog").option("url", server.url).options(**options).load(topic)


def numbers(frame: Any) -> list[int]:
    return sorted(int(row.value[1:]) for row in frame.select("value").collect())


class Query:
    """Runs a stream to its present end, as often as it is asked to, on one checkpoint; keeps what came by batch."""

    def __init__(self, session: Any, server: ServerProcess, folder: Path, topics: str) -> None:
        self._new = lambda: session.readStream.format("siltlog").option("url", server.url).option("subscribe", topics)
        self._checkpoint = (folder / "checkpoint").as_uri()
        self.batches: list[list[int]] = []

    def run(self, **options: Any) -> None:
        """Raises what the query ended with."""
        query = (
            self._new()
            .options(**options)
            .load()
            .writeStream.foreachBatch(lambda frame, batch: self.batches.append(numbers(frame)))
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(STREAM_SECONDS_MAX)
        finally:
            query.stop()

    def take(self) -> list[int]:
        """What came since it was asked last."""
        found, self.batches = sorted(number for batch in self.batches for number in batch), []
        return found


@pytest.mark.rule("Q8")
def test_a_batch_reads_the_table_and_the_head(session: Any, server: ServerProcess, admin: Admin) -> None:
    admin.create_topic("batch", 2)
    publish(server, "batch", 0, 300, acks="table")
    publish(server, "batch", 300, 200, headers=pa.array([[{"key": "h", "value": b"x"}]] * 200))
    assert reading(session, server, "batch").rdd.getNumPartitions() == 1, "little is read by one task"
    some = session.read.format("siltlog").option("url", server.url).schema("offset bigint, value binary").load("batch")
    assert numbers(some) == list(range(500))
    with pytest.raises(Exception, match="no column value of type string"):
        session.read.format("siltlog").option("url", server.url).schema("value string").load("batch").count()
    frame = reading(session, server, "batch", maxRecordsPerPartition=100)
    assert [(name, kind) for name, kind in frame.dtypes] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    assert frame.rdd.getNumPartitions() >= 5
    assert numbers(frame) == list(range(500))
    row = frame.where("value = binary('v400')").collect()[0]
    assert (row.key, row.topic, row.timestampType) == (b"k400", "batch", 0)
    assert [(header.key, header.value) for header in row.headers] == [("h", b"x")]
    assert numbers(reading(session, server, "batch", isolation="table")) == list(range(300))
    # Plain Delta, with nothing of ours.
    uri = siltlog.table_uri("batch", server.url)
    assert numbers(session.read.format("delta").load(uri)) == list(range(300))
    assert numbers(reading(session, server, "batch", read="table")) == list(range(300))


@pytest.mark.slow
def test_a_batch_is_read_by_offsets_and_times(session: Any, server: ServerProcess, admin: Admin) -> None:
    admin.create_topic("ranges", 1)
    times = pa.array(range(1_767_225_600_000_000, 1_767_225_600_000_000 + 100 * 1_000_000, 1_000_000))
    publish(server, "ranges", 0, 100, timestamp=times.cast(pa.timestamp("us", "UTC")))
    offsets = {"startingOffsets": '{"ranges": {"0": 20}}', "endingOffsets": '{"ranges": {"0": 30}}'}
    assert numbers(reading(session, server, "ranges", **offsets)) == list(range(20, 30))
    between = {"startingTimestamp": "2026-01-01T00:00:50Z", "endingTimestamp": "1767225660000"}
    assert numbers(reading(session, server, "ranges", **between)) == list(range(50, 60))
    assert numbers(reading(session, server, "ranges", startingTimestamp="2027-01-01T00:00:00Z")) == []
    by_partition = {"startingOffsetsByTimestamp": '{"ranges": {"0": 1767225690000}}'}
    assert numbers(reading(session, server, "ranges", **by_partition)) == list(range(90, 100))
    beyond = {"startingOffsets": '{"ranges": {"0": 101}}'}
    with pytest.raises(Exception, match="was to be read from 101"):
        reading(session, server, "ranges", **beyond).count()
    assert numbers(reading(session, server, "ranges", failOnDataLoss="false", **beyond)) == []
    with pytest.raises(Exception, match="ends at offset 100"):
        reading(session, server, "ranges", endingOffsets='{"ranges": {"0": 101}}').count()
    with pytest.raises(Exception, match="UnknownTopic"):
        reading(session, server, "none").count()


@pytest.mark.slow
@pytest.mark.rule("Q1")
def test_a_stream_goes_on_where_its_checkpoint_ends(
    session: Any, server: ServerProcess, admin: Admin, tmp_path: Path
) -> None:
    for topic in ("s1", "s2"):
        admin.create_topic(topic, 2)
        publish(server, topic, 0, 50)
    query = Query(session, server, tmp_path, "s1,s2")
    query.run(maxOffsetsPerTrigger=30)
    assert [len(batch) for batch in query.batches] == [30, 30, 30, 10]
    assert query.take() == sorted([*range(50)] * 2)
    kept = json.loads(sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]"))[-1].read_text().splitlines()[-1])
    known = {part["partition"]: part["high_watermark"] for part in admin.offsets("s1")}
    assert kept["s1"]["topic_id"] == admin.topic("s1")["topic_id"]
    assert {int(number): offset for number, offset in kept["s1"]["offsets"].items()} == known

    admin.alter_topic("s1", partitions=4)
    publish(server, "s1", 50, 40)
    query.run()
    assert query.take() == list(range(50, 90))


@pytest.mark.slow
def test_what_retention_or_a_deletion_took_is_told_or_left_out(
    session: Any, server: ServerProcess, admin: Admin, tmp_path: Path
) -> None:
    admin.create_topic("lost", 1)
    publish(server, "lost", 0, 10)
    query = Query(session, server, tmp_path, "lost")
    query.run()
    publish(server, "lost", 10, 10)
    admin.delete_records("lost", 0, 15)
    query.take()
    with pytest.raises(StreamingQueryException, match="begins at offset 15 by now, and 10 was asked for"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.take() == list(range(15, 20))
    publish(server, "lost", 20, 10)
    admin.delete_records("lost", 0, 25)
    query.run(failOnDataLoss="false", maxOffsetsPerTrigger=3)
    assert [len(batch) for batch in query.batches] == [3, 2], "what is gone does not count"
    assert query.take() == list(range(25, 30))

    admin.delete_topic("lost")
    with pytest.raises(StreamingQueryException, match="no topic 'lost'"):
        query.run()
    admin.create_topic("lost", 1)
    publish(server, "lost", 100, 5)
    with pytest.raises(StreamingQueryException, match="was deleted and created again"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.take() == list(range(100, 105))


@pytest.mark.rule("Q10")
def test_a_topic_that_is_gone_leaves_the_others(
    session: Any, server: ServerProcess, admin: Admin, tmp_path: Path
) -> None:
    for topic, first in (("gone", 0), ("stays", 5)):
        admin.create_topic(topic, 1)
        publish(server, topic, first, 5)
    query = Query(session, server, tmp_path, "gone,stays")
    with pytest.raises(StreamingQueryException, match="has no option 'ends'"):
        query.run(ends="never")
    query.run()
    admin.delete_topic("gone")
    publish(server, "stays", 10, 5)
    query.take()
    query.run(failOnDataLoss="false")
    assert query.take() == list(range(10, 15))


@pytest.mark.slow
def test_a_stream_is_written_once(session: Any, server: ServerProcess, admin: Admin, tmp_path: Path) -> None:
    """Its last batch is repeated, as after a crash before Spark noted that it was done."""
    for topic in ("from", "into"):
        admin.create_topic(topic, 2)
    publish(server, "from", 0, 100)
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        query = (
            session.readStream.format("siltlog")
            .option("url", server.url)
            .option("maxOffsetsPerTrigger", 60)
            .load("from")
            .selectExpr(
                "key", "value", "array(struct('was' AS key, binary(cast(offset AS string)) AS value)) AS headers"
            )
            .writeStream.format("siltlog")
            .option("url", server.url)
            .option("topic", "into")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(STREAM_SECONDS_MAX)
        finally:
            query.stop()

    run()
    last = max((checkpoint / "commits").glob("[0-9]*"))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    publish(server, "from", 100, 10)
    run()
    assert numbers(reading(session, server, "into")) == list(range(110))
    row = reading(session, server, "into").where("value = binary('v105')").collect()[0]
    assert row.headers[0].key == "was"


@pytest.mark.rule("Q11")
def test_a_batch_is_written(session: Any, server: ServerProcess, admin: Admin) -> None:
    admin.create_topic("written", 2)
    frame = session.range(0, 1000, numPartitions=4).selectExpr(
        "concat('v', id) AS value",
        "cast(id AS string) AS key",
        "timestamp_millis(1767225600000 + id) AS timestamp",
        "array(struct('h' AS key, binary('x') AS value)) AS headers",
    )

    def write(**options: Any) -> None:
        frame.write.format("siltlog").option("url", server.url).options(**options).mode("append").save("written")

    write()
    assert numbers(reading(session, server, "written")) == list(range(1000))
    row = reading(session, server, "written").where("value = binary('v7')").collect()[0]
    assert (row.key, row.timestamp.timestamp(), row.headers[0].key) == (b"7", 1_767_225_600.007, "h")
    staging = Path(server.root.removeprefix("file://")) / "staging"
    assert list(staging.rglob("*")) == []
    for _ in range(2):
        write(writerId="nightly", batchId=3)
    assert reading(session, server, "written").count() == 2000
    with pytest.raises(Exception, match="only ever appended to"):
        frame.write.format("siltlog").option("url", server.url).mode("overwrite").save("written")


@pytest.mark.slow
def test_the_tables_stream(session: Any, server: ServerProcess, admin: Admin, tmp_path: Path) -> None:
    admin.create_topic("settled", 1)
    publish(server, "settled", 0, 10, acks="table")
    found: list[int] = []

    def run() -> None:
        stream = siltlog.spark.readStream(session, "settled", url=server.url)
        assert set(stream.columns) >= {"key", "value", "topic", "partition", "offset", "timestamp", "timestampType"}
        query = (
            stream.writeStream.foreachBatch(lambda frame, batch: found.extend(numbers(frame)))
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(STREAM_SECONDS_MAX)
        finally:
            query.stop()

    run()
    assert sorted(found) == list(range(10))
    admin.delete_topic("settled")
    admin.create_topic("settled", 1)
    publish(server, "settled", 100, 10, acks="table")
    with pytest.raises(StreamingQueryException, match="DIFFERENT_DELTA_TABLE"):
        run()
    assert sorted(found) == list(range(10)), "nothing of the new topic is taken for the old one's"


@pytest.mark.slow
@pytest.mark.rule("X8")
def test_nothing_that_spark_keeps_or_shows_has_a_token(
    session: Any, server: ServerProcess, admin: Admin, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for topic in ("secret-from", "secret-into"):
        admin.create_topic(topic)
    publish(server, "secret-from", 0, 10)
    (tmp_path / "token").write_text("silt_abc_canary")
    checkpoint = tmp_path / "checkpoint"
    for option, value in (("token", "silt_abc_canary"), ("tokenFile", str(tmp_path / "token"))):
        frame = reading(session, server, "secret-from", **{option: value})
        frame.explain("extended")
        shown = capfd.readouterr().out + frame._jdf.queryExecution().toString()
        assert "siltlog" in shown and "canary" not in shown
        assert len(numbers(frame)) == 10
        query = (
            session.readStream.format("siltlog")
            .option("url", server.url)
            .option(option, value)
            .load("secret-from")
            .select("value")
            .writeStream.format("siltlog")
            .option("url", server.url)
            .option(option, value)
            .option("topic", "secret-into")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(STREAM_SECONDS_MAX)
        assert "canary" not in str(query.recentProgress)
    kept = [path for path in checkpoint.rglob("*") if path.is_file()]
    assert kept and not [path for path in kept if b"canary" in path.read_bytes()]
    with pytest.raises(Exception, match="another character") as refused:
        reading(session, server, "secret-from", token="silt canary").count()
    assert "canary" not in str(refused.value)
