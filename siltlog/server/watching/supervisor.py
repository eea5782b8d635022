"""What a server tells the systemd that started it: datagrams to the socket that NOTIFY_SOCKET names (sd_notify(3))."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.settings.loading import variable
from siltlog.infra.telemetry import Logger

POLL_SECONDS = 0.1
WATCHDOG_PART = 2
"""It is told so many times within the time after which the process counts as stuck."""


class Supervisor:
    """Tells it what has become of the server; without one, nothing is told and nothing runs. Used on one event loop."""

    def __init__(self, address: str, watchdog_seconds: float, clock: Clock, logger: Logger) -> None:
        """`address` is a path, or a name after `@`; empty where nobody listens. No watchdog: 0 seconds."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_seconds = watchdog_seconds
        self._clock = clock
        self._logger = logger
        self._ready = False
        self._failed = False

    async def watch(self, reasons: Callable[[], Sequence[str]]) -> None:
        """Says that it is ready once there are no `reasons` why not, then until cancelled that the loop turns."""
        if not self._address:
            return
        while reasons() or not self._tell("READY=1"):  # noqa: ASYNC110 (nothing tells of every reason)
            await asyncio.sleep(POLL_SECONDS)
        self._ready = True
        while self._watchdog_seconds:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_seconds / WATCHDOG_PART)

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Files are read again in the block. Of a server that is not ready yet, or no more, nothing is said."""
        if self._ready:
            self._tell(f"RELOADING=1\nMONOTONIC_USEC={int(self._clock.monotonic() * MICROS_PER_SECOND)}")
        try:
            yield
        finally:
            if self._ready:
                self._tell("READY=1")

    def stopping(self) -> None:
        self._ready = False
        self._tell("STOPPING=1")

    def _tell(self, message: str) -> bool:
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
                # It is not waited for: whoever publishes would.
                notifying.setblocking(False)
                notifying.sendto(message.encode(), self._address)
        except OSError as error:
            if not self._failed:
                self._logger.warning("the supervisor cannot be told", address=self._address, reason=error.strerror)
            self._failed = True
            return False
        self._failed = False
        return True


def supervisor_of(clock: Clock, logger: Logger) -> Supervisor:
    """The one that the environment names. Its watchdog is of this process only, where it says of which."""
    micros, pid = variable("WATCHDOG_USEC") or "", variable("WATCHDOG_PID")
    watched = micros.isdecimal() and pid in (None, str(os.getpid()))
    return Supervisor(
        variable("NOTIFY_SOCKET") or "", int(micros) / MICROS_PER_SECOND if watched else 0.0, clock, logger
    )
