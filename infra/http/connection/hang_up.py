"""Hears when the client of a request has hung up: nobody waits any longer on its account."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

HANG_UP = "hang_up"
"""Where a request's state has the end of its connection; nothing where it came by none."""


class HangUp:
    """The end of one connection. Used on its event loop."""

    __slots__ = ("_hear", "_over")

    def __init__(self) -> None:
        self._over = False
        self._hear: set[Callable[[], None]] = set()

    def told(self) -> None:
        """The connection is lost."""
        self._over = True
        hear, self._hear = self._hear, set()
        for each in hear:
            each()

    def when(self, hear: Callable[[], None]) -> Callable[[], None]:
        """Calls `hear` then, at once where it is; what is returned ends that."""
        if self._over:
            hear()
        else:
            self._hear.add(hear)
        return lambda: self._hear.discard(hear)


_WAITED_FOR: ContextVar[HangUp | None] = ContextVar("waited_for", default=None)
"""The end of the connection for whose request something waits."""


def waits(state: Mapping[str, Any]) -> None:
    """A request, by its state, is about to wait, unless its client hangs up."""
    _WAITED_FOR.set(state.get(HANG_UP))


def when_hung_up(hear: Callable[[], None]) -> Callable[[], None]:
    """Calls `hear` once the client of the request that waits has hung up; what is returned ends that."""
    waited_for = _WAITED_FOR.get()
    return _nothing if waited_for is None else waited_for.when(hear)


def _nothing() -> None:
    return
