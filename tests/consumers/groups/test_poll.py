"""The whole loop of a consumer in one call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from groups_rig import FakeLog, Rig, rig, run

from siltlog.consumers.groups.messages import Attempted, AttemptRequest, PolledOffset, PollRequest
from siltlog.consumers.groups.poll import GroupPoll
from siltlog.consumers.reading.fetch import Fetcher, FetchResult
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra.errors import Fenced, SiltlogError


@dataclass
class PollRig:
    rig: Rig
    polls: GroupPoll

    async def poll(self, member: str, generation: int = 0, **fields: Any) -> tuple[int, dict[int, list[int]]]:
        """The generation, and the offsets read by partition."""
        request = PollRequest(generation=generation, topics=["flights"], **fields)
        generation, result = await self.polls.poll("g", member, request)
        return generation, offsets(result)


def offsets(result: FetchResult) -> dict[int, list[int]]:
    return {
        part.position.partition: [at for batch in part.batches for at in batch.column("offset").to_pylist()]
        for part in result.partitions
    }


@asynccontextmanager
async def poll_rig(url: str, log: FakeLog) -> AsyncIterator[PollRig]:
    async with rig(url, log) as inner:
        row_groups = RowGroups(log.store)
        yield PollRig(inner, GroupPoll(inner.groups.members, Fetcher(log, row_groups)))
        row_groups.close()


def test_join_read_commit_read_on(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog()
        log.create("flights", 1, end=5)
        async with poll_rig(valkey_url, log) as r:
            generation, read = await r.poll("a", max_records=3)
            assert read == {0: [0, 1, 2]}
            generation, read = await r.poll("a", generation, max_records=3)
            assert read == {0: [0, 1, 2]}, "without a commit the same records come again"
            generation, read = await r.poll("a", generation, commit=[PolledOffset("flights", 0, 3)])
            assert read == {0: [3, 4]}
            generation, read = await r.poll("a", generation, commit=[PolledOffset("flights", 0, 5)])
            assert read == {0: []}

    run(scenario())


def test_a_rebalance_by_polls_alone(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog()
        log.create("flights", 2, end=5)
        async with poll_rig(valkey_url, log) as r:
            a, read = await r.poll("a")
            assert set(read) == {0, 1}
            b, read = await r.poll("b")
            assert read == {}
            both = [PolledOffset("flights", 0, 2), PolledOffset("flights", 1, 2)]
            a, read = await r.poll("a", a, commit=both)
            (kept,) = read
            b, read = await r.poll("b", b)
            assert read == {}, "what was revoked is not let go before the member knows of it"
            # This commit is of records from before; it is applied first, then the partition is let go.
            a, read = await r.poll("a", a, commit=[PolledOffset("flights", 1 - kept, 3)])
            assert set(read) == {kept}
            b, read = await r.poll("b", b)
            assert read == {1 - kept: [3, 4]}
            with pytest.raises(Fenced) as caught:
                await r.poll("a", a, commit=[PolledOffset("flights", 1 - kept, 4)])
            assert caught.value.error_code == "fenced_member"

    run(scenario())


def test_a_wait_ends_with_a_record_or_with_a_rebalance(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog()
        topic = log.create("flights", 2, end=0)
        async with poll_rig(valkey_url, log) as r:
            a, _ = await r.poll("a")
            waiting = asyncio.create_task(r.poll("a", a, wait_ms=15_000))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            topic.partitions[1].grow(1)
            a, read = await waiting
            assert read == {0: [], 1: [0]}
            topic.partitions[1].end = 0

            waiting = asyncio.create_task(r.poll("a", a, wait_ms=15_000))
            await asyncio.sleep(0.05)
            b, _ = await r.poll("b")
            told, read = await waiting
            assert told > a and len(read) == 1
            (kept,) = read
            waiting_b = asyncio.create_task(r.poll("b", b, wait_ms=15_000))
            await asyncio.sleep(0.05)
            await r.poll("a", told)
            _, read = await waiting_b
            assert set(read) == {1 - kept}
            assert not topic.partitions[0].callbacks and not topic.partitions[1].callbacks

    run(scenario())


def test_a_poll_with_something_to_let_go_does_not_wait(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog()
        log.create("flights", 2, end=0)
        async with poll_rig(valkey_url, log) as r:
            a, _ = await r.poll("a")
            await r.poll("b")
            _, read = await asyncio.wait_for(r.poll("a", a, wait_ms=15_000), 10)
            assert len(read) == 1

    run(scenario())


def test_a_steady_poll_is_one_round_trip_and_a_wait_is_none(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog()
        topic = log.create("flights", 1, end=0)
        async with poll_rig(valkey_url, log) as r:
            a, _ = await r.poll("a")

            async def calls() -> int:
                stats = await r.rig.redis.command("INFO", "commandstats")
                return int(stats["cmdstat_evalsha"]["calls"])

            before = await calls()
            waiting = [asyncio.create_task(r.poll("a", a, wait_ms=15_000)) for _ in range(20)]
            async with asyncio.timeout(30):
                while await calls() < before + 20:
                    await asyncio.sleep(0.05)
            topic.partitions[0].grow(1)
            assert [read for _, read in await asyncio.gather(*waiting)] == [{0: [0]}] * 20
            assert await calls() == before + 20

    run(scenario())


def test_a_join_has_nothing_to_commit(valkey_url: str) -> None:
    async def scenario() -> None:
        async with poll_rig(valkey_url, FakeLog(flights=1)) as r:
            with pytest.raises(SiltlogError) as caught:
                await r.poll("a", 0, commit=[PolledOffset("flights", 0, 1)])
            assert caught.value.status == 422

    run(scenario())


def nacked(offset: int, generation: int, partition: int = 0) -> AttemptRequest:
    return AttemptRequest("flights", partition, offset, "a", generation)


@pytest.mark.rule("D12")
def test_a_partition_rests_after_a_nack_and_a_wait_ends_with_its_rest(valkey_url: str) -> None:
    async def scenario() -> None:
        log = FakeLog()
        log.create("flights", 2, end=3)
        async with poll_rig(valkey_url, log) as r:
            generation, read = await r.poll("a", max_records=100)
            assert read == {0: [0, 1, 2], 1: [0, 1, 2]}

            async def nack(offset: int) -> Attempted:
                asked = nacked(offset, generation)
                return await r.rig.groups.offsets.attempt("g", asked, count=True, backoff_ms=(20_000, 30_000))

            first = await nack(1)
            assert (first.attempts, first.rest_ms) == (1, 20_000)
            again = await nack(1)
            assert again.attempts == 1 and 0 < again.rest_ms <= 20_000, "said twice, it is counted once"
            both = [PolledOffset("flights", 0, 1), PolledOffset("flights", 1, 3)]
            generation, read = await r.poll("a", generation, commit=both)
            assert read == {1: []}, "what was handled before the record is committed, and its partition rests"

            await r.rig.redis.pass_ms(19_700)
            generation, read = await r.poll("a", generation, wait_ms=15_000)
            assert read == {0: [1, 2], 1: []}
            second = await nack(1)
            assert (second.attempts, second.rest_ms) == (2, 30_000)
            generation, read = await r.poll("a", generation, commit=[PolledOffset("flights", 0, 2)])
            assert read == {0: [2], 1: []}, "who commits beyond the record waits for it no more"

    run(scenario())
