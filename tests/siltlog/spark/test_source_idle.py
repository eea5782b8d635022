"""A stream's driver where there is no news, without Spark and without a server."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from siltlog.infra.records import Bounds
from siltlog.spark.log_reader import LogReader
from siltlog.spark.options import ReadOptions
from siltlog.spark.positions import Positions, TopicBounds
from siltlog.spark.source import IDLE_WAIT_MS, StreamReader

URL = "http://silt.example:7070"


class QuietLog(LogReader):
    """One empty partition, whose first three records come while they are waited for."""

    def __init__(self) -> None:
        super().__init__(URL)
        self.end = 0
        self.waits: list[int] = []

    def bounds(self, topic: str) -> TopicBounds:
        return TopicBounds("id", {0: Bounds(0, 0, self.end)}, 0)

    def wait(self, positions: Positions, options: ReadOptions, wait_ms: int) -> None:
        self.waits.append(wait_ms)
        self.end = 3


@pytest.mark.rule("Q7")
def test_a_stream_waits_only_where_there_is_no_news() -> None:
    reader, log = StreamReader({"url": URL, "subscribe": "quiet"}, StructType()), QuietLog()
    reader._log = log
    start = reader.initialOffset()
    for _ in range(2):
        end = reader.latestOffset(start, ReadAllAvailable())
        assert (end["quiet"]["offsets"], log.waits) == ({"0": 3}, [IDLE_WAIT_MS])
    reader.latestOffset(end, ReadAllAvailable())
    assert log.waits == [IDLE_WAIT_MS, IDLE_WAIT_MS]
    reader.stop()
