"""`acks=written`: what is answered between the write and the sync outlives a SIGKILL, and nobody reads it before."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from cluster_rig import NodeProcess
from evidence import check, read_api, read_table
from failure_rig import NO_REDIS, SMALL
from log_rig import body, running_log
from publishers import LOST, Ledger, Reply, Wire

from siltlog.infra.errors import OutcomeUnknown
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.publish.acknowledgement import acknowledged
from siltlog.ingest.wal.disk import Disk

HELD = b"what is not synced yet"
ANSWER_SECONDS = 0.3
"""The first try waits so long, each further one twice as long."""


def publish(url: str, ledger: Ledger, value: str, acks: str, timeout_s: float = 60.0) -> Reply:
    """Publishes one record, whose key for repeats is its value, and enters what came of it. Raises LOST."""
    ledger.unknown.add(value)
    sent = {"records": [{"value": value}]}
    reply = Wire(url, timeout_s).call("POST", f"/v1/topics/t/records?acks={acks}", sent, Idempotency_Key=value)
    assert (reply.status, reply.document["acks"]) == (200, acks), reply
    [(partition, offset)] = reply.document["records"]
    ledger.acked[value] = (partition, offset)
    return reply


@pytest.mark.rule("W11")
def test_sigkill_between_the_write_and_the_sync_takes_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    server = NodeProcess(tmp_path / "data", {**SMALL, **NO_REDIS, "flush_ms": 3_600_000}, log=tmp_path / "log")
    server.said("syncs").touch()
    server.start()
    try:
        Wire(server.url).create("t", 1)
        ledger = Ledger()
        publish(server.url, ledger, "first:0", "wal")
        kept = written_and_not_synced(server, ledger)
        seen = [row.value for row in read_api(Wire(server.url), "t", 1)]
        assert "first:0" in seen and kept not in seen, "nobody reads what is not synced"
        with ThreadPoolExecutor(2) as threads:
            repeats = [threads.submit(publish, server.url, Ledger(), kept, acks) for acks in ("written", "wal")]
            threads.submit(publish, server.url, ledger, "later:0", "written")
            Wire(server.url).ready()
            assert not any(each.done() for each in repeats), "a repeat goes with what is written next"
            server.kill()
            assert all(isinstance(each.exception(), LOST) for each in repeats)
        server.said("syncs").write_text("")
        server.start()
        found = read_api(Wire(server.url), "t", 1)
        check(found, ledger)
        before = ledger.acked[kept]
        assert publish(server.url, ledger, kept, "written").document["partitions"][0]["duplicate"]
        assert ledger.acked[kept] == before
        assert server.stop() == 0
        assert read_table(server.root, "t") == sorted(found)
    finally:
        server.said("syncs").write_text("")
        if server.running:
            server.kill()
        server.stop()


def written_and_not_synced(server: NodeProcess, ledger: Ledger) -> str:
    """The value of a record that was acknowledged while no sync returns; the writer may be in one already, then it is
    tried again, once that one has returned."""
    for attempt in range(8):
        value = f"written:{attempt}"
        server.said("syncs").write_text("held")
        try:
            publish(server.url, ledger, value, "written", ANSWER_SECONDS * 2**attempt)
        except LOST:
            server.said("syncs").write_text("")
            publish(server.url, ledger, f"between:{attempt}", "wal")
        else:
            return value
    raise AssertionError("nothing is acknowledged before it is synced")


class HeldDisk(Disk):
    """Does not sync what it wrote with a value of `HELD` before the gate is opened; all else it does."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self._holds = False

    def write(self, fd: int, buffers: Sequence[pa.Buffer | bytes], position: int) -> None:
        super().write(fd, buffers, position)
        self._holds = any(HELD in bytes(buffer) for buffer in buffers)

    def sync(self, fd: int) -> None:
        assert not self._holds or self.gate.wait(60)
        super().sync(fd)


@pytest.mark.rule("W11")
def test_written_is_told_before_the_sync_which_everything_else_waits_for(tmp_path: Path) -> None:
    async def run() -> None:
        disk = HeldDisk()
        async with running_log(tmp_path, disk) as (log, topics):
            topic = await topics.create("t", 1, {})
            (partition,) = topic.partitions
            try:
                wal, written = (sent(log, topic, sequence, acks) for sequence, acks in enumerate(("wal", "written")))
                await asyncio.wait_for(written, 60)
                again, safe = (sent(log, topic, 1, acks) for acks in ("written", "wal"))
                with pytest.raises(OutcomeUnknown, match="acks=written was not reached in time"):
                    await sent(log, topic, 2, "written", seconds=0.01)
                assert not (wal.done() or again.done() or safe.done()), "all of them wait for the sync"
                assert partition.offsets.synced == partition.offsets.shown == 0
            finally:
                disk.gate.set()
            await asyncio.wait_for(asyncio.gather(wal, again, safe), 60)
            assert partition.offsets.shown >= 2

    asyncio.run(run())


def sent(log: Log, topic: TopicLog, sequence: int, acks: str, *, seconds: float = 60) -> "asyncio.Future[None]":
    value = body(HELD.decode(), first_sequence=sequence)
    appended = log.append(topic, value, Producer("p", 0), written=acks == "written")
    return asyncio.ensure_future(acknowledged(topic, appended, acks, seconds, lambda: None))
