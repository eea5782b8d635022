"""A canary in each secret: nothing that comes out of a server, its jobs or the command line has it."""

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import pytest
import urllib3
from forked import executing
from groups_rig import embedded
from processes import alive, silt
from s3_server import S3Server
from tls_door import certificates

from siltlog.infra.redis.embedded import valkey_binary
from siltlog.infra.security.keys import make_key, read_key
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

REDIS = "canary-of-redis-5a7f/@:x"
KEY = make_key(lambda count: b"canary-of-the-key-0a1b2c3d4e5f6071"[:count].ljust(count, b"x"))
JWT = "eyJhbGciOiJSUzI1NiJ9.Y2FuYXJ5LW9mLWEtdG9rZW4tMTIzNDU2.Y2FuYXJ5LXNpZ25hdHVyZQ"
WAIT_SECONDS = 240
JOBS = 2
"""A server starts one every second, and none beside another: by the second, the first has ended."""
LOOK_SECONDS = 0.1
"""A job takes longer to begin."""


class Canaries:
    """The secrets by what they are, and every form in which one may come out."""

    def __init__(self, **secrets: str) -> None:
        self.forms = {
            what: {form.encode() for form in (secret, quote(secret, ""), json.dumps(secret)[1:-1], _base64(secret))}
            for what, secret in secrets.items()
        }

    def found(self, place: str, content: bytes | str, *, but: Iterable[str] = ()) -> list[str]:
        """Where one sings: `redis in /metrics`."""
        content = content.encode(errors="surrogateescape") if isinstance(content, str) else content
        here = [what for what, forms in self.forms.items() if any(form in content for form in forms)]
        return [f"{what} in {place}" for what in here if what not in but]


def _base64(text: str) -> str:
    """The part that does not hang on what stands before or after."""
    return base64.b64encode(text.encode()).decode()[: len(text) * 4 // 3 - 4]


@pytest.fixture
def tls(tmp_path: Path) -> Any:
    return certificates(tmp_path / "certificates", client_required=False)


@pytest.fixture
def canaries(tls: Any, s3_server: S3Server) -> Canaries:
    pem = tls.key.read_text().splitlines()
    return Canaries(redis=REDIS, key=KEY.secret, token=JWT.split(".")[1], s3=s3_server.secret_key, tls=pem[1])


@pytest.fixture
def redis_port(tmp_path: Path) -> Iterator[int]:
    """A Valkey of which only `silt` with its password is let in."""
    folder = tmp_path / "redis"
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "users.acl").write_text(f"user default off\nuser silt on >{REDIS} ~* +@all\n")
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--aclfile", "users.acl"]
    process = subprocess.Popen([str(valkey_binary()), *arguments], cwd=folder, stdout=subprocess.DEVNULL)
    yield port
    process.kill()
    process.wait()


def descendants(pid: int) -> list[Path]:
    parents = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return [Path("/proc") / str(child) for child in sorted(found - {pid})]


def asked(server: ServerProcess, ca: Path | None = None, token: str | None = None) -> Iterator[tuple[str, bytes]]:
    """What is answered, head and body, to requests that have credentials in all the wrong places, too.

    With a `token` they are sent by whom it lets in, and it is what stands in the wrong places.
    """
    tls: dict[str, Any] = {} if ca is None else {"ca_certs": str(ca), "assert_hostname": "silt.example"}
    http = urllib3.PoolManager(retries=False, timeout=30, **tls)
    who = {} if token is None else {"Authorization": f"Bearer {token}"}
    shown = token or KEY.text()

    def ask(method: str, path: str, body: Any = None, **headers: str) -> tuple[str, bytes]:
        content = None if body is None else json.dumps(body).encode()
        sent = {
            "Content-Type": "application/json",
            **who,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        reply = http.request(method, server.url + path, body=content, headers=sent)
        return f"{method} {path}", f"{reply.status} {dict(reply.headers)}".encode() + reply.data

    yield ask("POST", "/v1/topics", {"name": "flights", "partitions": 1})
    yield ask("POST", "/v1/topics/flights/records?acks=table", {"records": [{"value": "a"}]})
    yield ask("PUT", "/v1/groups/g/members/a", {"topics": ["flights"]})
    for path in (
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/docs",
        "/v1/cluster",
        "/v1/jobs",
        "/v1/schedule",
    ):
        yield ask("GET", path, Authorization=f"Bearer {shown}")
    yield ask("GET", "/v1/topics", Authorization=f"Bearer {JWT}")
    yield ask("GET", f"/v1/topics/{shown}", Authorization=f"Basic {JWT}")
    yield ask("GET", f"/v1/nothing?token={shown}")
    yield ask("GET", f"/v1/nothing?password={quote(REDIS, '')}")
    yield ask("POST", "/v1/topics", {"name": f"Bearer {JWT}"})
    yield ask("PUT", "/v1/topics/flights/config", {"x": shown}, Cookie=f"silt_session={JWT}")


def watched(server: ServerProcess, canaries: Canaries) -> list[str]:
    """What sings in the children of a server and in everybody's arguments, until enough of its jobs were seen."""
    found, jobs = [], set()
    until = time.monotonic() + WAIT_SECONDS
    server_command = (Path("/proc") / str(server.pid) / "cmdline").read_bytes()
    while len(jobs) < JOBS or b"job" not in server.log_path.read_bytes():
        assert time.monotonic() < until, "no jobs run"
        found += canaries.found("arguments of the server", server_command)
        for process in descendants(server.pid):
            with suppress(OSError):
                command = (process / "cmdline").read_bytes()
                if command == server_command:
                    continue  # it has not begun to be another program: all that is there is the server's
                found += canaries.found(f"arguments of {command!r}", command)
                environment = (process / "environ").read_bytes()
                if b"retain" in command:
                    jobs.add(process.name)
                # A job works on the bucket, by the SDK's own variables.
                found += canaries.found(f"environment of {command!r}", environment, but=("s3",))
                found += ["SILT_SECRET"] if b"SILT_SECRET" in environment else []
        time.sleep(LOOK_SECONDS)
    return found


@pytest.mark.rule("A41", "A42", "A43")
@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.parametrize("form", ["console", "json"])
def test_a_server_and_its_jobs_tell_no_secret(
    form: str, canaries: Canaries, tls: Any, redis_port: int, s3_server: S3Server, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text(REDIS)
    password.chmod(0o600)
    given = {"redis_password": REDIS} if form == "json" else {"redis_password_file": str(password)}
    settings = {
        "root": s3_server.root_uri(f"canary-{form}"),
        "s3_endpoint": s3_server.endpoint,
        "s3_sse": "s3",
        "redis_url": f"redis://127.0.0.1:{redis_port}",
        "redis_user": "silt",
        **given,
        "tls_cert": str(tls.cert),
        "tls_key": str(tls.key),
        "host": "127.0.0.1",
        "schedule": "on",
        "schedule_retain": "* * * * * *",
        "schedule_compact": "off",
        "flush_ms": 50,
        "log_level": "debug",
        "log_format": form,
        "access_log": "all",
        "data_dir": tmp_path / "data",
        "hosts": "silt.example",
    }
    found: list[str] = []
    with executing() if form == "console" else nullcontext(), running_server(**settings) as server:
        assert server.url.startswith("https://")
        answers = list(asked(server, tls.ca))
        assert any("silt_connections" in body.decode() for _, body in answers), "the metrics were among them"
        for place, body in answers:
            found += canaries.found(place, body)
        found += watched(server, canaries)
        log = server.log_path.read_bytes()
        server.stop()
        log += server.log_path.read_bytes()
    assert b"job" in log, "the log tells of jobs"
    assert b"/v1/nothing" in log, "and of requests"
    found += canaries.found("the log", log)
    for path in sorted((tmp_path / "data").rglob("*")):
        if path.is_file():
            found += canaries.found(str(path), path.read_bytes())
    client = boto3.client("s3", endpoint_url=s3_server.endpoint, region_name=s3_server.region)
    objects = client.list_objects_v2(Bucket=s3_server.bucket, Prefix=f"canary-{form}/")["Contents"]
    for entry in objects:
        content = client.get_object(Bucket=s3_server.bucket, Key=entry["Key"])["Body"].read()
        found += canaries.found(entry["Key"], content)
    assert found == []


def ran(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SILT_")}
    said = silt(arguments, folder, {**kept, **variables})
    assert said.stdout or said.stderr, arguments
    return said


@pytest.mark.rule("A41", "A42", "A43")
@pytest.mark.slow
def test_a_server_that_asks_who_calls_tells_no_key_and_not_what_it_seals_with(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    settings = {"auth": "on", "schedule": "on", "schedule_retain": "* * * * * *", "schedule_compact": "off"}
    with running_server(data_dir=data_dir, flush_ms=50, log_level="debug", **settings) as server:
        create = ("access", "key", "create", "ops", "--role", "admin", "-o", "value")
        made = ran(tmp_path, *create, SILT_URL=f"unix:{data_dir}/silt.sock")
        token = made.stdout.strip()
        key = read_key(token)
        assert key is not None, made
        canaries = Canaries(key=key.secret, secret=(data_dir / "secret").read_text().strip())
        found = canaries.found("stderr of the command that made it", made.stderr)
        answers = list(asked(server, token=token))
        assert [body[:2] for _, body in answers[:11]] == [b"20"] * 11, "the key lets in"
        for place, body in answers:
            found += canaries.found(place, body)
        found += watched(server, canaries)
        for command in (
            ("access", "show", "-o", "json"),
            ("access", "whoami"),
            ("--debug", "access", "key", "revoke", token),
            ("access", "log", "-o", "json"),
            ("topic", "describe", token),
            ("jobs", "-o", "json"),
            ("doctor", "-o", "json"),
            ("config", "show", "-o", "json"),
        ):
            its = {"SILT_URL": server.url, "SILT_TOKEN": token, "SILT_DATA_DIR": str(data_dir), "SILT_AUTH": "on"}
            said = ran(tmp_path, *command, **its)
            found += canaries.found(f"stdout of {command[:2]}", said.stdout)
            found += canaries.found(f"stderr of {command[:2]}", said.stderr)
        server.stop()
        found += canaries.found("the log", server.log_path.read_bytes())
    for path in sorted(data_dir.rglob("*")):
        if path.is_file() and path != data_dir / "secret":
            found += canaries.found(str(path), path.read_bytes())
    assert found == []


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["config", "show"], {"SILT_REDIS_URL": "redis://h", "SILT_REDIS_PASSWORD": REDIS}),
        (["config", "show", "-o", "json"], {"SILT_REDIS_URL": f"redis://me:{quote(REDIS, '')}@h"}),
        (["config", "show", "-o", "value"], {"SILT_REDIS_URL": "redis://h", "SILT_REDIS_PASSWORD": REDIS}),
        (["config", "check"], {"SILT_REDIS_URL": f"redis://me:{REDIS}@h:x"}),
        (["config", "check"], {"SILT_REDIS_PASSWORD": REDIS}),
        (["config", "check", "-o", "json"], {"SILT_REDIS_URL": "h", "SILT_REDIS_PASSWORD": REDIS}),
        (["serve", "--port", "x"], {"SILT_REDIS_URL": "redis://h", "SILT_REDIS_PASSWORD": REDIS}),
        (["serve", "--redis-url", f"redis://:{REDIS}@h:x"], {}),
        (["--debug", "serve"], {"SILT_REDIS_URL": f"redis://:{quote(REDIS, '')}@h?x=1"}),
        (["doctor"], {"SILT_REDIS_URL": "redis://127.0.0.1:1", "SILT_REDIS_PASSWORD": REDIS}),
        (["doctor", "-o", "json"], {"SILT_REDIS_URL": f"redis://me:{quote(REDIS, '')}@127.0.0.1:1"}),
        (["topic", "list"], {"SILT_TOKEN": KEY.text()}),
        (["--debug", "topic", "list"], {"SILT_TOKEN": JWT}),
        (["topic", "describe", KEY.text()], {}),
        (["publish", "flights", "a", "--nothing", f"Bearer {JWT}"], {}),
    ],
)
def test_the_command_line_tells_no_secret(arguments: list[str], variables: dict[str, str], tmp_path: Path) -> None:
    said = ran(tmp_path, *arguments, **{"SILT_URL": "http://127.0.0.1:1", **variables})
    canaries = Canaries(redis=REDIS, key=KEY.secret, token=JWT.split(".")[1])
    assert canaries.found("stdout", said.stdout) + canaries.found("stderr", said.stderr) == []


@pytest.mark.rule("A43")
def test_the_embedded_valkey_is_given_nothing_of_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SILT_REDIS_PASSWORD", REDIS)
    monkeypatch.setenv("SILT_SECRET_FILE", "/x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    told = tmp_path / "environment"
    wrapper = tmp_path / "valkey-server"
    wrapper.write_text(f'#!/bin/sh\nenv > "{told}"\nexec "{valkey_binary()}" "$@"\n')
    wrapper.chmod(0o700)
    # Valkey writes its title over its environment, so /proc does not have it.
    monkeypatch.setattr("siltlog.infra.redis.embedded.valkey_binary", lambda: wrapper)
    valkey = embedded(tmp_path)
    valkey.start()
    valkey.stop()
    environment = told.read_text()
    assert "PATH=" in environment
    assert "SILT_" not in environment and "AWS_" not in environment


def test_a_server_leaves_no_memory_in_core_dumps(small_server: ServerProcess) -> None:
    process = Path("/proc") / str(small_server.pid)
    (line,) = [line for line in (process / "limits").read_text().splitlines() if "core file size" in line]
    assert line.split()[4] == "0"
    assert int((process / "coredump_filter").read_text(), 16) == 0
    assert alive(small_server.pid)


def test_a_canary_that_sings_is_heard() -> None:
    canaries = Canaries(redis=REDIS, key=KEY.secret)
    sung = [REDIS, quote(REDIS, ""), json.dumps({"x": REDIS}), base64.b64encode(REDIS.encode()).decode()]
    assert [canaries.found("here", f"<{text}>") for text in sung] == [["redis in here"]] * 4
    assert canaries.found("here", KEY.text().encode()) == ["key in here"]
    assert canaries.found("here", f"silt_{KEY.key_id}_***") == []
