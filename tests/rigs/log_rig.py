"""A log of a node on a real WAL and a real store, without a server around it; its syncs can be held up."""

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.memory import InFlight
from siltlog.infra.settings.topic_config import Value
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.telemetry import logger
from siltlog.ingest.journal.journal import Journal
from siltlog.ingest.log.admission import Admission
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.producer_objects import StateWriter
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.log.topic_logs import TopicLogs
from siltlog.ingest.ownership.opening import start_log
from siltlog.ingest.ownership.stranded import Stranded
from siltlog.ingest.records.body import Body, Rows
from siltlog.ingest.topics.deletion import LogStarts
from siltlog.ingest.topics.topics import Topics
from siltlog.ingest.wal import Wal
from siltlog.ingest.wal.disk import Disk

MIB = 1024 * 1024
CLOCK = SystemClock()
LOGGER = logger("error", "console")


class LaterClock(SystemClock):
    """The same, `seconds` later."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def now_us(self) -> int:
        return super().now_us() + self.seconds * 1_000_000


class GatedDisk(Disk):
    """Nothing is synced while the gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def sync(self, fd: int) -> None:
        assert self.gate.wait(60)
        super().sync(fd)


@asynccontextmanager
async def running_log(
    folder: Path,
    disk: Disk,
    clock: Clock = CLOCK,
    *,
    lake: Path | None = None,
    take_over: bool = False,
    server_config: dict[str, Value] | None = None,
) -> AsyncIterator[tuple[Log, Topics]]:
    """Recovers what `folder` holds; leaves it as a clean stop without a flush does."""
    log = stopped_log(folder, disk, clock, lake=lake, server_config=server_config)
    recovery = await asyncio.to_thread(log.wal.recover)
    try:
        await start_log(
            log, recovery, take_over=take_over, accept_loss=False, stranded=Stranded.beside(folder), logger=LOGGER
        )
        yield log, Topics(log, LOGGER)
    finally:
        if isinstance(disk, GatedDisk):
            disk.gate.set()
        log.journal.close()
        await asyncio.to_thread(log.wal.close)


def stopped_log(
    folder: Path,
    disk: Disk,
    clock: Clock = CLOCK,
    *,
    lake: Path | None = None,
    server_config: dict[str, Value] | None = None,
) -> Log:
    """A log that has not been started."""
    store = open_store((lake or folder / "lake").as_uri())

    def failed(error: BaseException) -> None:
        raise error

    topic_logs = TopicLogs()
    wal = Wal(
        folder / "wal",
        segment_bytes=MIB,
        bytes_max=8 * MIB,
        cluster_id="cluster",
        on_fatal=failed,
        state=topic_logs.state,
        clock=clock,
        disk=disk,
    )
    admission = Admission(
        topic_logs,
        wal,
        clock,
        Draining(),
        record_bytes_max=MIB,
        group_bytes_max=MIB // 8,
        flush_retry_ms=lambda: None,
    )
    return Log(
        store,
        wal,
        clock,
        topic_logs,
        admission,
        server_config=server_config or {},
        group_bytes_max=MIB // 8,
        head_bytes_max=MIB,
        on_group=lambda seconds: None,
        in_flight=InFlight(8 * MIB, CLOCK),
        journal=journal_of(store, topic_logs, clock),
    )


async def in_thread(topic: TopicLog, function: Any, *args: Any) -> Any:
    return await asyncio.to_thread(function, *args)


def log_starts_of(log: Log) -> LogStarts:
    """What moves the log starts of its topics."""
    states = StateWriter(log.store, log.clock, LOGGER, in_thread)
    return LogStarts(log, states, log.flush_due.set, LOGGER)


def journal_of(store: ObjectStore, topic_logs: TopicLogs, clock: Clock) -> Journal:
    def sealed() -> None:
        for topic in topic_logs.all():
            if topic.journaled:
                topic.close("fenced", "its journal was sealed")

    def failed(error: BaseException) -> None:
        raise error

    return Journal(
        store,
        clock,
        LOGGER,
        cluster_id="cluster",
        node_id="n1",
        interval_ms=0,
        start=lambda: uuid.uuid4().hex,
        on_fatal=failed,
        on_sealed=sealed,
        on_landed=lambda seconds: None,
    )


def body(*values: str, first_sequence: int | None = None, partition: int = 0) -> Body:
    count = len(values)
    sequences: list[int | None] = [None] * count
    if first_sequence is not None:
        sequences = list(range(first_sequence, first_sequence + count))
    rows = Rows([None] * count, [None] * count, [v.encode() for v in values], [None] * count, [], sequences)
    rows.partitions = [partition] * count
    return Body(count, sum(map(len, values)) + 8 * count, rows)
