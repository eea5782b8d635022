"""The metrics that have a history, and how many series become one of it."""

from typing import Final, Literal, NamedTuple

from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.catalogue import Metric

QUANTILES = (0.5, 0.99)
TOPIC: Final = "topic"
GROUP: Final = "group"
# Of Prometheus's own client.
PROCESS_CPU_SECONDS = Metric("process_cpu_seconds_total", "Processor time of the server")
PROCESS_MEMORY_BYTES = Metric("process_resident_memory_bytes", "Memory of the server")


class Kept(NamedTuple):
    """A metric: its series are folded into one for the node and, where it is kept `by` a label, one for each value."""

    metric: Metric
    by: Literal["", "topic", "group"] = ""
    fold: Literal["sum", "max"] = "sum"
    nodes: Literal["", "max", "min"] = ""
    """How those of several nodes are folded, where that is another way."""

    @property
    def among(self) -> Literal["sum", "max", "min"]:
        return self.nodes or self.fold


KEPT: tuple[Kept, ...] = (
    Kept(catalogue.RECORDS, TOPIC),
    Kept(catalogue.RECORD_BYTES, TOPIC),
    Kept(catalogue.READ_RECORDS, TOPIC),
    Kept(catalogue.READ_BYTES, TOPIC),
    Kept(catalogue.DEAD_LETTERS, TOPIC),
    Kept(catalogue.FLUSH_FAILURES, TOPIC),
    Kept(catalogue.TABLE_LAG_SECONDS, TOPIC, "max"),
    Kept(catalogue.TABLE_LIVE_FILES, TOPIC),
    Kept(catalogue.TABLE_SMALL_FILES, TOPIC),
    Kept(catalogue.GROUP_LAG_RECORDS, GROUP),
    Kept(catalogue.GROUP_LAG_SECONDS, GROUP, "max"),
    Kept(catalogue.ACK_SECONDS),
    Kept(catalogue.WAL_COMMIT_SECONDS),
    Kept(catalogue.OBJECT_ACK_SECONDS),
    Kept(catalogue.FLUSH_SECONDS),
    Kept(catalogue.LOOP_LAG_SECONDS),
    Kept(catalogue.REPLIES),
    Kept(catalogue.PROBLEMS),
    Kept(catalogue.STORE_SECONDS),
    Kept(catalogue.STORE_ERRORS),
    Kept(catalogue.CONNECTIONS),
    Kept(catalogue.STREAMS),
    Kept(catalogue.WAL_USED_BYTES),
    Kept(catalogue.WAL_BYTES_MAX),
    Kept(catalogue.HEAD_BYTES),
    Kept(catalogue.UNFLUSHED_BYTES),
    Kept(catalogue.IN_FLIGHT_BYTES),
    Kept(catalogue.DISK_FREE_BYTES),
    Kept(catalogue.OBJECT_STALL_SECONDS, fold="max"),
    # Each node counts those of the groups that it has met.
    Kept(catalogue.GROUP_MEMBERS, nodes="max"),
    Kept(catalogue.REDIS_UP, nodes="min"),
    Kept(catalogue.READY, nodes="min"),
    Kept(PROCESS_CPU_SECONDS),
    Kept(PROCESS_MEMORY_BYTES),
)
BUSY = (catalogue.RECORD_BYTES, catalogue.READ_BYTES, catalogue.GROUP_LAG_RECORDS)
"""The metrics that decide which topics and groups are the busiest."""
