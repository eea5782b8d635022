"""`silt erase` beside a running server: afterwards no file below the root and the data directory has the key."""

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster_rig import cluster
from http_rig import Http
from urllib3.exceptions import HTTPError

from siltlog import Consumer
from siltlog.cli.main import run
from siltlog.pipelines.erasure import erase as erase_module
from siltlog.testing import running_server

KEY = "person-4711"
Capture = pytest.CaptureFixture[str]
WAL_BYTES = 16 * 1024 * 1024
"""All of it is read, again and again."""


def files_with(place: Path, key: bytes = KEY.encode()) -> list[str]:
    """Files below `place` with the key in their bytes, or in a value where they are Parquet."""
    found = []
    for path in sorted(place.rglob("*")):
        if not path.is_file():
            continue
        content = path.read_bytes()
        there = key in content
        if path.suffix == ".parquet" and not there:
            for column in pq.read_table(pa.BufferReader(content)).columns:
                there = there or any(key in str(value).encode() for value in column.to_pylist())
        if there:
            found.append(str(path.relative_to(place)))
    return found


def erase(capsys: Capture, url: str, data_dir: Path, *more: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    arguments = ["erase", "--key", KEY, "--url", url, "--data-dir", str(data_dir), "--output", "json", *more]
    assert run(arguments) == code, capsys.readouterr()
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def publish(http: Http, topic: str, first: int, count: int = 30, acks: str = "wal") -> None:
    keys = [KEY if number % 3 == 2 else f"other-{number}" for number in range(first, first + count)]
    records = [{"key": key, "value": f"of {number}"} for number, key in enumerate(keys, first)]
    reply = http.json("POST", f"/v1/topics/{topic}/records?acks={acks}", {"records": records})
    assert reply.status == 200, reply


@pytest.mark.slow
@pytest.mark.rule("ER5")
def test_nothing_below_the_root_and_the_data_directory_has_the_key_any_more(tmp_path: Path, capsys: Capture) -> None:
    data_dir = tmp_path / "data"
    options = {"flush_ms": 3_600_000, "wal_bytes_max": WAL_BYTES, "auto_create_partitions": 1}
    with running_server(data_dir=data_dir, **options) as server:
        http = Http(server.url)
        http.create("orders")
        publish(http, "orders", 0, acks="table")
        # Over several segments, so that some were used before; the last of it is in no table.
        filler = [{"key": "filler", "value": "x" * 100_000}] * 20
        for first in range(30, 150, 30):
            publish(http, "orders", first, acks="wal" if first == 120 else "table")
            assert http.json("POST", "/v1/topics/filler/records?acks=table", {"records": filler}).status == 200
        publish(http, "orders", 150)
        assert len(files_with(data_dir)) > 2, "the rig finds what is there"

        said = erase(capsys, server.url, data_dir)
        assert said["dry_run"] and files_with(data_dir)
        assert erase(capsys, server.url, data_dir, "--yes")["left"] == []
        assert files_with(data_dir) == []
        kept = [record["key"] for record in http.read("orders")]
        assert kept == [f"other-{number}" for number in range(180) if number % 3 != 2]
        # A dry run counts what the tables have. A run is kept, and does not say the key.
        ran = http.get("/v1/jobs?job=erase").json["jobs"]
        assert [(each["outcome"], each["dry_run"], each["done"].get("rows")) for each in ran] == [
            ("succeeded", False, 60),
            ("succeeded", True, 40),
        ]
        publish(http, "orders", 180)
        assert erase(capsys, server.url, data_dir, "--yes")["left"] == [] and files_with(data_dir) == []
        server.kill()
        server.start()
        http = Http(server.url)
        publish(http, "orders", 210, acks="table")
        found = [(record["offset"], record["key"]) for record in http.read("orders")]
        # The end of the log was erased, too, and its offsets are never used again.
        assert [offset for offset, key in found if key == KEY] == list(range(212, 240, 3))
        assert [offset for offset, key in found if key != KEY] == [n for n in range(240) if n % 3 != 2]


@pytest.mark.rule("ER5")
def test_consumers_and_publishers_go_on_while_a_key_is_erased(tmp_path: Path, capsys: Capture) -> None:
    data_dir = tmp_path / "data"
    with running_server(data_dir=data_dir, flush_ms=300, auto_create_partitions=1, wal_bytes_max=WAL_BYTES) as server:
        http = Http(server.url)
        http.create("orders")
        publish(http, "orders", 0, 300, acks="table")
        stop, ended = threading.Event(), threading.Event()
        acked: list[str] = []
        read: list[str] = []

        def publishes() -> None:
            while not stop.is_set() or len(acked) < 100:
                key = f"new-{len(acked)}"
                reply = http.json("POST", "/v1/topics/orders/records", {"records": [{"key": key, "value": "v"}]})
                assert reply.status == 200, reply
                acked.append(key)

        def consumes() -> None:
            with Consumer(server.url, topics=["orders"], group="readers", auto_offset_reset="earliest") as consumer:
                while not ended.is_set() or f"new-{len(acked) - 1}" not in read:
                    read.extend(str(record.key, "utf-8") for record in consumer.poll(timeout_ms=200, max_records=7))

        threads = [threading.Thread(target=publishes), threading.Thread(target=consumes)]
        for thread in threads:
            thread.start()
        assert erase(capsys, server.url, data_dir, "--yes")["left"] == []
        stop.set()
        for thread in threads:
            thread.join(60)
            ended.set()
            assert not thread.is_alive()
        expected = [f"other-{number}" for number in range(300) if number % 3 != 2] + acked
        assert [key for key in read if key != KEY] == expected, "none is lost, none comes twice"
        assert [record["key"] for record in http.read("orders")] == expected


@pytest.mark.rule("ER4")
@pytest.mark.parametrize("calls", [1, 4])
def test_a_command_that_is_killed_is_run_again(tmp_path: Path, capsys: Capture, calls: int) -> None:
    """Killed as the table was committed to, or as the old files go."""
    data_dir = tmp_path / "data"
    with running_server(data_dir=data_dir, flush_ms=100, wal_bytes_max=WAL_BYTES) as server:
        http = Http(server.url)
        http.create("orders")
        for first in range(0, 120, 30):
            publish(http, "orders", first, acks="table")
        arguments = ["erase", "--key", KEY, "--url", server.url, "--data-dir", str(data_dir), "--yes"]
        command = [sys.executable, "-c", KILLED, str(calls), *arguments]
        assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
        assert files_with(data_dir)
        assert erase(capsys, server.url, data_dir, "--yes")["left"] == [] and files_with(data_dir) == []
        assert [record["key"] for record in http.read("orders")] == [f"other-{n}" for n in range(120) if n % 3 != 2]


KILLED = """
import os, signal, sys
from siltlog.cli.main import run
from siltlog.infra.store.local import LocalStore
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.erasure import erase

left = int(sys.argv[1])
def dies(function):
    def wrapped(*args, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)
    return wrapped
erase.COMMIT_FILES_MAX = 2
TopicTable.rewrite = dies(TopicTable.rewrite)
erase.delete_all = dies(erase.delete_all)
run(sys.argv[2:])
"""


@pytest.mark.rule("ER5")
def test_objects_of_the_journal_go_too(tmp_path: Path, capsys: Capture) -> None:
    data_dir = tmp_path / "data"
    options = {"flush_ms": 3_600_000, "wal_bytes_max": WAL_BYTES, "auto_create_partitions": 1}
    with running_server(data_dir=data_dir, acks="object", **options) as server:
        http = Http(server.url)
        http.create("orders")
        publish(http, "orders", 0, acks="object")
        assert any(place.startswith("lake/wal/") for place in files_with(data_dir)), files_with(data_dir)
        assert erase(capsys, server.url, data_dir, "--yes")["left"] == [] and files_with(data_dir) == []
        publish(http, "orders", 30, acks="object")
        assert len(http.read("orders")) == 50
        # The journal of a start that is over.
        server.kill()
        server.start()
        http = Http(server.url)
        publish(http, "orders", 60, acks="object")
        assert len({place.split("/")[3] for place in files_with(data_dir) if place.startswith("lake/wal/")}) == 2
        assert erase(capsys, server.url, data_dir, "--yes")["left"] == [] and files_with(data_dir) == []
        assert len(http.read("orders")) == 60


@pytest.mark.slow
def test_what_no_server_let_go_of_is_named(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erase_module, "READERS_S", 0.1)
    data_dir = tmp_path / "data"
    with running_server(data_dir=data_dir, flush_ms=100, wal_bytes_max=WAL_BYTES) as server:
        http = Http(server.url)
        http.create("orders")
        publish(http, "orders", 0, acks="table")
        with running_server(data_dir=tmp_path / "other") as other:
            [left] = erase(capsys, other.url, data_dir, "--yes", code=3)["left"]
            assert "another log" in left["what"]
    [left] = erase(capsys, server.url, data_dir, "--yes", code=3)["left"]
    assert "does not answer" in left["what"] and "start it" in left["remedy"]
    assert all(place.startswith("wal/") for place in files_with(data_dir))
    server.start()
    assert erase(capsys, server.url, data_dir, "--yes")["left"] == [] and files_with(data_dir) == []
    server.stop()


@pytest.mark.slow
@pytest.mark.rule("ER5")
def test_every_node_of_a_cluster_lets_go_of_it(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase_module, "READERS_S", 0.1)
    with cluster(tmp_path, 2, flush_ms=3_600_000) as nodes:
        https = {name: Http(node.url) for name, node in nodes.items()}
        nodes.until(lambda: len(nodes["n1"].document()["nodes"]) == 2, "both are there")
        topics = [f"t{number}" for number in range(4)]
        for number, topic in enumerate(topics):
            https[f"n{number % 2 + 1}"].create(topic)
        nodes.until(lambda: {nodes.owner(topic) for topic in topics} == {"n1", "n2"}, "each node owns some")
        for topic in topics:
            publish(https[nodes.owner(topic)], topic, 0)
        assert {place.split("/")[0] for place in files_with(tmp_path)} >= {"n1", "n2"}
        found = erase(capsys, nodes["n1"].url, tmp_path, "--root", nodes.root, "--yes")
        assert found["left"] == [] and sum(each["records"] for each in found["erased"]) == 40
        assert files_with(tmp_path) == []
        for topic in topics:
            assert [len(http.read(topic)) for http in https.values()] == [20, 20]
        for topic in topics:
            publish(https["n2"], topic, 30)
            nodes.until(lambda topic=topic: len(https["n1"].read(topic)) == 50, "n1 reads what n2 took")
        nodes["n2"].kill()
        found = erase(capsys, nodes["n1"].url, tmp_path, "--root", nodes.root, "--yes", code=3)
        assert {"n2", nodes["n2"].peers.url} & {left["place"] for left in found["left"]}


@pytest.mark.rule("ER5")
def test_a_server_that_is_killed_as_it_settles_has_all_that_it_acknowledged(tmp_path: Path) -> None:
    acked: set[str] = set()
    with running_server(data_dir=tmp_path, flush_ms=200, wal_bytes_max=WAL_BYTES) as server:
        Http(server.url).create("orders", flush_files_per_hour=-1)
        for round_number in range(3):
            http = Http(server.url)

            def publishes(http: Http = http, round_number: int = round_number) -> None:
                for number in range(100_000):
                    value = f"{round_number}-{number}"
                    try:
                        reply = http.publish("orders", {"value": value}, {"value": "x" * 20_000})
                    except HTTPError:
                        return
                    if reply.status == 200:
                        acked.add(value)

            def settles(http: Http = http) -> None:
                with suppress(HTTPError):
                    while http.call("POST", "/v1/settle").status == 200:
                        pass

            threads = [threading.Thread(target=publishes), threading.Thread(target=settles)]
            before = len(acked)
            for thread in threads:
                thread.start()
            time.sleep(0.4 + 0.37 * round_number)
            deadline = time.monotonic() + 60
            while len(acked) <= before + 7:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            server.kill()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()
            server.start()
        http = Http(server.url)
        with Consumer(server.url, group="readers", topics="orders", stop_at="latest") as consumer:
            found = [str(record.value, "utf-8") for record in consumer]
        assert len(acked) > 20 and acked <= set(found)
        assert len(found) == http.end("orders"), "no offset is without a record"
