"""A publish of the fast path is answered once: when it is durable, refused, or late."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.memory import SMALL_BYTES, InFlight
from siltlog.infra.security.origins import Origins
from siltlog.ingest.publish.exchange import Exchange
from siltlog.ingest.publish.fast import LOOK_SECONDS, Asked, FastPublishes


class FakePublishing:
    def late(self, topic: Any, acks: Any) -> SiltlogError:
        return problem("ack_timeout", "too late", acks="none")

    async def kept(self, topic: Any, wait: asyncio.Future[None], timeout_ms: int) -> None:
        await wait


class FakeTransport:
    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def write(self, data: bytes) -> None:
        self.written += data


class FakeConnection:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.scope: dict[str, Any] = {}
        self.url = b"/v1/topics/t/records"
        self.remembered = None
        self.transport = FakeTransport()
        self.completed = 0
        self.server_state = SimpleNamespace(default_headers=[])

    def on_response_complete(self) -> None:
        self.completed += 1


class FakeDoor:
    guard = None
    access_log = None
    origins = Origins((), ())

    def __init__(self) -> None:
        self.replies: dict[tuple[str, int], int] = {}
        self.guard = None

    def count_reply(self, operation: str, status: int) -> None:
        self.replies[operation, status] = self.replies.get((operation, status), 0) + 1

    def refusal(self, error: Exception, *_: str) -> Exception:
        return error

    next_request_id = staticmethod(lambda: "id")


@pytest.mark.parametrize(("nbytes", "counted"), [(SMALL_BYTES, SMALL_BYTES), (SMALL_BYTES + 1, 0)])
def test_what_was_appended_is_counted_by_the_log_where_it_is_large(nbytes: int, counted: int) -> None:
    async def run() -> None:
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        class Publishes(FastPublishes):
            def append(self, topic: Any, media: str, content: bytes, *_: Any) -> Any:
                assert in_flight.used_bytes == nbytes
                return SimpleNamespace(appended=SimpleNamespace(durable=durable, written=None))

        in_flight = InFlight(4 * SMALL_BYTES, SystemClock())
        publishes = Publishes(FakePublishing(), FakeDoor(), in_flight, Draining(), 1_000)  # type: ignore[arg-type]
        asked = Asked(1_000, "")
        Exchange(publishes, FakeConnection(), None, names.MEDIA_JSON, {}, asked).begin(b"x" * nbytes)  # type: ignore[arg-type]
        assert in_flight.used_bytes == counted

    asyncio.run(run())


def test_a_sync_that_takes_too_long_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siltlog.ingest.publish.fast.LOOK_SECONDS", LOOK_SECONDS / 100)

    async def run() -> FakeConnection:
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        class Publishes(FastPublishes):
            def append(self, topic: Any, media: str, content: bytes, *_: Any) -> Any:
                return SimpleNamespace(appended=SimpleNamespace(durable=durable, written=None), waits_for=lambda: None)

        in_flight, door, connection = InFlight(1_000, SystemClock()), FakeDoor(), FakeConnection()
        small = Publishes(FakePublishing(), door, in_flight, Draining(), 1_000)  # type: ignore[arg-type]
        exchange = Exchange(small, connection, None, names.MEDIA_JSON, {}, Asked(1, ""))  # type: ignore[arg-type]
        exchange.begin(b"x" * 10)
        assert (in_flight.used_bytes, small.requests) == (10, 1)
        for _ in range(500):
            if connection.completed:
                break
            await asyncio.sleep(0.01)
        durable.set_result(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (in_flight.used_bytes, small.requests, door.replies) == (0, 0, {("publish", 504): 1})
        return connection

    connection = asyncio.run(run())
    assert connection.completed == 1
    assert connection.transport.written.startswith(b"HTTP/1.1 504")
    assert b"ack_timeout" in connection.transport.written


def test_no_room_in_memory_refuses_and_appends_nothing() -> None:
    async def run() -> FakeConnection:
        in_flight, connection = InFlight(5, SystemClock()), FakeConnection()
        small = FastPublishes(FakePublishing(), FakeDoor(), in_flight, Draining(), 1_000)  # type: ignore[arg-type]
        Exchange(small, connection, None, names.MEDIA_JSON, {}, Asked(1, "")).begin(b"x" * 10)  # type: ignore[arg-type]
        assert in_flight.used_bytes == 0
        return connection

    assert asyncio.run(run()).transport.written.startswith(b"HTTP/1.1 503")


@pytest.mark.rule("E4")
@pytest.mark.parametrize("late", [False, True])
def test_a_refusal_that_says_where_a_producer_stopped_waits_for_the_sync(late: bool) -> None:
    async def run() -> FakeConnection:
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        class Publishes(FastPublishes):
            def append(self, *_: Any) -> Any:
                raise problem("out_of_order_sequence", "a gap", next_sequence=7)

        class Publishing(FakePublishing):
            def told_once(self, error: SiltlogError) -> asyncio.Future[None]:
                return durable

        door, connection = FakeDoor(), FakeConnection()
        small = Publishes(Publishing(), door, InFlight(1_000, SystemClock()), Draining(), 1_000)  # type: ignore[arg-type]
        exchange = Exchange(small, connection, None, names.MEDIA_JSON, {}, Asked(1_000, ""))  # type: ignore[arg-type]
        exchange.begin(b"x")
        assert (connection.completed, small.requests) == (0, 1)
        if late:
            exchange.refuse(small.publishing.late(None, None))  # type: ignore[arg-type]
        durable.set_result(None)
        for _ in range(3):
            await asyncio.sleep(0)
        assert (connection.completed, small.requests) == (1, 0)
        return connection

    assert asyncio.run(run()).transport.written.startswith(b"HTTP/1.1 504" if late else b"HTTP/1.1 409")


@pytest.mark.parametrize("draining", [False, True])
def test_an_answer_during_a_stop_asks_for_the_connection_to_be_closed(draining: bool) -> None:
    async def run() -> FakeConnection:
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        class Publishes(FastPublishes):
            def append(self, topic: Any, media: str, content: bytes, *_: Any) -> Any:
                appended = SimpleNamespace(durable=durable, written=None, acks=[])
                return SimpleNamespace(
                    topic=SimpleNamespace(name="t"),
                    body=SimpleNamespace(positions=False),
                    acks="wal",
                    appended=appended,
                    waits_for=lambda: None,
                )

        class Publishing(FakePublishing):
            def durable(self, published: Any) -> Any:
                return published

        stop, connection = Draining(), FakeConnection()
        memory = InFlight(1_000, SystemClock())
        small = Publishes(Publishing(), FakeDoor(), memory, stop, 1_000)  # type: ignore[arg-type]
        Exchange(small, connection, None, names.MEDIA_JSON, {}, Asked(1, "")).begin(b"x")  # type: ignore[arg-type]
        if draining:
            stop.begin(taking_runs=False)
        durable.set_result(None)
        for _ in range(3):
            await asyncio.sleep(0)
        return connection

    connection = asyncio.run(run())
    assert connection.transport.written.startswith(b"HTTP/1.1 200")
    assert (b"connection: close" in connection.transport.written, connection.transport.closed) == (draining, draining)


@pytest.mark.rule("CJ9")
def test_a_refusal_that_has_not_landed_is_not_told_as_known() -> None:
    async def run() -> FakeConnection:
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        class Publishes(FastPublishes):
            def append(self, *_: Any) -> Any:
                raise problem("out_of_order_sequence", "a gap", next_sequence=7)

        class Publishing(FakePublishing):
            def told_once(self, error: SiltlogError) -> asyncio.Future[None]:
                return synced

            async def kept(self, topic: Any, wait: asyncio.Future[None], timeout_ms: int) -> None:
                await wait
                raise problem("ack_timeout", "another took over", acks="none")

        connection = FakeConnection()
        small = Publishes(Publishing(), FakeDoor(), InFlight(1_000, SystemClock()), Draining(), 1_000)  # type: ignore[arg-type]
        Exchange(small, connection, None, names.MEDIA_JSON, {}, Asked(1_000, "")).begin(b"x")  # type: ignore[arg-type]
        synced.set_result(None)
        for _ in range(3):
            await asyncio.sleep(0)
        return connection

    assert asyncio.run(run()).transport.written.startswith(b"HTTP/1.1 504")
