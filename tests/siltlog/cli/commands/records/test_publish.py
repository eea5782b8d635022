"""`silt publish` of files against a real server: killed, run again, refused, grown under its feet; once each record."""

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from http_rig import NO_REDIS, Http

from siltlog.cli.main import run
from siltlog.infra.arrow.partitioner import MURMUR2, partition_of
from siltlog.infra.client.bodies.chunks import CHUNK_RECORDS
from siltlog.infra.clock import SystemClock
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
ROWS = 2 * CHUNK_RECORDS + 1_234
KEYS = 97
WAIT_S = 150.0
SLOWLY = ("--rate", "6000")
"""Requests of 600 records: there is time to do something in the middle of a chunk."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=200, redis_url=NO_REDIS, request_bytes_max=1024 * 1024) as running:
        yield running


@pytest.fixture
def http(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Http:
    monkeypatch.setenv("SILT_URL", server.url)
    return Http(server.url)


@pytest.fixture
def topic(http: Http) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    http.create(name, 3)
    return name


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """NDJSON, whose keys are in the values."""
    file = tmp_path / "events.ndjson"
    file.write_bytes(b"".join(b'{"id": %d, "user": {"name": "u%d"}}\n' % (n, n % KEYS) for n in range(ROWS)))
    return file


def published(arguments: list[str], capsys: Capture, status: int = 0) -> dict[str, Any]:
    assert run(["publish", *arguments, "--output", "json"]) == status, capsys.readouterr().err
    said = capsys.readouterr()
    found: dict[str, Any] = json.loads(said.out if status == 0 else said.err)
    return found


def begun(server: ServerProcess, http: Http, topic: str, least: int, *arguments: str) -> "subprocess.Popen[bytes]":
    """A `silt publish` that has published at least so many records and is still at it."""
    command = [sys.executable, "-m", "siltlog.cli", "publish", topic, *arguments, "--url", server.url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    clock = SystemClock()
    deadline = clock.monotonic() + WAIT_S
    while http.end(topic) < least:
        assert process.poll() is None, process.communicate()
        assert clock.monotonic() < deadline
        clock.sleep(0.02)
    return process


def kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


def values_by_partition(http: Http, topic: str) -> list[list[Any]]:
    count = http.get(f"/v1/topics/{topic}").json["partitions"]
    return [
        [json.loads(record["value"]) for record in http.read(topic, partition, "values=text&max_bytes=60000000")]
        for partition in range(count)
    ]


def assert_once_and_in_order(http: Http, topic: str, rows: int = ROWS) -> None:
    partitions = values_by_partition(http, topic)
    for partition, values in enumerate(partitions):
        ids = [value["id"] for value in values]
        assert ids == sorted(set(ids)), f"partition {partition}"
    assert sorted(value["id"] for values in partitions for value in values) == list(range(rows))


@pytest.mark.rule("KF23")
def test_a_file_goes_by_the_partitioner_of_its_topic(http: Http, topic: str, events: Path, capsys: Capture) -> None:
    http.create(f"{topic}-kafka", 3, partitioner="murmur2")
    assert published([f"{topic}-kafka", "--file", str(events), "--key-from", "/user/name"], capsys)["count"] == ROWS
    for partition, values in enumerate(values_by_partition(http, f"{topic}-kafka")):
        assert all(MURMUR2.partition_of(value["user"]["name"].encode(), 3) == partition for value in values)


def test_a_file_is_published_once_and_again_when_that_is_said(
    http: Http, topic: str, events: Path, capsys: Capture
) -> None:
    command = [topic, "--file", str(events), "--key-from", "/user/name"]
    first = published(command, capsys)
    assert (first["count"], first["already_published"], len(first["partitions"])) == (ROWS, 0, 3)
    assert sum(part["last_offset"] + 1 - part["first_offset"] for part in first["partitions"]) == ROWS
    for partition, values in enumerate(values_by_partition(http, topic)):
        assert all(partition_of(value["user"]["name"].encode(), 3) == partition for value in values)
    again = published(command, capsys)
    assert (again["count"], again["already_published"], again["partitions"]) == (0, ROWS, [])
    assert_once_and_in_order(http, topic)
    assert published([*command, "--header", "a=b"], capsys)["count"] == ROWS, "other records are made of it"
    assert published([*command, "--no-resume"], capsys)["count"] == ROWS
    assert http.end(topic) == 3 * ROWS
    assert run(["publish", *command]) == 0
    assert f"{ROWS} records of {events} had been published by an earlier run" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.rule("I1")
@pytest.mark.parametrize("keys", [["--key-from", "/user/name"], []], ids=["keyed", "keyless"])
def test_killed_in_the_middle_and_run_again(
    server: ServerProcess, http: Http, topic: str, events: Path, keys: list[str], capsys: Capture
) -> None:
    command = ["--file", str(events), *keys]
    for least in (1, CHUNK_RECORDS + 1_000):
        kill(begun(server, http, topic, least, *command, *SLOWLY))
        assert http.end(topic) < ROWS
    there = http.end(topic)
    rest = published([topic, *command], capsys)
    assert rest["count"] + rest["already_published"] == ROWS
    assert rest["already_published"] >= there
    assert_once_and_in_order(http, topic)


def test_parquet_goes_on_too(server: ServerProcess, http: Http, topic: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "events.parquet"
    pa.parquet.write_table(pa.table({"id": range(ROWS), "key": [f"k{n % KEYS}" for n in range(ROWS)]}), file)
    command = ["--file", str(file), "--key-from", "key"]
    kill(begun(server, http, topic, CHUNK_RECORDS + 1, *command, *SLOWLY))
    rest = published([topic, *command], capsys)
    assert CHUNK_RECORDS < rest["already_published"] < ROWS
    assert_once_and_in_order(http, topic)


@pytest.mark.slow
@pytest.mark.rule("I3", "I4")
def test_a_topic_that_grew_meanwhile(
    server: ServerProcess, http: Http, topic: str, events: Path, capsys: Capture
) -> None:
    """Before the second run, and during it."""
    command = ["--file", str(events), "--key-from", "/user/name"]
    kill(begun(server, http, topic, 5_000, *command, *SLOWLY))
    assert http.json("PATCH", f"/v1/topics/{topic}", {"partitions": 5}).status == 200
    # So slowly that on a busy machine, too, the topic grows before the last chunk is laid out.
    second = begun(server, http, topic, CHUNK_RECORDS + 2_000, *command, "--rate", "6000")
    assert http.json("PATCH", f"/v1/topics/{topic}", {"partitions": 7}).status == 200
    _, err = second.communicate(timeout=WAIT_S)
    assert second.returncode == 0, err
    assert_once_and_in_order(http, topic)
    assert all(values_by_partition(http, topic)), "the new partitions are in use"
    assert published([topic, *command], capsys)["already_published"] == ROWS


@pytest.mark.slow
def test_the_server_is_killed_meanwhile(tmp_path: Path, events: Path) -> None:
    with running_server(data_dir=tmp_path / "data", flush_ms=200, redis_url=NO_REDIS) as server:
        http = Http(server.url)
        http.create("events", 3)
        command = ["--file", str(events), "--key-from", "/user/name", *SLOWLY, "-o", "json"]
        publishing = begun(server, http, "events", 5_000, *command)
        server.kill()
        server.restart()
        out, err = publishing.communicate(timeout=WAIT_S)
        assert (publishing.returncode, json.loads(out)["count"]) == (0, ROWS), err
        assert_once_and_in_order(http, "events")


@pytest.mark.rule("I5")
def test_of_two_that_run_at_once_one_is_told(
    server: ServerProcess, http: Http, topic: str, events: Path, capsys: Capture
) -> None:
    first = begun(server, http, topic, 3_000, "--file", str(events), "--rate", "4000", "-o", "json")
    second = published([topic, "--file", str(events)], capsys)
    _, told = first.communicate(timeout=WAIT_S)
    assert first.returncode == 1
    assert "another run of the same command has taken over" in json.loads(told)["detail"]
    assert second["already_published"] >= 3_000
    assert_once_and_in_order(http, topic)


def test_an_interrupted_run_goes_on(
    server: ServerProcess, http: Http, topic: str, events: Path, capsys: Capture
) -> None:
    running = begun(server, http, topic, 3_000, "--file", str(events), *SLOWLY)
    running.send_signal(2)
    _, err = running.communicate(timeout=WAIT_S)
    assert running.returncode == 130
    assert b"the same command goes on" in err
    assert b"Traceback" not in err
    assert published([topic, "--file", str(events)], capsys)["already_published"] >= 3_000
    assert_once_and_in_order(http, topic)


def test_a_record_that_the_server_refuses_is_named_and_the_rest_goes_on_after_it(
    http: Http, topic: str, tmp_path: Path, capsys: Capture
) -> None:
    assert http.json("PATCH", f"/v1/topics/{topic}", {"config": {"max.record.bytes": 1_000}}).status == 200
    file = tmp_path / "events.ndjson"
    lines = [b'{"id": %d}' % n for n in range(30_000)]
    lines[25_000] = b'{"id": 25000, "large": "%s"}' % (b"x" * 1_000)
    file.write_bytes(b"\n".join(lines))
    error = published([topic, "--file", str(file)], capsys, status=1)
    assert (error["error_code"], error["line"]) == ("record_too_large", 25_001)
    assert f"{file}: line 25001: " in error["detail"]
    assert error["detail"].endswith(
        "the 25000 before it are published, none after it; mend it and go on with --skip 25000"
    )
    assert http.end(topic) == 25_000
    lines[25_000] = b'{"id": 25000}'
    file.write_bytes(b"\n".join(lines))
    assert published([topic, "--file", str(file), "--skip", "25000"], capsys)["count"] == 5_000
    assert_once_and_in_order(http, topic, 30_000)


def test_a_bad_first_record_publishes_nothing(http: Http, topic: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "events.ndjson"
    file.write_bytes(b"no\n1\n")
    assert published([topic, "--file", str(file)], capsys, 1)["detail"].endswith("nothing was published")
    file.write_bytes(b'{"value": 1, "partition": 9}\n')
    error = published([topic, "--file", str(file), "--lines", "record"], capsys, 1)
    assert (error["error_code"], error["line"]) == ("unknown_partition", 1)
    assert http.end(topic) == 0


def test_what_was_consumed_can_be_published_again(http: Http, topic: str, tmp_path: Path, capsys: Capture) -> None:
    http.publish(
        topic,
        {
            "key": "a",
            "value": {"x": 1},
            "headers": {"h": "1"},
            "timestamp": "2026-11-21T07:36:00.000001Z",
            "partition": 2,
        },
        {"value_base64": "/w==", "partition": 0},
        {"key": "a", "value": None, "partition": 2},
    )
    lines = b""
    for partition in range(3):
        reply = http.get(f"/v1/topics/{topic}/partitions/{partition}/records", Accept="application/x-ndjson")
        lines += reply.body
    file = tmp_path / "records.ndjson"
    file.write_bytes(lines)
    copy = f"{topic}-copy"
    http.create(copy, 3)
    assert published([copy, "--file", str(file), "--lines", "record"], capsys)["count"] == 3
    for partition in range(3):
        assert http.read(copy, partition) == http.read(topic, partition)


def test_a_pipe_is_published_as_it_comes(server: ServerProcess, http: Http, topic: str) -> None:
    command = [sys.executable, "-m", "siltlog.cli", "publish", topic, "-", "--url", server.url, "-o", "json"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    clock = SystemClock()
    deadline = clock.monotonic() + WAIT_S
    for number in range(3):
        process.stdin.write(b"line %d\n" % number)
        process.stdin.flush()
        while http.end(topic) <= number:
            assert clock.monotonic() < deadline
            clock.sleep(0.01)
    out, err = process.communicate(b"last")
    assert (process.returncode, err, json.loads(out)["count"]) == (0, b"", 4)


def test_an_interrupt_ends_a_pipe_that_says_nothing(server: ServerProcess, topic: str, http: Http) -> None:
    reading, writing = os.pipe()
    try:
        command = [sys.executable, "-m", "siltlog.cli", "publish", topic, "-", "--url", server.url]
        process = subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.write(writing, b"one\n")
        clock = SystemClock()
        deadline = clock.monotonic() + WAIT_S
        while not http.end(topic):
            assert clock.monotonic() < deadline
            clock.sleep(0.01)
        process.send_signal(2)
        _, err = process.communicate(timeout=WAIT_S)
        assert (process.returncode, err.strip()) == (130, b"")
    finally:
        for descriptor in (reading, writing):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def test_acks_table_means_that_a_query_sees_it(http: Http, topic: str, capsys: Capture) -> None:
    assert published([topic, "a", "b", "--partition", "1", "--acks", "table"], capsys)["count"] == 2
    assert http.bounds(topic, 1)["table_offset"] == 2


def test_a_server_may_make_the_topic(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server(redis_url=NO_REDIS, auto_create_partitions=4) as server:
        monkeypatch.setenv("SILT_URL", server.url)
        assert published(["fresh", "a", "--key", "k"], capsys)["count"] == 1
        topic = Http(server.url).get("/v1/topics/fresh").json
        assert (topic["partitions"], topic["records"]) == (4, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["v", "--timestamp", "now"], "not a time"),
        (["v", "--timestamp", "1000", "--timestamp-from", "at"], "exclude each other"),
        (["-", "--lines", "record", "--key", "k"], "leave out --key"),
        (["v", "--format", "csv"], "--format is for"),
        (["v", "--acks", "none"], "none"),
    ],
)
def test_what_makes_no_sense_is_a_misuse(topic: str, arguments: list[str], words: str, capsys: Capture) -> None:
    assert run(["publish", topic, *arguments]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
