"""The threads of a producer: they take what is due, send it, and tell who waits."""

import logging
import os
import threading
from collections.abc import Callable
from typing import NoReturn

from siltlog.infra.client.core import ConnectionFailed, Request, Response
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.transport import Transport
from siltlog.infra.clock import Clock
from siltlog.infra.errors import BufferFull, problem
from siltlog.ingest.library.batch import Batch
from siltlog.ingest.library.options import PublishOptions
from siltlog.ingest.library.outbox import Outbox
from siltlog.ingest.library.topic_lane import TopicLane

SENDERS_MAX = 8
"""Threads: as many requests can be under way."""
_log = logging.getLogger("siltlog.producer")


class Senders:
    """Made as they are needed. `lock` is the producer's one lock; `outbox` is used under it."""

    def __init__(self, endpoints: Endpoints, options: PublishOptions, clock: Clock, transport: Transport) -> None:
        self.lock = threading.Lock()
        self.outbox = Outbox(endpoints, options, clock, self)
        self._accumulator = self.outbox.accumulator
        self._options = options
        self._clock = clock
        self._transport = transport
        self._wake = threading.Condition(self.lock)
        self._room = threading.Condition(self.lock)
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._blocked = 0
        self._stopping = False
        self._pid = os.getpid()

    def look(self) -> None:
        """Makes a thread look at what is due; the lock is held."""
        if self._idle == 0 and len(self._threads) < SENDERS_MAX and self._accumulator.next_due() is not None:
            self._start_thread()
        self._wake.notify()

    def refuse_forked(self) -> None:
        """Refuses a child process: it has no threads to send, and the lock may be held for ever."""
        if self._pid != os.getpid():
            refuse_forked()

    def hurry(self, batch: Batch) -> None:
        self.refuse_forked()
        with self.lock:
            self._accumulator.hurry(batch)
            self.look()

    def changed(self, finished: bool) -> None:
        if self._blocked and finished:
            self._room.notify_all()
        # Not only who is idle: this thread may be about to wait for an answer, and something may be due before it.
        self.look()

    def await_room(self, size: int, refuse_closed: Callable[[], None]) -> None:
        """Waits until `size` more bytes fit, or nothing is buffered; the lock is held. Raises BufferFull.

        `refuse_closed` is called when there may be room, to raise if there is no longer any use for it.
        """
        deadline = self._clock.monotonic() + self._options.max_block_ms / 1000
        buffer_bytes = self._options.buffer_bytes
        self._blocked += 1
        try:
            while self._accumulator.used_bytes and self._accumulator.used_bytes + size > buffer_bytes:
                self._accumulator.close_open()
                self.look()
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise buffer_full(self._options)
                self._room.wait(left)
                refuse_closed()
        finally:
            self._blocked -= 1

    def is_own_thread(self) -> bool:
        return threading.current_thread() in self._threads

    def end(self) -> None:
        """Fails all that is not on its way."""
        with self.lock:
            self._accumulator.end()
            self._wake.notify_all()

    def stop(self) -> None:
        with self.lock:
            self._stopping = True
            self._wake.notify_all()
            self._room.notify_all()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="siltlog-sender", daemon=True)
        self._threads.append(thread)
        try:
            thread.start()
        except RuntimeError:
            # The interpreter is on its way out and starts no thread: those that run go on.
            self._threads.remove(thread)
            if not self._threads:
                raise

    def _run(self) -> None:
        while True:
            with self.lock:
                lane = self._next_lane()
            if lane is None:
                return
            departure = self.outbox.depart(lane)
            if departure is not None:
                self.outbox.arrive(departure, self._attempt(*departure.send))

    def _next_lane(self) -> TopicLane | None:
        """Waits for a lane; None when this thread is to end. The lock is held."""
        while not self._stopping:
            now = self._clock.monotonic()
            lane = self._accumulator.take(now)
            due = self._accumulator.next_due()
            if lane is not None:
                if due is not None and due <= now:
                    self.look()
                return lane
            self._idle += 1
            try:
                self._wake.wait(None if due is None else max(0.0, due - now))
            finally:
                self._idle -= 1
        return None

    def _attempt(self, url: str, request: Request) -> Response | ConnectionFailed:
        try:
            return self._transport.send(url, request)
        except ConnectionFailed as failed:
            return failed
        except Exception as defect:
            _log.exception("sending to %s failed", url)
            return ConnectionFailed(repr(defect), sent=True)


def refuse_forked() -> NoReturn:
    raise problem("invalid_request", "this producer was made in the process that forked this one; make a new one here")


def buffer_full(options: PublishOptions) -> BufferFull:
    return BufferFull(
        f"{options.buffer_bytes} bytes are waiting to be sent and there was no room within {options.max_block_ms} ms; "
        "the server is unreachable or slower than the sends"
    )
