"""The same on a cluster: a master, two workers, and a driver that `spark-submit` starts. It takes six JVMs."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
import spark_cluster
import urllib3
from chaos import only_with_chaos
from spark_cluster import standalone_cluster

from siltlog import Admin, Consumer, Producer, TopicPartition
from siltlog.testing import running_server

JOB = Path(spark_cluster.__file__).with_name("cluster_job.py")
BATCHES = 6
ROWS = 200
KEYS = 30


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
@only_with_chaos
@pytest.mark.timeout(900)
def test_a_cluster_compacts_replays_reads_and_writes(tmp_path: Path) -> None:
    with running_server(redis_url="redis://127.0.0.1:1/0", flush_ms=50) as server, Admin(server.url) as admin:
        admin.create_topic("events", 1)
        admin.create_topic("copies", 2)
        lag = {"cleanup.policy": "compact", "min.compaction.lag.ms": 0}
        admin.create_topic("latest", 1, lag)
        values = [f"value-{number}" for number in range(BATCHES * ROWS)]
        for first in range(0, len(values), ROWS):
            with Producer(server.url, acks="table") as producer:
                part = values[first : first + ROWS]
                producer.send_batch("events", pa.table({"key": part, "value": part}))
            # Without a producer: of one's records none goes before a server has noted what they tell of it.
            records = [{"key": f"k{n % KEYS}", "value": value} for n, value in enumerate(part)]
            url = f"{server.url}/v1/topics/latest/records?acks=table"
            assert urllib3.request("POST", url, json={"records": records}).status == 200
        with standalone_cluster(tmp_path) as cluster:
            done = cluster.submit(JOB, server.url, server.root)
        assert done.returncode == 0, done.stdout[-4000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert found == {
            "master": cluster.url,
            "executors": 2,
            "files": {"events": [BATCHES, 1], "latest": [BATCHES, 1]},
            "replayed": len(values) - 1000,
            "counted": len(values),
            "read": [len(values), sum(range(len(values))), sum(map(len, values))],
            "streamed": len(values),
            "latest": [KEYS, KEYS],
            "ended": [True, True],
        }
        copies: list[str | None] = []
        for number in range(2):
            with Consumer(server.url, assign=[TopicPartition("copies", number)], stop_at="latest") as consumer:
                copies += [record.text() for record in consumer]
        assert sorted(map(str, copies)) == sorted(values + values[1000:])
