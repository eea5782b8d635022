"""The seam to Redis: what it says when Redis is not there, refuses, or comes back."""

import asyncio
import os
import signal
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
import uvloop

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, OutcomeUnknown, SiltlogError, Unavailable
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.connection import RedisConnection
from siltlog.infra.redis.embedded import EmbeddedValkey
from siltlog.infra.telemetry import logger


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    server = EmbeddedValkey(tmp_path, SystemClock(), logger("error", "console"))
    yield server
    server.stop()


async def refusal(connection: RedisConnection, *arguments: str) -> SiltlogError:
    with pytest.raises(SiltlogError) as caught:
        await connection.command(*arguments)
    return caught.value


@pytest.mark.parametrize("url", ["localhost:6379", "http://localhost", "redis://localhost:port", ""])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match="SILT_REDIS_URL"):
        RedisConnection(RedisAccess(url))


def test_a_password_is_not_shown() -> None:
    connection = RedisConnection(RedisAccess("redis://user:secret@127.0.0.1:1/0?health_check_interval=1"))
    error = asyncio.run(refusal(connection, "PING"))
    assert isinstance(error, Unavailable) and error.error_code == "coordinator_unavailable"
    assert error.status == 503 and error.retry_after_ms
    assert "secret" not in error.detail and "redis://127.0.0.1:1/0" in error.detail


def test_it_comes_back_without_its_scripts(embedded: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch) -> None:
    # A hundred calls at once on a machine that has much else to do.
    for name in ("CONNECT_TIMEOUT_S", "REPLY_TIMEOUT_S"):
        monkeypatch.setattr(f"siltlog.infra.redis.client.{name}", 60.0)

    async def scenario() -> None:
        connection = RedisConnection(RedisAccess(embedded.start()))
        script = connection.script("return cmsgpack.pack({cmsgpack.unpack(ARGV[1]), KEYS[1]})")
        assert await script(["key"], 2**53 - 1) == [2**53 - 1, "key"]
        await connection.command("SCRIPT", "FLUSH")
        assert await script(["key"], "é") == ["é", "key"]
        await asyncio.gather(*(connection.command("PING") for _ in range(100)))

        embedded.stop()
        for _ in range(3):
            assert isinstance(await refusal(connection, "PING"), Unavailable)
        embedded.start()
        assert await script(["key"], []) == [[], "key"]
        await connection.close()

    asyncio.run(scenario())


def test_one_that_hangs_is_not_waited_for_long(embedded: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siltlog.infra.redis.client.REPLY_TIMEOUT_S", 0.1)
    url = embedded.start()
    with redis.Redis.from_url(url) as client:
        pid = int(client.info("server")["process_id"])

    async def scenario() -> None:
        connection = RedisConnection(RedisAccess(url))
        await connection.command("PING")
        os.kill(pid, signal.SIGSTOP)
        try:
            assert isinstance(await refusal(connection, "PING"), Unavailable)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert await connection.command("PING")
        await connection.close()

    asyncio.run(scenario())


@asynccontextmanager
async def door(url: str) -> AsyncIterator[tuple[str, list[str]]]:
    """An address, and where it leads to: who has connected stays where it led then."""
    leads_to = [url]

    async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(urlsplit(leads_to[0]).path)
        await asyncio.gather(copied(reader, far_writer), copied(far_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(through, "127.0.0.1", 0)
    yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0", leads_to
    server.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[str, str]]:
    servers = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        servers.append(EmbeddedValkey(tmp_path / name, SystemClock(), logger("error", "console")))
    yield servers[0].start(), servers[1].start()
    for server in servers:
        server.stop()


def test_another_primary_is_found_where_the_address_leads(pair: tuple[str, str]) -> None:
    """As managed Redis fails over: the address leads to the new primary, and old connections stay at a replica."""

    async def scenario(old: str, new: str) -> None:
        async with door(old) as (url, leads_to):
            connection = RedisConnection(RedisAccess(url))
            script = connection.script("return cmsgpack.pack(redis.call('INCR', KEYS[1]))")
            # Several connections, all at the old primary.
            await asyncio.gather(*(script(["key"], None) for _ in range(5)))
            with redis.Redis.from_url(old) as client:
                client.replicaof("127.0.0.1", 1)
            leads_to[0] = new
            with pytest.raises(Unavailable):
                await script(["key"], None)
            assert [await script(["key"], None) for _ in range(5)] == [1, 2, 3, 4, 5]
            with redis.Redis.from_url(new) as client:
                client.replicaof("127.0.0.1", 1)
            with redis.Redis.from_url(old) as client:
                client.replicaof("NO", "ONE")
            leads_to[0] = old
            with pytest.raises(Unavailable):
                await connection.commands([("GET", "key"), ("INCR", "key")])
            assert await connection.commands([("GET", "key"), ("INCR", "key")]) == [b"5", 6]
            await connection.close()

    asyncio.run(scenario(*pair))


def test_a_primary_that_fell_silent_holds_up_one_call(pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("siltlog.infra.redis.client.REPLY_TIMEOUT_S", 1.0)

    async def scenario(old: str, new: str) -> None:
        async with door(old) as (url, leads_to):
            connection = RedisConnection(RedisAccess(url))
            await asyncio.gather(*(connection.command("INCR", "key") for _ in range(5)))
            with redis.Redis.from_url(old) as client:
                pid = int(client.info("server")["process_id"])
            os.kill(pid, signal.SIGSTOP)
            try:
                leads_to[0] = new
                assert isinstance(await refusal(connection, "INCR", "key"), Unavailable)
                replies = await asyncio.gather(*(connection.command("INCR", "key") for _ in range(5)))
                assert sorted(replies) == [1, 2, 3, 4, 5]
            finally:
                os.kill(pid, signal.SIGCONT)
            await connection.close()

    asyncio.run(scenario(*pair))


@pytest.mark.parametrize(
    "said",
    [
        "Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed",
        "Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't write",
        "MISCONF Redis is configured to save",
    ],
)
def test_what_passes_is_known_by_its_words_where_redis_is_old(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object) -> None:
        raise redis.ResponseError(said)

    connection = RedisConnection(RedisAccess("redis://127.0.0.1:1/0"))
    monkeypatch.setattr(connection._single._redis, "execute_command", refused)
    assert isinstance(asyncio.run(refusal(connection, "EVAL")), Unavailable)
    # After READONLY it connects anew.
    assert (connection._single._redis.execute_command is refused) == ("READONLY" not in said)


@pytest.mark.parametrize("error", [AttributeError, TypeError])
def test_a_transport_that_broke_is_no_fault_of_a_call(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise error("'NoneType' object is not callable")

    connection = RedisConnection(RedisAccess("redis://127.0.0.1:1/0"))
    monkeypatch.setattr(connection._single._redis, "execute_command", broken)
    assert isinstance(asyncio.run(refusal(connection, "PING")), Unavailable) and not connection.answers


def test_what_it_refuses(embedded: EmbeddedValkey) -> None:
    async def scenario() -> None:
        connection = RedisConnection(RedisAccess(embedded.start()))
        await connection.command("SET", "text", "value")
        mistake = await refusal(connection, "HGET", "text", "field")
        assert isinstance(mistake, OutcomeUnknown) and mistake.error_code == "internal"
        faulty = connection.script("return redis.call('NO SUCH COMMAND')")
        with pytest.raises(OutcomeUnknown):
            await faulty([], None)
        await connection.command("CONFIG", "SET", "maxmemory", "1")
        full = await refusal(connection, "SET", "more", "value")
        assert isinstance(full, Unavailable) and "maxmemory" in full.detail
        await connection.close()

    asyncio.run(scenario())


def test_no_cancellation_is_lost(embedded: EmbeddedValkey) -> None:
    async def scenario() -> None:
        connection = RedisConnection(RedisAccess(embedded.start()))
        script = connection.script("return cmsgpack.pack(1)")
        await script([], 1)

        async def call(number: int) -> None:
            if number % 2:
                await connection.commands([("PING",)])
            else:
                await script([], 1)

        for turn in range(200):
            tasks = [asyncio.create_task(call(number)) for number in range(20)]
            for _ in range(turn % 12):
                await asyncio.sleep(0)
            cancelled = [task for task in tasks if task.cancel()]
            await asyncio.gather(*tasks, return_exceptions=True)
            assert all(task.cancelled() for task in cancelled)
        await connection.close()

    asyncio.run(scenario())


def test_a_connection_that_is_reset_as_it_opens_is_no_defect() -> None:
    """As a proxy before a Redis that is gone does. uvloop, by which servers run, says so in its own words."""

    def reset(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                caller, _ = listener.accept()
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                caller.close()

    async def scenario(port: int) -> None:
        connection = RedisConnection(RedisAccess(f"redis://127.0.0.1:{port}/0"))
        for _ in range(15):
            replies = await asyncio.gather(*(connection.command("PING") for _ in range(20)), return_exceptions=True)
            assert {type(reply) for reply in replies} == {Unavailable}
            assert not connection.answers
        await connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=reset, args=(listener,), daemon=True).start()
        uvloop.run(scenario(listener.getsockname()[1]))
        listener.shutdown(socket.SHUT_RDWR)
