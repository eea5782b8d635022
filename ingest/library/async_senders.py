"""The sending side of an asynchronous producer: requests as tasks of one event loop."""

import asyncio
import logging
import os
import threading
from collections import deque

from siltlog.infra.client.async_transport import AsyncTransport
from siltlog.infra.client.core import ConnectionFailed, Response
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.transport import Transport
from siltlog.infra.clock import Clock
from siltlog.infra.errors import problem
from siltlog.ingest.library.async_delivery import AsyncBatch
from siltlog.ingest.library.batch import Batch
from siltlog.ingest.library.options import PublishOptions
from siltlog.ingest.library.outbox import Departure, Outbox
from siltlog.ingest.library.senders import buffer_full, refuse_forked

_log = logging.getLogger("siltlog.producer")


class AsyncSenders:
    """Looks once in each turn of the loop for what is due, so what many tasks send in one turn travels together."""

    def __init__(self, endpoints: Endpoints, options: PublishOptions, clock: Clock, transport: AsyncTransport) -> None:
        self.lock = threading.Lock()
        self.outbox = Outbox(endpoints, options, clock, self, AsyncBatch)
        self._accumulator = self.outbox.accumulator
        self._options = options
        self._clock = clock
        self._transport = transport
        self.loop: asyncio.AbstractEventLoop | None = None
        """The one it first sent in."""
        self._looking = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: dict[asyncio.Task[None], Departure] = {}
        self._room: deque[tuple[asyncio.Future[None], int]] = deque()
        self._pid = os.getpid()

    def enter(self) -> None:
        """Raises Refused outside of the event loop that it first sent in, and after a fork."""
        if self._pid != os.getpid():
            refuse_forked()
        loop = asyncio.get_running_loop()
        if self.loop is None:
            self.loop = loop
        if loop is not self.loop:
            raise problem("invalid_request", "this AsyncProducer belongs to another event loop; make one in each loop")

    def look(self) -> None:
        """Sends what is due in the next turn of the loop."""
        if not self._looking and self.loop is not None and not self.loop.is_closed():
            self._looking = True
            self.loop.call_soon(self._send_due)

    def hurry(self, batch: Batch) -> None:
        self._accumulator.hurry(batch)
        self.look()

    def changed(self, finished: bool) -> None:
        self.look()
        room = self._options.buffer_bytes - self._accumulator.used_bytes
        while finished and self._room and (room >= self._room[0][1] or not self._accumulator.used_bytes):
            waiter, size = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                room -= size
            if room <= 0:
                break

    async def await_room(self, size: int) -> None:
        """Waits until `size` more bytes fit, or nothing is buffered. Raises BufferFull."""
        deadline = self._clock.monotonic() + self._options.max_block_ms / 1000
        while not self.has_room(size):
            self._accumulator.close_open()
            self.look()
            waiter = asyncio.get_running_loop().create_future()
            self._room.append((waiter, size))
            try:
                async with asyncio.timeout(deadline - self._clock.monotonic()):
                    await waiter
            except TimeoutError:
                raise buffer_full(self._options) from None

    def has_room(self, size: int) -> bool:
        used = self._accumulator.used_bytes
        return not used or used + size <= self._options.buffer_bytes

    def end(self) -> None:
        """Fails all that is not on its way."""
        self._accumulator.end()
        self.look()

    async def stop(self) -> None:
        """Nothing is sent any more: what is left fails."""
        self.end()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._give_up_tasks()
        self._send_due()
        if self._timer is not None:
            self._timer.cancel()
        for waiter, _ in self._room:
            if not waiter.done():
                waiter.set_result(None)

    def finish_blocking(self, transport: Transport) -> None:
        """Sends what is left without the loop, which is gone."""
        self.loop = None
        self._give_up_tasks()
        while self._accumulator.unfinished:
            now = self._clock.monotonic()
            lane = self._accumulator.take(now)
            if lane is None:
                due = self._accumulator.next_due()
                if due is None:
                    return
                self._clock.sleep(max(0.0, due - now))
                continue
            departure = self.outbox.depart(lane)
            if departure is not None:
                try:
                    self.outbox.arrive(departure, transport.send(*departure.send))
                except ConnectionFailed as failed:
                    self.outbox.arrive(departure, failed)

    def _send_due(self) -> None:
        self._looking = True
        loop = self.loop
        assert loop is not None
        now = self._clock.monotonic()
        while (lane := self._accumulator.take(now)) is not None:
            departure = self.outbox.depart(lane)
            if departure is not None:
                self._tasks[loop.create_task(self._send(departure))] = departure
        self._looking = False
        due = self._accumulator.next_due()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due is None else loop.call_later(max(0.0, due - now), self._send_due)

    async def _send(self, departure: Departure) -> None:
        result: Response | ConnectionFailed
        try:
            result = await self._transport.send(*departure.send)
        except ConnectionFailed as failed:
            result = failed
        except Exception as defect:
            _log.exception("sending to %s failed", departure.lane.topic)
            result = ConnectionFailed(repr(defect), sent=True)
        task = asyncio.current_task()
        assert task is not None
        del self._tasks[task]
        self.outbox.arrive(departure, result)

    def _give_up_tasks(self) -> None:
        """Ends the requests of cancelled tasks, some of which never began: what they sent may have arrived."""
        while self._tasks:
            _, departure = self._tasks.popitem()
            self.outbox.arrive(departure, ConnectionFailed("the event loop ended", sent=True))
