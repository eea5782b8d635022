"""Reading from asyncio: as Consumer does, over the same core."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, NoReturn, Self, Unpack

import pyarrow as pa

from siltlog.consumers.behind import Lag
from siltlog.consumers.library.fetches import FETCH_RECORDS_MAX
from siltlog.consumers.library.handling.async_handler_run import AsyncHandlerRun
from siltlog.consumers.library.handling.partition_lane import Handle
from siltlog.consumers.library.inbox import Inbox
from siltlog.consumers.library.member import warn_of_retries
from siltlog.consumers.library.options import ConsumerKeywords, ConsumerOptions, HandlingOptions, check_handler
from siltlog.consumers.library.positions import Chunk, PartitionState, Run, records_in
from siltlog.consumers.library.record import ConsumerRecord
from siltlog.consumers.library.sources.asynchronous import AsyncServerSource, AsyncSource, InThread
from siltlog.consumers.library.sources.choice import TableReading
from siltlog.consumers.library.sources.server import SERVER
from siltlog.consumers.library.tasks import ConsumerTasks
from siltlog.infra.client.async_transport import AsyncCaller, AsyncHttpTransport, AsyncTransport
from siltlog.infra.client.core import Endpoints
from siltlog.infra.client.keywords import spelled_out
from siltlog.infra.client.record import TimeLike, TopicPartition
from siltlog.infra.client.transport import Caller, HttpTransport
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.columns import FETCH_SCHEMA
from siltlog.infra.errors import ConfigError, SiltlogError, Unavailable, problem

_log = logging.getLogger("siltlog.consumer")


class AsyncConsumer:
    """Reads as `Consumer` does, with its arguments, in one event loop and one task at a time; not across a fork.

    A call that is cancelled while it waits has handed nothing out: the next one goes on where it was. Callbacks may be
    coroutine functions. `wakeup` may come from any thread, `close` from another task.
    """

    @spelled_out(ConsumerKeywords, ConsumerOptions, topics=None, assign=None)
    def __init__(
        self,
        url: str | Sequence[str],
        *,
        clock: Clock | None = None,
        transport: AsyncTransport | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> None:
        """Raises ConfigError when an argument is not valid, or aiohttp is missing. Connects at the first call."""
        chosen = ConsumerOptions.of("AsyncConsumer", options)
        endpoints = Endpoints(url)
        self._options = chosen
        self._clock = clock or SystemClock()
        self._transport = transport or AsyncHttpTransport()
        # Files are read on threads, which ask the server for them on their own.
        self._file_transport = HttpTransport()
        self._table = TableReading(
            chosen.read,
            lambda: Caller(endpoints, self._file_transport, self._clock, retry_timeout_ms=chosen.retry_timeout_ms),
            self._clock,
        )
        self._inbox = Inbox(chosen, self._clock, self._table.choose)
        caller, background = (
            AsyncCaller(
                endpoints, self._transport, self._clock, retry_timeout_ms=chosen.retry_timeout_ms, told=warn_of_retries
            )
            for _ in range(2)
        )
        sources: dict[str, AsyncSource] = {SERVER: AsyncServerSource(background)}
        sources |= {name: InThread(source) for name, source in self._table.sources.items()}
        self._tasks = ConsumerTasks(self._inbox, sources, caller, background, self._clock)
        self._user: asyncio.Task[Any] | None = None
        self._free = asyncio.Event()
        self._free.set()
        self._closed = False

    async def poll(self, max_records: int = 500, timeout_ms: int = 1_000) -> list[ConsumerRecord]:
        """The next records, in order within each partition; empty when none came in `timeout_ms`.

        The records of the poll before are done.
        """
        async with self._my_turn():
            return [record for run in await self._take(max_records, timeout_ms) for record in records_in(run)]

    async def poll_arrow(self, max_records: int = FETCH_RECORDS_MAX, timeout_ms: int = 1_000) -> pa.Table:
        """Polls as `poll` does; returns a table of topic, partition, offset, timestamp, key, value, headers."""
        async with self._my_turn():
            tables = [run.rows for run in await self._take(max_records, timeout_ms)]
            return pa.concat_tables(tables) if tables else pa.Table.from_batches([], FETCH_SCHEMA)

    def __aiter__(self) -> Self:
        self._inbox.begin_iteration()
        return self

    async def __anext__(self) -> ConsumerRecord:
        chunk = self._inbox.chunk_on(self._clock.monotonic()) if self._user is None else None
        if chunk is None:
            if self._inbox.closing:
                raise StopAsyncIteration
            async with self._my_turn(), self._polling():
                chunk = await self._next_chunk()
            if chunk is None:
                raise StopAsyncIteration
        return chunk.hand_out()

    async def run(
        self,
        handle: Handle,
        *,
        max_attempts: int = 5,
        backoff_ms: int = 200,
        backoff_ms_max: int = 30_000,
        workers: int = 1,
    ) -> None:
        """Does what `Consumer.run` does; awaits what `handle` returns where it can, and runs `workers` handlers at
        once.

        Where this is cancelled the handlers that run are too, and what is done is committed.
        """
        check_handler(handle, awaits=True)
        options = HandlingOptions(max_attempts, backoff_ms, backoff_ms_max, workers)
        async with self._my_turn():
            await AsyncHandlerRun(self._inbox, self._tasks, handle, options, self._clock).run()

    def wakeup(self) -> None:
        """A poll that waits returns what it has, an iteration ends. From any task or thread."""
        self._tasks.wake()

    async def _take(self, max_records: int, timeout_ms: int) -> list[Run]:
        if max_records < 1:
            raise ConfigError(f"max_records must be at least 1, not {max_records}")
        deadline = self._clock.monotonic() + timeout_ms / 1000
        self._inbox.ask()
        async with self._polling():
            while True:
                await self._tasks.attend(self._inbox.attend())
                # Nothing is awaited from here to the return: what is handed out cannot be cancelled.
                taken = self._inbox.take(max_records)
                self._tasks.launch()
                if self._inbox.ended() or taken or self._clock.monotonic() >= deadline:
                    return taken
                await self._tasks.wait(deadline)

    async def _next_chunk(self) -> Chunk | None:
        """Records for the iteration to hand out one by one; None when it ends."""
        self._inbox.ask()
        idle_ms = self._options.idle_timeout_ms
        idle_at = math.inf if idle_ms is None else self._clock.monotonic() + idle_ms / 1000
        while True:
            await self._tasks.attend(self._inbox.attend())
            await self._tasks.run(self._inbox.mark_ends())
            chunk = self._inbox.next_chunk()
            self._tasks.launch()
            if self._inbox.ended():
                return None
            if chunk is not None:
                return chunk
            if self._inbox.stopped() or self._clock.monotonic() >= idle_at:
                return None
            await self._tasks.wait(idle_at)

    async def commit(self, what: ConsumerRecord | Mapping[TopicPartition, int] | None = None) -> None:
        """Commits what was handed out; or up to and including a record; or the offsets to read next.

        Raises Fenced when a partition has become another member's: its records are delivered there again.
        """
        async with self._my_turn():
            await self._tasks.run(self._inbox.commits.commit_asked(what))

    async def committed(self, topic: str, partition: int) -> int | None:
        """The group's committed offset, None when it has none."""
        async with self._my_turn():
            return await self._tasks.run(self._inbox.commits.committed(TopicPartition(topic, partition)))

    def assignment(self) -> list[TopicPartition]:
        """The partitions this consumer reads now."""
        return sorted(self._inbox.positions.states)

    async def position(self, topic: str, partition: int) -> int:
        """The offset that is handed out next."""
        async with self._my_turn():
            return (await self._state(topic, partition)).position

    async def lag(self) -> dict[TopicPartition, Lag]:
        """How far each partition's position is behind its end, in records and in seconds."""
        async with self._my_turn():
            await self._settle()
            return await self._tasks.run(self._inbox.lag())

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """The next record of the partition is the one at `offset`, or the first after it."""
        async with self._my_turn():
            self._inbox.seek(await self._state(topic, partition), offset)

    async def seek_to_timestamp(self, topic: str, when: TimeLike) -> None:
        """Seeks to the first record at or after `when` in every assigned partition of the topic; to the end where
        none is."""
        async with self._my_turn():
            await self._settle()
            await self._tasks.run(self._inbox.seek_all(topic, lambda _, offset: offset, when))

    async def seek_to_beginning(self, topic: str) -> None:
        async with self._my_turn():
            await self._settle()
            await self._tasks.run(self._inbox.seek_all(topic, lambda bounds, _: bounds.log_start_offset))

    async def seek_to_end(self, topic: str) -> None:
        async with self._my_turn():
            await self._settle()
            await self._tasks.run(self._inbox.seek_all(topic, self._inbox.end_of))

    async def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of them until `resume`; they stay assigned."""
        async with self._my_turn():
            await self._settle()
            self._inbox.pause(partitions, True)

    async def resume(self, *partitions: TopicPartition) -> None:
        async with self._my_turn():
            await self._settle()
            self._inbox.pause(partitions, False)

    async def _state(self, topic: str, partition: int) -> PartitionState:
        await self._settle()
        return self._inbox.state(topic, partition)

    async def _settle(self) -> None:
        """Waits for the first partitions of a group."""
        await self._tasks.attend(self._inbox.settle())
        deadline = self._clock.monotonic() + self._options.retry_timeout_ms / 1000
        while not self._inbox.assigned:
            async with self._polling():
                await self._tasks.wait(deadline)
                await self._tasks.attend(self._inbox.settle())
            if not self._inbox.assigned and (self._inbox.ended() or self._clock.monotonic() >= deadline):
                raise Unavailable("the group has assigned nothing yet", error_code="coordinator_unavailable")

    def _check_turn(self) -> None:
        if self._closed or self._inbox.closing:
            raise problem("invalid_request", "this consumer is closed; make a new one")
        self._tasks.enter()
        if self._user not in (None, asyncio.current_task()) and not self._tasks.is_attending:
            raise problem("invalid_request", "another task is using this consumer; only wakeup() and close() may")

    @asynccontextmanager
    async def _my_turn(self) -> AsyncIterator[None]:
        self._check_turn()
        if self._user is not None or self._tasks.is_attending:
            # Within one of its own calls: a callback's.
            yield
            return
        self._user = asyncio.current_task()
        self._free.clear()
        try:
            yield
        finally:
            self._user = None
            self._free.set()

    @asynccontextmanager
    async def _polling(self) -> AsyncIterator[None]:
        self._tasks.begin_polling()
        try:
            yield
        finally:
            self._tasks.end_polling()

    async def close(self) -> None:
        """Commits what is done, leaves the group, lets go of tasks and connections. Closing again does nothing.

        From another task it ends the poll or iteration that is going on, and waits for it.
        """
        self._tasks.enter()
        self._tasks.wake(close=True)
        if self._user not in (None, asyncio.current_task()) and not self._tasks.is_attending:
            self._tasks.interrupt()
            await self._free.wait()
        if self._closed:
            return
        self._closed = True
        self._tasks.resume()
        try:
            await self._tasks.let_attending_end()
            await self._tasks.run(self._inbox.close())
        finally:
            await self._tasks.stop()
            await asyncio.to_thread(self._table.close)
            self._file_transport.close()
            await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except SiltlogError as failed:
            if error is None:
                raise
            _log.warning("what was done could not be committed: %s", failed)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AsyncConsumer cannot be pickled: it has tasks and connections; make one in each process")
