"""Key compaction as a process of its own that is killed, beside a retention, and as readers of a server see it."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from chaos import more
from prices import Prices, model, run
from record_tables import CLOCK, new_id
from spark_python import environment_of_jvm

from siltlog import Admin, Consumer, Producer, TopicPartition
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.compaction import rewriting
from siltlog.pipelines.compaction.compact import compact, compact_topics
from siltlog.pipelines.compaction.keys import compact_keys, keys_plan
from siltlog.testing import running_server

pytestmark = pytest.mark.spark

CHILD = """
import os, signal, sys
from pathlib import Path
from siltlog.infra.clock import SystemClock
from siltlog.infra.store.store import open_store
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.compaction import rewriting
from siltlog.pipelines.compaction.plan import Limits
from siltlog.pipelines.compaction.keys import compact_keys, keys_plan
from siltlog.pipelines.spark.session import spark_session
from spark_python import join_jvm

root, moment = sys.argv[1:]
written, rewrite = rewriting.write_merged, TopicTable.rewrite

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def write(*args):
    written(*args)
    if moment == "after the write":
        die()

def committed(*args, **marks):
    rewrite(*args, **marks)
    die()

rewriting.write_merged = write
if moment == "after a commit":
    TopicTable.rewrite = committed
store, clock = open_store(root), SystemClock()
table = TopicTable.open(store, "prices", clock)
join_jvm()
with spark_session(store) as spark:
    limits = Limits(file_bytes_target=2_000, chunk_bytes_max=3_000, chunk_files_max=2)
    compact_keys(spark, store, table, keys_plan(store, "prices", table.snapshot, clock), clock, limits)
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", [more("after the write"), "after a commit"])
def test_killed_and_run_again_the_result_is_the_same(spark: Any, store: ObjectStore, moment: str) -> None:
    """The process alone: what goes with its JVM, `test_compact_crash.py` tells."""
    topic = Prices(store)
    for number in range(6):
        topic.put((b"only-%d" % number, b""), *((b"k%d" % (key % 11), b"%d" % number) for key in range(20)))
    before = topic.rows()
    wanted = model(before, 10**6)
    command = [sys.executable, "-c", CHILD, store.root_uri, moment]
    ran = subprocess.run(command, env={**os.environ, **environment_of_jvm(spark)}, capture_output=True, text=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    left = topic.rows()
    if moment == "after a commit":
        assert len(wanted) < len(left) < len(before)
        assert 0 < topic.marks()[0] < topic.table.snapshot.offsets[0]
    else:
        assert left == before
    assert run(spark, topic).raced_chunks == 0
    assert topic.rows() == wanted


def test_a_retention_that_comes_between_wins(spark: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Prices(store, cleanup_policy="compact,delete")
    topic.put((b"a", b"1"), (b"b", b"1"))
    topic.put((b"a", b"2"), (b"c", b"1"))
    written = rewriting.write_merged

    def raced(*args: Any) -> None:
        written(*args)
        monkeypatch.setattr(rewriting, "write_merged", written)
        snapshot = topic.table.refresh()
        move_starts(topic.table, snapshot.version, {0: start_move(snapshot, 0, 2)}, new_id(), now_ms=0)

    monkeypatch.setattr(rewriting, "write_merged", raced)
    table = TopicTable.open(store, topic.topic, CLOCK)
    done = compact_keys(spark, store, table, keys_plan(store, topic.topic, table.snapshot, CLOCK), CLOCK)
    assert (done.raced_chunks, done.removed_rows) == (1, 0)
    assert topic.kept() == [2, 3]
    assert compact(spark, store, TopicTable.open(store, topic.topic, CLOCK), CLOCK).error is None
    assert topic.kept() == [2, 3]


@pytest.mark.slow
def test_readers_and_producers_of_a_server_go_on(spark: Any, tmp_path: Path) -> None:
    """Consumers read past the gaps, and what a producer repeats is still known for a repetition."""
    with running_server(data_dir=tmp_path / "node") as server:
        with Admin(server.url) as admin:
            admin.create_topic("prices", 1, {"cleanup.policy": "compact"})
        body = {"records": [{"key": f"k{n % 5}", "value": f"v{n}", "partition": 0, "sequence": n} for n in range(60)]}

        def publish() -> dict[str, Any]:
            request = urllib.request.Request(
                f"{server.url}/v1/topics/prices/records?acks=table",
                json.dumps(body).encode(),
                {"Content-Type": "application/json", "Silt-Producer-Id": "p"},
            )
            with urllib.request.urlopen(request, timeout=240) as reply:
                return dict(json.load(reply)["partitions"][0])

        assert publish()["duplicate"] is False
        settings = ServerSettings(root=server.root, data_dir=tmp_path / "node")
        deadline = time.monotonic() + 240
        removed = 0
        # What a producer did is beside the table some time after its records are.
        while removed < 55 and time.monotonic() < deadline:
            (report,) = compact_topics(settings, ["prices"])
            assert report.error is None
            removed += report.removed_rows
            time.sleep(0.5)
        assert removed == 55
        server.restart()
        for read in ("server", "table"):
            assign = [TopicPartition("prices", 0)]
            with Consumer(server.url, assign=assign, stop_at="latest", read=read) as consumer:
                assert [(record.offset, record.text()) for record in consumer] == [(n, f"v{n}") for n in range(55, 60)]
        again = publish()
        assert (again["duplicate"], again["first_offset"], again["last_offset"]) == (True, 0, 59)
        with Producer(server.url) as producer:
            assert producer.send("prices", "v", key="k").result(30).offset == 60
