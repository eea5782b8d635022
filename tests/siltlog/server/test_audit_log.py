"""`_audit` on a real write-ahead log: one chain whatever fails or restarts; what it does not have is not done."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from failing_system import FailingSystem
from kept_log import KeptLog
from log_rig import CLOCK, GatedDisk, running_log

from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, Unavailable, problem
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.security.audit import denials
from siltlog.infra.security.audit.chain import Anchor, Audited, AuditRecord, Verifier, opened
from siltlog.infra.security.keys import make_key
from siltlog.ingest.log.log import Log
from siltlog.ingest.topics.topics import Topics
from siltlog.server import audit_log
from siltlog.server.audit_log import AuditLog
from siltlog.server.topic_reading import stored_in

KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is waited for also where the machine stands still for seconds."""
    monkeypatch.setattr(audit_log, "END_SECONDS_MAX", 60.0)


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


class Node:
    """A log, and what audits on it."""

    def __init__(self, log: Log, topics: Topics, folder: Path) -> None:
        self.log = log
        self.fetcher = Fetcher(log, RowGroups(log.store))
        self.system = FailingSystem(log, topics)
        self.said = KeptLog()
        self.metrics = Metrics()
        self.seen_file = folder / names.AUDIT_SEEN_FILE
        self.audit = AuditLog(
            log,
            self.fetcher,
            self.system,
            key=KEY,
            node_id="node-0",
            seen_file=self.seen_file,
            owed_file=folder / names.AUDIT_OWED_FILE,
            clock=CLOCK,
            logger=self.said,
            metrics=self.metrics,
        )

    async def values(self) -> list[bytes]:
        topic = self.log.topic(names.AUDIT_TOPIC)
        end = topic.partitions[0].bounds().high_watermark
        return [record.value or b"" for record in await stored_in(self.fetcher, topic, 0, end)]

    async def records(self) -> list[AuditRecord]:
        return [opened(value, KEY).record for value in await self.values()]

    async def faults(self, *anchors: Anchor) -> list[str]:
        verifier = Verifier(KEY, anchors, from_start=True)
        findings = [found for at, value in enumerate(await self.values()) for found in verifier.see(at, value)]
        return [finding.fault for finding in (*findings, *verifier.end())]

    async def metric(self, name: str) -> list[str]:
        return [line for line in (await self.metrics.text()).decode().splitlines() if line.startswith(name)]


@asynccontextmanager
async def running(folder: Path, disk: GatedDisk | None = None) -> AsyncIterator[Node]:
    async with running_log(folder, disk or GatedDisk()) as (log, topics):
        node = Node(log, topics, folder)
        node.audit.start()
        try:
            yield node
            await node.audit.finish()
        finally:
            node.audit.stop()


def event(outcome: Any = "begun", number: int = 0, **members: Any) -> Audited:
    return Audited(
        **{
            "request_id": f"r{number}", "principal": "key:ops", "operation": "deleteTopic", "resource": "topic/t",
            "outcome": outcome, **members,
        }
    )  # fmt: skip


@pytest.mark.rule("A6")
@on_a_loop
async def test_an_intent_is_durable_before_the_change_is_made(tmp_path: Path) -> None:
    disk = GatedDisk()
    async with running(tmp_path, disk) as node:
        await node.audit.begin(event(number=1))
        disk.gate.clear()
        beginning = asyncio.create_task(node.audit.begin(event(number=2)))
        await asyncio.sleep(0.2)
        assert not beginning.done()
        disk.gate.set()
        await beginning
        assert [record.request_id for record in await node.records()] == ["r1", "r2"]
        assert node.system.configs[0] == {"acks": "wal", "retention.ms": 400 * 86_400_000, "flush.ms": 600_000}


@pytest.mark.rule("A6")
@on_a_loop
async def test_intents_that_arrive_together_are_one_sync(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.audit.begin(event())
        await asyncio.gather(*(node.audit.begin(event(number=number)) for number in range(50)))
        assert node.system.appended == [1, 50]
        await node.audit.end(event("done", 7, status=204))
        assert await node.faults() == []
        last = (await node.records())[-1]
        assert (last.seq, last.outcome, last.status, last.node) == (52, "done", 204, "node-0")


@pytest.mark.rule("A6")
@on_a_loop
async def test_what_cannot_be_recorded_is_refused_and_what_was_done_is_recorded_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(audit_log, "END_SECONDS_MAX", 0.1)
    async with running(tmp_path) as node:
        await node.audit.begin(event(number=1))
        node.system.before = problem("wal_full", "no room")
        with pytest.raises(Unavailable) as refused:
            await node.audit.begin(event(number=2))
        assert (refused.value.error_code, refused.value.status) == ("audit_unavailable", 503)
        await node.audit.end(event("done", 1, status=204))
        assert node.audit.unwritten == 1
        assert "changes are refused" in node.said.events()[0]
        [line] = await node.metric(catalogue.AUDIT_FAILURES.name)
        assert float(line.split()[1]) > 0
        node.system.before = None
        await asyncio.wait_for(node.audit._idle.wait(), 60)
        assert [(record.request_id, record.outcome) for record in await node.records()] == [
            ("r1", "begun"),
            ("r1", "done"),
        ]
        assert await node.faults() == []


@pytest.mark.rule("A6")
@on_a_loop
async def test_an_intent_of_which_nobody_knows_whether_it_is_there_is_refused_and_followed_by_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append had no answer: it is made again as it was, so that the chain has each record once."""
    monkeypatch.setattr(audit_log, "RETRY_SECONDS", 0.02)
    async with running(tmp_path) as node:
        node.system.after = problem("ack_timeout", "not acknowledged in time")
        with pytest.raises(Unavailable):
            await node.audit.begin(event(number=1))
        await asyncio.sleep(0.1)
        node.system.after = None
        await node.audit.begin(event(number=2))
        assert [(record.request_id, record.outcome, record.detail) for record in await node.records()] == [
            ("r1", "begun", ""),
            ("r1", "refused", "audit_unavailable"),
            ("r2", "begun", ""),
        ]
        assert await node.faults() == []


@on_a_loop
async def test_a_change_waits_for_a_sync_that_hangs_no_longer_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = GatedDisk()
    async with running(tmp_path, disk) as node:
        await node.audit.begin(event(number=1))
        monkeypatch.setattr(audit_log, "BEGIN_SECONDS_MAX", 0.2)
        disk.gate.clear()
        results = await asyncio.gather(
            node.audit.begin(event(number=2)), node.audit.begin(event(number=3)), return_exceptions=True
        )
        assert [getattr(result, "error_code", None) for result in results] == ["audit_unavailable"] * 2
        disk.gate.set()
        await asyncio.wait_for(node.audit._idle.wait(), 60)
        told = [(record.request_id, record.outcome) for record in await node.records()]
        assert set(told) == {("r1", "begun"), ("r2", "begun"), ("r3", "begun"), ("r2", "refused"), ("r3", "refused")}
        assert await node.faults() == []


@pytest.mark.rule("A1")
@on_a_loop
async def test_a_restart_goes_on_with_the_chain(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.audit.begin(event(number=1))
        await node.audit.end(event("done", 1))
    kept = (tmp_path / names.AUDIT_SEEN_FILE).read_text()
    async with running(tmp_path) as node:
        await node.audit.begin(event(number=2))
        assert await node.faults() == []
        assert [record.seq for record in await node.records()] == [1, 2, 3]
    # The file was not written any more before a crash: what is in the log behind it counts.
    (tmp_path / names.AUDIT_SEEN_FILE).write_text(kept)
    async with running(tmp_path) as node:
        await node.audit.begin(event(number=3))
        assert await node.faults() == []
        anchor = node.audit.anchor
        assert anchor is not None
        assert anchor.seq == 4
        assert [event for event in node.said.events() if "lacks" in event] == []
    assert ("anchor of the audit log", {"anchor": anchor.text()}) in node.said.said


@pytest.mark.rule("A1")
@on_a_loop
async def test_an_end_that_was_cut_off_is_told_at_the_next_start_and_for_ever_after(tmp_path: Path) -> None:
    """An older write-ahead log was put back beside the file that knows more."""
    async with running(tmp_path) as node:
        await node.audit.begin(event(number=1))
        await node.audit.begin(event(number=2))
        anchor = node.audit.anchor
        assert anchor is not None
    other = tmp_path / "other"
    other.mkdir()
    (other / names.AUDIT_SEEN_FILE).write_text(anchor.text())
    async with running(other) as node:
        with pytest.raises(SiltlogError):
            await node.faults(anchor)
        await node.audit.begin(event(number=3))
        assert "lacks what this node wrote" in " ".join(node.said.events())
        assert await node.faults(anchor) == ["missing"]


@pytest.mark.rule("A7")
@on_a_loop
async def test_a_flood_of_refusals_is_a_few_records(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.audit.begin(event())
        for number in range(20_000):
            node.audit.denied(
                event(
                    "refused", number, principal="", address=f"192.0.2.{number % 3}", status=401, detail="unknown"
                ),
                "unknown",
            )  # fmt: skip
        for number in range(5_000):
            node.audit.denied(event("refused", number, principal=f"key:{number}", status=403), "forbidden")
        await node.audit.finish()
        records = (await node.records())[1:]
        assert len(records) <= denials.CALLERS_MAX + 1
        assert sum(record.count for record in records) == 25_000
        assert [record.count for record in records if record.status == 401] == [6_667, 6_667, 6_666]
        assert len([record for record in records if record.principal == ""]) == 4
        assert await node.faults() == []
        assert [line.split()[1] for line in await node.metric(catalogue.DENIED.name + "{")] == ["5000.0", "20000.0"]


@pytest.mark.rule("A18")
@on_a_loop
async def test_what_was_done_all_the_same_is_recorded_once_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owed_file = tmp_path / names.AUDIT_OWED_FILE
    async with running_log(tmp_path, GatedDisk()) as (log, topics):
        node = Node(log, topics, tmp_path)
        node.audit.start()
        await node.audit.begin(event(number=1))
        node.system.before = problem("wal_full", "no room")
        await node.audit.owe(event(number=2), 0.05)
        with monkeypatch.context() as hurried:
            hurried.setattr(audit_log, "END_SECONDS_MAX", 0.05)
            await node.audit.end(event("done", 2, status=204))
        node.audit.stop()
    owed, seen = owed_file.read_bytes(), (tmp_path / names.AUDIT_SEEN_FILE).read_bytes()
    written = [("r1", "begun"), ("r2", "begun"), ("r2", "done")]
    for _ in range(2):
        async with running(tmp_path) as node:
            await node.audit.end(event("done", 3))
            assert [(record.request_id, record.outcome) for record in await node.records()][:3] == written
            assert len({record.seq for record in await node.records()}) == len(await node.records())
            assert await node.faults() == []
            async with asyncio.timeout(60):
                while owed_file.read_bytes() != b"[]":
                    await asyncio.sleep(0.01)
        # It is killed once they are in the log, before any of its files says so.
        owed_file.write_bytes(owed)
        (tmp_path / names.AUDIT_SEEN_FILE).write_bytes(seen)
    assert [record.request_id for record in await all_of(tmp_path)] == ["r1", "r2", "r2", "r3", "r3"]


@pytest.mark.rule("A18")
@on_a_loop
async def test_what_is_owed_before_the_log_answers_stands_beside_what_was_owed_before(tmp_path: Path) -> None:
    owed_file = tmp_path / names.AUDIT_OWED_FILE
    for number in (1, 2):
        async with running_log(tmp_path, GatedDisk()) as (log, topics):
            await Node(log, topics, tmp_path).audit.owe(event("done", number), 0)
        assert owed_file.read_bytes().count(b'"outcome":"done"') == number
    async with running(tmp_path) as node:
        await node.audit.begin(event(number=3))
        assert [record.request_id for record in await node.records()] == ["r1", "r2", "r3"]
    assert owed_file.read_bytes() == b"[]"


async def all_of(folder: Path) -> list[AuditRecord]:
    async with running(folder) as node:
        await asyncio.sleep(0)
        return await node.records()


@on_a_loop
async def test_what_waits_while_it_cannot_be_written_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "QUEUE_RECORDS_MAX", 3)
    monkeypatch.setattr(audit_log, "END_SECONDS_MAX", 0.01)
    async with running(tmp_path) as node:
        node.system.before = problem("wal_full", "no room")
        for number in range(9):
            await node.audit.end(event("done", number))
        assert node.audit.unwritten <= 2 * 3, "so many wait, and no more than that are being written"
        with pytest.raises(Unavailable, match="too much waits"):
            await node.audit.begin(event())
        node.system.before = None


@on_a_loop
async def test_a_record_names_no_more_than_it_says(tmp_path: Path) -> None:
    """The members of a record, so that none with a value or a token comes in unseen."""
    assert AuditRecord.__struct_fields__ == (
        "request_id", "principal", "credential", "address", "operation", "resource", "outcome", "status", "detail",
        "count", "seq", "time", "node", "chain", "previous",
    )  # fmt: skip


@on_a_loop
async def test_a_key_where_a_name_belongs_is_not_recorded(tmp_path: Path) -> None:
    key = make_key(lambda count: b"x" * count)
    async with running(tmp_path) as node:
        named = event(resource=f"id/{key.text()}", request_id=key.text())
        await node.audit.begin(named)
        await node.audit.end(msgspec.structs.replace(named, outcome="refused"))
        node.audit.denied(event("refused", resource=f"topic/{key.text()}"), "unauthenticated")
        await node.audit.finish()
        values = await node.values()
    assert len(values) == 3
    assert key.secret.encode() not in b"".join(values)
    assert key.key_id.encode() in values[0], "whose it is can be told"
