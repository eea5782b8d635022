"""One WebSocket that is spoken over: credit, beats, and how it ends."""

import abc
import asyncio
from collections.abc import Callable
from typing import Protocol

from siltlog.consumers.push.feed import Feed, Found
from siltlog.consumers.push.messages import Commit, Credit, Nack, Release, Wording
from siltlog.consumers.reading.budget import READ_BYTES_MAX, READ_RECORDS_MAX
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.connection.web_socket import AWAY, REFUSED, TOO_SLOW
from siltlog.infra.http.memory import Held
from siltlog.infra.http.streams import CROWDED_RETRY_SECONDS, Stream
from siltlog.infra.limits import INTEGER_MAX
from siltlog.infra.telemetry import Logger


class Channel(Protocol):
    """What is spoken over: a WebSocket, or what has its ways."""

    @property
    def request_id(self) -> str: ...

    @property
    def is_slow(self) -> bool:
        """The client was given up, as it did not take what it was sent."""

    @property
    def ended(self) -> bool:
        """Nothing can be sent any more."""

    @property
    def left(self) -> bool:
        """The client closed it, in words."""

    @property
    def takes(self) -> bool:
        """Whether the client has taken about all of what was sent."""

    def accepted(self) -> list[tuple[bytes, bytes]]:
        """The header fields of the answer that opens it. Raises Refused."""

    def begin(self, request_id: str, wake: Callable[[], None]) -> None:
        """The answer that opens it follows. `wake` is called when there is a message, room to send, or the end."""

    def open(self) -> None:
        """The answer is sent: messages follow."""

    def message(self) -> bytes | None:
        """The next message of the client; None while there is none."""

    def send(self, text: bytes) -> None:
        """One message; thrown away when it has ended."""

    def beat(self) -> None:
        """Looks whether the client is there."""

    def close(self, code: int, error: SiltlogError | None = None) -> None:
        """Says why, where that is a problem, and closes."""


class Session(abc.ABC):
    """Used by one task. Nothing is sent before there is credit, nor more than that."""

    in_group: bool

    def __init__(self, socket: Channel, stream: Stream, wording: Wording, held: Held | None, logger: Logger) -> None:
        self.socket = socket
        self.stream = stream
        self.credit = 0
        self.feed: Feed
        self._holds = False
        """Memory of records that the client has not taken yet."""
        self.wording = wording
        self._memory = held
        self._logger = logger

    async def run(self) -> None:
        """Runs until one side ends it."""
        try:
            await self._run()
        except SiltlogError as error:
            self.end(error)
        except Exception as error:
            self._logger.error("a WebSocket failed", request_id=self.socket.request_id, exc_info=error)
            self.end(problem("internal", "the server failed; its log has the request id"))
        finally:
            self.feed.close()
            if self.socket.is_slow:
                self.stream.cut()

    def end(self, error: SiltlogError) -> None:
        """Says what is wrong, and closes: for good, or where it may pass, for now."""
        self.socket.close(REFUSED if error.retryable == "no" else TOO_SLOW, error)

    async def _run(self) -> None:
        while not self.socket.ended:
            if self.stream.refusal is not None:
                self.end(self.stream.refusal)
                return
            if self.stream.ended:
                self.farewell()
                self.socket.close(AWAY)
                return
            if self.stream.beat:
                self.stream.beat = False
                self.socket.beat()
                self.beat()
            message = self.socket.message()
            if message is not None:
                await self._hear(message)
                # Most of them wait for nothing: who says much would have the loop for as long as it is heard.
                await asyncio.sleep(0)
                continue
            await self.step()
            if self._holds and self.socket.takes:
                self._let_go()
            if self.credit and self.socket.takes and self.feed.ready and not self.stream.resting:
                await self._send()
                # What is written goes out with the loop's next turn; others have theirs, too.
                await asyncio.sleep(0)
            else:
                await self.stream.sleep()

    async def _hear(self, message: bytes) -> None:
        heard = self.wording.said(message, in_group=self.in_group)
        if isinstance(heard, Credit):
            self.credit = min(self.credit + heard.records, INTEGER_MAX)
            self.credited()
        else:
            await self.heard(heard)

    async def _send(self) -> None:
        """Sends what there is, up to the credit."""
        try:
            found = await self.feed.read(min(self.credit, READ_RECORDS_MAX))
        except SiltlogError as error:
            self._let_go()
            if self.survives(error):
                return
            if error.error_code != "overloaded":
                raise
            asyncio.get_running_loop().call_later(CROWDED_RETRY_SECONDS, self.stream.wake)
            await self.stream.sleep()
            return
        if not found:
            self._let_go()
            return
        self._holds = True
        message = await self._message(found)
        self.socket.send(message)
        parts = ((part.key.topic, sum(batch.nbytes for batch in part.batches)) for part in found)
        self.stream.paid(len(message), parts)
        records = sum(part.records for part in found)
        self.credit -= records
        self.stream.sent(records)

    def _let_go(self) -> None:
        self._holds = False
        if self._memory is not None:
            self._memory.release()

    async def _message(self, found: list[Found]) -> bytes:
        cursor = self.cursor()
        if sum(batch.nbytes for part in found for batch in part.batches) > READ_BYTES_MAX:
            return await asyncio.to_thread(self.wording.records, found, cursor=cursor)
        return self.wording.records(found, cursor=cursor)

    async def step(self) -> None:
        """Is called between messages."""
        return

    def survives(self, error: SiltlogError) -> bool:
        """Tells whether the session dealt with an error of reading, so that reading goes on."""
        return False

    def cursor(self) -> str | None:
        """Returns where to come back to, told with the records read so far; None where that is committed."""
        return None

    def credited(self) -> None:
        """Is called when credit came."""
        return

    def beat(self) -> None:
        """Is called each time the client is pinged."""
        return

    def farewell(self) -> None:
        """Is called before the server goes away."""
        return

    async def heard(self, message: Commit | Nack | Release) -> None:
        """Takes a message that only a member of a group sends."""
        return
