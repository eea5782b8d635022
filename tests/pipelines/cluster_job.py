"""What `test_spark_cluster.py` submits: file compaction, a batch read, a stream from topic to topic; prints JSON."""

import json
import sys
import tempfile

import siltlog.spark
from siltlog.infra.settings import ServerSettings
from siltlog.infra.store import open_store
from siltlog.pipelines.compact import compact_topics
from siltlog.pipelines.session import spark_session


def main(url: str, root: str) -> None:
    with spark_session(open_store(root)) as spark, tempfile.TemporaryDirectory() as folder:
        [compacted] = compact_topics(ServerSettings(root=root), ["events"])
        siltlog.spark.register(spark)
        events = spark.read.format("siltlog").option("url", url).option("maxRecordsPerPartition", 100).load("events")
        read = events.selectExpr("count(*)", "sum(offset)", "sum(length(value))").collect()[0]
        query = (
            spark.readStream.format("siltlog").option("url", url).load("events")
            .selectExpr("key", "value").repartition(2)
            .writeStream.format("siltlog").option("url", url).option("topic", "copies")
            .option("checkpointLocation", folder).trigger(availableNow=True).start()
        )  # fmt: skip
        ended = query.awaitTermination(120)
        query.stop()
        found = {
            "master": spark.sparkContext.master,
            "executors": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1,
            "error": None if compacted.error is None else str(compacted.error),
            "files": [compacted.files_before, compacted.files_after],
            "read": list(read),
            "ended": ended,
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
