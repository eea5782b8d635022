"""A player by Spark's source and sink of Kafka: it answers each line of JSON that it is asked with one.

Its session is for any server: which one is a field of what it is asked for.
"""

import json
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

ROWS = """partition int, key binary, value binary, headers array<struct<key:string,value:binary>>"""
COLUMNS = tuple(part.strip().partition(" ")[0] for part in ROWS.split(", "))
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
Fields = dict[str, Any]


def session(jars: str, folder: str) -> SparkSession:
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": jars,
        "spark.driver.extraJavaOptions": OPTIONS,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.local.dir": folder,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": folder,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("player")
    return builder.config(map=settings).getOrCreate()


def data(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


class Player:
    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def produce(self, bootstrap: str, topic: str, records: list[Fields]) -> None:
        rows = [
            (
                record["partition"],
                data(record["key"]),
                data(record["value"]),
                [(name, data(value)) for name, value in record["headers"]],
            )
            for record in records
        ]
        frame = self.spark.createDataFrame(rows, ROWS).coalesce(1)
        write = frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        write.option("includeHeaders", "true").option("topic", topic).save()

    def read(self, bootstrap: str, topic: str, options: dict[str, str]) -> Fields:
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        frame = reader.option("subscribe", topic).option("includeHeaders", "true").options(**options).load()
        return {
            "records": [
                {
                    "partition": row.partition,
                    "offset": row.offset,
                    "key": text(row.key),
                    "value": text(row.value),
                    "headers": [[header.key, text(header.value)] for header in row.headers or ()],
                }
                for row in frame.collect()
            ]
        }

    def copy(self, bootstrap: str, source: str, target: str, checkpoint: str, options: dict[str, str]) -> None:
        """Streams what is there into another topic, from where its checkpoint says."""
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
        frame: DataFrame = reader.option("includeHeaders", "true").options(**options).load().select(*COLUMNS)
        writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        writer = writer.option("topic", target).option("includeHeaders", "true")
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    player = Player(session(*sys.argv[1:]))
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(player, asked.pop("do"))(**asked) or {}
        except PySparkException as error:
            answer = {"error": str(error)}
        print(json.dumps({"records": [], "held": []} | answer), flush=True)


main()
