"""The access log: a line for each request, for those that went wrong, or for those that were slow as well."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from siltlog.infra.telemetry import Logger

AccessLogMode = Literal["off", "errors", "slow", "all"]
SLOW_SECONDS = 1.0
"""What takes longer, without the time that it was told to wait, is slow."""
LINES_A_SECOND_MAX = 20
"""So many requests that went wrong or were slow have a line; of the others of that second it says how many."""
WINDOW_SECONDS = 1.0
PATH_CHARS_MAX = 200
LOCAL_ADDRESS = "local"
"""The address of who calls by the socket in the data directory."""
_ERROR = 400
_FAILURE = 500


class AccessLog:
    """Used on one event loop."""

    def __init__(self, mode: AccessLogMode, logger: Logger, monotonic: Callable[[], float]) -> None:
        self.seconds = monotonic
        self._logger = logger
        self.reconfigure(mode)
        self._window_end = 0.0
        self._lines = 0
        self._left_out = 0
        self._failures_left_out = False
        self._telling: asyncio.TimerHandle | None = None

    def reconfigure(self, mode: AccessLogMode) -> None:
        """Requests that end from now on have lines as `mode` says."""
        self.all = mode == "all"
        """Each request has a line, however many there are."""
        self.slow = mode in ("slow", "all")
        self.errors = mode != "off"
        """Without it no request has a line."""

    def wants(self, status: int, seconds: float) -> bool:
        """Whether a request has a line; `seconds` are without what it was told to wait."""
        return (self.errors and status >= _ERROR) or (self.slow and (self.all or seconds > SLOW_SECONDS))

    def tell(self, status: int, path: bytes, seconds: float, **fields: Any) -> None:
        """Writes its line; `path` is without the query, as it was sent: that may hold what is secret."""
        if not self.all and not self._has_room(status):
            return
        say = self._logger.warning if status >= _FAILURE else self._logger.info
        shown = path.decode("latin-1")[:PATH_CHARS_MAX]
        say("request", status=status, seconds=round(seconds, 6), path=shown, **fields)

    def _has_room(self, status: int) -> bool:
        now = self.seconds()
        if now >= self._window_end:
            self._window_end = now + WINDOW_SECONDS
            self._lines = 0
        self._lines += 1
        if self._lines <= LINES_A_SECOND_MAX:
            return True
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(self._window_end - now, self.tell_left_out)
        self._left_out += 1
        self._failures_left_out = self._failures_left_out or status >= _FAILURE
        return False

    def tell_left_out(self) -> None:
        """Says how many requests had no line since it was last said, as loudly as their lines would have been; the last
        time before the server ends."""
        if self._telling is None:
            return
        self._telling.cancel()
        count, self._left_out, self._telling = self._left_out, 0, None
        say = self._logger.warning if self._failures_left_out else self._logger.info
        self._failures_left_out = False
        say("requests left out of the access log", count=count)
