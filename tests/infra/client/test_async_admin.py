"""The administrative client of asyncio against a real server."""

import asyncio
import inspect
from datetime import UTC, datetime, timedelta

import pytest

from siltlog import Admin, AsyncAdmin, ConfigError, TopicPartition, Unavailable, UnknownTopic
from siltlog.infra.client import calls
from siltlog.infra.client.core import Response, json_request
from siltlog.testing import running_server


def test_it_asks_as_the_other_one_does() -> None:
    with running_server() as server:

        async def ask() -> None:
            async with AsyncAdmin(server.url) as admin:
                created = await admin.create_topic("a", partitions=2, config={"flush.ms": 70})
                assert await admin.create_topic("a", partitions=2, exist_ok=True) == await admin.topic("a")
                assert created["topic_id"] == (await admin.topics(prefix="a"))[0]["topic_id"]
                assert (await admin.alter_topic("a", partitions=3))["partitions"] == 3
                found = await admin.offsets("a", timestamp=datetime.now(UTC) - timedelta(days=1))
                assert [entry["offset"] for entry in found] == [0, 0, 0]
                await admin.set_group_offsets("g", {TopicPartition("a", 1): 0})
                assert await admin.group_offsets("g") == {TopicPartition("a", 1): 0}
                assert [group["group"] for group in await admin.groups()] == ["g"]
                assert (await admin.group("g"))["state"] == "empty"
                await admin.delete_group("g")
                assert (await admin.cluster())["nodes"]
                await admin.delete_topic("a")
                with pytest.raises(UnknownTopic):
                    await admin.topic("a")
                with pytest.raises(ConfigError):
                    await admin.topic("..")

        asyncio.run(asyncio.wait_for(ask(), 60))


def test_it_says_when_no_server_is_there() -> None:
    async def ask() -> None:
        async with AsyncAdmin("http://127.0.0.1:9", retry_timeout_ms=150) as admin:
            await admin.cluster()

    with pytest.raises(Unavailable, match="is the server running"):
        asyncio.run(asyncio.wait_for(ask(), 60))


def test_both_have_the_same_calls() -> None:
    def shape(kind: type) -> dict[str, str]:
        methods = inspect.getmembers(kind, inspect.isfunction)
        return {name: str(inspect.signature(method)) for name, method in methods if not name.startswith("_")}

    assert shape(Admin) == shape(AsyncAdmin)


def test_a_list_is_read_to_its_end() -> None:
    asked = calls.topics("x")
    request = next(asked)
    assert request.path == "/v1/topics?prefix=x&limit=1000"
    request = asked.send(Response(200, {}, b'{"topics": [{"name": "a"}], "next": "a"}'))
    assert request.path == "/v1/topics?prefix=x&after=a&limit=1000"
    with pytest.raises(StopIteration) as done:
        asked.send(Response(200, {}, b'{"topics": [{"name": "b"}], "next": null}'))
    assert [topic["name"] for topic in done.value.value] == ["a", "b"]


def test_a_request_may_be_tried_for_less_long() -> None:
    assert json_request("GET", "/", retry_timeout_ms=5).retry_timeout_ms == 5
    assert json_request("GET", "/").retry_timeout_ms is None
