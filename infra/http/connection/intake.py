"""What a connection reads whose messages are counted before there is a request, and when it reads nothing."""

import asyncio
from collections.abc import Callable

from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.memory import SMALL_BYTES, STALL_SECONDS, InFlight

ROOM_LOOK_SECONDS = 0.05


class Intake:
    """Used on one event loop. Reading rests while anybody has a reason, and while there is no room for what comes."""

    def __init__(self, in_flight: InFlight, pending_bytes: Callable[[], int], give_up: Callable[[], None]) -> None:
        """`pending_bytes()` are what has come and is of no whole message yet; `give_up()` ends a connection for which
        there was no room for too long."""
        self.held = in_flight.hold()
        """The memory of what has come and is no request yet."""
        self._in_flight = in_flight
        self._pending_bytes = pending_bytes
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pauses: set[str] = set()
        self._full_since = 0.0
        self._is_over = False

    def begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def end(self) -> None:
        """The connection is lost. What it has brought may still be taken, message by message: none of that is counted
        here any more, as nobody would give it back."""
        self._is_over = True
        self.held.release()

    def count(self, nbytes: int) -> None:
        """Counts what is on its way to a message that is more than small. Where there is no room, nothing more is read
        until there is, or the connection is given up."""
        try:
            self.held.take(nbytes)
        except SiltlogError:
            self.held.add(nbytes)
            if not self._full_since:
                self._full_since = self._loop.time()
                self.pause("room")
                self._loop.call_later(ROOM_LOOK_SECONDS, self._look_for_room)

    def recount(self) -> None:
        """Counts what is pending, and no more: a message has come whole, and whoever took it counts that."""
        self.held.release()
        pending = self._pending_bytes()
        if pending > SMALL_BYTES and not self._is_over:
            self.held.add(pending)

    def pause(self, why: str) -> None:
        """Reads nothing more for now."""
        assert self._transport is not None, "begin() first"
        if not self._pauses:
            self._transport.pause_reading()
        self._pauses.add(why)

    def resume(self, why: str) -> None:
        """Reads on, unless there is another reason not to."""
        assert self._transport is not None, "begin() first"
        if why in self._pauses:
            self._pauses.discard(why)
            if not self._pauses and not self._transport.is_closing():
                self._transport.resume_reading()

    def _look_for_room(self) -> None:
        assert self._transport is not None, "begin() first"
        if self._transport.is_closing():
            return
        if self._in_flight.room() or self._pending_bytes() <= SMALL_BYTES:
            self._full_since = 0.0
            self.resume("room")
        elif self._loop.time() - self._full_since > STALL_SECONDS:
            self._give_up()
        else:
            self._loop.call_later(ROOM_LOOK_SECONDS, self._look_for_room)
