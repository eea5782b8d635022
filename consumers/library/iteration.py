"""Iteration over a consumer, which goes on a million times: by hand for threads and for tasks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress

from siltlog.consumers.library.inbox import Inbox
from siltlog.consumers.library.positions import Chunk
from siltlog.consumers.library.record import ConsumerRecord
from siltlog.consumers.library.threads import Turn
from siltlog.infra.clock import Clock


class Iteration(ABC):
    _inbox: Inbox
    _clock: Clock
    _turn: Turn

    @abstractmethod
    def _next_chunk(self) -> Chunk | None:
        """Waits for records to hand out one by one; None when the iteration ends."""

    def __iter__(self) -> Iterator[ConsumerRecord]:
        self._inbox.begin_iteration()
        return self._records()

    def __next__(self) -> ConsumerRecord:
        if self._inbox.closing:
            raise StopIteration
        self._turn.begin()
        try:
            chunk = self._inbox.chunk_on(self._clock.monotonic()) or self._next_chunk()
            if chunk is None:
                raise StopIteration
            return chunk.hand_out()
        finally:
            self._turn.end()

    def _records(self) -> Iterator[ConsumerRecord]:
        with suppress(StopIteration):
            while True:
                yield next(self)
                yield from self._inbox.rest_of_chunk()
