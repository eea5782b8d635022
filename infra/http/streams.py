"""The streams that are open: what wakes them, and what ends them all.

A stream sleeps until there is something for it: records, a message, its beat, or the end. One timer beats for all of
them, so an idle stream costs nothing between two beats.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from starlette.types import Message, Receive

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.draining import Draining
from siltlog.infra.security.grant import EVERYTHING, Grant
from siltlog.infra.security.guard import Meter

BEAT_SECONDS = 15.0
TAILS_MAX = 10_000
TAILS_RETRY_MS = 10_000
CROWDED_RETRY_SECONDS = 1.0
"""When there is no memory for what comes next, a stream asks again."""
BEAT_GRAIN_SECONDS = 0.25
"""Streams whose beats are so close beat together."""

LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 0.01, 3_600.0
"""How soon, and how late, a grant that ends is looked at."""

Kind = Literal["events", "topic_socket", "group_socket", "search", "live", "sql"]
KINDS: tuple[Kind, ...] = ("events", "topic_socket", "group_socket", "search", "live")
"""Kinds that are counted; what a query gives has the size of any answer."""
TAILS: tuple[Kind, ...] = ("events", "topic_socket")
"""Kinds of which there are so many at most: viewers of records, who may come without end. A group's members are not."""
LASTING: tuple[Kind, ...] = ("events", "topic_socket", "group_socket", "live")

STREAM = "stream"
"""Where a request's state has its stream, for the connection to say that its client takes nothing."""


class Stream:
    """One stream's signals. `ended`: the server wants it to end, or there is nobody left to send to."""

    def __init__(self, streams: "Streams", kind: Kind) -> None:
        self.kind = kind
        self.ended = False
        self.beat = False
        """Its time to show that it is alive."""
        self.meter: Meter | None = None
        """Counts for quotas what is not part of an HTTP reply."""
        self.resting = False
        """More than a quota allows was sent; it sends no records until that is made up for."""
        self.due = 0.0
        self.refusal: SiltlogError | None = None
        """Why it may not go on."""
        self._streams = streams
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    def end(self) -> None:
        self.ended = True
        self._event.set()

    def refuse(self, error: SiltlogError) -> None:
        self.refusal = error
        self._event.set()

    def cut(self) -> None:
        """Its client did not take what was sent for too long."""
        self._streams.too_slow[self.kind] += 1
        self.end()

    def paid(self, nbytes: int, topics: Iterable[tuple[str, int]] = ()) -> None:
        """Takes bytes that were sent of the quotas that it is under, and rests where that was too much.

        `topics` says how many of them are of which, for a stream that has several.
        """
        if self.meter is None:
            return
        pauses = [self.meter.read(nbytes), *(self.meter.read_of(topic, part) for topic, part in topics)]
        if pause := max(pauses):
            self.rest(pause)

    def rest(self, seconds: float) -> None:
        if not self.resting:
            self.resting = True
            asyncio.get_running_loop().call_later(seconds, self._rested)

    def _rested(self) -> None:
        self.resting = False
        self.wake()

    def sent(self, records: int) -> None:
        self._streams.records[self.kind] += records

    async def sleep(self) -> None:
        """Until it is woken; a wake since the last sleep counts."""
        await self._event.wait()
        self._event.clear()


class Refusable(Protocol):
    """What goes on for long."""

    def refuse(self, error: SiltlogError) -> None:
        """Has it end, and say why."""


def _nothing() -> None:
    return


@contextmanager
def asked_again(stream: Refusable, grant: Grant, ask: Callable[[], None] = _nothing) -> Iterator[None]:
    """Refuses the stream as soon as its grant has ended, or `ask()` raises SiltlogError after a change of access."""
    if grant is EVERYTHING:
        yield
        return
    timer: asyncio.TimerHandle | None = None
    refused = False

    def look() -> None:
        nonlocal timer, refused
        try:
            grant.check()
            ask()
        except SiltlogError as error:
            refused = True
            stream.refuse(error)
        seconds = grant.seconds_left()
        if timer is not None:
            timer.cancel()
        if seconds is not None and not refused:
            delay = min(max(seconds, LOOK_SECONDS_MIN), LOOK_SECONDS_MAX)
            timer = asyncio.get_running_loop().call_later(delay, look)

    forget = grant.when_changed(look)
    # Access may have changed between the answer that opens it and now.
    look()
    try:
        yield
    finally:
        forget()
        if timer is not None:
            timer.cancel()


async def until_gone(receive: Receive, stream: Stream) -> None:
    """Waits until the client hangs up, and ends the stream."""
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.end()


def body_part(text: bytes, *, more: bool = True) -> Message:
    """A part of the body of an answer."""
    return {"type": "http.response.body", "body": text, "more_body": more}


class Streams:
    """Used on one event loop."""

    def __init__(self, draining: Draining, beat_seconds: float = BEAT_SECONDS, *, tails_max: int = TAILS_MAX) -> None:
        self.records: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.too_slow: dict[str, int] = dict.fromkeys(KINDS, 0)
        self._draining = draining
        self._beat_seconds = beat_seconds
        self._open: dict[Stream, None] = {}
        """The open streams in the order of their next beats: one that beats goes to the end."""
        self._timer: asyncio.TimerHandle | None = None
        self._tails_max = tails_max
        self._tails = 0

    def reconfigure(self, tails_max: int) -> None:
        """Changes the most there may be; streams that are open stay, also where they are more."""
        self._tails_max = tails_max

    def check_room(self, kind: Kind) -> None:
        """Raises Unavailable `overloaded` where one more of the kind would be too many."""
        if kind in TAILS and self._tails >= self._tails_max:
            raise problem(
                "overloaded",
                f"{self._tails_max} tails and WebSockets follow topics of this server, and no more may "
                "(SILT_TAILS_MAX); come again, or read /v1/topics/{topic}/partitions/{partition}/records with wait_ms",
                retry_after_ms=TAILS_RETRY_MS,
            )

    def __len__(self) -> int:
        return len(self._open)

    def lasting(self) -> int:
        """Counts the open ones that end when their clients want it, or the server stops, and not by themselves."""
        return sum(stream.kind in LASTING for stream in self._open)

    @property
    def draining(self) -> bool:
        return self._draining.begun

    @contextmanager
    def opened(self, kind: Kind) -> Iterator[Stream]:
        """Raises as `check_room`."""
        self.check_room(kind)
        stream = Stream(self, kind)
        loop = asyncio.get_running_loop()
        stream.due = loop.time() + self._beat_seconds
        stream.ended = self.draining
        self._open[stream] = None
        self._tails += kind in TAILS
        if self._timer is None:
            self._timer = loop.call_at(stream.due, self._beat)
        try:
            yield stream
        finally:
            self._tails -= kind in TAILS
            self._open.pop(stream)

    def drain(self) -> None:
        """Every stream ends; later ones end at once, because the drain has begun."""
        for stream in self._open:
            stream.end()

    def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        due = list(self._due(now + BEAT_GRAIN_SECONDS))
        for stream in due:
            del self._open[stream]
            stream.due = now + self._beat_seconds
            stream.beat = True
            stream.wake()
            self._open[stream] = None
        first = next(iter(self._open), None)
        self._timer = None if first is None else loop.call_at(first.due, self._beat)

    def _due(self, until: float) -> Iterator[Stream]:
        for stream in self._open:
            if stream.due > until:
                return
            yield stream
