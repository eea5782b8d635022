"""One connection of a client of Kafka: frames come in, requests are answered one after the other, in their order.

A request is begun once the one before is answered or, of records to be published, has its place in the log: so the
order of a connection is the log's, and many requests of it share one sync.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from siltlog.infra.http.connection.connection import STRANGER_SECONDS
from siltlog.infra.http.connection.crowd import KEEP_ALIVE_SECONDS, Crowd
from siltlog.infra.http.connection.hang_up import HANG_UP, HangUp, waits
from siltlog.infra.http.connection.intake import Intake
from siltlog.infra.http.connection.peer import Peer, Peers
from siltlog.infra.http.memory import SMALL_BYTES, Held, InFlight
from siltlog.infra.telemetry import Logger
from siltlog.server.kafka.incoming import LENGTH_BYTES, Frame, Incoming

FRAME_BYTES_ALWAYS = 1024
"""So long a frame may be whatever the settings say: most requests of one record are shorter."""
LOGIN_BYTES_MAX = 64 * 1024
"""The largest frame there may be before a login, where there has to be one."""
IDLE_SECONDS = 600.0
"""How long a connection may say nothing. Kafka's brokers give as long, and clients go by that."""
WAITING_MAX = 64
"""So many requests of a connection may wait for their acknowledgement, or for their client to take it."""
TURN_REQUESTS = 16
"""After so many requests of a connection others have their turn."""

Pieces = Sequence[bytes | memoryview]


class Ended(Exception):
    """The connection is of no use any more: what came is no request, or none that may be answered."""


@dataclass(frozen=True, slots=True)
class Later:
    """An answer that is still waited for, while the next request may begin."""

    answer: Awaitable[Pieces | None]


class Answering(Protocol):
    """Answers the requests of one connection."""

    async def begin(self, frame: Frame, held: Held) -> Pieces | Later | None:
        """The answer, in pieces; None where there is to be none. `held` has the memory of the request.

        Raises Ended.
        """

    def end(self) -> None:
        """No more requests come on the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What all connections of a listener share."""

    crowd: Crowd
    peers: Peers
    in_flight: InFlight
    logger: Logger
    scratch: memoryview
    """What is read goes here first; that of `incoming.scratch`."""
    request_bytes: Callable[[], int]
    """The largest frame there may be, now."""
    answering: Callable[["KafkaConnection"], Answering]
    ended: Callable[[str], None]
    """Counts a connection that was ended for what came by it, by why."""
    is_open: Callable[[], bool]
    """Whether the server still takes requests."""


class KafkaConnection(asyncio.BufferedProtocol):
    """One of the crowd, looked after with the others."""

    stream = None
    is_web_socket = False

    def __init__(self, served: Served) -> None:
        self.peer = Peer()
        self.excess = False
        self.hang_up = HangUp()
        """Tells that its client has said all, or is gone: from here the two look alike."""
        self.transport: Any = None
        self.own_address: tuple[str, int] = ("", 0)
        """The address and port that the client has reached."""
        self._served = served
        self._loop = asyncio.get_running_loop()
        self._incoming = Incoming(served.scratch, self._is_too_long)
        self._intake = Intake(served.in_flight, lambda: self._incoming.nbytes, lambda: self._end("no_room"))
        self.awaits_login = False
        """Nobody has said yet who they are, and somebody has to."""
        self._arrival: asyncio.Future[None] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._busy = False
        """A request was begun and is neither answered nor placed."""
        self._replies: deque[Pieces | asyncio.Task[Pieces | None] | None] = deque()
        self._helds: deque[Held] = deque()
        """The memory of each of the replies, and then of those that are written and not taken."""
        self._room: asyncio.Future[None] | None = None
        self._untaken: list[Held] = []
        self._ending = self._said_all = False
        self._moved_at = self._frame_since = self._loop.time()
        self._made_at = self._moved_at
        self._stuck_since = 0.0
        """When its client was last seen to take something of what it was sent; 0.0 where it has taken all."""
        self._untaken_bytes = 0

    @property
    def requests(self) -> int:
        """How many are under way."""
        return self._busy + len(self._replies)

    # The crowd's.

    def known(self) -> None:
        """Somebody has said on it who they are."""
        self.awaits_login = False
        self._served.crowd.known(self)

    def look(self, now: float, stall_seconds: float) -> float:
        """Gives it up when its time is up: who takes nothing, sends a frame for ever, or says nothing for long."""
        if self._stuck_since:
            untaken = self.transport.get_write_buffer_size()
            if untaken < self._untaken_bytes:
                self._stuck_since = now
            self._untaken_bytes = untaken
            if now - self._stuck_since > stall_seconds:
                self.cut()
        elif self.requests:
            self._moved_at = now
        elif now - self._made_at > STRANGER_SECONDS and self._served.crowd.is_stranger(self):
            self.transport.close()
        elif self._incoming.nbytes and now - self._frame_since > stall_seconds:
            self._served.ended("slow")
            self.cut()
        elif now - self._moved_at > IDLE_SECONDS:
            self.transport.close()
        return KEEP_ALIVE_SECONDS

    def cut(self) -> None:
        """Ends it at once, whatever is under way."""
        self.transport.abort()

    def shutdown(self) -> None:
        """Ends it once what is under way is answered."""
        self._ending = True
        if not self.requests:
            self.transport.close()

    async def rest(self, seconds: float) -> None:
        """Returns after that time, or once its client is gone."""
        over = asyncio.Event()
        timer = self._loop.call_later(seconds, over.set)
        forget = self.hang_up.when(over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()
            forget()

    # What comes.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._intake.begin(self.transport)
        try:
            self.peer = self._served.peers.of(transport)
        finally:
            self.excess = self._served.crowd.joined(self, self.peer.address)
        named = transport.get_extra_info("sockname")
        self.own_address = (str(named[0]), int(named[1]))
        if self.excess or not self._served.is_open():
            self.transport.close()
            return
        self._serving = self._loop.create_task(self._serve())

    def connection_lost(self, exc: Exception | None) -> None:
        self._served.crowd.left(self, self.peer.address, excess=self.excess)
        self._intake.end()
        self._incoming.clear()
        # What was begun ends as it would have, but for what is waited for beyond the WAL; nobody is told.
        for held in (*self._helds, *self._untaken):
            held.release()
        self._untaken.clear()
        self.hang_up.told()
        if self._serving is not None:
            self._serving.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._incoming.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._ending:
            return
        self._moved_at = self._loop.time()
        if not self._incoming.nbytes:
            self._frame_since = self._moved_at
        self._incoming.came(nbytes)
        is_large = self._incoming.nbytes > SMALL_BYTES
        if is_large:
            self._intake.count(nbytes)
        if self._arrival is None:
            if is_large:
                # A request is under way, and enough of the next has come.
                self._intake.pause("busy")
        elif self._incoming.due() is not None:
            self._arrival.set_result(None)
            self._arrival = None

    def eof_received(self) -> bool:
        """Its client has said all. What came whole is taken all the same: who waits for no answers may go at once."""
        self._said_all = True
        self.hang_up.told()
        if self._arrival is not None:
            self.shutdown()
        return True

    def pause_writing(self) -> None:
        self._stuck_since = self._loop.time()

    def resume_writing(self) -> None:
        self._stuck_since = 0.0
        for held in self._untaken:
            held.release()
        self._untaken.clear()
        self._wake()

    def _is_too_long(self, length: int) -> bool:
        if length <= FRAME_BYTES_ALWAYS:
            return False
        largest = self._served.request_bytes()
        return length > (min(largest, LOGIN_BYTES_MAX) if self.awaits_login else largest)

    # Requests and their answers.

    async def _serve(self) -> None:
        answering = self._served.answering(self)
        waits({HANG_UP: self.hang_up})
        taken = 0
        try:
            while not self._ending:
                frame = await self._next_frame()
                held = self._served.in_flight.hold()
                if len(frame) > SMALL_BYTES:
                    held.add(len(frame))
                self._busy = True
                try:
                    answer = await answering.begin(frame, held)
                except BaseException:
                    held.release()
                    raise
                # What is published keeps its memory in the log's account.
                del frame
                self._busy = False
                self._reply(answer, held)
                while (len(self._replies) >= WAITING_MAX or self._stuck_since) and not self.transport.is_closing():
                    self._room = self._loop.create_future()
                    await self._room
                taken += 1
                if taken % TURN_REQUESTS == 0:
                    # Many are answered without waiting for anything: thousands may have come at once.
                    await asyncio.sleep(0)
        except Exception as error:
            self._busy = False
            if not isinstance(error, Ended):
                self._served.logger.error("a request of Kafka failed", exc_info=error)
            self._end(str(error) if isinstance(error, Ended) else "failed")
        finally:
            answering.end()

    async def _next_frame(self) -> Frame:
        while (length := self._incoming.due()) is None:
            if self._said_all:
                self.shutdown()
            self._arrival = self._loop.create_future()
            self._intake.resume("busy")
            await self._arrival
        if self._is_too_long(length):
            # POST, and whatever else is no frame, would be one of more than a gigabyte.
            raise Ended("too_large")
        frame = self._incoming.take()
        self._intake.recount()
        self._frame_since = self._loop.time()
        return frame

    def _reply(self, answer: Pieces | Later | None, held: Held) -> None:
        self._helds.append(held)
        if isinstance(answer, Later):
            task = self._loop.create_task(_awaited(answer.answer))
            self._replies.append(task)
            task.add_done_callback(self._flush)
        else:
            self._replies.append(answer)
            self._flush()

    def _flush(self, answered: "asyncio.Task[Pieces | None] | None" = None) -> None:
        """Writes the answers that are there, as far as none before them is missing."""
        if answered is not None and answered not in self._replies:
            # The connection was given up before: nobody is told, and how it ended is no surprise.
            answered.exception()
            return
        while self._replies:
            first = self._replies[0]
            if isinstance(first, asyncio.Task):
                if not first.done():
                    return
                if (error := first.exception()) is not None:
                    self._give_up(error)
                    return
                first = first.result()
            self._replies.popleft()
            held = self._helds.popleft()
            if first is not None and not self.transport.is_closing():
                length = sum(len(piece) for piece in first)
                self.transport.writelines([length.to_bytes(LENGTH_BYTES), *first])
            if self._stuck_since:
                self._untaken.append(held)
            else:
                held.release()
        self._wake()
        if self._ending and not self.requests:
            self.transport.close()

    def _give_up(self, error: BaseException) -> None:
        """An answer failed: what was to come behind it is not told any more."""
        self._replies.clear()
        while self._helds:
            self._helds.popleft().release()
        if not isinstance(error, Ended):
            self._served.logger.error("a request of Kafka failed", exc_info=error)
        self._end(str(error) if isinstance(error, Ended) else "failed")

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    def _end(self, why: str) -> None:
        """Closes it for what came by it, once what was asked before is answered."""
        self._served.ended(why)
        self.shutdown()


async def _awaited(answer: Awaitable[Pieces | None]) -> Pieces | None:
    return await answer
