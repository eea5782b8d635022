"""Publishing from Python: batches, retries that never duplicate, and nothing dropped without a word."""

import atexit

# Arrow imports it when the first array is made, which fails once the interpreter ends: too late for the flush at exit.
import concurrent.futures.thread  # noqa: F401
import logging
import operator
import os
import random
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from siltlog.infra.client.accumulator import Accumulator
from siltlog.infra.client.arrow_body import Compression, published_table
from siltlog.infra.client.batch import ROW_BYTES, Batch
from siltlog.infra.client.core import ConnectionFailed, Endpoints, Request, Response, failure_of
from siltlog.infra.client.delivery import BatchDelivery, Delivery, FailureLedger, unread
from siltlog.infra.client.lane import Lane, PublishOptions
from siltlog.infra.client.record import (
    HeadersLike,
    TimeLike,
    header_pairs,
    key_bytes,
    refuse_keyless_tombstone,
    time_us,
    value_bytes,
)
from siltlog.infra.client.transport import HttpTransport, Transport
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import BufferFull, ConfigError, OutcomeUnknown, SiltlogError, problem

SENDERS_MAX = 4
"""Threads that send: as many topics can have a request in flight."""
REQUEST_TIMEOUT_MS_MAX = 60_000
PARTITION_MAX = 2**31 - 1
_log = logging.getLogger("siltlog.producer")


class Producer:
    """Idempotent: a retry never duplicates. Safe from several threads; not across a fork.

    `url` is a server's URL, or several of one cluster. `acks` None means the topic's own level. Records wait at most
    `linger_ms` for others to travel with. What is not acknowledged `delivery_timeout_ms` after its send has failed.
    `send` blocks up to `max_block_ms` while `buffer_bytes` are waiting, then raises BufferFull. `compression="auto"`
    is lz4, or none towards this machine.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        acks: Literal["wal", "table"] | None = None,
        linger_ms: float = 5,
        batch_bytes: int = 1024 * 1024,
        buffer_bytes: int = 64 * 1024 * 1024,
        max_block_ms: int = 60_000,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 15_000,
        compression: Compression | Literal["auto"] = "auto",
        clock: Clock | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Raises ConfigError when an argument is not valid. Connects at the first send."""
        self._endpoints = Endpoints(url)
        if acks not in (None, "wal", "table"):
            raise ConfigError(f"acks must be wal or table, not {acks!r}: a producer that retries needs an answer")
        if compression not in ("auto", "none", "lz4", "zstd"):
            raise ConfigError(f"compression must be auto, none, lz4 or zstd, not {compression!r}")
        for name, given, least, most in (
            ("linger_ms", linger_ms, 0, None),
            ("batch_bytes", batch_bytes, 1, None),
            ("buffer_bytes", buffer_bytes, 1, None),
            ("max_block_ms", max_block_ms, 0, None),
            ("delivery_timeout_ms", delivery_timeout_ms, 1, None),
            ("request_timeout_ms", request_timeout_ms, 1, REQUEST_TIMEOUT_MS_MAX),
        ):
            if given < least or (most is not None and given > most):
                raise ConfigError(
                    f"{name} must be at least {least}{f' and at most {most}' if most else ''}, not {given!r}"
                )
        if compression == "auto":
            compression = "none" if all(map(_is_local, self._endpoints.urls)) else "lz4"
        self._clock = clock or SystemClock()
        self._transport = transport or HttpTransport()
        self._buffer_bytes = buffer_bytes
        self._max_block_ms = max_block_ms
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._accumulator = Accumulator(
            PublishOptions(acks, compression, delivery_timeout_ms, request_timeout_ms),
            linger_ms=linger_ms,
            batch_bytes=min(batch_bytes, buffer_bytes),
            lock=self._lock,
            jitter=random.Random().random,  # noqa: S311
        )
        self._ledger = FailureLedger(buffer_bytes)
        self._senders: list[threading.Thread] = []
        self._idle = 0
        self._blocked = 0
        self._closed = False
        self._stopping = False
        self._pid = os.getpid()
        self._at_exit = _flush_at_exit(self)

    # --- publishing ---------------------------------------------------------------------------------------
    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: HeadersLike | None = None,
        timestamp: TimeLike | None = None,
        partition: int | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> Delivery:
        """Hands a record over and returns at once with its delivery; `on_delivery` is called with it once decided.

        Raises TypeError or ValueError for what cannot be sent, BufferFull, and Refused once the producer is closed.
        """
        if type(value) is not bytes:
            value = value_bytes(value)
            if value is None and key is None:
                refuse_keyless_tombstone(topic)
        size = len(value) if value is not None else 0
        if key is not None:
            key = key_bytes(key)
            size += len(key)  # type: ignore[arg-type]
        stored = None
        if headers is not None:
            stored = header_pairs(headers)
            if stored is not None:
                size += sum(len(name) + len(text or b"") for name, text in stored)
        if partition is not None:
            partition = _partition(partition)
        us = self._clock.now_us() if timestamp is None else time_us(timestamp)
        now = self._clock.monotonic()
        if self._pid != os.getpid():
            self._refuse()
        with self._lock:
            if self._closed:
                self._refuse()
            accumulator = self._accumulator
            if accumulator.used_bytes + size > self._buffer_bytes:
                self._await_room(size + ROW_BYTES)
            batch, index, look = accumulator.append(topic, (value, key, stored, us, partition), size, now)
            if look:
                self._look()
        delivery = Delivery(batch, index, self)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    def send_batch(
        self, topic: str, records: Any, *, on_delivery: Callable[[BatchDelivery], None] | None = None
    ) -> BatchDelivery:
        """Hands over an Arrow table or record batch, or a pandas or polars frame: one row a record.

        Columns as in the HTTP body: `value` (binary or string), and if wanted `key`, `headers`, `timestamp`,
        `partition`. The memory is referred to, not copied: leave it unchanged until the delivery is done. Raises as
        `send` does; a batch larger than the buffer waits until the buffer is empty.
        """
        table = published_table(topic, records)
        now = self._clock.monotonic()
        if self._pid != os.getpid():
            self._refuse()
        with self._lock:
            if self._closed:
                self._refuse()
            size = table.nbytes + ROW_BYTES
            if self._accumulator.used_bytes + size > self._buffer_bytes:
                self._await_room(size)
            batch = self._accumulator.add_table(topic, table, now)
            self._look()
        delivery = BatchDelivery(batch, self)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    def flush(self, timeout_ms: int | None = None) -> None:
        """Waits until everything sent before is decided.

        Raises DeliveryFailed with what failed since the last flush and was not read from its delivery; TimeoutError
        when `timeout_ms` was not enough.
        """
        if self._pid != os.getpid():
            self._refuse()
        self._refuse_own_thread()
        deadline = None if timeout_ms is None else self._clock.monotonic() + timeout_ms / 1000
        with self._lock:
            self._accumulator.close_open()
            waiting = list(self._accumulator.unfinished)
            if waiting:
                self._look()
        for batch in waiting:
            if not batch.wait(None if deadline is None else max(0.0, deadline - self._clock.monotonic())):
                left = sum(batch.count for batch in waiting if not batch.done)
                raise TimeoutError(f"{left} records are still being sent after {timeout_ms} ms; flush again")
        with self._lock:
            finished = self._ledger.take()
        failed = unread(finished)
        if failed is not None:
            raise failed

    def close(self, timeout_ms: int | None = None) -> None:
        """Flushes, then lets go of threads and connections. Raises DeliveryFailed as `flush` does.

        What is not delivered in `timeout_ms` fails; a request that is on its way is waited for. Closing again does
        nothing.
        """
        if self._pid != os.getpid():
            return
        self._refuse_own_thread()
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self._at_exit)
        try:
            try:
                self.flush(timeout_ms)
            except TimeoutError:
                with self._lock:
                    self._accumulator.end()
                    self._wake.notify_all()
                self.flush()
        finally:
            with self._lock:
                self._stopping = True
                self._wake.notify_all()
                self._room.notify_all()
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except SiltlogError as failed:
            raise failed from error

    # --- the senders --------------------------------------------------------------------------------------
    def hurry(self, batch: Batch) -> None:
        """Sends the batch now: somebody waits for it."""
        if self._pid != os.getpid():
            self._refuse()
        with self._lock:
            self._accumulator.hurry(batch)
            self._look()

    def _look(self) -> None:
        """Makes a sender look at what is due; the lock is held."""
        if self._idle == 0 and len(self._senders) < SENDERS_MAX and self._accumulator.next_due() is not None:
            self._start_sender()
        self._wake.notify()

    def _start_sender(self) -> None:
        sender = threading.Thread(target=self._run, name="siltlog-sender", daemon=True)
        self._senders.append(sender)
        try:
            sender.start()
        except RuntimeError:
            # The interpreter is on its way out and starts no thread: those that run go on.
            self._senders.remove(sender)
            if not self._senders:
                raise

    def _run(self) -> None:
        while True:
            with self._lock:
                lane = self._next_lane()
            if lane is None:
                return
            try:
                self._serve(lane)
            except Exception as error:
                _log.exception("sending to %s failed", lane.topic)
                lane.abandon(OutcomeUnknown(f"sending failed: {error!r}", error_code="internal"))
            self._give_back(lane)

    def _next_lane(self) -> Lane | None:
        """Waits for a lane; None when this sender is to end. The lock is held."""
        while not self._stopping:
            now = self._clock.monotonic()
            lane = self._accumulator.take(now)
            due = self._accumulator.next_due()
            if lane is not None:
                if due is not None and due <= now:
                    self._look()
                return lane
            self._idle += 1
            try:
                self._wake.wait(None if due is None else max(0.0, due - now))
            finally:
                self._idle -= 1
        return None

    def _serve(self, lane: Lane) -> None:
        """One step of a lane: its next request and what comes of it."""
        request = lane.next_request(self._clock.monotonic())
        if request is None:
            return
        url = self._endpoints.current
        result = self._attempt(url, request)
        error = failure_of(result, url, self._endpoints)
        if error is not None:
            lane.resolve(error, self._clock.monotonic())
        else:
            assert isinstance(result, Response)
            lane.resolve(result, self._clock.monotonic())

    def _attempt(self, url: str, request: Request) -> Response | ConnectionFailed:
        try:
            return self._transport.send(url, request)
        except ConnectionFailed as failed:
            return failed

    def _give_back(self, lane: Lane) -> None:
        finished = lane.take_finished()
        with self._lock:
            if finished is not None:
                self._ledger.add(finished)
            self._accumulator.give_back(lane, finished)
            if self._blocked and finished is not None:
                self._room.notify_all()
            self._wake.notify()
        if finished is not None:
            finished.finish()

    def close_at_exit(self) -> None:
        """What was not closed is flushed all the same, with a ResourceWarning."""
        if self._pid == os.getpid() and not self._closed:
            warnings.warn(
                "a Producer was not closed; it is flushed now. Use it as a context manager, or close it",
                ResourceWarning,
                stacklevel=2,
            )
            self.close()

    # --- waiting and ending -------------------------------------------------------------------------------
    def _await_room(self, size: int) -> None:
        """Waits until `size` more bytes fit, or nothing is buffered; the lock is held."""
        deadline = self._clock.monotonic() + self._max_block_ms / 1000
        self._blocked += 1
        try:
            while self._accumulator.used_bytes and self._accumulator.used_bytes + size > self._buffer_bytes:
                self._accumulator.close_open()
                self._look()
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise BufferFull(
                        f"{self._buffer_bytes} bytes are waiting to be sent and there was no room within "
                        f"{self._max_block_ms} ms; server is unreachable or slower than the sends"
                    )
                self._room.wait(left)
                if self._closed:
                    self._refuse()
        finally:
            self._blocked -= 1

    def _refuse(self) -> None:
        if self._pid != os.getpid():
            raise problem(
                "invalid_request",
                "this producer was made in the process that forked this one; make a new Producer here",
            )
        raise problem("invalid_request", "this producer is closed; make a new one")

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() in self._senders:
            raise problem("invalid_request", "a delivery's callback cannot flush or close: it would wait for itself")


def _is_local(url: str) -> bool:
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


def _partition(partition: Any) -> int:
    number = operator.index(partition)
    if not 0 <= number <= PARTITION_MAX:
        raise ValueError(f"a partition is a number from 0, not {partition}")
    return number


def _flush_at_exit(producer: Producer) -> Callable[[], None]:
    held = weakref.ref(producer)

    def flush() -> None:
        left = held()
        if left is not None:
            left.close_at_exit()

    atexit.register(flush)
    return flush
