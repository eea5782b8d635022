"""How long a large group takes to settle, and what it costs while nothing happens.

Members do what a consumer does: heartbeats that wait over HTTP, one connection each, all in one process beside the
server. A group has settled when every partition is held, nobody holds more than one more than another, and all of it is
known to the members.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import aiohttp

from benchmarks.bench import TOPIC, Bench, Server
from benchmarks.figures.figure import Figure

PARTITIONS = 1_000
MEMBERS = 200
DEAD = 50
SESSION_MS = 6_000
SETTLE_SECONDS_TARGET = 10.0
GIVE_UP_SECONDS = 60.0
WAIT_MS = 15_000
IDLE_MEMBERS = 1_000
IDLE_SECONDS = 15.0
"""It lasts as long as a wait, so that each member has renewed its session once."""
QUICK_IDLE_SECONDS = 3.0


def groups(bench: Bench) -> Iterator[Figure]:
    with bench.server(partitions=PARTITIONS) as server:
        joined, died = asyncio.run(_joined_and_died(server))
        yield Figure(
            f"{MEMBERS} members, {PARTITIONS:,} partitions: settled after the last join",
            joined,
            "s",
            at_most=SETTLE_SECONDS_TARGET,
        )
        yield Figure(
            f"{DEAD} of them die: settled after their session timeout",
            died,
            "s",
            at_most=SETTLE_SECONDS_TARGET,
        )
    with bench.server(partitions=PARTITIONS) as server:
        share = asyncio.run(_idle_share(server, QUICK_IDLE_SECONDS if bench.quick else IDLE_SECONDS))
        yield Figure(f"{IDLE_MEMBERS:,} waiting members, each renewed in 15 s: of one processor", share * 100, "%")


class _Crowd:
    """The members of one group, and what they know to hold."""

    def __init__(self, url: str, session: aiohttp.ClientSession, session_timeout_ms: int) -> None:
        self.held: dict[str, set[int]] = {}
        self.settled = asyncio.Event()
        self._url = url
        self._session = session
        self._session_timeout_ms = session_timeout_ms
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def join(self, count: int) -> None:
        for _ in range(count):
            member = str(uuid4())
            self._tasks[member] = asyncio.create_task(self._live(member))

    async def die(self, count: int) -> None:
        """Ends members without a word to the group."""
        dead = [self._tasks.pop(member) for member in list(self._tasks)[:count]]
        for task in dead:
            task.cancel()
        await asyncio.gather(*dead, return_exceptions=True)
        self.settled.clear()

    async def wait(self) -> float:
        """When it had settled, on the monotonic clock. Raises what a member raised."""
        settled = asyncio.create_task(self.settled.wait())
        done, _ = await asyncio.wait(
            {settled, *self._tasks.values()}, timeout=GIVE_UP_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        if settled not in done:
            for task in done:
                task.result()
            raise RuntimeError(f"the group had not settled after {GIVE_UP_SECONDS} s")
        return time.perf_counter()

    async def _live(self, member: str) -> None:
        url = f"{self._url}/v1/groups/crowd/members/{member}"
        owned: set[int] = set()
        body: dict[str, Any] = {
            "generation": 0,
            "topics": [TOPIC],
            "session_timeout_ms": self._session_timeout_ms,
            "wait_ms": WAIT_MS,
        }
        try:
            while True:
                async with self._session.put(url, json=body) as reply:
                    told = await reply.json()
                if reply.status == 503:
                    await asyncio.sleep(told["retry_after_ms"] / 1000)
                    continue
                assert reply.status == 200, told
                body = {"generation": told["generation"], "wait_ms": WAIT_MS}
                if told["assignment"] is not None:
                    owned = {entry["partition"] for entry in told["assignment"]}
                    body["owned"] = [{"topic": TOPIC, "partition": partition} for partition in owned]
                    self._knows(member, owned)
        finally:
            self.held.pop(member, None)

    def _knows(self, member: str, owned: set[int]) -> None:
        self.held[member] = owned
        loads = [len(self.held.get(name, ())) for name in self._tasks]
        if sum(loads) == PARTITIONS and max(loads) - min(loads) <= 1:
            assert len(set().union(*self.held.values())) == PARTITIONS
            self.settled.set()
        else:
            self.settled.clear()

    async def end(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


async def _joined_and_died(server: Server) -> tuple[float, float]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        crowd = _Crowd(server.url, session, SESSION_MS)
        try:
            # One after another, as processes start: the group never rests in between.
            for _ in range(MEMBERS):
                crowd.join(1)
                await asyncio.sleep(0.005)
            last_join = time.perf_counter()
            joined = await crowd.wait() - last_join
            await crowd.die(DEAD)
            died_at = time.perf_counter()
            died = await crowd.wait() - died_at - SESSION_MS / 1000
            return joined, max(died, 0.0)
        finally:
            await crowd.end()


async def _idle_share(server: Server, seconds: float) -> float:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        crowd = _Crowd(server.url, session, 45_000)
        try:
            crowd.join(IDLE_MEMBERS)
            await crowd.wait()
            await asyncio.sleep(1.0)
            before = server.cpu_seconds()
            await asyncio.sleep(seconds)
            return (server.cpu_seconds() - before) / seconds
        finally:
            await crowd.end()
