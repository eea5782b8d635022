"""The sources of an asynchronous consumer: the seam of `server.py` with a `read` that is awaited."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from siltlog.consumers.library.sources.choice import Read, TableReading
from siltlog.consumers.library.sources.server import SERVER, Fetched, FetchPlan, Source, fetch_request, fetched_of
from siltlog.infra.client.async_transport import AsyncCaller
from siltlog.infra.clock import Clock


class AsyncSource(Protocol):
    async def read(self, plan: FetchPlan) -> Sequence[Fetched]: ...


class AsyncServerSource:
    def __init__(self, caller: AsyncCaller) -> None:
        self._caller = caller

    async def read(self, plan: FetchPlan) -> Sequence[Fetched]:
        return fetched_of(await self._caller.call(fetch_request(plan)))


class InThread:
    """A source that blocks, for asyncio."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def read(self, plan: FetchPlan) -> Sequence[Fetched]:
        return await asyncio.to_thread(self._source.read, plan)


class AsyncSources:
    """All that a consumer reads from, by name, and the choice among them. Files are read on threads."""

    def __init__(self, read: Read, caller: AsyncCaller, clock: Clock) -> None:
        self._transport = caller.thread_transport()
        self._table = TableReading(read, lambda: caller.on_threads(self._transport), clock)
        self.choose = self._table.choose
        self.by_name: Mapping[str, AsyncSource] = {
            SERVER: AsyncServerSource(caller),
            **{name: InThread(source) for name, source in self._table.sources.items()},
        }

    async def close(self) -> None:
        await asyncio.to_thread(self._table.close)
        self._transport.close()
