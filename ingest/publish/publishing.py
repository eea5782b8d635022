"""Publishing: the one use-case that HTTP, its fast path and the server's own topics translate to and from.

A request is appended whole or refused whole, and answered once its records have reached the acks it asked for.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from siltlog.infra import names
from siltlog.infra.arrow.partitioner import PlacedBy
from siltlog.infra.errors import SiltlogError, UnknownTopic, problem
from siltlog.infra.http.connection.hang_up import HangUp
from siltlog.infra.security.grant import EVERYTHING, Grant
from siltlog.infra.settings.topic_config import answered_at
from siltlog.ingest.log.log import Appended, Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.producers.idempotency import IdempotencyKey
from siltlog.ingest.publish.acknowledgement import acknowledged, late
from siltlog.ingest.records.body import Body
from siltlog.ingest.topics.topics import AutoCreate

Acks = Literal["none", "written", "wal", "object", "table"]
ACKS: tuple[Acks, ...] = ("none", "written", "wal", "object", "table")


class Publisher(NamedTuple):
    """Says who publishes, so that a retry lands once, and how the keys were placed, if they were.

    `who` is None for somebody who publishes each time anew.
    """

    who: Producer | IdempotencyKey | None = None
    placed_by: PlacedBy | None = None


ANYBODY = Publisher()


class Absent(NamedTuple):
    """A topic that is not there, or not whole yet, and that publishing makes; within what `making` gives."""

    name: str
    making: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    grant: Grant = EVERYTHING


# Not frozen: that would be a good part of a small publish's time.
@dataclass(slots=True)
class Published:
    """A request that was appended, and the `acks` at which it is answered."""

    topic: TopicLog
    body: Body
    by: Publisher
    acks: Acks
    appended: Appended

    def waits_for(self) -> "asyncio.Future[None] | None":
        """What it still waits for once it is synced, one after the other: the sync of another request that had these
        records first, and the journal. None once its `acks` is met; it is no more than `object`, and `written` is met
        by then, since groups are written one after the other.

        Raises when the topic has ended, or is another node's.
        """
        if self.by.who is not None and self.acks != "written":
            for log, end in self.appended.ends:
                wait = log.when_synced(end)
                if wait is not None:
                    return wait
        if self.acks == "object":
            for log, end in self.appended.ends:
                wait = log.when_shown(end)
                if wait is not None:
                    if self.topic.availability.lasting:
                        raise self.topic.gone()
                    return wait
        return None


class Publishing:
    """Used on the log's event loop."""

    def __init__(self, log: Log, wake_flusher: Callable[[], None], auto_create: AutoCreate | None) -> None:
        """`auto_create` makes a topic that is not there; None where publishing creates none."""
        self._log = log
        self._draining = log.admission.draining
        self._wake_flusher = wake_flusher
        self._auto_create = auto_create

    def topic(self, name: str) -> TopicLog | Absent:
        """Finds the topic a user publishes to. Raises UnknownTopic, or Refused `forbidden` for a system topic."""
        if names.is_system_topic(name):
            raise problem("forbidden", f"the topic {name[:200]!r} is the system's: it can be read, not published to")
        try:
            topic = self._log.topic(name)
        except UnknownTopic:
            if self._auto_create is None:
                raise
            return Absent(name)
        return Absent(name) if topic.state == "creating" and self._auto_create is not None else topic

    def open_topic(self, name: str) -> TopicLog | None:
        """The topic, when a publish to it needs no more than a sync, and to land where it is journaled: `append_now`,
        and `durable` once it waits for nothing."""
        if self._draining.begun:
            return None
        try:
            topic = self._log.topic(name)
        except SiltlogError:
            # There is none, or it is another node's.
            return None
        if not topic.plain or not topic.takes_records or (topic.journaled and self._log.journal.is_full):
            return None
        return topic

    async def publish(
        self, topic: TopicLog | Absent, body: Body, by: Publisher, acks: Acks | None, timeout_ms: int
    ) -> Published:
        """Appends `body`, and returns once `acks` is met (None: the level of the topic) for every record.

        Raises SiltlogError. Nothing was appended then, unless it is an OutcomeUnknown.
        """
        return await self.acknowledged(await self.append(topic, body, by, acks, timeout_ms), timeout_ms)

    async def append(
        self, topic: TopicLog | Absent, body: Body, by: Publisher, acks: Acks | None, timeout_ms: int
    ) -> Published:
        """The first half of `publish`: afterwards nothing of what `body` was read from is needed."""
        if acks == "none" and by.who is not None:
            raise problem(
                "unsupported_acks",
                "acks=none gives no answer to retry on: ask for wal, or leave out Silt-Producer-Id and Idempotency-Key",
            )
        if isinstance(topic, Absent):
            topic = await self._made(topic, body, by, acks)
        if topic.paused is not None:
            await topic.resumed(timeout_ms / 1000)
        self.check_room(topic)
        try:
            return self.append_now(topic, body, by, acks)
        except SiltlogError as error:
            wait = self.told_once(error)
            if wait is not None:
                await self.kept(topic, wait, timeout_ms)
            raise

    def check_room(self, topic: TopicLog) -> None:
        """Raises Unavailable where the topic is journaled, and the journal has no room."""
        if topic.journaled:
            self._log.journal.check_room()

    def append_now(self, topic: TopicLog, body: Body, by: Publisher, acks: Acks | None) -> Published:
        """Appends to a topic that is there and not paused. Raises SiltlogError; then nothing was appended."""
        level = acks or _own_acks(topic, by)
        if level == "object" or not topic.shows_synced:
            level = _reached(topic, level)
        appended = self._log.append(topic, body, by.who, by.placed_by, written=level == "written")
        # Its values would keep all that was read until the answer; the log has its own copy.
        body.plain = body.sent = None
        return Published(topic, body, by, level, appended)

    async def acknowledged(self, published: Published, timeout_ms: int, hang_up: HangUp | None = None) -> Published:
        """The second half of `publish`. Raises OutcomeUnknown `ack_timeout` with the acks that was reached, also where
        the client has hung up that waits for more than the WAL: `hang_up` is the end of its connection."""
        topic, acks = published.topic, published.acks
        if acks == "wal" and published.appended.is_synced:
            return self.durable(published)
        if acks != "none":
            await acknowledged(topic, published.appended, acks, timeout_ms / 1000, self._wake_flusher, hang_up)
        _count(published)
        return published

    def durable(self, published: Published) -> Published:
        """The second half of what `append_now` began, once it waits for nothing more.

        Raises when the topic has ended, or is another node's; not where all of it has landed, which its next owner has.
        """
        if published.acks != "object" and published.topic.availability.lasting:
            raise published.topic.gone()
        _count(published)
        return published

    def late(self, topic: TopicLog, acks: Acks | None) -> SiltlogError:
        """The error for a publish that waited until its time was over, for its sync or for the journal."""
        return late(topic, "object" if topic.journaled else acks or _own_acks(topic, ANYBODY), "none")

    def told_once(self, error: Exception) -> "asyncio.Future[None] | None":
        """The future that a refusal waits for before it is answered; None when it need not wait."""
        return self._log.told_once(error)

    async def kept(self, topic: TopicLog, wait: "asyncio.Future[None]", timeout_ms: int) -> None:
        """Returns once what the topic has would outlast what its acks promise to; `wait` is of `told_once`. Raises
        SiltlogError.

        Who goes on from there must not go on behind records that a crash takes away, or that a next owner does not
        know.
        """
        await wait
        await self._log.landed(topic)
        if topic.ships:
            await self._log.in_table(topic, timeout_ms / 1000)

    async def _made(self, absent: Absent, body: Body, by: Publisher, acks: Acks | None) -> TopicLog:
        assert self._auto_create is not None
        # Made only now: a request that is refused has no effect.
        unmade = self._auto_create.unmade(absent.name)
        if acks is not None:
            answered_at(str(unmade.config["acks"]), acks)
        self._log.admission.rehearse(unmade, body, by.who, by.placed_by)
        async with absent.making():
            return await self._auto_create.make(absent.name, absent.grant)


def _own_acks(topic: TopicLog, by: Publisher) -> Acks:
    """The level of the topic; who can repeat a request is told how far it came where that would be `none`."""
    own = cast(Acks, topic.acks)
    return "wal" if own == "none" and by.who is not None else own


def _reached(topic: TopicLog, asked: Acks) -> Acks:
    level = cast(Acks, answered_at(str(topic.config["acks"]), asked))
    return "table" if topic.ships and level in ("written", "wal", "object") else level


def _count(published: Published) -> None:
    body = published.body
    new = body.count
    if published.by.who is not None:
        new = sum(ack.count for ack in published.appended.acks if not ack.duplicate)
    published.topic.acknowledged(new, body.nbytes * new // body.count, duplicates=body.count - new)
