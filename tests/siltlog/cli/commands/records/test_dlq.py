"""`silt dlq` against a real server."""

import json
from pathlib import Path
from typing import Any

import pytest

from siltlog import Admin, Consumer, Producer
from siltlog.cli.commands.records import dlq as dlq_module
from siltlog.cli.main import run
from siltlog.server_process import ServerProcess

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def topic(server: ServerProcess, request: pytest.FixtureRequest) -> str:
    """The odd ones of six records in two partitions are dead letters: 1:0, 1:1 and 1:2."""
    name: str = request.node.name.replace("[", ".").replace("]", "")
    with Admin(server.url) as admin, Producer(server.url) as producer:
        admin.create_topic(name, partitions=2)
        for number in range(6):
            producer.send(name, f"value {number}", key=f"k{number}", partition=number % 2, headers={"own": "x"})
        producer.flush()

    def handle(record: Any) -> None:
        if int(record.text().split()[1]) % 2:
            raise ValueError(f"cannot take {record.text()}")

    with Consumer(server.url, group="reporting", topics=[name], stop_at="latest") as consumer:
        consumer.run(handle, max_attempts=1)
    return name


def json_of(capsys: Capture, *arguments: str) -> Any:
    capsys.readouterr()
    assert run([*arguments, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def dead(server: ServerProcess, topic: str) -> int:
    with Admin(server.url) as admin:
        return sum(one["high_watermark"] - one["log_start_offset"] for one in admin.offsets(f"{topic}.dlq"))


def test_list_and_show(capsys: Capture, topic: str) -> None:
    assert {"topic": topic, "dead_letters": 3} in json_of(capsys, "dlq", "list")["topics"]
    documents = json_of(capsys, "dlq", "list", topic)["dead_letters"]
    assert [(one["partition"], one["offset"], one["value"]) for one in documents] == [
        (1, 2, "value 5"),
        (1, 1, "value 3"),
        (1, 0, "value 1"),
    ]
    said = documents[1]["dead_letter"]
    assert (said["topic"], said["partition"], said["offset"], said["group"]) == (topic, 1, 1, "reporting")
    assert (said["attempts"], said["error"]) == (1, "ValueError: cannot take value 3")
    assert json_of(capsys, "dlq", "list", topic, "-n", "2")["dead_letters"] == documents[:2]
    assert json_of(capsys, "dlq", "list", topic, "--group", "other")["dead_letters"] == []
    assert json_of(capsys, "dlq", "show", topic, "1:1") == documents[1]
    assert run(["dlq", "show", topic, "1:1", "--output", "value"]) == 0
    assert capsys.readouterr().out == "value 3\n"
    assert run(["dlq", "show", topic, "1:1"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["key", "k3"] in lines and ["own", "x"] in lines
    assert run(["dlq", "list", topic]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert any(row[:3] == ["1:2", "1:2", "reporting"] for row in rows)


def test_what_is_not_there(capsys: Capture, server: ServerProcess) -> None:
    with Admin(server.url) as admin:
        admin.create_topic("healthy")
    assert json_of(capsys, "dlq", "list", "healthy") == {"topic": "healthy", "dead_letters": []}
    assert json_of(capsys, "dlq", "purge", "healthy") == {"topic": "healthy", "purged": 0}
    assert run(["dlq", "show", "healthy", "0:0"]) == 1
    assert "no dead letter 0:0 of healthy" in capsys.readouterr().err
    assert json_of(capsys, "dlq", "replay", "healthy")["replayed"] == 0
    assert run(["dlq", "replay", "healthy", "0:0"]) == 1
    assert "healthy has no dead letters" in capsys.readouterr().err
    assert run(["dlq", "list", "nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err
    assert run(["dlq", "show", "healthy", "three"]) == 2
    assert "PARTITION:OFFSET" in capsys.readouterr().err
    assert run(["dlq", "list", "--group", "g"]) == 2


def test_replay(capsys: Capture, topic: str, server: ServerProcess) -> None:
    done = json_of(capsys, "dlq", "replay", topic, "1:0", "1:2", "--replay-id", "r")
    assert done == {"topic": topic, "replay_id": "r", "replayed": 2, "duplicates": 0}
    done = json_of(capsys, "dlq", "replay", topic, "1:2", "1:0", "--replay-id", "r")
    assert (done["replayed"], done["duplicates"]) == (0, 2)
    assert run(["dlq", "replay", topic, "--replay-id", "r"]) == 1
    assert "take a new one" in capsys.readouterr().err
    assert run(["dlq", "replay", topic, "--output", "value"]) == 0
    assert capsys.readouterr().out == "3\n"
    with Admin(server.url) as admin:
        assert admin.offsets(topic)[1]["high_watermark"] == 3 + 2 + 3
    assert dead(server, topic) == 3


def test_discard(capsys: Capture, topic: str, server: ServerProcess) -> None:
    document = json_of(capsys, "dlq", "discard", topic, "1:1", "--reason", "tests")
    starts = [{"partition": 1, "log_start_offset": 0}]
    assert document == {"topic": topic, "discarded": 1, "duplicates": 0, "partitions": starts}
    assert [one["offset"] for one in json_of(capsys, "dlq", "list", topic)["dead_letters"]] == [2, 0]
    assert run(["dlq", "show", topic, "1:1"]) == 1
    assert f"no dead letter 1:1 of {topic}" in capsys.readouterr().err
    assert run(["dlq", "export", topic]) == 0
    assert [json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()] == [2, 0]
    assert {"topic": topic, "dead_letters": 2} in json_of(capsys, "dlq", "list")["topics"]
    assert json_of(capsys, "dlq", "replay", topic)["replayed"] == 2
    assert run(["dlq", "discard", topic, "1:0-2", "--output", "value"]) == 0
    assert capsys.readouterr().out == "2\n"
    assert dead(server, topic) == 0
    assert json_of(capsys, "dlq", "purge", topic) == {"topic": topic, "purged": 0}


def test_what_cannot_be_discarded(capsys: Capture, topic: str) -> None:
    assert run(["dlq", "discard", topic, "1:7"]) == 1
    assert "nothing was discarded" in capsys.readouterr().err
    for wrong in ("1", "1:2-1", "1:2-", "1:2-x"):
        assert run(["dlq", "discard", topic, wrong]) == 2
        assert "PARTITION:" in capsys.readouterr().err
    assert run(["dlq", "discard", topic]) == 2
    assert len(json_of(capsys, "dlq", "list", topic)["dead_letters"]) == 3


def test_purge_asks(capsys: Capture, topic: str, server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["dlq", "purge", topic]) == 2
    assert "--yes" in capsys.readouterr().err
    assert dead(server, topic) == 3
    monkeypatch.setattr(dlq_module, "on_terminal", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: (_ for _ in ()).throw(dlq_module.click.Abort()))
    assert run(["dlq", "purge", topic]) == 130
    assert dead(server, topic) == 3
    assert json_of(capsys, "dlq", "purge", topic, "--yes") == {"topic": topic, "purged": 3}
    assert dead(server, topic) == 0
    assert json_of(capsys, "dlq", "list", topic)["dead_letters"] == []
    assert json_of(capsys, "dlq", "purge", topic) == {"topic": topic, "purged": 0}


@pytest.mark.parametrize("form", ["ndjson", "json"])
def test_export(capsys: Capture, topic: str, form: str, tmp_path: Path) -> None:
    listed = json_of(capsys, "dlq", "list", topic)["dead_letters"]

    def parsed(text: str) -> list[Any]:
        parts: list[Any] = json.loads(text) if form == "json" else [json.loads(line) for line in text.splitlines()]
        return parts

    assert run(["dlq", "export", topic, "--format", form]) == 0
    assert parsed(capsys.readouterr().out) == listed
    file = tmp_path / "dead"
    assert run(["dlq", "export", topic, "--format", form, "--file", str(file)]) == 0
    assert parsed(file.read_text()) == listed
    before = file.read_text()
    assert run(["dlq", "export", "nowhere", "--file", str(file)]) == 1
    assert file.read_text() == before and [one.name for one in tmp_path.iterdir()] == ["dead"]


@pytest.mark.slow
def test_what_was_purged_is_given_up_again(capsys: Capture, topic: str, server: ServerProcess) -> None:
    assert run(["dlq", "purge", topic, "--yes"]) == 0
    with Admin(server.url) as admin:
        admin.reset_group("reporting", "earliest", topics=[topic])

    def handle(record: Any) -> None:
        raise ValueError("still not")

    with Consumer(server.url, group="reporting", topics=[topic], stop_at="latest") as consumer:
        consumer.run(handle, max_attempts=1)
    assert dead(server, topic) == 6
