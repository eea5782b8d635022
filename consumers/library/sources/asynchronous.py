"""Where the rows of an asynchronous consumer come from: the seam of `row_source.py` with a `read` that is awaited."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from siltlog.consumers.library.sources.server import Fetched, FetchPlan, Source, fetch_request, fetched_of
from siltlog.infra.client.async_transport import AsyncCaller


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
