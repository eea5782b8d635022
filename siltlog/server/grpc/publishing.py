"""`PublishStream`: requests one after the other, whose acknowledgements come in their order.

A request is begun once the one before has its place in the log, and not once that is durable: so the order of the
stream is the log's, and many share one sync. Whatever is refused is the end: nothing behind it was begun. So is the end
of the credential that a request came with, also where nothing more comes, and a client that takes no acknowledgements.
"""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from grpc.aio import EOF

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.grpc.calls import Calls
from siltlog.infra.grpc.status import Context
from siltlog.infra.http.streams import asked_again
from siltlog.infra.security.grant import Grant

WAITING_MAX = 256
"""So many requests of a stream may wait for their acknowledgement, or for their client to take it."""
Publish = Callable[[bytes, Callable[[], None], Callable[[Grant], None]], "asyncio.Task[bytes]"]
"""Begins to publish a request, says when it has its place and what its caller may do, and gives the answer."""


class PublishStream:
    """One stream. `draining` is set once the server goes away; a client may take nothing for `stall_seconds`."""

    def __init__(
        self, calls: Calls, context: Context, publish: Publish, draining: asyncio.Event, stall_seconds: float
    ) -> None:
        self._connection = calls.connection(context)
        self._context = context
        self._publish = publish
        self._draining = draining
        self._stall_seconds = stall_seconds
        self._waiting: asyncio.Queue[asyncio.Future[bytes] | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(WAITING_MAX)
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails once the credential of its requests has ended."""
        self._asking = contextlib.ExitStack()
        self._asks = False

    async def run(self) -> None:
        """Runs until its client has said all, and was told. Raises SiltlogError."""
        reading = asyncio.create_task(self._read())
        try:
            while (answer := await self._waiting.get()) is not None:
                await self._tell(await answer)
                self._room.release()
        finally:
            reading.cancel()
            # What is acknowledged from now on is nobody's to look after.
            self._asks = True
            self._asking.close()
            while not self._waiting.empty():
                rest = self._waiting.get_nowait()
                if rest is not None:
                    # Nobody is told any more, and nothing of it is a surprise.
                    rest.add_done_callback(_passed_over)

    async def _tell(self, acknowledgement: bytes) -> None:
        try:
            await asyncio.wait_for(self._context.write(acknowledgement), self._stall_seconds)
        except TimeoutError:
            # gRPC says why only once what was written before is taken. Until then the client's unread requests are on
            # the connection, which is cut as soon again as they are not taken: with it go the other calls.
            self._connection.told(0)
            raise problem(
                "overloaded",
                "the acknowledgements of the stream were not taken for too long; read them while you publish, and come "
                "back: what was not acknowledged may be there",
            ) from None

    async def _read(self) -> None:
        reading = asyncio.create_task(self._read_on())
        draining = asyncio.create_task(self._draining.wait())
        try:
            await asyncio.wait((reading, draining, self._refused), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
            elif self._refused.done():
                self._refused.result()
            else:
                raise problem("shutting_down", "the server is shutting down; publish to another, or again in a moment")
        except SiltlogError as error:
            self._waiting.put_nowait(_failed(error))
        finally:
            reading.cancel()
            draining.cancel()
            self._waiting.put_nowait(None)

    async def _read_on(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            data = await self._context.read()
            if data is EOF:
                return
            self._connection.told(len(data))
            placed: asyncio.Future[None] = loop.create_future()
            publishing = self._publish(data, partial(_set, placed), self._granted)
            self._waiting.put_nowait(publishing)
            # What has failed has no place, and is done.
            publishing.add_done_callback(partial(_set, placed))
            await placed
            if publishing.done() and publishing.exception() is not None:
                return

    def _granted(self, grant: Grant) -> None:
        """Hears what the caller may do, who is the same for all requests of a stream."""
        if not self._asks:
            self._asks = True
            self._asking.enter_context(asked_again(self, grant))

    def refuse(self, error: SiltlogError) -> None:
        if not self._refused.done():
            self._refused.set_exception(error)
            # Where the stream has ended nobody looks.
            self._refused.exception()


def _set(placed: "asyncio.Future[None]", _: object = None) -> None:
    if not placed.done():
        placed.set_result(None)


def _failed(error: SiltlogError) -> "asyncio.Future[bytes]":
    failed: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    failed.set_exception(error)
    return failed


def _passed_over(answer: "asyncio.Future[bytes]") -> None:
    if not answer.cancelled():
        answer.exception()
