"""The part of a server that a room's assembly gives it: handlers, and the steps of the room's life."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from siltlog.infra.metrics.metrics import Metrics


def _nothing() -> None:
    return


def _shows_nothing(metrics: Metrics) -> None:
    return


async def _closed(patient: bool) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Each step is taken once, in this order."""

    handlers: tuple[object, ...] = ()
    """Objects whose methods are operations; the router serves them."""
    gauges: Callable[[Metrics], None] = _shows_nothing
    """Registers what metrics show of it."""
    start: Callable[[], None] = _nothing
    """Begins what runs by itself; the server is about to listen."""
    drain: Callable[[], None] = _nothing
    """The drain has begun: every call that waits returns with what it has."""
    close: Callable[[bool], Awaitable[bool]] = _closed
    """Lets go of everything, and says whether no thread of it hangs. Unless it is to be patient, some thread hangs
    already, and no other is waited for."""


def together(*parts: Part) -> Part:
    """Several parts as one, which takes each step of theirs in their order."""

    def gauges(metrics: Metrics) -> None:
        for part in parts:
            part.gauges(metrics)

    def start() -> None:
        for part in parts:
            part.start()

    def drain() -> None:
        for part in parts:
            part.drain()

    async def close(patient: bool) -> bool:
        ended = [await part.close(patient) for part in parts]
        return all(ended)

    handlers = tuple(handler for part in parts for handler in part.handlers)
    return Part(handlers=handlers, gauges=gauges, start=start, drain=drain, close=close)
