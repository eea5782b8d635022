"""A server in memory: the API behind the transports of the real clients, and a look at what came of it."""

import asyncio
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa

from siltlog.consumers.dead_letters.marker import still_there
from siltlog.consumers.dead_letters.record import Stored, origin, said_of
from siltlog.consumers.library.async_consumer import AsyncConsumer
from siltlog.consumers.library.consumer import Consumer
from siltlog.consumers.library.record import ConsumerRecord, records_of
from siltlog.infra import names
from siltlog.infra.client.admin import Admin
from siltlog.infra.client.async_admin import AsyncAdmin
from siltlog.infra.client.async_transport import AsyncTransport
from siltlog.infra.client.core import ConnectionFailed, Request, Response
from siltlog.infra.client.keywords import options_of
from siltlog.infra.client.record import (
    HeadersLike,
    RecordMetadata,
    TimeLike,
    TopicPartition,
    datetime_of,
    encoded,
    time_us,
)
from siltlog.infra.client.transport import Transport
from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.errors import KINDS, ConfigError, problem
from siltlog.infra.records import NewRecord
from siltlog.infra.settings.topic_config import Value
from siltlog.ingest.library.async_producer import AsyncProducer
from siltlog.ingest.library.producer import Producer
from siltlog.testing.call import Steps, refusal
from siltlog.testing.log import MemoryLog, body_of
from siltlog.testing.redis import MemoryRedis
from siltlog.testing.routes import Routes

URL = "http://memory.invalid"
RETRY_AFTER_MS = 1
"""A failure that passes asks for it: a test has no time to wait."""
Operation = Literal["publish", "claim", "fetch", "offsets", "heartbeat", "commit", "attempt", "dead_letter"]
NO_REPLY = ("unreachable", "connection_lost")
"""Failures without a reply: before the request has left, and after."""


class DeadLetter(NamedTuple):
    """A record that a group gave up, as it was in its topic."""

    record: ConsumerRecord
    group: str
    attempts: int
    error: str


class _Failure(NamedTuple):
    error_code: str
    done: bool


class MemoryServer:
    """A log, its groups and dead letters in this process: no server, no Redis, no file, and nothing to close.

    The clients are the real ones, with their threads, retries and commits; what is in memory is what they talk to. So
    a test holds a whole producer or consumer, and takes milliseconds. With `auto_create_partitions` publishing makes
    topics, as with the server's setting of that name. Safe from several threads and event loops.
    """

    url = URL

    def __init__(self, *, auto_create_partitions: int = 0) -> None:
        clock = SystemClock()
        self._redis = MemoryRedis(clock)
        self._log = MemoryLog(clock)
        self._routes = Routes(self._log, self._redis, clock, auto_create_partitions)
        self._changed = threading.Condition()
        self._watching: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._failures: dict[str, deque[_Failure]] = {operation: deque() for operation in get_args(Operation)}

    def producer(self, url: str = URL, **options: Any) -> Producer:
        """A `Producer` of this server. It takes, and passes over, the URL and the credentials of another."""
        return Producer(URL, transport=self.transport(), **options_of(options))

    def consumer(self, url: str = URL, **options: Any) -> Consumer:
        """A `Consumer` of this server, as `producer` is one."""
        return Consumer(URL, transport=self.transport(), **({"read": "server"} | options_of(options)))

    def admin(self, url: str = URL, **options: Any) -> Admin:
        return Admin(URL, transport=self.transport(), **options_of(options))

    def async_producer(self, url: str = URL, **options: Any) -> AsyncProducer:
        return AsyncProducer(URL, transport=self.async_transport(), **options_of(options))

    def async_consumer(self, url: str = URL, **options: Any) -> AsyncConsumer:
        return AsyncConsumer(URL, transport=self.async_transport(), **({"read": "server"} | options_of(options)))

    def async_admin(self, url: str = URL, **options: Any) -> AsyncAdmin:
        return AsyncAdmin(URL, transport=self.async_transport(), **options_of(options))

    def transport(self) -> Transport:
        """The `transport=` of one client."""
        return _MemoryTransport(self)

    def async_transport(self) -> AsyncTransport:
        """The `transport=` of one asynchronous client."""
        return _AsyncMemoryTransport(self)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, Value] | None = None) -> None:
        """Raises TopicExists."""
        with self._changed:
            self._log.create(name, partitions, config or {})
            self._tell()

    def publish(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: HeadersLike | None = None,
        timestamp: TimeLike | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Puts a record there that a test begins with, as `Producer.send` would. Raises what that raises."""
        stored, key, pairs, _ = encoded(topic, value, key, headers)
        us = self._log.clock.now_us() if timestamp is None else time_us(timestamp)
        record = NewRecord(key, stored, pairs or (), us)
        with self._changed:
            [part] = self._log.publish(self._log.topic(topic), body_of([record], partition))
            self._tell()
        return RecordMetadata(topic, part.partition, part.first_offset, datetime_of(us))

    def records(self, topic: str) -> list[ConsumerRecord]:
        """Everything that is in the topic, partition by partition. Raises UnknownTopic."""
        with self._changed:
            logs = [(log.partition, log.bounds(), log) for log in self._log.topic(topic).partitions]
            found = [(at, log.between(it.log_start_offset, it.high_watermark)) for at, it, log in logs]
        tables = [(at, pa.Table.from_batches(batches, RECORD_SCHEMA)) for at, batches in found]
        return [record for at, rows in tables for record in records_of(topic, at, rows)]

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The next offset of every partition that the group has one in; empty for a group that is not there."""
        return {at: offset for at, (offset, _) in self._progress(group).items()}

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """How many records the group has not committed, of every partition that it has an offset in."""
        return {at: max(0, end - offset) for at, (offset, end) in self._progress(group).items()}

    def attempts(self, group: str, topic: str, partition: int, offset: int) -> int:
        """How often the group has tried to handle a record in vain; 0 once it has passed it."""
        with self._changed:
            state = self._redis.groups.get(group)
            at = f"{topic}/{self._log.topic(topic).topic_id}/{partition}"
            return 0 if state is None else state.progress.attempts(at, offset)

    def dead_letters(self, topic: str) -> list[DeadLetter]:
        """The records of the topic that were given up and not discarded, by the partition they were in."""
        with self._changed:
            self._log.topic(topic)
            dead = names.dead_letter_topic(topic)
            if all(there.name != dead for there in self._log.topics()):
                return []
            found: dict[int, list[Stored]] = {}
            for record in self.records(dead):
                found.setdefault(record.partition, []).append(_stored(record))
            return [_dead_letter(record) for at, records in found.items() for record in still_there(records, at)]

    def fail(self, operation: Operation, error_code: str = "overloaded", *, times: int = 1, done: bool = False) -> None:
        """Lets the next `times` requests of this kind fail, before anything is done, or with `done` after it was done.

        `error_code` is one of the HTTP API's, such as `record_too_large`, `ack_timeout` or `fenced_member`; or there is
        no reply: `unreachable` (nothing was sent) or `connection_lost`. Raises ConfigError for any other.
        """
        if error_code not in KINDS and error_code not in NO_REPLY:
            raise ConfigError(f"there is no error {error_code!r}; there are: {', '.join((*NO_REPLY, *KINDS))}")
        if operation not in self._failures:
            raise ConfigError(f"there is no operation {operation!r}; there are: {', '.join(self._failures)}")
        with self._changed:
            self._failures[operation].extend([_Failure(error_code, done)] * times)

    def _progress(self, group: str) -> dict[TopicPartition, tuple[int, int]]:
        """(next offset, end) by partition."""
        with self._changed:
            if group not in self._redis.groups or not self._redis.groups[group].exists:
                return {}
            state = self._routes.groups.state(group)
            return {
                TopicPartition(it.key.topic, it.key.partition): (
                    it.offset,
                    self._log.topic(it.key.topic).partition(it.key.partition).bounds().high_watermark,
                )
                for it in state.offsets
            }

    def _tell(self) -> None:
        """Resumes every request that waits; the lock is held."""
        self._changed.notify_all()
        for event, loop in self._watching.items():
            # A loop that was closed under its client has nobody left to resume.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

    def _reply(self, request: Request) -> Steps:
        """The steps of a request; the lock is held in each. Raises ConnectionFailed."""
        failures = self._failures.get(self._routes.operation(request))
        failure = failures.popleft() if failures else None
        if failure is not None and not failure.done:
            return _failed(failure)
        answer = yield from self._routes.reply(request)
        if request.method != "GET":
            self._tell()
        return answer if failure is None else _failed(failure)


def _failed(failure: _Failure) -> Response:
    if failure.error_code in NO_REPLY:
        raise ConnectionFailed("the test lets it fail", sent=failure.error_code != "unreachable")
    return refusal(problem(failure.error_code, "the test lets it fail", retry_after_ms=RETRY_AFTER_MS))


def _stored(record: ConsumerRecord) -> Stored:
    return Stored(record.offset, time_us(record.timestamp), record.key, record.value, record.headers)


def _dead_letter(record: Stored) -> DeadLetter:
    said = said_of(record.headers)
    assert said is not None, "who buries a record says where it was"
    was = origin(record)
    assert was.record.timestamp_us is not None
    moment = datetime_of(was.record.timestamp_us)
    own = ConsumerRecord(
        str(said["topic"]), was.partition, int(said["offset"]), moment, record.key, record.value, was.record.headers
    )
    return DeadLetter(own, str(said["group"]), int(said["attempts"]), str(said["error"]))


class _MemoryTransport:
    """A client's requests, each made by the thread that sends it."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self._closed = False

    def send(self, url: str, request: Request) -> Response:
        changed = self._server._changed
        with changed:
            steps = self._server._reply(request)
            while not self._closed:
                try:
                    changed.wait(next(steps))
                except StopIteration as done:
                    response: Response = done.value
                    return response
        raise ConnectionFailed("the client was closed", sent=True)

    def close(self) -> None:
        """Ends what waits."""
        with self._server._changed:
            self._closed = True
            self._server._tell()


class _AsyncMemoryTransport:
    """The requests of an asynchronous client. They never block its event loop for longer than a step takes."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self._closed = False

    async def send(self, url: str, request: Request) -> Response:
        server = self._server
        event = asyncio.Event()
        steps = server._reply(request)
        try:
            while not self._closed:
                with server._changed:
                    event.clear()
                    server._watching[event] = asyncio.get_running_loop()
                    try:
                        left = next(steps)
                    except StopIteration as done:
                        response: Response = done.value
                        return response
                await _set_within(event, left)
        finally:
            with server._changed:
                server._watching.pop(event, None)
        raise ConnectionFailed("the client was closed", sent=True)

    async def close(self) -> None:
        """Ends what waits."""
        with self._server._changed:
            self._closed = True
            self._server._tell()


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
