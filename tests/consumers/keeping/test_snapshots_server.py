"""Offsets of groups with a real server: lost, restored, reset by HTTP, Python and the command line."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from http_rig import Http
from processes import alive
from waiting import until

from siltlog.cli.main import run
from siltlog.consumers.library.consumer import Consumer
from siltlog.infra import names
from siltlog.infra.client.admin import Admin
from siltlog.infra.client.async_admin import AsyncAdmin
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.errors import Fenced, Refused, SiltlogError
from siltlog.infra.metrics import catalogue
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.connection import RedisConnection
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
SNAPSHOT_MS = 100
_number = 0


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(offsets_snapshot_ms=SNAPSHOT_MS) as server:
        yield server


@pytest.fixture
def topic(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two partitions of ten records each."""
    global _number
    _number += 1
    monkeypatch.setenv("SILT_URL", server.url)
    name = f"t{_number}"
    http = Http(server.url)
    http.create(name, 2)
    http.publish(name, *({"value": n, "partition": n % 2} for n in range(20)))
    return name


def redis_of(server: ServerProcess, *command: str) -> Any:
    """One command to the server's own Valkey."""

    async def call() -> Any:
        socket = Path(server.data_dir) / names.VALKEY_FOLDER / names.VALKEY_SOCKET
        redis = RedisConnection(RedisAccess(f"unix://{socket}"))
        try:
            return await redis.command(*command)
        finally:
            await redis.close()

    return asyncio.run(call())


def join(http: Http, group: str, member: str, topic: str, **fields: Any) -> dict[int, int]:
    """Where the new member is told to start; patient while groups are away."""
    body = {"generation": 0, "topics": [topic], **fields}
    found: dict[int, int] = {}

    def is_in() -> bool:
        reply = http.json("PUT", f"/v1/groups/{group}/members/{member}", body)
        if reply.status == 503:
            assert reply.error_code == "coordinator_unavailable" and int(reply.headers["retry-after"]) >= 1
            return False
        assert reply.status == 200, reply
        found.update({at["partition"]: at["offset"] for at in reply.json["assignment"]})
        return True

    until(is_in)
    return found


def poll(http: Http, group: str, member: str, topic: str, handled: int) -> dict[str, Any]:
    """Joins, reads, and commits what was handled of each partition."""
    path = f"/v1/groups/{group}/members/{member}/poll"
    body = {"generation": 0, "topics": [topic], "max_records": 1_000, "auto_offset_reset": "latest"}
    first = http.json("POST", path, body)
    assert first.status == 200, first
    commit = [{"topic": topic, "partition": number, "offset": handled} for number in (0, 1)]
    second = http.json("POST", path, body | {"generation": first.json["generation"], "commit": commit})
    assert second.status == 200, second
    document: dict[str, Any] = second.json
    return document


def wait_until_saved(http: Http, group: str, topic_id: str, offsets: Mapping[int, int | None]) -> None:
    """Until `_offsets` has them: it is a topic like any other to whoever reads."""
    keys = {names.offset_key(group, topic_id, number).decode(): offset for number, offset in offsets.items()}

    def are_saved() -> bool:
        found = {}
        for record in http.read(names.OFFSETS_TOPIC, query="values=json"):
            found[record["key"]] = record["value"] and record["value"]["offset"]
        return all(found.get(key) == offset for key, offset in keys.items())

    until(are_saved)


def test_a_redis_that_is_emptied_while_the_server_runs(server: ServerProcess, topic: str) -> None:
    http = Http(server.url)
    topic_id = http.get(f"/v1/topics/{topic}").json["topic_id"]
    poll(http, "emptied", "m1", topic, 10)
    wait_until_saved(http, "emptied", topic_id, {0: 10, 1: 10})
    http.publish(topic, *({"value": "new", "partition": number} for number in (0, 1)))
    assert redis_of(server, "FLUSHALL")
    # As if new, `latest` would skip what came since.
    assert join(http, "emptied", "m2", topic, auto_offset_reset="latest") == {0: 10, 1: 10}
    assert "emptied" in [group["group"] for group in http.get("/v1/groups").json["groups"]]


def test_a_consumer_goes_on_over_an_emptied_redis_and_skips_nothing(server: ServerProcess, topic: str) -> None:
    http = Http(server.url)
    topic_id = http.get(f"/v1/topics/{topic}").json["topic_id"]
    seen: list[str] = []

    def publish(first: int, count: int) -> None:
        http.publish(topic, *({"value": str(n), "partition": n % 2} for n in range(first, first + count)))

    with Consumer(server.url, group="going-on", topics=[topic], auto_offset_reset="latest") as consumer:

        def read(count: int) -> None:
            while len(set(seen)) < count:
                seen.extend(record.text() or "" for record in consumer.poll(max_records=7, timeout_ms=100))

        while not consumer.assignment():
            consumer.poll(timeout_ms=100)
        publish(100, 40)
        read(20)
        consumer.commit()
        committed = len(seen)
        offsets = {number: consumer.committed(topic, number) for number in (0, 1)}
        wait_until_saved(http, "going-on", topic_id, offsets)
        read(30)
        redis_of(server, "FLUSHALL")
        # Before a poll, in which it would take in that it is dropped: its heartbeat may hear of it first.
        with pytest.raises(Fenced):
            consumer.commit()
        # What was not committed comes again, from where it was committed.
        del seen[committed:]
        publish(140, 40)
        read(80)
        consumer.commit()
        assert {consumer.committed(topic, number) for number in (0, 1)} == {50}
    assert set(seen) == {str(n) for n in range(100, 180)}


@pytest.mark.slow
def test_a_killed_server_whose_redis_lost_its_files(tmp_path: Path) -> None:
    # Whatever the server's own acks are: what was answered is read after the restart.
    with running_server(
        data_dir=tmp_path / "data", offsets_snapshot_ms=SNAPSHOT_MS, acks="table", flush_ms=50
    ) as server:
        http = Http(server.url)
        topic_id = http.create("t", 2)["topic_id"]
        http.publish("t", *({"value": n, "partition": n % 2} for n in range(20)))
        poll(http, "g", "m1", "t", 10)
        http.publish("t", *({"value": n, "partition": n % 2} for n in range(20)))
        path = "/v1/groups/g/offsets"
        assert http.call("DELETE", "/v1/groups/g/members/m1").status == 204
        wait_until_saved(http, "g", topic_id, {0: 10, 1: 10})
        http.json("PUT", "/v1/groups/gone/offsets", {"offsets": [{"topic": "t", "partition": 0, "offset": 5}]})
        assert http.call("DELETE", "/v1/groups/gone").status == 204
        valkey_pid = int(redis_of(server, "INFO", "server")["process_id"])
        moved = http.json("POST", path + "/reset", {"to": "offset", "offset": 3, "topics": ["t"]})
        # Killed at once: what was answered is kept.
        server.kill()
        os.kill(valkey_pid, signal.SIGKILL)
        assert moved.status == 200, moved
        valkey = tmp_path / "data" / names.VALKEY_FOLDER
        until(lambda: not alive(valkey_pid))
        shutil.rmtree(valkey)
        server.restart()
        http = Http(server.url)
        assert join(http, "g", "m2", "t", auto_offset_reset="latest") == {0: 3, 1: 3}
        assert http.get("/v1/groups/gone").error_code == "unknown_group"


def test_system_topics_are_read_and_nothing_else(server: ServerProcess, topic: str) -> None:
    http = Http(server.url)
    poll(http, "reads", "m", topic, 4)
    assert http.get(f"/v1/topics/{names.OFFSETS_TOPIC}").json["config"]["cleanup.policy"]["value"] == "compact"
    records = http.read(names.OFFSETS_TOPIC)
    for name in (names.OFFSETS_TOPIC, f"{topic}.dlq"):
        path = f"/v1/topics/{name}"
        assert http.publish(name, {"value": 1}).error_code == "forbidden"
        assert http.call("POST", path + "/records", b"v", Content_Type=names.MEDIA_BYTES).error_code == "forbidden"
        assert http.json("POST", "/v1/topics", {"name": name}).error_code == "invalid_request"
    path = f"/v1/topics/{names.OFFSETS_TOPIC}"
    assert http.json("PATCH", path, {"config": {"cleanup.policy": "delete"}}).error_code == "forbidden"
    assert http.call("DELETE", path).error_code == "forbidden"
    assert http.call("POST", path + "/producers/mine").error_code == "forbidden"
    assert http.read(names.OFFSETS_TOPIC)[: len(records)] == records


@pytest.mark.slow
def test_lag_is_shown_to_prometheus(server: ServerProcess, topic: str) -> None:
    http = Http(server.url)
    with Admin(server.url) as admin:
        admin.set_group_offsets("shown", {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 10})
        wanted = f'{catalogue.GROUP_LAG_RECORDS.name}{{group="shown",partition="0",topic="{topic}"}} 6.0'
        until(lambda: wanted in http.get("/metrics").body.decode().splitlines())
        seconds = f'{catalogue.GROUP_LAG_SECONDS.name}{{group="shown",partition="1",topic="{topic}"}} 0.0'
        assert seconds in http.get("/metrics").body.decode().splitlines()


def test_admin_resets_describes_and_deletes(server: ServerProcess, topic: str) -> None:
    with Admin(server.url) as admin:
        at = TopicPartition(topic, 1)
        admin.set_group_offsets("py", {at: 8})
        moved = [{"topic": topic, "partition": 1, "before": 8, "after": 5}]
        assert admin.reset_group("py", "shift", partitions=[at], shift=-3, dry_run=True) == moved
        assert admin.group_offsets("py") == {at: 8}
        assert admin.reset_group("py", "shift", partitions=[at], shift=-3) == moved
        assert admin.group_offsets("py") == {at: 5}
        [partition] = admin.group("py")["partitions"]
        assert (partition["lag"], partition["offset"]) == (5, 5) and partition["lag_seconds"] > 0
        admin.reset_group("py", "timestamp", topics=[topic], timestamp="2020-01-01T00:00:00Z")
        assert set(admin.group_offsets("py").values()) == {0}
        with pytest.raises(Refused) as refused:
            admin.reset_group("nobody", "latest", topics=[topic])
        assert refused.value.error_code == "unknown_group"
        admin.delete_group("py")
        with pytest.raises(SiltlogError):
            admin.group("py")

    async def asynchronous() -> None:
        async with AsyncAdmin(server.url) as admin:
            await admin.set_group_offsets("aio", {at: 8})
            moved = await admin.reset_group("aio", "latest", topics=[topic])
            assert [move["after"] for move in moved] == [10, 10]

    asyncio.run(asynchronous())


def test_reset_over_http_says_before_and_after(server: ServerProcess, topic: str) -> None:
    http = Http(server.url)
    path = "/v1/groups/http/offsets"
    http.json("PUT", path, {"offsets": [{"topic": topic, "partition": 0, "offset": 9}]})
    body = {"topics": [topic], "to": "earliest"}
    reply = http.json("POST", path + "/reset", body)
    assert (reply.status, reply.json) == (
        200,
        {
            "offsets": [
                {"topic": topic, "partition": 0, "before": 9, "after": 0},
                {"topic": topic, "partition": 1, "before": None, "after": 0},
            ]
        },
    )
    assert http.json("POST", path + "/reset?dry_run=true", body).error_code == "invalid_parameter"
    assert http.json("POST", path + "/reset", body | {"more": 1}).error_code == "invalid_request"
    assert http.json("POST", path + "/reset", {"topics": [topic], "to": "nowhere"}).status == 422
    join(http, "http", "m", topic)
    assert http.json("POST", path + "/reset", body).error_code == "group_not_empty"
    assert http.json("POST", path + "/reset", body | {"dry_run": True}).status == 409


def test_reset_on_the_command_line(server: ServerProcess, topic: str, capsys: Capture) -> None:
    with Admin(server.url) as admin:
        at = [TopicPartition(topic, number) for number in (0, 1)]
        admin.set_group_offsets("cli", {at[0]: 7, at[1]: 8})
        assert run(["group", "reset", "cli", "--to", "earliest"]) == 0
        shown = capsys.readouterr()
        rows = [line.split() for line in shown.out.splitlines()]
        assert rows == [["TOPIC", "PARTITION", "BEFORE", "AFTER"], [topic, "0", "7", "0"], [topic, "1", "8", "0"]]
        assert "--execute" in shown.err
        assert admin.group_offsets("cli") == {at[0]: 7, at[1]: 8}

        assert run(["group", "reset", "cli", "--shift", "-2", "-p", f"{topic}:1", "--execute", "-o", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document == {
            "group": "cli",
            "executed": True,
            "offsets": [{"topic": topic, "partition": 1, "before": 8, "after": 6}],
        }
        assert run(["group", "reset", "cli", "--topic", topic, "--to", "5", "--execute", "-o", "value"]) == 0
        assert capsys.readouterr().out.splitlines() == [f"{topic} 0 5", f"{topic} 1 5"]
        assert run(["group", "reset", "cli", "--to", "2040-01-01T00:00:00Z", "--execute", "-o", "value"]) == 0
        assert capsys.readouterr().out.splitlines() == [f"{topic} 0 10", f"{topic} 1 10"]
        assert run(["group", "reset", "cli", "--to", "36500d", "-o", "value"]) == 0
        assert capsys.readouterr().out.splitlines() == [f"{topic} 0 0", f"{topic} 1 0"]
        assert admin.group_offsets("cli") == {at[0]: 10, at[1]: 10}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "--to or --shift"),
        (["--to", "latest", "--shift", "1"], 2, "--to or --shift"),
        (["--to", "soon"], 2, "earliest"),
        (["--to", "-5", "--topic", "t"], 2, "--shift -5"),
        (["--to", "latest", "--partition", "t"], 2, "TOPIC:N"),
        (["--to", "latest", "--partition", "t:0", "--topic", "t"], 2, "--partition"),
        (["--to", "latest"], 1, "no group"),
        (["--to", "latest", "--topic", "t"], 1, "no group"),
    ],
    ids=[
        "nothing",
        "both",
        "no-place",
        "from-the-end",
        "no-partition",
        "topic-and-partition",
        "unknown",
        "unknown-topic",
    ],
)
def test_reset_that_makes_no_sense(
    server: ServerProcess, topic: str, capsys: Capture, arguments: list[str], code: int, said: str
) -> None:
    assert run(["group", "reset", "never-there", *arguments]) == code
    printed = capsys.readouterr()
    assert said in printed.err and printed.out == ""


def test_groups_are_listed_described_and_deleted(server: ServerProcess, topic: str, capsys: Capture) -> None:
    http = Http(server.url)
    body = {"generation": 0, "topics": [topic], "instance_id": "left-wing"}
    assert http.json("PUT", "/v1/groups/shown/members/m", body).status == 200
    assert run(["group", "list"]) == 0
    assert ["shown", "consumer", "stable", "1"] in [line.split() for line in capsys.readouterr().out.splitlines()]
    assert run(["group", "describe", "shown"]) == 0
    table = capsys.readouterr().out
    assert f"{topic} 0, 1" in table and "lag" in table and "left-wing" in table
    generation = http.call("GET", "/v1/groups/shown").json["generation"]
    assert generation > 10_000 and ["generation", str(generation)] in [line.split() for line in table.splitlines()]
    assert run(["group", "describe", "shown", "-o", "value"]) == 0
    assert capsys.readouterr().out == "stable\n"
    assert run(["group", "delete", "shown"]) == 1
    assert "members" in capsys.readouterr().err
    assert http.call("DELETE", "/v1/groups/shown/members/m").status == 204
    assert run(["group", "delete", "shown", "-o", "value"]) == 0
    assert capsys.readouterr().out == "shown\n"
    assert run(["group", "describe", "shown"]) == 1
    assert run(["group", "delete", "shown"]) == 1
