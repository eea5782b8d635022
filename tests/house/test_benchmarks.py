"""The benchmarks themselves: what they say is what was measured, and what they time is there."""

import itertools
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.bench import Bench
from benchmarks.cluster.failover import CLIENTS, KILL, STOP, Tries, Try, _figures
from benchmarks.cluster.streams import Ack, damage, longest_gap
from benchmarks.figures.figure import Figure, Point, Summary, summaries
from benchmarks.figures.report import machine, markdown
from benchmarks.groups.rebalance import _gaps
from benchmarks.groups.receiver import RECORD_BYTES, _sent, stamped_value
from benchmarks.loads.load import CONNECTION, NUMBER, Plan, _Run, http_is_whole, resp_is_whole, resp_request
from benchmarks.loads.stream_reader import STREAM, StreamReader
from benchmarks.publishing.stages import stages
from benchmarks.reading.read_stages import CLIENT_STAGES
from benchmarks.servers.child import valkey_server
from benchmarks.servers.disk import BLOCK_BYTES, WrittenFile
from benchmarks.servers.staged_server import READ_STAGES, REST, STAGES, Stage, found, timed
from benchmarks.servers.warden import ALL_ENDED, working_below

TOP = Path(__file__).parents[2]
MODULES_MAX = 17
SHARED = {
    "figures": set[str](),
    "wires": set[str](),
    "servers": set[str](),
    "loads": {"figures", "wires"},
    "bench": {"loads", "servers"},
    "compare": {"bench", "figures", "loads", "servers", "wires"},
}
"""What benchmarks share -> what of it each part may import. A room of benchmarks may import all of it, and no other."""


def room_of(benchmark: str) -> str:
    return BENCHMARKS[benchmark][0].__module__.split(".")[1]


def test_a_benchmark_imports_no_other_room_of_benchmarks() -> None:
    rooms = {room_of(name) for name in BENCHMARKS}
    assert rooms.isdisjoint(SHARED) and "reading" in rooms
    may = SHARED | {room: set(SHARED) for room in (*rooms, "soak")}
    found = set()
    for path in (TOP / "benchmarks").rglob("*.py"):
        room = path.relative_to(TOP / "benchmarks").parts[0].removesuffix(".py")
        imported = set(re.findall(r"^\s*(?:from|import) benchmarks\.(\w+)", path.read_text("utf-8"), re.MULTILINE))
        found |= {f"{path.name} imports {other}" for other in imported - may.get(room, imported) - {room}}
    assert found == set()


def test_no_folder_of_benchmarks_is_a_hall() -> None:
    counts = Counter(path.parent.name for path in (TOP / "benchmarks").rglob("*.py") if path.stem != "__init__")
    assert counts["publishing"] > 9
    assert {folder: count for folder, count in counts.items() if count > MODULES_MAX} == {}


def test_each_benchmark_is_listed_in_its_room() -> None:
    listed, room = {}, ""
    for line in (TOP / "benchmarks" / "README.md").read_text("utf-8").splitlines():
        if begins := re.match(r"\*\*`(\w+)/`\*\*: ", line):
            room = begins[1]
        elif row := re.match(r"\| `(\w+)` \| .* \| .*\|$", line):
            # The tables of `make compare` have rows of names, too, further down.
            listed.setdefault(row[1], room)
    assert {name: listed.get(name) for name in BENCHMARKS} == {name: room_of(name) for name in BENCHMARKS}


def test_every_stage_that_is_timed_is_there() -> None:
    places = [*STAGES.values(), *READ_STAGES.values(), *CLIENT_STAGES.values()]
    for place in itertools.chain.from_iterable(places):
        assert callable(found(place)[2])


def test_a_stage_within_a_stage_counts_once() -> None:
    outer, inner = Stage(), Stage()
    spin = timed(lambda: [number**2 for number in range(200_000)], inner)

    def around() -> None:
        spin()
        spin()

    started = time.perf_counter()
    timed(around, outer)()
    seconds = time.perf_counter() - started
    within, without = inner.document(), outer.document()
    assert (within["calls"], without["calls"]) == (2, 1)
    assert 0 < without["wall"] < within["wall"]
    assert within["wall"] + without["wall"] <= seconds


def test_numbered_requests_count_for_each_connection() -> None:
    run = _Run(Plan("http", 1, 2, 1.0, 0.0, records=500), [b"a " + CONNECTION + b" " + NUMBER + b"."])
    first, second = run.sender_of(0), run.sender_of(1)
    assert [first(), first(), second()] == [
        b"a 000000 000000000000.",
        b"a 000000 000000000500.",
        b"a 000001 000000000000.",
    ]


def test_a_request_says_when_it_is_sent() -> None:
    send = _Run(Plan("http", 1, 1, 1.0, 0.0), [stamped_value()]).sender_of(0)
    before = time.perf_counter_ns()
    first, second = send(), send()
    assert len(first) == len(second) == RECORD_BYTES
    assert before <= _sent(first) <= _sent(second) <= time.perf_counter_ns()


@pytest.mark.parametrize("acknowledging", [True, False], ids=["XACK", "NOACK"])
def test_the_reader_of_streams_gives_every_entry_once(tmp_path: Path, acknowledging: bool) -> None:
    values = [b"%012d" % n + b"\r\n$20\r\nv" for n in range(3_000)]
    with valkey_server(tmp_path / "valkey") as valkey, socket.create_connection(("127.0.0.1", valkey.port)) as adding:
        adding.sendall(b"".join(resp_request(b"XADD", STREAM, b"*", b"v", value) for value in values))
        reader = StreamReader(valkey.port, "group", 20, acknowledging=acknowledging)
        found: list[bytes] = []
        while len(found) < len(values):
            found += reader.read(1_000, 2_000)
        assert found == values
        assert reader.read(1_000, 1) == []
        adding.sendall(resp_request(b"XPENDING", STREAM, b"group"))
        pending = b""
        while not pending.endswith(b"*-1\r\n"):
            pending += adding.recv(1_000_000)
        assert pending.endswith(b"*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n")
        reader.close()


def test_gaps_are_between_deliveries_whoever_got_them() -> None:
    first = [(0, 1, 0), (0, 2, 10_000_000), (1, 2, 0), (1, 3, 4_000_000)]
    second = [(0, 3, 30_000_000)]
    assert _gaps([first, second]) == {0: 20.0, 1: 4.0}
    assert _gaps([first, second], until=20_000_000) == {0: 10.0, 1: 4.0}


def test_the_longest_gap_reaches_from_the_beginning_to_the_end() -> None:
    assert longest_gap([0.5, 4.0, 1.0, 9.0], 1.0, 5.0) == 3.0
    assert longest_gap([2.0], 0.0, 10.0) == 8.0
    assert longest_gap([], 1.0, 3.0) == 2.0


def test_what_is_not_where_it_was_acknowledged_is_lost() -> None:
    acks = [Ack(0, "a", 0), Ack(0, "b", 1), Ack(0, "c", None), Ack(0, "d", 7), Ack(0, "e", None)]
    assert damage(acks, {0: "a", 1: "b", 2: "c", 7: "d", 8: "e", 9: "not acknowledged"}) == (0, 0)
    assert damage(acks, {0: "b", 1: "a", 2: "a", 3: "a", 7: "d"}) == (4, 2)


def test_tries_of_an_earlier_call_count_under_the_same_conditions(tmp_path: Path) -> None:
    conditions = {"root": "folder", "lease_ms": 5_000, "heartbeat_ms": 1_500}
    tries = Tries(tmp_path / "tries", conditions)
    for number in range(10):
        outages = {client: float(number) for client in CLIENTS}
        errors = {client: {"503 x": number} for client in CLIENTS}
        kind = (KILL, STOP)[number % 2].label
        tries.add(
            Try(**conditions, kind=kind, controller=False, topics=2, outage_seconds=outages, errors=errors, lost=1)
        )
    again = Tries(tmp_path / "tries", conditions)
    assert again.of(KILL) == tries.of(KILL) and len(again.of(KILL)) == 5
    assert Tries(tmp_path / "tries", conditions | {"lease_ms": 3_000}).found == []
    found = {figure.label: figure for figure in _figures(KILL, again.of(KILL))}
    assert found["SIGKILL: tries"].value == 5
    assert found["SIGKILL, Producer: p50"].value == 4.0
    assert found["SIGKILL, Producer: p50"].at_most == 3.0
    assert found["SIGKILL, Producer: errors (20 503 x)"].value == 20
    assert found["SIGKILL: of these lost"].value == 5


@pytest.mark.parametrize("ended", [True, False])
def test_what_a_killed_benchmark_has_started_is_ended(tmp_path: Path, ended: bool) -> None:
    folder, beside = tmp_path / "own", tmp_path / "beside"
    for each in (folder / "node", beside):
        each.mkdir(parents=True)
    with (
        subprocess.Popen(["sleep", "600"], cwd=folder / "node") as own,
        subprocess.Popen(["sleep", "600"], cwd=beside) as other,
    ):
        assert working_below(folder) == [own.pid]
        arguments = [sys.executable, "-m", "benchmarks.servers.warden", str(folder)]
        subprocess.run(arguments, input=ALL_ENDED if ended else b"", cwd=TOP, check=True, timeout=240)
        assert ((own.poll() is None), other.poll(), folder.exists()) == (ended, None, ended)
        own.kill()
        other.kill()


@given(st.integers(1, 20), st.data())
def test_a_pipeline_is_whole_with_its_last_byte(replies: int, data: st.DataObject) -> None:
    whole = b"".join(b"$%d\r\n%s\r\n" % (len(text), text) for text in [b"1700-%d" % n for n in range(replies)])
    cut = data.draw(st.integers(1, len(whole)))
    assert resp_is_whole(replies)(whole[:cut]) == (cut == len(whole))


def test_refusals_are_not_counted() -> None:
    with pytest.raises(ValueError, match="OOM"):
        resp_is_whole(2)(b"$3\r\n1-0\r\n-OOM no memory\r\n")
    with pytest.raises(ValueError, match="503"):
        http_is_whole(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}")
    assert not http_is_whole(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{")


def test_the_file_that_is_the_limit_holds_what_was_kept(tmp_path: Path) -> None:
    file = WrittenFile(tmp_path / "written", 16 * 1024 * 1024)
    small, large = os.urandom(100), os.urandom(5 * 1024 * 1024 + 1)
    for data in (small, large, large, large, large):
        file.keep(data)
    content = (tmp_path / "written").read_bytes()
    rounded = BLOCK_BYTES * (len(large) // BLOCK_BYTES + 1)
    # The last did not fit behind the others.
    assert content[: len(large)] == large
    assert content[BLOCK_BYTES + rounded :][: len(large)] == large
    assert len(content) == 16 * 1024 * 1024
    file.close()
    assert not list(tmp_path.iterdir())


def figures(scale: float) -> list[Figure]:
    return [
        Figure("own", 10 * scale, "records/s", limit="bare", at_least=15, p50_ms=1, p99_ms=2),
        Figure("bare", 20 * scale, "records/s", "limit"),
        Figure("hidden", 1, "ms", "sample"),
        Figure("parse", 3, "µs", column="single"),
        Figure("parse", 4, "µs", column="Arrow"),
    ]


def test_medians_of_runs_beside_their_limits() -> None:
    text = markdown("name", "what", summaries([figures(1), figures(2), figures(9)]), 0.2)
    rows = [re.sub(r"\s+", " ", line) for line in text.splitlines() if line.startswith("|")]
    assert rows == [
        "| | median | lowest to highest | p50 / p99 ms | target | of limit |",
        "|---|---:|---:|---:|---:|---:|",
        "| own | 20.00 records/s | 10.00 to 90.00 | 1.00 / 2.00 | ≥ 15.00 met | 50% |",
        "| *limit: bare* | 40.00 records/s | 20.00 to 180 | | | |",
        "| | single | Arrow |",
        "|---|---:|---:|",
        "| parse | 3.00 | 4.00 |",
    ]
    assert "Other programs used 20%" in text


def test_documents_of_several_runs_are_shown_as_one(tmp_path: Path) -> None:
    point = Figure("at 1", 4, "s", "sample", points=(Point("backlog", "line", 1.0),))
    parts = {"read": summaries([figures(1), figures(2)]), "publish": summaries([[*figures(5), point]])}
    shown = {}
    for commands, (name, some) in zip(("read --runs 2", "publish"), parts.items(), strict=True):
        part = {"used_by_others": 0.01, "figures": [summary.document() for summary in some]}
        document = {"machine": machine(), "runs": 2, "commands": commands, "benchmarks": {name: part}}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
        shown[name] = markdown(name, BENCHMARKS[name][1], some, 0.01, ["backlog.svg"] if name == "publish" else [])
    arguments = [f"--from={tmp_path / name}.json" for name in parts]
    told = CliRunner().invoke(main, [*arguments, "--markdown", "--pictures", str(tmp_path)], catch_exceptions=False)
    # In the order of the benchmarks, whatever that of the documents is.
    assert told.stdout.startswith(f"# Figures\n\n{shown['publish']}\n{shown['read']}\n- ")
    assert 'make bench ARGS="read --runs 2"; make bench ARGS="publish"' in told.stdout
    assert (tmp_path / "backlog.svg").exists()


@pytest.mark.slow
def test_the_same_figures_are_the_same_picture(tmp_path: Path) -> None:
    # Drawing is the one thing here that needs matplotlib, which each worker would import to collect the others.
    from benchmarks.figures.pictures import CHARTS, draw

    summary = [
        Summary(Figure(f"{x}", x, "ms", points=(Point(chart, "line", x),)), x, x, None)
        for chart in CHARTS
        for x in (1, 9)
    ]
    for folder in ("once", "again"):
        assert [path.stem for path in draw(summary, tmp_path / folder)] == list(CHARTS)
    for path in (tmp_path / "once").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
        assert path.stat().st_size < 100_000


@pytest.mark.slow
def test_stages_of_a_real_server_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The servers and the load are children that find the benchmarks in the working directory.
    monkeypatch.chdir(TOP)
    values = {}
    for figure in stages(Bench(tmp_path, 0.3, quick=True)):
        assert figure.column.startswith("single")
        values[figure.label] = figure.value
        if figure.label == "all of it":
            break
    assert all(values[name] >= 0 for name in STAGES)
    assert values["parse the body"] > 0
    total = sum(values[name] for name in [*STAGES, REST])
    assert total == pytest.approx(values["all of it"])
