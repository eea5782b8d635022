"""`silt stranded` on a data dir and a real server."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from siltlog import Admin, Consumer, TopicPartition
from siltlog.cli.main import run
from siltlog.cli.records.stranded import Publishing, StrandedFolder, stranded_files
from siltlog.infra import names
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.store.store import open_store
from siltlog.server_process import ServerProcess

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("server")
RECORDS = 3_000
EPOCH = 7
EPOCH_TIME = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def topic(server: ServerProcess, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("[", ".").replace("]", "")
    with Admin(server.url) as admin:
        admin.create_topic(name, partitions=2)
    return name


def rows(first_offset: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "partition": 1,
            "offset": offset,
            "timestamp": 1_700_000_000_000_000 + offset,
            "key": f"k{offset}".encode() if offset % 2 else None,
            "value": f"value {offset}".encode() if offset % 14 != 7 else None,
            "headers": [{"key": "own", "value": b"x"}, {"key": "own", "value": None}] if offset % 3 else None,
        }
        for offset in range(first_offset, first_offset + count)
    ]


def strand(data_dir: Path, server: ServerProcess, topic: str, records: list[dict[str, Any]]) -> str:
    """Sets them aside as a server does; the name of the file."""
    with Admin(server.url) as admin:
        topic_id = admin.topic(topic)["topic_id"]
    name = names.stranded_file(topic, topic_id, 1, EPOCH, records[0]["offset"])
    path = data_dir / names.STRANDED_FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_file(str(path), RECORD_SCHEMA) as writer:
        writer.write_table(pa.Table.from_pylist(records, RECORD_SCHEMA))
    return name


def published(server: ServerProcess, topic: str) -> list[dict[str, Any]]:
    """Gives the records in order, without their offsets."""
    with Admin(server.url) as admin:
        partitions = [TopicPartition(topic, number) for number in range(admin.topic(topic)["partitions"])]
    with Consumer(server.url, assign=partitions, stop_at="latest") as consumer:
        return [
            {
                "partition": record.partition,
                "timestamp": (record.timestamp - EPOCH_TIME) // timedelta(microseconds=1),
                "key": record.key,
                "value": record.value,
                "headers": [{"key": key, "value": value} for key, value in record.headers or ()] or None,
            }
            for record in consumer
        ]


def without_offsets(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "offset"} for record in records]


def json_of(capsys: Capture, *arguments: str) -> Any:
    capsys.readouterr()
    assert run([*arguments, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def said(capsys: Capture, *arguments: str) -> str:
    capsys.readouterr()
    assert run(arguments) != 0
    return capsys.readouterr().err


def test_what_there_is_is_listed_without_a_server(
    topic: str, server: ServerProcess, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json_of(capsys, "stranded", "list", "--data-dir", str(tmp_path))["stranded"] == []
    later, first = (strand(tmp_path, server, topic, rows(at, 3)) for at in (100, 20))
    monkeypatch.setenv("SILT_URL", "http://127.0.0.1:1")
    listed = json_of(capsys, "stranded", "list", "--data-dir", str(tmp_path))["stranded"]
    assert [entry["file"] for entry in listed] == [first, later]
    shown = ("topic", "partition", "first_offset", "last_offset", "records", "published_to")
    assert [listed[0][name] for name in shown] == [topic, 1, 20, 22, 3, None]
    assert run(["stranded", "list", "--data-dir", str(tmp_path)]) == 0
    assert "FIRST OFFSET" in capsys.readouterr().out


def test_what_a_node_is_called_by_is_needed_by_nodes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("SILT_CLUSTER", "on")
    monkeypatch.setenv("SILT_ROOT", tmp_path.as_uri())
    monkeypatch.setenv("SILT_REDIS_URL", "redis://127.0.0.1:1")
    assert json_of(capsys, "stranded", "list")["stranded"] == []
    assert run(["config", "check"]) == 3
    assert "SILT_ADVERTISE_URL is not set" in capsys.readouterr().out
    assert run(["serve"]) == 2
    assert "SILT_ADVERTISE_URL is not set" in capsys.readouterr().err


def test_each_record_is_published_once_though_it_is_killed_and_repeated(
    topic: str, server: ServerProcess, tmp_path: Path, capsys: Capture
) -> None:
    records = rows(17, RECORDS)
    name = strand(tmp_path, server, topic, records)
    command = ["stranded", "publish", "--all", "--data-dir", str(tmp_path)]
    publisher = subprocess.Popen([sys.executable, "-m", "siltlog.cli", *command, "--rate", "500"])
    with Admin(server.url) as admin:
        while not any(entry["high_watermark"] for entry in admin.offsets(topic)):
            assert publisher.poll() is None
    publisher.kill()
    publisher.wait()
    assert 0 < len(published(server, topic)) < RECORDS
    (entry,) = json_of(capsys, *command)["published"]
    assert entry["file"] == name and 0 < entry["already_published"] < RECORDS
    assert entry["count"] + entry["already_published"] == RECORDS
    assert published(server, topic) == without_offsets(records)
    (listed,) = json_of(capsys, "stranded", "list", "--data-dir", str(tmp_path))["stranded"]
    assert listed["published_to"] == topic
    assert json_of(capsys, *command)["published"] == []
    (again,) = json_of(capsys, *command[:2], name, *command[3:])["published"]
    assert (again["count"], again["already_published"]) == (0, RECORDS)
    assert len(published(server, topic)) == RECORDS


def test_another_topic_takes_them_by_their_keys(
    topic: str, server: ServerProcess, tmp_path: Path, capsys: Capture
) -> None:
    records = rows(0, 50)
    name = strand(tmp_path, server, topic, records)
    with Admin(server.url) as admin:
        admin.create_topic(f"{topic}.found", partitions=1)
    json_of(capsys, "stranded", "publish", name, "--to", f"{topic}.found", "--data-dir", str(tmp_path))
    there = published(server, f"{topic}.found")
    assert [record["value"] for record in there] == [record["value"] for record in records]
    assert {record["partition"] for record in there} == {0}
    assert published(server, topic) == []


def test_what_speaks_against_it_is_said_before_anything_is_published(
    topic: str, server: ServerProcess, tmp_path: Path, capsys: Capture
) -> None:
    name = strand(tmp_path, server, topic, rows(0, 5))
    place = ("--data-dir", str(tmp_path))
    assert "or say --all" in said(capsys, "stranded", "publish", *place)
    assert "silt stranded list" in said(capsys, "stranded", "publish", "no/such/0-1-2.arrow", *place)
    with Admin(server.url) as admin:
        admin.alter_topic(topic, config={"cleanup.policy": "compact"})
        assert "say --yes" in said(capsys, "stranded", "publish", name, *place)
        admin.alter_topic(topic, config={"cleanup.policy": None})
        assert "is the system's" in said(capsys, "stranded", "publish", name, "--to", "_offsets", *place)
        (file,) = stranded_files(StrandedFolder(open_store(tmp_path.as_uri()), names.STRANDED_FOLDER))
        file.note(Publishing(topic, "2020-01-01T00:00:00.000000Z"))
        assert "no longer knows how far" in said(capsys, "stranded", "publish", name, *place)
        admin.delete_topic(topic)
        assert "create it, or publish --to another" in said(capsys, "stranded", "publish", name, *place)
        admin.create_topic(topic, partitions=2)
        assert "was deleted; the one of that name is another" in said(capsys, "stranded", "publish", name, *place)
    assert published(server, topic) == []


def test_a_damaged_file_is_named(topic: str, server: ServerProcess, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / names.STRANDED_FOLDER / strand(tmp_path, server, topic, rows(0, 5))
    path.write_bytes(path.read_bytes()[:-40])
    assert str(path) in said(capsys, "stranded", "list", "--data-dir", str(tmp_path))
