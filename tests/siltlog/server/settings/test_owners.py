"""Each hot setting, on a server that runs: all are changed at once, and each is seen to act."""

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from http_rig import NO_REDIS, Http, exchange

from siltlog.infra import names
from siltlog.infra.metrics import catalogue
from siltlog.infra.settings.changed import HOT, changed_text
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

MIB = 1024 * 1024
BEFORE_SECONDS, AFTER_SECONDS = 0.7, 60.0
"""How long what is not to come is waited for, and what is."""
NEVER_MS = 3_600_000
UNHURRIED = {"flush_bytes": 1024 * MIB, "flush_files_per_hour": -1}
BEFORE = {
    "wal_bytes_max": "4MiB",
    "flush_ms": "1h",
    "flush_bytes": "1GiB",
    "flush_files_per_hour": 1,
    "requests_budget": 1,
    "schedule": "off",
}
"""What the server begins with where the default would hide what is looked at."""
NONE_BEFORE = "59 23 31 12 *"


class Looked(NamedTuple):
    server: ServerProcess
    http: Http
    name: str
    """Names the look: nothing that it makes was there before."""

    @property
    def changed(self) -> bool:
        return self.name.startswith("after")

    @property
    def seconds(self) -> float:
        return AFTER_SECONDS if self.changed else BEFORE_SECONDS


class Case(NamedTuple):
    setting: str
    value: int | str
    look: Callable[[Looked], Any]
    before: Any
    after: Any


def of_host(looked: Looked) -> int:
    return looked.http.get("/v1/cluster", Host="log.example").status


def of_page(looked: Looked) -> int:
    return looked.http.get("/v1/cluster", Origin="https://page.example").status


def refused_of(looked: Looked, sources: list[str]) -> bool:
    """Opens a connection from each address of this machine, and asks on it while the others stay open."""
    parts = urlsplit(looked.server.url)
    assert parts.hostname and parts.port
    with ExitStack() as stack:
        found = []
        for source in sources:
            made = socket.create_connection((parts.hostname, parts.port), 60, (source, 0))
            connection = stack.enter_context(made)
            found.append(exchange(connection, "GET /v1/cluster HTTP/1.1\nHost: localhost").split()[1])
    return b"503" in found


def many_connections(looked: Looked) -> bool:
    return refused_of(looked, [f"127.0.0.{number}" for number in range(10, 40)])


def one_address(looked: Looked) -> bool:
    return refused_of(looked, ["127.0.0.2"] * 8)


def large_body(looked: Looked) -> int:
    looked.http.create(looked.name)
    records = [{"value": "x" * 5_000}] * 40
    return looked.http.publish(looked.name, *records).status


def large_record(looked: Looked) -> int:
    looked.http.create(looked.name)
    return looked.http.publish(looked.name, {"value": "x" * 30_000}).status


def slow_body(looked: Looked) -> bytes:
    """The status of what never comes whole; nothing where the server is still patient."""
    looked.http.create(looked.name)
    with looked.http.connect() as connection:
        connection.settimeout(looked.seconds)
        head = f"POST /v1/topics/{looked.name}/records HTTP/1.1\nHost: localhost\nContent-Type: application/json"
        try:
            return exchange(connection, f"{head}\nContent-Length: 10", b"x").split()[1]
        except TimeoutError:
            return b""


def tail(looked: Looked) -> int:
    looked.http.create(looked.name)
    return looked.http.call("HEAD", f"/v1/topics/{looked.name}/tail").status


def metric(looked: Looked, name: str) -> float:
    [line] = re.findall(rf"^{name} (.*)$", looked.http.get("/metrics").body.decode(), re.MULTILINE)
    return float(line)


def head_is_large(looked: Looked) -> bool:
    looked.http.create(looked.name, flush_ms=1, **UNHURRIED)
    for _ in range(18):
        assert looked.http.publish(looked.name, *[{"value": "x" * 8_000}] * 10).status == 200
    flushed(looked, looked.name)
    return not comes(looked, lambda: metric(looked, catalogue.HEAD_BYTES.name) <= 1.2 * MIB)


def flushed(looked: Looked, topic: str) -> bool:
    """Whether everything of it is in the table within some seconds."""
    end = time.monotonic() + looked.seconds
    while True:
        bounds = looked.http.bounds(topic)
        if bounds["table_offset"] == bounds["high_watermark"]:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.02)


def flushed_with(**own: Any) -> Callable[[Looked], bool]:
    def look(looked: Looked) -> bool:
        looked.http.create(looked.name, **own)
        assert looked.http.publish(looked.name, {"value": 1}).status == 200
        return flushed(looked, looked.name)

    return look


def many_files(looked: Looked) -> bool:
    return _many(looked)


def dear_files(looked: Looked) -> bool:
    return _many(looked, flush_files_per_hour=-1)


def _many(looked: Looked, **own: Any) -> bool:
    looked.http.create(looked.name, flush_ms=1, flush_bytes=1024 * MIB, **own)
    for _ in range(4):
        assert looked.http.publish(looked.name, {"value": 1}).status == 200
        if not flushed(looked, looked.name):
            return False
    return True


def few_seconds_for_bursts(looked: Looked) -> bool:
    return comes(looked, lambda: metric(looked, catalogue.BURST_SECONDS_LEFT.name) == 3)


def log_is_full(looked: Looked) -> bool:
    """Publishes to a topic whose table cannot be written more than the log may have at first."""
    topic = "stuck"
    if not looked.changed:
        looked.http.create(topic)
        folder = looked.server.data_dir / names.LAKE_FOLDER / names.topic_path(topic)
        (folder / names.partition_folder(0)).touch()
    replies = [looked.http.publish(topic, *[{"value": "x" * 8_000}] * 10) for _ in range(60)]
    return any(reply.status == 503 and reply.error_code == "wal_full" for reply in replies)


def comes(looked: Looked, condition: Callable[[], bool]) -> bool:
    """Whether it comes to be so within some seconds."""
    end = time.monotonic() + looked.seconds
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return met


def tells_details(looked: Looked) -> bool:
    """Whether the server's log has details of a topic that is made and flushed."""
    seen = len(looked.server.log_path.read_text())
    flushed_with(flush_ms=1, **UNHURRIED)(looked)
    return comes(looked, lambda: "debug" in looked.server.log_path.read_text()[seen:])


def is_for_programs(looked: Looked) -> bool:
    seen, end = len(looked.server.log_path.read_text()), time.monotonic() + AFTER_SECONDS
    os.kill(looked.server.pid, signal.SIGHUP)
    while len(looked.server.log_path.read_text()) == seen:
        assert time.monotonic() < end
        time.sleep(0.02)
    return looked.server.log_path.read_text()[seen:].startswith("{")


def lines_of_requests(looked: Looked) -> tuple[bool, bool]:
    """Whether a publish by the fast path has a line in the log, and a read."""
    looked.http.create(looked.name)
    assert looked.http.publish(looked.name, {"value": 1}).status == 200
    assert looked.http.get(f"/v1/topics/{looked.name}").status == 200

    def said() -> tuple[bool, bool]:
        lines = [line for line in looked.server.log_path.read_text().splitlines() if f"topics/{looked.name}" in line]
        return any(f"{looked.name}/records" in line for line in lines), any("GET" in line for line in lines)

    comes(looked, lambda: all(said()))
    return said()


def times(job: str) -> Callable[[Looked], str | None]:
    """When a job runs, as whoever runs the schedule says; None where nobody does."""

    def look(looked: Looked) -> str | None:
        end = time.monotonic() + looked.seconds * looked.changed
        while True:
            schedule = looked.http.get("/v1/schedule").json
            if schedule["runner"] is not None or time.monotonic() >= end:
                found = {each["job"]: each["cron"] for each in schedule["jobs"]}
                return found.get(job) if schedule["runner"] else None
            time.sleep(0.05)

    return look


def patience_of_the_drain(looked: Looked) -> float | None:
    """Stops the server, which cannot flush all: how long it waits for that, as it says, and does."""
    if not looked.changed:
        return None
    began = time.monotonic()
    looked.server.stop()
    assert time.monotonic() - began < 40
    [said] = [line for line in looked.server.log_path.read_text().splitlines() if '"draining"' in line]
    seconds: float = json.loads(said)["seconds_max"]
    return seconds


CASES = (
    Case("hosts", "log.example", of_host, 421, 200),
    Case("cors_origins", "https://page.example", of_page, 403, 200),
    Case("connections_max", 20, many_connections, False, True),
    Case("connections_per_ip_max", 5, one_address, False, True),
    Case("tails_max", 0, tail, 200, 503),
    Case("request_bytes_max", 100_000, large_body, 200, 413),
    Case("record_bytes_max", "20kB", large_record, 200, 413),
    Case("request_timeout_ms", 2_000, slow_body, b"", b"408"),
    Case("head_bytes_max", MIB, head_is_large, True, False),
    Case("flush_ms", 20, flushed_with(**UNHURRIED), False, True),
    Case("flush_bytes", 1, flushed_with(flush_ms=NEVER_MS, flush_files_per_hour=-1), False, True),
    Case("flush_files_per_hour", 3_600, many_files, False, True),
    Case("burst_ms", 3_000, few_seconds_for_bursts, False, True),
    Case("requests_budget", 10_000, dear_files, False, True),
    Case("log_level", "debug", tells_details, False, True),
    Case("log_format", "json", is_for_programs, False, True),
    Case("access_log", "all", lines_of_requests, (False, False), (True, True)),
    Case("schedule", "on", times("audit"), None, NONE_BEFORE),
    Case("schedule_compact", "1 0 1 1 *", times("compact"), None, "1 0 1 1 *"),
    Case("schedule_retain", "2 0 1 1 *", times("retain"), None, "2 0 1 1 *"),
    Case("schedule_vacuum", "3 0 1 1 *", times("vacuum"), None, "3 0 1 1 *"),
    Case("schedule_audit", NONE_BEFORE, times("audit"), None, NONE_BEFORE),
    Case("schedule_catalog", "4 0 1 1 *", times("catalog"), None, "4 0 1 1 *"),
    Case("wal_bytes_max", "64MiB", log_is_full, True, False),
    Case("drain_ms", 300, patience_of_the_drain, None, 0.3),
)
"""They are looked at in this order: the last fills the log, and ends the server."""


CATALOG = {"catalog_unity": "http://127.0.0.1:9", "catalog_schema": "main.logs"}
"""Where nobody listens; with it there is a job that would tell it."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Any, Any]]]:
    """Gives what is seen of each setting before all are changed, by one call, and after."""
    data_dir = tmp_path_factory.mktemp("hot") / "data"
    data_dir.mkdir()
    (data_dir / names.SETTINGS_FILE).write_text(changed_text(BEFORE))
    with running_server(data_dir=data_dir, redis_url=NO_REDIS, schedule="", **CATALOG) as server:
        http = Http(server.url)
        before = {case.setting: case.look(Looked(server, http, f"before-{case.setting}")) for case in CASES}
        reply = http.json("PATCH", "/v1/config", {"changes": {case.setting: case.value for case in CASES}})
        assert reply.status == 200, reply
        after = {case.setting: case.look(Looked(server, http, f"after-{case.setting}")) for case in CASES}
    yield {name: (before[name], after[name]) for name in before}


@pytest.mark.rule("Z1")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.setting)
def test_a_hot_setting_acts_at_once(case: Case, seen: dict[str, tuple[Any, Any]]) -> None:
    assert seen[case.setting] == (case.before, case.after)


def test_every_hot_setting_is_looked_at() -> None:
    assert {case.setting for case in CASES} == HOT
