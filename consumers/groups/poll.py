"""The whole loop of a consumer in one call: join or heartbeat, commit, read."""

import asyncio
from typing import Any, NamedTuple

from siltlog.consumers.groups.members import Members
from siltlog.consumers.groups.messages import Actor, Membership, PollRequest
from siltlog.consumers.groups.waiters import Waiter
from siltlog.consumers.reading.fetch import Fetcher, FetchPosition, FetchResult, Meter
from siltlog.infra.errors import problem
from siltlog.infra.http.memory import Held
from siltlog.infra.security.grant import EVERYTHING, Grant

FETCH_BYTES_MAX = 64 * 1024 * 1024
FETCH_RECORDS_MAX = 1_000_000


class Reading(NamedTuple):
    """A reader on whose behalf is read: what counts it, and what they may read."""

    held: Held | None
    grant: Grant
    meter: Meter | None


class GroupPoll:
    """Used on one event loop."""

    def __init__(self, members: Members, fetcher: Fetcher) -> None:
        self._members = members
        self._fetcher = fetcher

    async def poll(
        self,
        group: str,
        member: str,
        request: PollRequest,
        held: Held | None = None,
        actor: Actor | None = None,
        grant: Grant = EVERYTHING,
        meter: Meter | None = None,
    ) -> tuple[int, FetchResult]:
        """The generation to send next time, and records from the committed offsets on.

        Waits for records or for a change of what the member may read, whichever comes first; not at all while the
        member has something to let go, which its next poll does. Leaves out partitions that rest, as handling a record
        of theirs failed. Raises what `Members.heartbeat` and
        `GroupTopics.commits` do.
        """
        if request.generation == 0 and request.commit:
            raise problem("invalid_request", "a poll that joins (generation 0) has nothing to commit: leave commit out")
        reading = Reading(held, grant, meter)
        with self._members.waiting(group, member) as waiter:
            told = await self._members.beat(group, member, request, actor, poll=True, commits=request.commit)
            waiter.told(told.generation)
            left_ms = int(told.wait_s(request.wait_ms) * 1000)
            while True:
                left_ms = 0 if told.releasing else left_ms
                # A partition that rests may have records once its time is over.
                wait_ms = min([left_ms, *told.resting_ms.values()])
                result = await self._fetch_or_change(told, request, wait_ms, waiter, reading)
                left_ms = 0 if result is None else left_ms - wait_ms
                if result is not None and (result.count or left_ms == 0):
                    return told.generation, result
                again = PollRequest(generation=request.generation, topics=request.topics)
                again.topic_pattern = request.topic_pattern
                told = await self._members.beat(group, member, again, actor, poll=True)
                waiter.told(told.generation)

    async def _fetch(self, told: Membership, request: PollRequest, wait_ms: int, reading: Reading) -> FetchResult:
        return await self._fetcher.fetch(
            _positions(told),
            max_records=min(request.max_records, FETCH_RECORDS_MAX),
            max_bytes=min(request.max_bytes, FETCH_BYTES_MAX),
            min_bytes=1,
            wait_ms=wait_ms,
            isolation="wal",
            values=request.values,
            held=reading.held,
            grant=reading.grant,
            meter=reading.meter,
        )

    async def _fetch_or_change(
        self, told: Membership, request: PollRequest, wait_ms: int, waiter: Waiter, reading: Reading
    ) -> FetchResult | None:
        """Returns None when what the member may read changed before there was a record."""
        if wait_ms == 0:
            return await self._fetch(told, request, 0, reading)
        if not _positions(told):
            return None if await waiter.wait(wait_ms / 1000) else await self._fetch(told, request, 0, reading)
        fetching: asyncio.Task[FetchResult] = asyncio.ensure_future(self._fetch(told, request, wait_ms, reading))
        changing: asyncio.Task[Any] = asyncio.ensure_future(waiter.changed())
        try:
            await asyncio.wait((fetching, changing), return_when=asyncio.FIRST_COMPLETED)
            return fetching.result() if fetching.done() else None
        finally:
            fetching.cancel()
            changing.cancel()
            await asyncio.gather(fetching, changing, return_exceptions=True)


def _positions(told: Membership) -> list[FetchPosition]:
    """Where the member reads now."""
    return [
        FetchPosition(key.topic, key.partition, offset, topic_id=key.topic_id)
        for key, offset in told.assignment or ()
        if key not in told.resting_ms
    ]
