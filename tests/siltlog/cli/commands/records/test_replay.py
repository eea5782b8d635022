"""`silt replay` against a real server: killed, run again, from dead letters and older versions; once each record."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from http_rig import Http

from siltlog import Consumer
from siltlog.cli.main import run
from siltlog.infra import names, producer_names
from siltlog.infra.arrow.partitioner import MURMUR2, partition_of
from siltlog.infra.clock import SystemClock
from siltlog.infra.store.store import open_store
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.replay.plan import Progress, Target, plan, write_plan, write_progress
from siltlog.pipelines.replay.range import Selection
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
ROWS = 40_000
KEYS = 97
WAIT_S = 150.0
SLOWLY = ("--rate", "6000")
VERY_SLOWLY = ("--rate", "1500")
"""There is time for another process to begin."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=50, request_bytes_max=1024 * 1024) as running:
        yield running


@pytest.fixture
def http(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Http:
    monkeypatch.setenv("SILT_URL", server.url)
    monkeypatch.setenv("SILT_DATA_DIR", str(server.data_dir))
    return Http(server.url)


@pytest.fixture
def topic(http: Http) -> str:
    """An empty topic of two partitions."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    http.create(name, 2)
    return name


@pytest.fixture(scope="module")
def flights(server: ServerProcess) -> str:
    """ROWS records in three partitions, every other one without a key."""
    http = Http(server.url)
    http.create("flights", 3)
    keys = [b"k%d" % (n % KEYS) if n % 2 else None for n in range(ROWS)]
    values = [b"%d" % n for n in range(ROWS)]
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    for start in range(0, ROWS, 5_000):
        assert http.arrow("flights", table.slice(start, 5_000), "?acks=table").status == 200
    return "flights"


def replayed(capsys: Capture, *arguments: str, status: int = 0) -> dict[str, Any]:
    assert run(["replay", *arguments, "--output", "json"]) == status, capsys.readouterr().err
    said = capsys.readouterr()
    found: dict[str, Any] = json.loads(said.out if status == 0 else said.err)
    return found


def all_of(http: Http, topic: str) -> list[list[dict[str, Any]]]:
    count = http.get(f"/v1/topics/{topic}").json["partitions"]
    return [http.read(topic, partition, "values=text&max_bytes=60000000") for partition in range(count)]


def origins(record: dict[str, Any]) -> list[dict[str, str]]:
    """What each replay said of it, the newest last."""
    found: list[dict[str, str]] = []
    for header in record["headers"]:
        name = header["key"].removeprefix("silt.replay.")
        if name == "run":
            found.append({})
        if name != header["key"]:
            found[-1][name] = header["value"]
    return found


def assert_once(http: Http, source: str, into: str, rows: int = ROWS) -> None:
    """Every record of the source is in the other once, with its origin, in the source's order by source partition."""
    stored = {(record["partition"], record["offset"]): record for part in all_of(http, source) for record in part}
    seen: set[tuple[int, int]] = set()
    for partition, part in enumerate(all_of(http, into)):
        last: dict[int, int] = {}
        for record in part:
            (origin,) = origins(record)
            place = int(origin["partition"]), int(origin["offset"])
            assert place not in seen, place
            seen.add(place)
            assert last.get(place[0], -1) < place[1]
            last[place[0]] = place[1]
            original = stored[place]
            assert origin["topic"] == source and origin["timestamp"] == original["timestamp"]
            assert all(record[name] == original[name] for name in ("key", "value", "timestamp"))
            if record["key"] is not None:
                assert partition_of(record["key"].encode(), 2) == partition
    assert len(seen) == rows


def begun(http: Http, topic: str, least: int, *arguments: str) -> "subprocess.Popen[bytes]":
    """A `silt replay` that has published at least so many records and is still at it."""
    command = [sys.executable, "-m", "siltlog.cli", "replay", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    clock = SystemClock()
    deadline = clock.monotonic() + WAIT_S
    while http.end(topic) < least:
        assert process.poll() is None, process.communicate()
        assert clock.monotonic() < deadline
        clock.sleep(0.01)
    return process


@pytest.mark.slow
def test_killed_and_killed_again_each_record_is_there_once(
    http: Http, flights: str, topic: str, capsys: Capture
) -> None:
    command = ("--topic", flights, "--into", topic, "--run", f"run-{topic}")
    for least in (1, 17_000):
        process = begun(http, topic, least, *command, *SLOWLY)
        process.kill()
        process.communicate()
        assert http.end(topic) < ROWS
    there = http.end(topic)
    rest = replayed(capsys, "--run", f"run-{topic}")
    assert (rest["resumed"], rest["records"]) == (True, ROWS - there)
    assert_once(http, flights, topic)
    newest = http.get("/v1/jobs").json["jobs"][0]
    assert (newest["topics"], newest["done"]["rows"]) == ([flights], ROWS - there)
    assert replayed(capsys, *command)["records"] == 0, "it is finished"
    # What a run that was killed before it could say so has done is known by the server alone.
    store = open_store(Path(http_root(http)).as_uri())
    store.delete(names.replay_progress_object(f"run-{topic}"))
    assert replayed(capsys, *command)["records"] == 0
    assert http.end(topic) == ROWS


def http_root(http: Http) -> str:
    uri: str = http.get("/v1/topics/flights").json["table_uri"]
    return uri.removeprefix("file://").removesuffix("/topics/flights")


@pytest.mark.slow
@pytest.mark.rule("Y3", "Y4")
def test_who_goes_on_with_a_run_fences_who_is_still_at_it_also_when_the_target_grew(
    http: Http, flights: str, topic: str, capsys: Capture
) -> None:
    process = begun(http, topic, 1, "--topic", flights, "--into", topic, "--run", f"run-{topic}", *VERY_SLOWLY)
    assert http.json("PATCH", f"/v1/topics/{topic}", {"partitions": 3}).status == 200
    replayed(capsys, "--run", f"run-{topic}")
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1 and b"another process has taken over this run" in said, said
    assert_once(http, flights, topic)


@pytest.mark.rule("Y4")
def test_who_has_the_run_goes_on_when_one_that_lost_it_takes_a_partition_once_more(
    http: Http, flights: str, topic: str
) -> None:
    run_name = f"run-{topic}"
    process = begun(http, topic, 1, "--topic", flights, "--into", topic, "--run", run_name, "--until", "3000", *SLOWLY)
    for _ in range(3):
        for partition in range(3):
            claimed = http.call(
                "POST", f"/v1/topics/{topic}/producers/{producer_names.replay_run_producer(run_name, partition)}"
            )
            assert claimed.status == 200
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors
    assert_once(http, flights, topic, 9_000)


def test_what_a_deleted_topic_had(http: Http, topic: str, capsys: Capture) -> None:
    assert http.publish(topic, {"value": "precious", "partition": 1}, query="?acks=table").status == 200
    version = replayed(capsys, "--topic", topic, "--into", topic, "--dry-run")["version"]
    assert http.call("DELETE", f"/v1/topics/{topic}").status == 204
    into = f"{topic}-again"
    http.create(into, 2)
    assert "--version" in replayed(capsys, "--topic", topic, "--into", into, status=1)["detail"]
    assert replayed(capsys, "--topic", topic, "--into", into, "--version", str(version))["records"] == 1
    assert [record["value"] for record in http.read(into, 1, "values=text")] == ["precious"]


@pytest.mark.rule("KF23")
def test_keys_go_where_the_other_topic_places_them(http: Http, topic: str, capsys: Capture) -> None:
    keys = [f"k{number}" for number in range(20)]
    http.publish(topic, *({"key": key, "value": 1} for key in keys))
    into = f"{topic}-kafka"
    http.create(into, 2, partitioner="murmur2")
    assert replayed(capsys, "--topic", topic, "--into", into)["records"] == 20
    found = [(partition, record["key"]) for partition, part in enumerate(all_of(http, into)) for record in part]
    assert sorted(found) == sorted((MURMUR2.partition_of(key.encode(), 2), key) for key in keys)


@pytest.mark.rule("Y1")
def test_into_itself_ends_where_it_ended(http: Http, topic: str, capsys: Capture) -> None:
    for number in range(3):
        http.publish(topic, {"value": f"v{number}", "partition": number % 2, "headers": {"own": "1"}})
    dry = replayed(capsys, "--topic", topic, "--into", topic, "--dry-run")
    assert (dry["rows"], dry["records"], dry["run"], http.end(topic)) == (3, 0, None, 3)
    assert dry["files"] >= 2 and dry["size_bytes"] > 0
    assert replayed(capsys, "--topic", topic, "--into", topic)["records"] == 3
    assert replayed(capsys, "--topic", topic, "--into", topic)["records"] == 6
    records = [record for part in all_of(http, topic) for record in part]
    assert sorted(len(origins(record)) for record in records) == [0] * 3 + [1] * 6 + [2] * 3
    for record in records:
        assert record["headers"][0] == {"key": "own", "value": "1"}
        for origin in origins(record):
            assert origin["topic"] == topic and int(origin["partition"]) == record["partition"]
        offsets = [int(origin["offset"]) for origin in origins(record)]
        assert offsets == sorted(offsets) and all(offset < record["offset"] for offset in offsets)


def test_a_range_a_key_and_an_older_version(http: Http, topic: str, flights: str, capsys: Capture) -> None:
    for number in range(4):
        timestamp = f"2026-11-21T0{number}:00:00Z"
        record = {"value": str(number), "key": f"k{number % 2}", "partition": 1, "timestamp": timestamp}
        assert http.publish(topic, record, query="?acks=table").status == 200
    version = replayed(capsys, "--topic", topic, "--into", topic, "--dry-run")["version"]
    choices = {
        ("--from", "1", "--until", "3"): ["1", "2"],
        ("--from", "2026-11-21T01:00:00Z", "--until", "2026-11-21T03:00:00Z"): ["1", "2"],
        ("--key", "k1"): ["1", "3"],
        ("--partition", "0"): [],
        ("--version", str(version - 1)): ["0", "1", "2"],
        ("--from", "9"): [],
        ("--from", "-2"): ["2", "3"],
        ("--from", "-3", "--until", "-1"): ["1", "2"],
        ("--from", "-9", "--until", "latest"): ["0", "1", "2", "3"],
        ("--until", "-9"): [],
        ("--from", "earliest", "--until", "2026-11-21"): [],
    }
    for number, (options, expected) in enumerate(choices.items()):
        into = f"{topic}-{number}"
        http.create(into)
        assert replayed(capsys, "--topic", topic, "--into", into, *options)["records"] == len(expected)
        assert [record["value"] for record in http.read(into, 0, "values=text")] == expected


def test_a_time_ago_is_said_again_with_the_run_that_began_with_it(
    http: Http, topic: str, flights: str, capsys: Capture
) -> None:
    begun = ("--topic", flights, "--into", topic, "--run", f"run-{topic}", "--partition", "0")
    assert replayed(capsys, *begun, "--from", "1h", "--until", "1ms")["records"] > 0
    assert replayed(capsys, *begun, "--from", "1h", "--until", "1ms")["resumed"]
    assert "another range" in replayed(capsys, *begun, "--from", "2h", "--until", "1ms", status=1)["detail"]


def test_the_last_records_are_those_of_the_end_into_the_same_topic_too(http: Http, topic: str, capsys: Capture) -> None:
    for number in range(9):
        http.publish(topic, {"value": f"v{number}", "partition": 0})
    assert replayed(capsys, "--topic", topic, "--into", topic, "--from", "-5")["records"] == 5
    values = [record["value"] for record in http.read(topic, 0, "values=text")]
    assert values == [f"v{number}" for number in [*range(9), *range(4, 9)]]


def test_dead_letters(topic: str, http: Http, server: ServerProcess, capsys: Capture) -> None:
    for number in range(3):
        http.publish(topic, {"value": f"v{number}", "partition": number % 2})

    def handle(record: Any) -> None:
        raise ValueError(f"cannot take {record.text()}")

    with Consumer(server.url, group=f"g-{topic}", topics=[topic], stop_at="latest") as consumer:
        consumer.run(handle, max_attempts=1)
    assert replayed(capsys, "--topic", f"{topic}.dlq", "--into", topic)["records"] == 3
    for partition, part in enumerate(all_of(http, topic)):
        back = [record for record in part if origins(record)]
        assert [record["value"] for record in back] == [f"v{n}" for n in range(3) if n % 2 == partition]
        for record in back:
            said = {header["key"]: header["value"] for header in record["headers"]}
            assert (said["silt.topic"], said["silt.replay.topic"]) == (topic, f"{topic}.dlq")
            assert said["silt.error"] == f"ValueError: cannot take {record['value']}"


def test_a_record_that_is_refused_is_named_and_the_run_goes_on_once_it_may(
    http: Http, topic: str, capsys: Capture
) -> None:
    for value in ("1", "2" * 500, "3"):
        http.publish(topic, {"value": value, "partition": 1})
    into = f"{topic}-small"
    http.create(into, 2, max_record_bytes=300)
    refused = replayed(capsys, "--topic", topic, "--into", into, "--run", f"run-{topic}", status=1)
    assert refused["error_code"] == "record_too_large"
    assert f"offset 1 of partition 1 of {topic} was refused" in refused["detail"]
    http.json("PATCH", f"/v1/topics/{into}", {"config": {"max.record.bytes": 2_000}})
    assert replayed(capsys, "--run", f"run-{topic}")["resumed"]
    assert [len(record["value"]) for record in http.read(into, 1, "values=text")] == [1, 500, 1]


@pytest.mark.rule("Y5", "Y7")
def test_a_run_that_stopped_too_long_ago_is_not_guessed_at(
    http: Http, topic: str, flights: str, capsys: Capture
) -> None:
    """Its plan and progress are there, and the server knows nothing of its producers: it has forgotten them."""
    store = open_store(Path(http_root(http)).as_uri())
    document = http.get(f"/v1/topics/{topic}").json
    into = Target(topic, document["topic_id"], 2)
    made = plan(flights, TopicTable.open(store, flights, SystemClock()).snapshot, Selection(end_offset=9), into)
    name = f"run-{topic}"
    assert write_plan(store, name, made)
    write_progress(store, name, Progress({0: 0, 1: 9}))
    path = store.path(names.replay_progress_object(name))  # type: ignore[attr-defined]
    two_days_ago = path.stat().st_mtime - 2 * 86_400
    os.utime(path, (two_days_ago, two_days_ago))
    assert "producer.expiration.ms" in replayed(capsys, "--run", name, status=1)["detail"]
    write_progress(store, name, Progress({0: 5, 1: 9}))
    assert "producer.expiration.ms" in replayed(capsys, "--run", name, status=1)["detail"], "some of it has arrived"
    assert [
        part for part in all_of(http, topic) if any(origins(record)[0]["partition"] == "0" for record in part)
    ] == []
    write_progress(store, name, Progress({0: 0, 1: 9}))
    assert replayed(capsys, "--run", name)["resumed"], "what is done is left alone"
    assert http.end(topic) == 9 + 9


def test_what_goes_on_with_a_run_names_its_tables_too(
    server: ServerProcess, topic: str, flights: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SILT_DATA_DIR")
    assert run(["replay", "-t", flights, "--into", topic, "--until", "1", "--data-dir", str(server.data_dir)]) == 0
    words = capsys.readouterr().err.partition("go on with: silt ")[2].split()
    assert words[:2] == ["replay", "--run"] and run(words[:5]) == 0


def test_misuse(http: Http, topic: str, flights: str, capsys: Capture) -> None:
    assert run(["replay", "--topic", topic]) == 2
    for option in (("--from", "noon"), ("--from", "-0"), ("--from", "latest"), ("--until", "earliest")):
        assert run(["replay", "--topic", topic, "--into", topic, *option]) == 2, option
    assert run(["replay", "--topic", topic, "--into", topic, "--until", "2026", "--dry-run"]) == 0
    assert "--until 2026 is an offset" in capsys.readouterr().err
    capsys.readouterr()
    for arguments, detail in (
        (("--topic", "absent", "--into", topic), "there is no topic 'absent'"),
        (("--topic", "fligths", "--into", topic), "did you mean 'flights'?"),
        (("--topic", topic, "--into", "absent"), "absent"),
        (("--topic", topic, "--into", "_jobs"), "_jobs"),
        (("--run", "absent"), "there is no run absent"),
        (("--topic", topic, "--into", topic, "--run", "a/b"), "a run is named by"),
        (("--topic", topic, "--into", topic, "--version", "999"), "no version 999"),
        (("--topic", topic, "--into", topic, "--partition", "7"), "no partition 7"),
    ):
        assert detail in replayed(capsys, *arguments, status=1)["detail"]
    name = f"run-{topic}"
    replayed(capsys, "--topic", flights, "--into", topic, "--until", "1", "--run", name)
    for options in (("--topic", topic), ("--into", flights), ("--from", "5"), ("--version", "0")):
        assert "was begun with another" in replayed(capsys, "--run", name, *options, status=1)["detail"]
    http.call("DELETE", f"/v1/topics/{topic}")
    http.create(topic, 2)
    assert "created again" in replayed(capsys, "--run", name, status=1)["detail"]
