"""What `test_spark_cluster.py` submits: jobs as `silt` runs them, tables and topics read and written; prints JSON."""

import io
import json
import sys
import tempfile
from contextlib import redirect_stdout
from typing import Any

import siltlog.spark
from siltlog.cli.main import run
from siltlog.infra.store.store import open_store
from siltlog.pipelines.spark.session import spark_session


def main(url: str, root: str) -> None:
    with spark_session(open_store(root)) as spark, tempfile.TemporaryDirectory() as folder:
        # The session's defaults are those of its cluster, and not of a program of ours.
        only = ("--topic", "events", "--topic", "latest")
        compacted = silt("compact", *only, "--root", root, "--url", url)["compacted"]
        over = ("--topic", "events", "--into", "copies", "--where", "offset >= 1000")
        replayed = silt("replay", *over, "--root", root, "--url", url)
        counted = silt("query", "select count(*) as n from events", "--root", root)

        siltlog.spark.register(spark)
        events = spark.read.format("siltlog").option("url", url).option("maxRecordsPerPartition", 100).load("events")
        read = events.selectExpr("count(*)", "sum(offset)", "sum(length(value))").collect()[0]
        copy = (
            spark.readStream.format("siltlog").option("url", url).load("events")
            .selectExpr("key", "value").repartition(2)
            .writeStream.format("siltlog").option("url", url).option("topic", "copies")
            .option("checkpointLocation", f"{folder}/copy").trigger(availableNow=True).start()
        )  # fmt: skip
        streamed: list[int] = []
        tables = (
            siltlog.spark.readStream(spark, "events", url=url)
            .writeStream.foreachBatch(lambda frame, batch: streamed.append(frame.count()))
            .option("checkpointLocation", f"{folder}/tables").trigger(availableNow=True).start()
        )  # fmt: skip
        ended = [query.awaitTermination(120) for query in (copy, tables)]
        latest = siltlog.spark.read(spark, "latest", root=root).selectExpr("count(*)", "count(distinct key)")
        found = {
            "master": spark.sparkContext.master,
            "executors": spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1,
            "files": {one["topic"]: [one["files_before"], one["files_after"]] for one in compacted},
            "replayed": replayed["records"],
            "counted": counted["n"],
            "read": list(read),
            "streamed": sum(streamed),
            "latest": list(latest.collect()[0]),
            "ended": ended,
        }
        print(json.dumps(found))


def silt(*arguments: str) -> dict[str, Any]:
    """What a job prints; on the session there is."""
    with redirect_stdout(io.StringIO()) as output:
        code = run([*arguments, "--output", "json"])
    if code:
        raise SystemExit(f"silt {' '.join(arguments)} ended with {code}: {output.getvalue()}")
    return dict(json.loads(output.getvalue()))


if __name__ == "__main__":
    main(*sys.argv[1:])
