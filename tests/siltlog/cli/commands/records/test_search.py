"""`silt search` against a real server."""

import json
from collections.abc import Iterator

import pytest

from siltlog import Admin, Producer
from siltlog.cli.commands.records import search as search_module
from siltlog.cli.main import run
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("server")
TOPIC = "orders"
RECORDS = 40


@pytest.fixture(scope="module")
def running() -> Iterator[ServerProcess]:
    """Orders of four users in two partitions, a tombstone, and a key that is no text."""
    with running_server(flush_ms=100) as server:
        with Admin(server.url) as admin, Producer(server.url) as producer:
            admin.create_topic(TOPIC, partitions=2)
            for n in range(RECORDS):
                value = {"user": {"id": n % 4}, "item": "tea" if n % 10 else "cup"}
                producer.send(TOPIC, value, key=f"k{n}", partition=n % 2, headers={"own": "x"})
            producer.send(TOPIC, None, key="gone", partition=0)
            producer.send(TOPIC, "x", key=b"\xff", partition=1, headers={"own": b"\xfe"})
            producer.flush()
        yield server


def lines(capsys: Capture, *arguments: str, output: str = "json") -> list[str]:
    capsys.readouterr()
    assert run(["search", TOPIC, *arguments, "--output", output]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--key", "k7"], [7]),
        (["--contains", "cup"], [0, 10, 20, 30]),
        (["--header", "own=x", "--contains", "cup"], [0, 10, 20, 30]),
        (["-H", "own", "--from", "-1"], [41]),
        (["--header", "own=y"], []),
        (["--path", "/user/id", "--equals", "3", "--from", "18"], [39]),
        (["--path", "/item", "--equals", "cup", "--partition", "0", "--max-records", "2"], [0, 10]),
        (["--path", "/item", "--equals", '"cup"', "--until", "6"], [0, 10]),
        (["--from", "-2", "--until", "-1", "--partition", "0"], [38]),
        (["--contains", "cup", "--from", "2100-01-01"], []),
        (["--contains", "cup", "--until", "2000-01-01"], []),
    ],
)
def test_finds(capsys: Capture, options: list[str], numbers: list[int]) -> None:
    found = [json.loads(line) for line in lines(capsys, *options)]
    assert sorted(2 * one["offset"] + one["partition"] for one in found) == numbers


def test_prints_as_consume_does(capsys: Capture) -> None:
    for output in ("json", "value"):
        found = lines(capsys, output=output)
        capsys.readouterr()
        assert run(["consume", TOPIC, "--output", output]) == 0
        assert sorted(found) == sorted(capsys.readouterr().out.splitlines())
    [head, first, *_] = lines(capsys, "--key", "gone", output="table")
    assert head.split() == ["POSITION", "TIMESTAMP", "KEY", "VALUE"]
    assert first.split()[-1] == "(tombstone)"


def test_finds_by_the_producer_and_says_it_where_it_is_asked_to(capsys: Capture) -> None:
    [one] = map(json.loads, lines(capsys, "--key", "k7", "--producers"))
    of_partition = [json.loads(line)["producer"] for line in lines(capsys, "--partition", "1", "--producers")]
    assert one["producer"] in of_partition
    assert [each["sequence"] for each in of_partition] == list(range(len(of_partition)))
    [other] = map(json.loads, lines(capsys, "--key", "k7", "--producer-id", one["producer"]["id"]))
    assert other == one
    assert lines(capsys, "--producer-id", "nobody") == []
    assert lines(capsys, "--key", "k7", "--producer-id", one["producer"]["id"], output="value")
    assert "producer" not in json.loads(lines(capsys, "--key", "k7")[0])


def test_goes_on_from_piece_to_piece(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "SLICE_RECORDS", 3)
    assert len(lines(capsys)) == RECORDS + 2
    assert len(lines(capsys, "--max-records", "7")) == 7


def test_says_what_it_did_on_standard_error(capsys: Capture) -> None:
    assert run(["search", TOPIC, "--key", "k7"]) == 0
    assert capsys.readouterr().err == f"Looked at {RECORDS + 2} offsets, found 1 record.\n"


def test_what_is_misused(capsys: Capture) -> None:
    assert run(["search", TOPIC, "--path", "/a"]) == 2
    assert "give both, or neither" in capsys.readouterr().err
    assert run(["search", TOPIC, "--path", "a", "--equals", "1"]) == 1
    assert "is not a JSON Pointer" in capsys.readouterr().err
    assert run(["search", TOPIC, "--producers"]) == 2
    assert "only --output json shows it" in capsys.readouterr().err
    assert run(["search", "order"]) == 1
    assert "did you mean 'orders'?" in capsys.readouterr().err
    assert run(["search", TOPIC, "--partition", "2"]) == 1
    assert "partitions 0 to 1, not 2" in capsys.readouterr().err
