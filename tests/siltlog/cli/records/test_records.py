"""`silt publish` and `silt consume` against a real server: what goes in comes out, in each form."""

import base64
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from siltlog.cli.main import run
from siltlog.infra.client.admin import Admin
from siltlog.infra.client.record import TopicPartition
from siltlog.ingest.library.producer import Producer
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

EVERYTHING = ["a0", "a1", "a2", "b0", "b1", "b2"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=100) as running:
        yield running


@pytest.fixture
def topic(server: ServerProcess, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic of the test's own, with three partitions; the commands find its server."""
    monkeypatch.setenv("SILT_URL", server.url)
    name = f"{request.node.originalname}.{uuid.uuid4().hex[:8]}"
    with Admin(server.url) as admin:
        admin.create_topic(name, partitions=3)
    return name


def printed(arguments: list[str], capsys: Capture) -> list[str]:
    assert run(arguments) == 0, capsys.readouterr().err
    return capsys.readouterr().out.splitlines()


def documents(arguments: list[str], capsys: Capture) -> list[dict[str, object]]:
    return [json.loads(line) for line in printed([*arguments, "--output", "json"], capsys)]


def child(*arguments: str, server: ServerProcess, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "siltlog.cli", *arguments, "--url", server.url]
    return subprocess.run(command, input=stdin, capture_output=True, check=False)


def test_arguments_come_back_as_values(topic: str, capsys: Capture) -> None:
    sent = documents(["publish", topic, "one", "two", "--key", "k", "--header", "source=test"], capsys)
    [partition] = sent[0]["partitions"]  # type: ignore[misc]
    assert sent[0].pop("seconds") >= 0  # type: ignore[operator]
    assert sent == [{"topic": topic, "count": 2, "already_published": 0, "partitions": [partition]}]
    assert partition == {"partition": partition["partition"], "first_offset": 0, "last_offset": 1, "count": 2}
    records = documents(["consume", topic], capsys)
    for record in records:
        assert str(record.pop("timestamp")).endswith("Z")
    common = {"partition": partition["partition"], "key": "k", "headers": [{"key": "source", "value": "test"}]}
    assert records == [{"offset": 0, "value": "one"} | common, {"offset": 1, "value": "two"} | common]
    assert printed(["consume", topic, "--output", "value"], capsys) == ["one", "two"]
    table = printed(["consume", topic], capsys)
    assert table[0].split() == ["POSITION", "TIMESTAMP", "KEY", "VALUE"]
    assert [line.split()[0::3] for line in table[1:]] == [
        [f"{partition['partition']}:{offset}", value] for offset, value in enumerate(("one", "two"))
    ]


def test_bytes_that_are_no_text_and_tombstones(server: ServerProcess, topic: str, capsys: Capture) -> None:
    with Producer(server.url) as producer:
        producer.send(topic, b"\xff\x00", key=b"\xfe", headers={"n": None}, partition=0)
        producer.send(topic, None, key="gone", partition=0)
        producer.send(topic, "\x1b[31mred", partition=0)
    first, tombstone, red = documents(["consume", topic], capsys)
    encoded = {name: base64.b64encode(raw).decode() for name, raw in (("value", b"\xff\x00"), ("key", b"\xfe"))}
    assert {"value_base64": encoded["value"], "key_base64": encoded["key"]}.items() <= first.items()
    assert first["headers"] == [{"key": "n", "value": None}]
    assert (tombstone["key"], tombstone["value"], tombstone["headers"]) == ("gone", None, [])
    assert red["value"] == "\x1b[31mred"
    assert "\x1b" not in "".join(printed(["consume", topic], capsys)), "a value must not steer the terminal"
    assert child("consume", topic, "--output", "value", server=server).stdout == b"\xff\x00\n\x1b[31mred\n"


def test_lines_go_through_a_pipe_byte_for_byte(server: ServerProcess, topic: str) -> None:
    lines = b'{"a":  1}\r\n\nplain text\n\xc3\xa9'
    ran = child("publish", topic, "-", "--partition", "1", "--output", "value", server=server, stdin=lines)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"3\n", b"")
    read = child("consume", topic, "--output", "value", server=server)
    assert (read.returncode, read.stdout, read.stderr) == (0, b'{"a":  1}\nplain text\n\xc3\xa9\n', b"")


@pytest.mark.parametrize("rows", [20_000])
def test_a_file_of_rows_keyed_by_a_column(topic: str, rows: int, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("id,name\n" + "".join(f"{row},n{row % 7}\n" for row in range(rows)))
    [sent] = documents(["publish", topic, "--file", str(file), "--key-from", "name"], capsys)
    assert sent["count"] == rows
    records = documents(["consume", topic], capsys)
    values = [json.loads(str(record["value"])) for record in records]
    assert sorted(value["id"] for value in values) == list(range(rows))
    assert all(record["key"] == value["name"] for record, value in zip(records, values, strict=True))
    for partition in range(3):
        ids = [value["id"] for record, value in zip(records, values, strict=True) if record["partition"] == partition]
        assert ids == sorted(ids), "order within a partition is that of the file"


def test_a_bad_line_is_named_and_what_came_before_is_there(topic: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text('{"id": 1}\n{"no": 2}\n')
    assert run(["publish", topic, "--file", str(file), "--key-from", "/id"]) == 1
    said = capsys.readouterr().err
    assert "events.ndjson: line 2: there is no string, number or boolean at 'id'" in said
    assert "the one before it is published, none after it; mend it and go on with --skip 1" in said
    assert [record["key"] for record in documents(["consume", topic], capsys)] == ["1"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--partition", "1"], ["b0", "b1", "b2"]),
        (["--partition", "1", "--partition", "0"], EVERYTHING),
        (["--key", "key-b"], ["b0", "b1", "b2"]),
        (["--contains", "2"], ["a2", "b2"]),
        (["--header", "none"], []),
        (["--key", "key-a", "--contains", "2"], ["a2"]),
        (["--partition", "0", "--contains", "a", "--until", "2", "-n", "1"], ["a0"]),
        (["--from", "1", "--until", "2"], ["a1", "b1"]),
        (["--from", "2"], ["a2", "b2"]),
        (["--from", "9"], []),
        (["--from", "-2"], ["a1", "a2", "b1", "b2"]),
        (["--from", "-1", "--partition", "1"], ["b2"]),
        (["--from", "-9"], EVERYTHING),
        (["--until", "-1"], ["a0", "a1", "b0", "b1"]),
        (["--from", "-2", "--until", "-1"], ["a1", "b1"]),
        (["--until", "-9"], []),
        (["--until", "latest"], EVERYTHING),
        (["--from", "1h"], EVERYTHING),
        (["--from", "-1h", "--until", "now"], EVERYTHING),
        (["--until", "yesterday"], []),
        (["--until", "2026"], EVERYTHING),
        (["--until", "0"], []),
        (["--from", "2100-01-01T00:00:00Z"], []),
        (["--until", "2000-01-01T00:00:00Z"], []),
        (["--from", "2000-01-01T00:00:00+01:00", "--until", "2100-01-01T00:00:00Z"], EVERYTHING),
    ],
)  # fmt: skip
def test_a_part_of_a_topic(
    server: ServerProcess, topic: str, options: list[str], expected: list[str], capsys: Capture
) -> None:
    with Producer(server.url) as producer:
        for number in range(3):
            for partition, name in enumerate("ab"):
                producer.send(topic, f"{name}{number}", key=f"key-{name}", partition=partition)
    assert sorted(printed(["consume", topic, *options, "--output", "value"], capsys)) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "There are no such records; --follow waits for some."),
        (["--group", "idle"], "The group idle has read all there is; --follow waits for more."),
        (["--from", "2100-01-01T00:00:00Z"], "There are no such records"),
        (["--from", "7"], "No partition has an offset 7 yet, the longest ends at 0."),
        (["--from", "1795286433000"], "for a time write --from 2026-11-21T18:40:33"),
        (["--until", "2026"], "--until 2026 is an offset; for a time write --until 2026-01-01"),
        (["--contains", "x", "--output", "json"], ""),
    ],
    ids=["empty", "group", "time", "offset", "milliseconds", "year", "json"],
)
def test_that_there_is_nothing_is_said_to_people(topic: str, options: list[str], said: str, capsys: Capture) -> None:
    assert run(["consume", topic, *options]) == 0
    found = capsys.readouterr()
    assert found.out == "" and said in found.err and bool(said) == bool(found.err)


def test_max_records_ends_early(server: ServerProcess, topic: str, capsys: Capture) -> None:
    with Producer(server.url) as producer:
        for number in range(10):
            producer.send(topic, str(number), partition=0)
    assert printed(["consume", topic, "-n", "3", "--output", "value"], capsys) == ["0", "1", "2"]


def test_a_group_goes_on_where_it_was(server: ServerProcess, topic: str, capsys: Capture) -> None:
    with Producer(server.url) as producer:
        for number in range(5):
            producer.send(topic, str(number), partition=0)
    command = ["consume", topic, "--group", "readers", "--output", "value"]
    assert printed([*command, "--max-records", "2"], capsys) == ["0", "1"]
    with Admin(server.url) as admin:
        assert admin.group_offsets("readers")[TopicPartition(topic, 0)] == 2
    assert printed(command, capsys) == ["2", "3", "4"]
    assert printed(command, capsys) == []
    assert "readers" in printed(["group", "list", "--output", "value"], capsys)
    [group] = documents(["group", "describe", "readers"], capsys)
    assert (group["state"], sum(row["lag"] for row in group["partitions"])) == ("empty", 0)  # type: ignore[attr-defined]
    assert "readers" in "".join(printed(["group", "describe", "readers"], capsys))


def test_follow_prints_what_comes_until_it_is_interrupted(server: ServerProcess, topic: str) -> None:
    command = [sys.executable, "-m", "siltlog.cli", "consume", topic, "--follow", "-o", "value", "--url", server.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None and follower.stderr is not None
        with Producer(server.url) as producer:
            for number in range(3):
                producer.send(topic, str(number)).result()
                assert follower.stdout.readline() == f"{number}\n", "it must be seen as it comes"
        follower.send_signal(2)
        assert (follower.wait(), follower.stderr.read().strip()) == (130, "")


def test_a_reader_that_goes_away_is_no_error_and_nothing_unseen_is_committed(server: ServerProcess, topic: str) -> None:
    with Producer(server.url) as producer:
        for number in range(2_000):
            producer.send(topic, f"{number:0100}", partition=0)
    command = [sys.executable, "-m", "siltlog.cli", "consume", topic, "--group", "shy", "-o", "value"]
    shown = subprocess.Popen([*command, "--url", server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert shown.stdout is not None and shown.stderr is not None
    shown.stdout.readline()
    shown.stdout.close()
    assert (shown.wait(), shown.stderr.read()) == (0, b"")
    shown.stderr.close()
    with Admin(server.url) as admin:
        # The pipe holds 64 KiB: fewer than 1,000 of these.
        assert admin.group_offsets("shy").get(TopicPartition(topic, 0), 0) < 1_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["publish", "{topic}"], "nothing to publish"),
        (["publish", "{topic}", "v", "--key", "k", "--key-from", "a"], "exclude each other"),
        (["publish", "{topic}", "v", "--header", "h"], "not NAME=TEXT"),
        (["publish", "{topic}", "--file", "nowhere.csv"], "nowhere.csv"),
        (["consume", "{topic}", "--from", "noon"], "2026-11-21T07:36:00Z"),
        (["consume", "{topic}", "--from", "2026-11-21T07:36:00"], "2026-11-21T07:36:00Z is UTC"),
        (["consume", "{topic}", "--from", "latest"], "--follow"),
        (["consume", "{topic}", "--follow", "--until", "7"], "--follow never ends"),
        (["consume", "{topic}", "--group", "g", "--partition", "0"], "leave out --partition, or --group;"),
        (["consume", "{topic}", "-g", "g", "--from", "7", "--until", "9"], "leave out --until and --from, or"),
    ],
)
def test_what_makes_no_sense_is_a_misuse(topic: str, arguments: list[str], words: str, capsys: Capture) -> None:
    assert run([part.format(topic=topic) for part in arguments]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "command", [["publish", "absent", "v"], ["consume", "absent"], ["consume", "absent", "-g", "g"]]
)
def test_a_topic_that_is_not_there(topic: str, command: list[str], capsys: Capture) -> None:
    assert run(command) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "there is no topic 'absent'" in said.err
    assert "silt topic create absent" in said.err


def test_a_topic_of_the_system_is_nobodys_to_create(topic: str, capsys: Capture) -> None:
    assert run(["consume", f"{topic}.dlq"]) == 1
    assert f"there is no topic '{topic}.dlq'; the server makes it when it is needed" in capsys.readouterr().err


def test_a_partition_that_is_not_there(topic: str, capsys: Capture) -> None:
    assert run(["publish", topic, "v", "--partition", "7"]) == 1
    assert "partition 7" in capsys.readouterr().err
    assert run(["consume", topic, "--partition", "7"]) == 1
    assert "has no partition 7; it has 3, numbered from 0" in capsys.readouterr().err


def test_a_rate_slows_publishing_down_and_loses_nothing(topic: str, capsys: Capture) -> None:
    values = [str(number) for number in range(20)]
    assert printed(["publish", topic, *values, "--rate", "200", "--partition", "0", "-o", "value"], capsys) == ["20"]
    assert printed(["consume", topic, "-o", "value"], capsys) == values
