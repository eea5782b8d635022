import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from credential_server import Authority, CredentialServer, Source, WallClock, jwt, serving

from siltlog.infra.client.async_admin import AsyncAdmin
from siltlog.infra.client.async_transport import AsyncHttpTransport
from siltlog.infra.client.core import Request
from siltlog.infra.client.credentials.async_authorized import AsyncAuthorizedTransport
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.errors import ConfigError, Forbidden, Unauthenticated, Unavailable


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def server() -> Iterator[CredentialServer]:
    with serving() as server:
        server.tokens = {"good"}
        yield server


@in_loop
async def test_each_request_says_who_sends_it(server: CredentialServer) -> None:
    async with AsyncAdmin(server.url, token="good") as admin:
        assert await admin.topics() == []
        with pytest.raises(Forbidden):
            await admin.topic("forbidden")
    async with AsyncAdmin(server.url, token="canary") as admin:
        with pytest.raises(Unauthenticated) as refused:
            await admin.topics()
    assert server.seen == ["Bearer good"] * 2 + ["Bearer canary"] and "canary" not in str(refused.value)


@pytest.mark.rule("X9")
@in_loop
async def test_functions_of_both_kinds_are_asked_once_more(server: CredentialServer) -> None:
    sources = [Source("old", "good"), Source("old", "good"), Source("old", "good")]

    async def awaited() -> str:
        await asyncio.sleep(0)
        return sources[1]()

    for source in (sources[0], awaited, lambda: _later(sources[2]())):
        server.seen.clear()
        async with AsyncAdmin(server.url, token=source) as admin:
            assert await admin.topics() == []
            assert await admin.topics() == []
        assert server.seen == ["Bearer old", "Bearer good", "Bearer good"]
    assert [source.calls for source in sources] == [2, 2, 2]


async def _later(token: str) -> str:
    return token


@in_loop
async def test_a_function_that_blocks_stops_no_task(server: CredentialServer) -> None:
    ticked = threading.Event()

    def slow() -> str:
        assert ticked.wait(60)
        return "good"

    async with AsyncAdmin(server.url, token=slow) as admin:
        asked = asyncio.create_task(admin.topics())
        for _ in range(5):
            await asyncio.sleep(0.01)
        assert not asked.done()
        ticked.set()
        assert await asked == []


@in_loop
async def test_many_tasks_ask_for_one_token(server: CredentialServer) -> None:
    source = Source("good")
    async with AsyncAdmin(server.url, token=source) as admin:
        await asyncio.gather(*(admin.topics() for _ in range(8)))
    assert source.calls == 1


@pytest.mark.rule("X9")
@in_loop
async def test_a_token_is_renewed_before_it_expires(server: CredentialServer) -> None:
    first, second = jwt(exp=1_000), jwt(exp=2_000)
    server.tokens = {first, second}
    clock, source = WallClock(), Source(first, second, RuntimeError("later"))
    transport = AsyncAuthorizedTransport(AsyncHttpTransport(), Endpoints(server.url), source, clock)
    for seconds in (0.0, 939.0, 940.0, 1_950.0, 1_951.0):
        clock.seconds = seconds
        assert (await transport.send(server.url, Request("GET", "/v1/topics"))).status == 200
    await transport.close()
    assert server.seen == [f"Bearer {token}" for token in (first, first, second, second, second)]
    assert source.calls == 3


@pytest.mark.rule("X8")
@in_loop
async def test_a_function_that_gives_no_token(server: CredentialServer) -> None:
    async with AsyncAdmin(server.url, token=Source(RuntimeError("canary")), retry_timeout_ms=0) as admin:
        with pytest.raises(Unavailable, match="raised RuntimeError") as failed:
            await admin.topics()
    assert "canary" not in str(failed.value) and server.seen == []


@pytest.mark.rule("X7")
@in_loop
async def test_where_a_token_does_not_go(server: CredentialServer) -> None:
    with pytest.raises(ConfigError, match="plain http"):
        AsyncAdmin("http://silt.example", token="t")
    server.status = 307
    async with AsyncAdmin(server.url, token="good", retry_timeout_ms=0) as admin:
        with pytest.raises(Exception, match="307"):
            await admin.topics()
    assert server.seen == ["Bearer good"], "a redirection is not followed"


@in_loop
async def test_threads_beside_it_have_the_same_credentials(server: CredentialServer) -> None:
    async def awaited() -> str:
        return "good"

    for source in ("good", lambda: "good", awaited):
        inner = AsyncAuthorizedTransport(AsyncHttpTransport(), Endpoints(server.url), source, WallClock())
        assert (await inner.send(server.url, Request("GET", "/v1/topics"))).status == 200
        beside = inner.on_threads()
        reply = await asyncio.to_thread(beside.send, server.url, Request("GET", "/v1/topics"))
        assert reply.status == 200
        beside.close()
        await inner.close()


def test_after_the_event_loop_has_ended_too(server: CredentialServer) -> None:
    async def awaited() -> str:
        return "good"

    inner = AsyncAuthorizedTransport(AsyncHttpTransport(), Endpoints(server.url), awaited, WallClock())
    beside = inner.on_threads()
    assert beside.send(server.url, Request("GET", "/v1/topics")).status == 200
    beside.close()


@in_loop
async def test_over_tls_with_certificates_on_both_sides(home: Path) -> None:
    authority = Authority(home)
    with serving(authority.server_context(clients=True)) as server:
        pair = authority.client_pair("ingest.example")
        async with AsyncAdmin(server.url, ca=authority.path, cert=pair) as admin:
            assert await admin.topics() == [] and await admin.topics() == []
        assert server.connections == 1, "a connection is used again"
        assert ("DNS", "ingest.example") in server.peers[-1]["subjectAltName"]
