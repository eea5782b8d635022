"""`silt topic` and `silt health` against a real server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from siltlog.cli.commands.topics import topic as topic_module
from siltlog.cli.main import run
from siltlog.doctor.server import check_server
from siltlog.infra.client.core import Response
from siltlog.infra.client.transport import HttpTransport
from siltlog.infra.clock import SystemClock
from siltlog.infra.settings.settings import ServerSettings
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
GONE = "http://127.0.0.1:1"
pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture(scope="module")
def running() -> Iterator[ServerProcess]:
    with running_server() as server:
        yield server


def test_a_topic_from_its_creation_to_its_end(capsys: Capture, server: ServerProcess) -> None:
    create = ["topic", "create", "life", "--partitions", "2", "--config", "retention.ms=60000", "-c", "compression=lz4"]
    assert run([*create, "--output", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["name"], made["partitions"], len(made["offsets"])) == ("life", 2, 2)
    assert made["config"]["retention.ms"] == {"value": 60_000, "source": "topic"}
    assert made["config"]["compression"]["value"] == "lz4"
    assert made["table_uri"] == f"{server.root}/topics/life"

    assert run(create) == 1
    assert "life" in capsys.readouterr().err
    assert run([*create, "--if-not-exists", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["topic_id"] == made["topic_id"]
    assert run(["topic", "create", "life", "--partitions", "3", "--if-not-exists"]) == 1
    capsys.readouterr()

    assert run(["topic", "list", "--output", "value"]) == 0
    assert "life" in capsys.readouterr().out.split()
    assert run(["topic", "describe", "life"]) == 0
    table = capsys.readouterr().out
    assert all(line == line.rstrip() for line in table.splitlines()), "a table in a file has no trailing blanks"
    rows = [line.split() for line in table.splitlines()]
    assert ["retention.ms", "60000", "topic"] in rows
    assert ["partitions", "2"] in rows
    assert ["0", "0", "0", "0"] in rows

    assert run(["topic", "describe", "life", "--partitions"]) == 0
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert " ".join(head).endswith("BYTES FILES HEAD START OFFSET HEAD BYTES WAL SEGMENTS WAL BYTES")
    assert [row[0] for row in rows] == ["0", "1"]
    assert run(["topic", "describe", "life", "--partitions", "--output", "json"]) == 0
    assert [row["wal_bytes"] for row in json.loads(capsys.readouterr().out)["partitions"]] == [0, 0]

    assert run(["topic", "delete", "life", "--yes", "--output", "value"]) == 0
    assert capsys.readouterr().out == "life\n"
    assert run(["topic", "describe", "life"]) == 1
    assert "silt topic create life" in capsys.readouterr().err


def test_a_topic_is_altered(capsys: Capture) -> None:
    assert run(["topic", "create", "changing", "--config", "flush.ms=70", "-c", "retention.ms=60000"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:2] for row in rows if row[0] != "table"] == [
        ["name", "changing"], ["partitions", "1"], ["retention.ms", "60000"], ["flush.ms", "70"]
    ]  # fmt: skip
    alter = ["topic", "alter", "changing", "--output", "json"]
    assert (
        run([*alter, "--partitions", "3", "-c", "compression=gzip", "-c", "flush.ms=80", "--unset", "retention.ms"])
        == 0
    )
    document = json.loads(capsys.readouterr().out)
    config = {name: entry["value"] for name, entry in document["config"].items() if entry["source"] == "topic"}
    assert (document["partitions"], config) == (3, {"compression": "gzip", "flush.ms": 80})
    assert run([*alter, "-u", "compression", "-u", "flush.ms"]) == 0
    sources = {entry["source"] for entry in json.loads(capsys.readouterr().out)["config"].values()}
    assert sources == {"default"}
    assert run(["topic", "alter", "changing", "--partitions", "2"]) == 1
    assert "only grow" in capsys.readouterr().err
    run(["topic", "delete", "changing", "--yes"])


def test_deleting_asks_where_somebody_can_answer(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    run(["topic", "create", "kept"])
    assert run(["topic", "delete", "kept"]) == 2
    assert "--yes" in capsys.readouterr().err
    monkeypatch.setattr(topic_module, "on_terminal", lambda: True)
    for answer, status in ((False, 130), (True, 0)):

        def confirm(_: str, abort: bool, err: bool, answer: bool = answer) -> None:
            assert err, "a question is no result"
            if not answer and abort:
                raise topic_module.click.Abort

        monkeypatch.setattr(topic_module.click, "confirm", confirm)
        assert run(["topic", "delete", "kept"]) == status
        capsys.readouterr()
        run(["topic", "list", "--output", "value"])
        assert ("kept" in capsys.readouterr().out) is not answer


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["create", "bad name"], 1, "bad name"),
        (["create", "_system"], 1, "_system"),
        (["create", "t", "--config", "no.such=1"], 1, "no.such"),
        (["create", "t", "--config", "retention.ms"], 2, "NAME=VALUE"),
        (["create", "t", "--config", "retention.ms=soon"], 2, "retention.ms"),
        (["create", "t", "--partitions", "0"], 2, "--partitions"),
        (["alter", "nothing", "--partitions", "2"], 1, "nothing"),
        (["alter", "nothing"], 2, "--unset"),
        (["alter", "nothing", "-c", "flush.ms=1", "-u", "flush.ms"], 2, "flush.ms"),
        (["alter", "nothing", "--partitions", "0"], 2, "--partitions"),
        (["describe", "nothing"], 1, "silt topic create nothing"),
        (["delete", "nothing", "--yes"], 1, "nothing"),
        (["describe", ".."], 1, "'..'"),
    ],
    ids=lambda each: "-".join(each) if isinstance(each, list) else None,
)
def test_mistakes_are_sentences(arguments: list[str], status: int, words: str, capsys: Capture) -> None:
    assert run(["topic", *arguments]) == status
    said = capsys.readouterr()
    assert (said.out, words in said.err, "Traceback" in said.err) == ("", True, False)


def test_health(server: ServerProcess, capsys: Capture) -> None:
    assert run(["health", "--output", "json"]) == 0
    told = {"url": server.url, "ready": True, "reasons": [], "warnings": []}
    assert json.loads(capsys.readouterr().out) == {**told, "servers": [told]}
    assert run(["health", "--output", "value"]) == 0
    assert capsys.readouterr().out == "ready\n"


def test_of_several_servers_one_that_is_ready_is_enough(server: ServerProcess, capsys: Capture) -> None:
    several = ["health", "--url", f"{GONE},{server.url},{GONE}"]
    assert run([*several, "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["url"], told["ready"], told["reasons"]) == (server.url, True, [])
    assert [(one["url"], one["ready"]) for one in told["servers"]] == [(GONE, False), (server.url, True), (GONE, False)]
    assert all("is the server running?" in one["reasons"][0] for one in told["servers"] if not one["ready"])
    assert run(several) == 0
    said = capsys.readouterr().out
    assert GONE in said and server.url in said
    assert run(["health", "--url", f"{GONE},{GONE}"]) == 1
    assert f"no server answers at {GONE}" in capsys.readouterr().err


def test_doctor_goes_on_with_a_server_that_answers(server: ServerProcess, tmp_path: Path) -> None:
    findings = list(check_server(ServerSettings(data_dir=tmp_path), f"{GONE},{server.url}", SystemClock()))
    [away, there] = [found for found in findings if found.check == "server"]
    assert (away.state, GONE in away.detail) == ("wrong", True)
    assert (there.state, server.url in there.detail) == ("ok", True)
    assert {"clock", "cost", "schedule"} <= {found.check for found in findings}
    silent = list(check_server(None, f"{GONE},{GONE}", SystemClock()))
    assert [(found.check, found.state) for found in silent] == [("server", "wrong")] * 2


def test_a_server_that_cannot_acknowledge_says_why(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"status": "not_ready", "reasons": ["draining"], "warnings": ["groups: Redis does not answer"]}
    reply = Response(503, {"content-type": "application/json"}, json.dumps(told).encode())
    monkeypatch.setattr(HttpTransport, "send", lambda *_: reply)
    assert run(["health", "--output", "json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["ready"], found["reasons"], found["warnings"]) == (False, told["reasons"], told["warnings"])
    assert run(["health"]) == 3
    assert "draining" in capsys.readouterr().out
    monkeypatch.setattr(HttpTransport, "send", lambda *_: Response(404, {}, b"<html>"))
    assert run(["health"]) == 1
    assert "is the URL that of a Siltlog server?" in capsys.readouterr().err


def test_amounts_of_settings_have_units(capsys: Capture) -> None:
    sizes = ["-c", "retention.bytes=4GB", "-c", "flush.bytes=1MiB", "-c", "retention.records=-1"]
    assert run(["topic", "create", "sized", "-c", "retention.ms=7d", *sizes, "-o", "json"]) == 0
    config = json.loads(capsys.readouterr().out)["config"]
    own = {name: entry["value"] for name, entry in config.items() if entry["source"] == "topic"}
    assert own == {
        "retention.ms": 604_800_000,
        "retention.bytes": 4_000_000_000,
        "flush.bytes": 1_048_576,
        "retention.records": -1,
    }
    assert run(["topic", "alter", "sized", "-c", "delete.retention.ms=1h30m", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["delete.retention.ms"]["value"] == 5_400_000
    for entry, said in (("retention.ms=7x", "no length of time"), ("flush.bytes=7d", "no number of bytes")):
        assert run(["topic", "alter", "sized", "-c", entry]) == 2
        assert said in " ".join(capsys.readouterr().err.split())
    assert run(["topic", "alter", "sized", "-c", "retenton.ms=7d"]) == 1
    assert "did you mean 'retention.ms'?" in capsys.readouterr().err


def test_a_topic_that_is_misspelt(capsys: Capture) -> None:
    run(["topic", "create", "orders"])
    capsys.readouterr()
    for command in (["consume", "ordres"], ["publish", "ordres", "v"], ["topic", "describe", "Orders"]):
        assert run(command) == 1
        assert "did you mean 'orders'?" in capsys.readouterr().err
    assert run(["consume", "elsewhere"]) == 1
    said = capsys.readouterr().err
    assert "did you mean" not in said and "silt topic create elsewhere" in said
    run(["topic", "delete", "orders", "--yes"])
