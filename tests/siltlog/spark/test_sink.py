"""Writing from Spark, without Spark: batches are staged, decided once, and published once, whatever dies when."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from http_rig import Http
from s3_server import S3Server

from siltlog import Admin, Consumer, TopicPartition
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, CorruptData, Fenced, Refused
from siltlog.infra.store.local import PENDING_PREFIX, LocalStore
from siltlog.infra.store.store import open_store
from siltlog.spark.options import write_options
from siltlog.spark.sink import Sink, as_records
from siltlog.spark.staging import Manifest, Staging

KILLED = """
import os, signal, sys
from siltlog.infra.client.transport import HttpTransport
from siltlog.spark.options import write_options
from siltlog.spark.sink import Sink
import pyarrow as pa
topic, url, staging = sys.argv[1:]
send, left = HttpTransport.send, [4]
def send_some(self, url, request):
    answer = send(self, url, request)
    if request.method == "POST" and "/records" in request.path:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
    return answer
HttpTransport.send = send_some
sink = Sink(write_options({"topic": topic, "url": url, "stagingLocation": staging}, streaming=True), ["key", "value"])
rows = [f"first-{n}" for n in range(60_000)]
batch = pa.record_batch({"key": [str(n % 997) for n in range(len(rows))], "value": [row * 50 for row in rows]})
sink.publish(7, [sink.stage(iter([batch.slice(at, 10_000) for at in range(0, len(rows), 10_000)]))])
"""


def sink_of(http: Http, topic: str, staging: Path, **more: str) -> Sink:
    given = {"topic": topic, "url": http.url, "stagingLocation": str(staging), **more}
    return Sink(write_options(given, streaming=True), ["key", "value", "offset"])


def publish(sink: Sink, batch: int, *tasks: Sequence[str]) -> None:
    """Each task has its values, keyed by themselves."""
    staged = [
        sink.stage(iter([pa.record_batch({"key": list(rows), "value": list(rows)})] if rows else [])) for rows in tasks
    ]
    sink.publish(batch, staged)


def values(http: Http, topic: str) -> list[str]:
    """What a topic has, partition after partition."""
    with Admin(http.url) as admin:
        count = admin.topic(topic)["partitions"]
    found: list[str] = []
    for number in range(count):
        with Consumer(http.url, assign=[TopicPartition(topic, number)], stop_at="latest") as consumer:
            found += [record.text() or "" for record in consumer]
    return found


def left_in(staging: Path) -> list[str]:
    return sorted(path.relative_to(staging).as_posix() for path in staging.rglob("*") if path.is_file())


@pytest.fixture
def staging(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "staged here [1]"


@pytest.mark.rule("Q2", "Q4")
def test_a_batch_lands_once_and_in_order(http: Http, staging: Path) -> None:
    http.create("spark-once", 1)
    publish(sink_of(http, "spark-once", staging), 0, ["a", "b"], [], ["c"])
    publish(sink_of(http, "spark-once", staging), 0, ["another", "try"])
    publish(sink_of(http, "spark-once", staging), 1, [])
    publish(sink_of(http, "spark-once", staging), 3, ["d"])
    assert values(http, "spark-once") == ["a", "b", "c", "d"]
    assert left_in(staging) == [f"published/{3:020d}", "writer"]


def test_what_killed_writers_left_goes_a_day_later(http: Http, staging: Path) -> None:
    """Tasks that were killed, and what they were writing; others may still be at it."""
    http.create("spark-left", 1)
    sink = sink_of(http, "spark-left", staging)
    publish(sink, 0, ["a"])
    left = [*sink.stage(iter([pa.record_batch({"value": ["lost"]})])).files, *sink.stage(iter([])).files]
    half = [staging / PENDING_PREFIX, staging / "files" / "run" / f"{PENDING_PREFIX}1"]
    half[1].parent.mkdir()
    for path in half:
        path.write_bytes(b"half")
    young = left_in(staging)
    publish(sink, 1, ["b"])
    assert left_in(staging) == [path.replace(f"published/{0:020d}", f"published/{1:020d}") for path in young]
    long_ago = SystemClock().now_us() / 1e6 - 25 * 3600
    for path in (*half, *(staging / file.path for file in left)):
        os.utime(path, (long_ago, long_ago))
    publish(sink, 2, ["c"])
    assert values(http, "spark-left") == ["a", "b", "c"]
    assert left_in(staging) == [f"published/{2:020d}", "writer"]


@pytest.mark.rule("Q3")
def test_a_batch_from_before_is_refused(http: Http, staging: Path) -> None:
    http.create("spark-back", 1)
    sink = sink_of(http, "spark-back", staging)
    publish(sink, 5, ["a"])
    with pytest.raises(Refused, match=r"batch 4 comes after batch 5"):
        publish(sink, 4, ["b"])
    assert values(http, "spark-back") == ["a"]
    assert left_in(staging) == [f"published/{5:020d}", "writer"]


@pytest.mark.rule("Q3")
def test_what_was_decided_and_not_published_comes_first(http: Http, staging: Path) -> None:
    http.create("spark-decided", 1)
    sink = sink_of(http, "spark-decided", staging)
    store = Staging(LocalStore(str(staging)), SystemClock())
    files = sink.stage(iter([pa.record_batch({"value": ["a"]})])).files
    store.decide(1, files, 0)
    publish(sink, 2, ["b"])
    assert values(http, "spark-decided") == ["a", "b"]


@pytest.mark.rule("Q6")
def test_an_abort_leaves_what_a_batch_is_to_be_ended_with(http: Http, staging: Path) -> None:
    http.create("spark-abort", 1)
    sink = sink_of(http, "spark-abort", staging)
    decided, other = (sink.stage(iter([pa.record_batch({"value": [text]})])) for text in "ab")
    Staging(LocalStore(str(staging)), SystemClock()).decide(0, decided.files, 0)
    sink.discard([decided, None, other])
    publish(sink, 0, ["c"])
    assert values(http, "spark-abort") == ["a"]


def test_one_folder_is_one_writers(http: Http, staging: Path) -> None:
    for topic in ("spark-mine", "spark-yours"):
        http.create(topic, 1)
    publish(sink_of(http, "spark-mine", staging), 0, ["a"])
    with pytest.raises(ConfigError, match="spark-mine"):
        publish(sink_of(http, "spark-yours", staging), 0, ["a"])
    with pytest.raises(ConfigError, match="stagingLocation"):
        publish(sink_of(http, "spark-mine", staging, writerId="other"), 1, ["b"])


def test_a_batch_that_is_refused_whole_can_be_mended(http: Http, staging: Path) -> None:
    http.create("spark-mend", 1)
    sink = sink_of(http, "spark-mend", staging)
    with pytest.raises(Refused, match="mend the query"):
        publish(sink, 0, ["x" * 200_000, "good"])
    publish(sink, 0, ["good"])
    assert values(http, "spark-mend") == ["good"]


def test_a_batch_that_was_begun_is_ended_as_it_was(http: Http, staging: Path) -> None:
    http.create("spark-begun", 1, max_record_bytes=1000)
    sink = sink_of(http, "spark-begun", staging)
    with pytest.raises(Refused, match="records before it are published"):
        publish(sink, 0, ["a", "b", "x" * 2000, "c"])
    assert values(http, "spark-begun") == ["a", "b"]
    assert http.json("PATCH", "/v1/topics/spark-begun", {"config": {"max.record.bytes": 10_000}}).status == 200
    publish(sink, 0, ["another", "try"])
    assert values(http, "spark-begun") == ["a", "b", "x" * 2000, "c"]


@pytest.mark.slow
@pytest.mark.rule("Q2")
def test_a_driver_that_is_killed_while_it_publishes(http: Http, staging: Path) -> None:
    """Its batch is ended by the next with the same records, though the topic grew and the next has others."""
    topic = "spark-killed"
    http.create(topic, 2)
    arguments = [sys.executable, "-c", KILLED, topic, http.url, str(staging)]
    driver = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert driver.returncode == -signal.SIGKILL, driver.stderr
    with Admin(http.url) as admin:
        begun = sum(part["high_watermark"] for part in admin.offsets(topic))
        admin.alter_topic(topic, partitions=3)
    assert 0 < begun < 60_000, "it was to be killed in the middle"
    publish(sink_of(http, topic, staging), 7, ["another", "try"])
    found = values(http, topic)
    assert len(found) == 60_000
    assert set(found) == {f"first-{n}" * 50 for n in range(60_000)}
    publish(sink_of(http, topic, staging), 8, ["next"])
    assert len(values(http, topic)) == 60_001
    assert left_in(staging) == [f"published/{8:020d}", "writer"]


@pytest.mark.rule("Q4", "Q5")
def test_what_the_server_has_forgotten_is_not_published_twice(http: Http, staging: Path) -> None:
    """A batch that was begun, perhaps, longer ago than the topic remembers producers."""
    http.create("spark-forgotten", 1, producer_expiration_ms=60_000)
    sink = sink_of(http, "spark-forgotten", staging)
    publish(sink, 0, ["a"])
    files = list(sink.stage(iter([pa.record_batch({"value": ["b"]})])).files)
    long_ago = Manifest(files, 1, SystemClock().now_us() // 1000 - 61_000)
    store = LocalStore(str(staging))
    store.put(f"batches/{1:020d}", msgspec.json.encode(long_ago))
    with pytest.raises(Fenced, match="has forgotten"):
        publish(sink, 1, ["c"])
    store.put(f"batches/{1:020d}", msgspec.json.encode(msgspec.structs.replace(long_ago, first_record=0)))
    publish(sink, 1, ["c"])
    assert values(http, "spark-forgotten") == ["a"], "the server knows that it has the record of that number"


@pytest.mark.s3
def test_batches_are_staged_on_s3(http: Http, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILT_S3_ENDPOINT", s3_server.endpoint)
    http.create("spark-s3", 1)
    root = s3_server.root_uri("spark staging")
    given = {"topic": "spark-s3", "url": http.url, "checkpointLocation": root.replace("s3://", "s3a://")}
    for batch, rows in ((0, ["a", "b"]), (0, ["another"]), (1, ["c"])):
        publish(Sink(write_options(given, streaming=True), ["key", "value"]), batch, rows)
    assert values(http, "spark-s3") == ["a", "b", "c"]
    left = [info.path for info in open_store(root, s3_endpoint=s3_server.endpoint).list("siltlog")]
    assert left == [f"siltlog/published/{1:020d}", "siltlog/writer"]


def test_a_staged_file_that_is_gone_is_told(http: Http, staging: Path) -> None:
    http.create("spark-gone", 1)
    sink = sink_of(http, "spark-gone", staging)
    staged = sink.stage(iter([pa.record_batch({"value": ["a"]})]))
    next((staging / "files").rglob("*.arrow")).unlink()
    with pytest.raises(CorruptData, match="staged file"):
        sink.publish(0, [staged])


def test_rows_become_records() -> None:
    rows = pa.record_batch({"offset": [1], "value": ["é"], "partition": pa.array([2], pa.int64()), "topic": ["x"]})
    records = as_records(rows)
    assert records.schema.names == ["value", "partition"]
    assert records.to_pylist() == [{"value": "é".encode(), "partition": 2}]
    tombstone = pa.record_batch({"key": ["k"], "value": pa.array([None], pa.string())})
    assert as_records(tombstone).to_pylist() == [{"value": None, "key": b"k"}]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"value": [None], "key": [None]}, "needs a key"),
        ({"value": [{"a": 1}]}, "to_json"),
        ({"value": ["a"], "timestamp": [1_767_225_600_000]}, "timestamp_millis"),
        ({"value": ["a"], "timestamp": [datetime(2026, 1, 1)]}, "no moment"),  # noqa: DTZ001
        ({"value": ["a"], "timestamp": [date(2026, 1, 1)]}, "no moment"),
    ],
    ids=["nothing", "struct", "number", "no-zone", "date"],
)
def test_rows_that_are_no_records_are_told(rows: dict[str, list[object]], words: str) -> None:
    with pytest.raises((Refused, ConfigError), match=words):
        as_records(pa.record_batch(rows))


@pytest.mark.parametrize("columns", [["key"], ["value", "carrier"]])
def test_columns_are_looked_at_first(columns: list[str]) -> None:
    options = write_options({"topic": "t", "url": "http://127.0.0.1:1", "stagingLocation": "/tmp"}, streaming=True)
    with pytest.raises(ConfigError, match="selectExpr"):
        Sink(options, columns)
