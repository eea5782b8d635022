"""Iteration over a consumer, which goes on a million times: by hand for threads and for tasks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from siltlog.consumers.library.inbox import Inbox
from siltlog.consumers.library.positions import Chunk
from siltlog.consumers.library.record import ConsumerRecord
from siltlog.consumers.library.threads import Turn
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError


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
        with self._turn.taken():
            chunk = self._inbox.chunk_on(self._clock.monotonic()) or self._next_chunk()
            if chunk is None:
                raise StopIteration
            record = chunk.hand_out()
        return self._inbox.handed_over(record)

    def _records(self) -> Iterator[ConsumerRecord]:
        try:
            while True:
                yield next(self)
                yield from self._inbox.rest_of_chunk()
        except StopIteration:
            return
        except (GeneratorExit, SiltlogError):
            raise
        except BaseException:
            # Whether the record on its way here was received, nobody knows.
            self._inbox.interrupt()
            raise
