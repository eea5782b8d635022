"""How long a connection may take to be there, and how long an answer, each with a time of its own."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from siltlog import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConfigError,
    Consumer,
    OutcomeUnknown,
    Producer,
    SiltlogError,
    Unavailable,
)
from siltlog.infra.client.async_transport import AsyncHttpTransport
from siltlog.infra.client.core import ConnectionFailed, Request
from siltlog.infra.client.transport import HttpTransport


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a listener that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def full() -> Iterator[int]:
    """The port of a listener that takes no connection any more."""
    with ExitStack() as held:
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = listener.getsockname()[1]
        for _ in range(8):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port


def _failure(url: str, request: Request, connect_timeout_ms: int, *, asynchronous: bool) -> ConnectionFailed:
    async def run() -> None:
        transport = AsyncHttpTransport(connect_timeout_ms=connect_timeout_ms)
        try:
            await transport.send(url, request)
        finally:
            await transport.close()

    with pytest.raises(ConnectionFailed) as failed:
        if asynchronous:
            asyncio.run(run())
        else:
            HttpTransport(connect_timeout_ms=connect_timeout_ms).send(url, request)
    return failed.value


@pytest.mark.parametrize("asynchronous", [False, True])
def test_connecting_and_answering_have_times_of_their_own(silent: int, full: int, asynchronous: bool) -> None:
    patient = Request("GET", "/x", read_timeout_ms=600_000)
    for url in (f"http://127.0.0.1:{full}", f"https://127.0.0.1:{silent}"):
        failed = _failure(url, patient, 60, asynchronous=asynchronous)
        assert (str(failed), failed.sent) == ("it was not there within 60 ms", False)
    brief = Request("GET", "/x", read_timeout_ms=60)
    failed = _failure(f"http://127.0.0.1:{silent}", brief, 600_000, asynchronous=asynchronous)
    assert failed.sent and "not there" not in str(failed)


@pytest.mark.parametrize("timeout_ms", [0, -5, None, "soon", True])
def test_a_connect_timeout_that_is_none_is_named(timeout_ms: Any) -> None:
    for make in (Producer, Admin):
        with pytest.raises(ConfigError, match="connect_timeout_ms must be a number of at least 1"):
            make("http://127.0.0.1:1", connect_timeout_ms=timeout_ms)


def test_every_client_takes_a_connect_timeout(full: int) -> None:
    url, short = f"http://127.0.0.1:{full}", {"connect_timeout_ms": 50, "retry_timeout_ms": 0}
    with Admin(url, **short) as admin, pytest.raises(Unavailable, match="it was not there within 50 ms"):
        admin.topics()
    with (
        Consumer(url, group="g", topics="t", **short) as consumer,
        pytest.raises(Unavailable, match="it was not there within 50 ms"),
    ):
        consumer.poll()
    with Producer(url, connect_timeout_ms=50, delivery_timeout_ms=1_500, linger_ms=0) as producer:
        delivery = producer.send("t", "v")
        with pytest.raises(Unavailable, match="it was not there within 50 ms"):
            delivery.result()

    async def run() -> None:
        async with AsyncAdmin(url, **short) as admin:
            with pytest.raises(Unavailable, match="it was not there within 50 ms"):
                await admin.topics()
        async with AsyncConsumer(url, group="g", topics="t", **short) as consumer:
            with pytest.raises(Unavailable, match="it was not there within 50 ms"):
                await consumer.poll()
        async with AsyncProducer(url, connect_timeout_ms=50, delivery_timeout_ms=1_500) as producer:
            with pytest.raises(Unavailable, match="it was not there within 50 ms"):
                await producer.send("t", "v")

    asyncio.run(run())


@pytest.mark.parametrize("make", [Admin, AsyncAdmin])
def test_a_request_timeout_that_is_none_is_named(make: Any) -> None:
    with pytest.raises(ConfigError, match="request_timeout_ms must be a number of at least 1"):
        make("http://127.0.0.1:1", request_timeout_ms=0)


def test_clients_wait_for_an_answer_as_long_as_they_are_told(silent: int) -> None:
    url, brief = f"http://127.0.0.1:{silent}", {"request_timeout_ms": 70, "retry_timeout_ms": 0}
    with Admin(url, **brief) as admin, pytest.raises(OutcomeUnknown, match="no answer within 70 ms"):
        admin.create_topic("t")
    with (
        Consumer(url, group="g", topics="t", **brief) as consumer,
        pytest.raises(SiltlogError, match="no answer within 70 ms"),
    ):
        consumer.committed("t", 0)

    async def run() -> None:
        async with AsyncAdmin(url, **brief) as admin:
            with pytest.raises(OutcomeUnknown):
                await admin.create_topic("t")

    asyncio.run(run())
