"""Iteration over a consumer of asyncio: no generator, because one that is cancelled while it waits could not go on."""

from abc import ABC, abstractmethod
from typing import Self

from siltlog.consumers.library.inbox import Inbox
from siltlog.consumers.library.positions import Chunk
from siltlog.consumers.library.record import ConsumerRecord
from siltlog.consumers.library.tasks import LEAVES_ALL_WHOLE, AsyncTurn
from siltlog.infra.clock import Clock


class AsyncIteration(ABC):
    _inbox: Inbox
    _clock: Clock
    _turn: AsyncTurn

    @abstractmethod
    async def _next_chunk(self) -> Chunk | None:
        """Waits for records to hand out one by one; None when the iteration ends."""

    def __aiter__(self) -> Self:
        self._inbox.begin_iteration()
        return self

    async def __anext__(self) -> ConsumerRecord:
        try:
            chunk = self._inbox.chunk_on(self._clock.monotonic()) if self._turn.user is None else None
            if chunk is None:
                if self._inbox.closing:
                    raise StopAsyncIteration
                with self._turn.taken():
                    chunk = await self._next_chunk()
                if chunk is None:
                    raise StopAsyncIteration
            return self._inbox.handed_over(chunk.hand_out())
        except (StopAsyncIteration, *LEAVES_ALL_WHOLE):
            raise
        except BaseException:
            self._inbox.interrupt()
            raise
