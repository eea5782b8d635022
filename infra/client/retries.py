"""Decides when a request is made again, and where: what both transports share, as functions of their arguments."""

import random
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import NamedTuple, TypeVar

from siltlog.infra.client.core import (
    READ_TIMEOUT_MS,
    ConnectionFailed,
    Request,
    Response,
    backoff_ms,
    connection_error,
    error_of,
    may_repeat,
)
from siltlog.infra.client.endpoints import Endpoints, Send
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, Unavailable

T = TypeVar("T")

FAILURES_TOLD = 2
"""How many failures in a row are told: one alone is a restart, or an old connection, and nobody needs to hear of it."""
FOLLOWED_MAX = 3
"""How many nodes are asked one after the other without a pause."""


class Pause(NamedTuple):
    """Wait, then go on; who cannot wait raises `error`."""

    seconds: float
    error: SiltlogError


class Reply(NamedTuple):
    """The outcome of a `Send`, and when it came (monotonic seconds)."""

    result: Response | ConnectionFailed
    now: float


class Followed(Unavailable):
    """Nothing happened: another node owns the topic, and it is known which. The same is sent there at once."""

    error_code = "not_owner"


def failure_of(
    result: Response | ConnectionFailed, url: str, request: Request, endpoints: Endpoints
) -> SiltlogError | None:
    """The error of one attempt, None when it went well; leaves an address that cannot serve now."""
    if isinstance(result, ConnectionFailed):
        endpoints.failed(url, request.path)
        return connection_error(result, url)
    endpoints.answered(url, result)
    error = error_of(result)
    if error is None:
        endpoints.succeeded(request)
    elif error.error_code == "not_owner":
        if endpoints.told(url, request, error):
            return Followed(error.detail, status=error.status, request_id=error.request_id, members=error.members)
    elif result.status == 503:
        endpoints.failed(url)
    return error


def is_silence(result: Response | ConnectionFailed) -> bool:
    """Whether a node that may have what was sent gave no answer."""
    return isinstance(result, ConnectionFailed) and result.sent


def was_left(send: Send, request: Request, result: Response | ConnectionFailed) -> bool:
    """Whether a node gave no answer in its time, before that of the request was over: another may give one."""
    return is_silence(result) and send.request.answer_timeout_ms < request.answer_timeout_ms


def exchange(
    request: Request,
    endpoints: Endpoints,
    *,
    now: float,
    retry_timeout_ms: int,
    jitter: Callable[[], float],
    told: Callable[[SiltlogError], None] | None = None,
) -> Generator[Send | Pause, Reply | None, Response]:
    """One request with its retries: yields what to do next, is sent what came of it, returns the reply.

    A `Send` expects a `Reply`, a `Pause` expects None. Raises the last error once it must not be repeated, or once the
    next attempt would start later than `retry_timeout_ms`, or the request's own, after `now`; but who was left before
    the request's time was over is no failure yet: another is asked, whatever time it is. `jitter()` gives numbers in
    [0, 1). `told` hears of a request that failed FAILURES_TOLD times and is tried on.
    """
    deadline = now + (retry_timeout_ms if request.retry_timeout_ms is None else request.retry_timeout_ms) / 1000
    attempt = followed = 0
    hasty = request.repeatable and request.node_timeout_ms is not None
    while True:
        send = endpoints.send(request, hasty=hasty)
        try:
            reply = yield send
        finally:
            endpoints.over(send)
        assert reply is not None
        left = was_left(send, request, reply.result)
        # What takes long at any node is waited for at the second.
        hasty = hasty and not is_silence(reply.result)
        error = failure_of(reply.result, send.url, request, endpoints)
        if error is None:
            assert isinstance(reply.result, Response)
            return reply.result
        if isinstance(error, Followed) and followed < FOLLOWED_MAX and reply.now <= deadline:
            followed += 1
            continue
        pause = backoff_ms(attempt, jitter(), error.retry_after_ms) / 1000
        if not may_repeat(error, request.repeatable) or (reply.now + pause > deadline and not left):
            raise error
        attempt += 1
        if attempt == FAILURES_TOLD and told is not None:
            told(error)
        yield Pause(pause, error)


class Retries:
    """How requests are made again: all that the callers of both transports share."""

    def __init__(
        self,
        endpoints: Endpoints,
        clock: Clock,
        *,
        retry_timeout_ms: int,
        jitter: Callable[[], float] | None = None,
        told: Callable[[SiltlogError], None] | None = None,
        request_timeout_ms: int = READ_TIMEOUT_MS,
    ) -> None:
        """`told` hears of a request that failed twice and is tried on. An answer may take `request_timeout_ms`, where
        its request has no time of its own."""
        self._endpoints = endpoints
        self._clock = clock
        self._retry_timeout_ms = retry_timeout_ms
        self._jitter = jitter or random.Random().random  # noqa: S311
        self._told = told
        self._request_timeout_ms = request_timeout_ms

    def steps(self, call: Generator[Request, Response, T]) -> Generator[Send | Pause, Reply | None, T]:
        """The requests of a call, each as an `exchange`; who cannot wait throws a pause's error in."""
        try:
            request = next(call)
            while True:
                try:
                    response = yield from exchange(
                        self._timed(request),
                        self._endpoints,
                        now=self._clock.monotonic(),
                        retry_timeout_ms=self._retry_timeout_ms,
                        jitter=self._jitter,
                        told=self._told,
                    )
                except SiltlogError as error:
                    request = call.throw(error)
                else:
                    request = call.send(response)
        except StopIteration as done:
            result: T = done.value
            return result

    def _timed(self, request: Request) -> Request:
        if request.read_timeout_ms is not None:
            return request
        return replace(request, read_timeout_ms=self._request_timeout_ms)


def only(request: Request) -> Generator[Request, Response, Response]:
    """A call of one request, which gives its reply."""
    return (yield request)
