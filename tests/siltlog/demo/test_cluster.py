"""The demo on three nodes, small: real processes, two of which lose their disks; and its book-keeping."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import interrupted
from rich.console import Console

from siltlog.cli.main import run as silt
from siltlog.demo.cluster import run as acts
from siltlog.demo.cluster.account import Books, account
from siltlog.demo.cluster.nodes import NODE_IDS, Nodes
from siltlog.demo.cluster.result import ClusterResult, Loss
from siltlog.demo.cluster.run import ClusterPlan
from siltlog.demo.cluster.summary import summary
from siltlog.demo.cluster.table import rows
from siltlog.demo.data import flights, flights_by_airport
from siltlog.demo.ledger import Ledger
from siltlog.demo.stage import Stage
from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError

RECORDS = 3_000


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_three_nodes_of_which_two_lose_their_disks(
    tmp_path: Path,
    processes_in: Callable[[Path], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = SystemClock()
    console = Console(width=400, record=True, file=(tmp_path / "stage").open("w"))
    plan = ClusterPlan(tmp_path / "demo", RECORDS, steady_s=2.0, lease_ms=5_000, heartbeat_ms=1_500)
    result = acts.run(plan, Stage(console, clock), clock)
    console.print(summary(result))
    seen = console.export_text()
    assert result.ok, [check for check in result.checks if not check.ok]
    assert (result.published, result.acknowledged, result.read, result.rows) == (RECORDS,) * 4
    owner, controller = result.losses
    assert owner.node != controller.node
    busiest = max(result.topics, key=lambda topic: result.topics[topic])
    assert busiest in owner.owned
    assert (owner.was, controller.was) == ("owner", "controller")
    assert 0 < owner.acknowledged < controller.acknowledged < RECORDS
    for loss, waits in zip(result.losses, result.waits_s, strict=True):
        assert loss.node not in (loss.controller, *loss.taken_by.values())
        # Nobody takes a topic over before a beat is late by half; the last one was before the kill.
        assert max(waits.values()) > plan.heartbeat_ms / 2 / 1000
        assert f"rm -r {loss.node}" in seen
    assert set(result.owners) == set(NODE_IDS)
    assert all(result.owners.values())
    assert f"{RECORDS:,} in the tables" in seen
    assert all((plan.data_dir / node / names.WAL_FOLDER).exists() for node in NODE_IDS)
    document = result.document()
    assert (document["ok"], document["losses"][0]["taken_by"]) == (True, owner.taken_by)
    assert len(Ledger.concat([rows(plan.data_dir / names.LAKE_FOLDER, topic) for topic in result.topics])) == RECORDS
    assert processes_in(tmp_path) == []
    (line,) = [line.strip() for line in seen.splitlines() if " silt query " in line]
    place, _, command = line.partition(" silt ")
    monkeypatch.setenv(*place.split("="))
    capsys.readouterr()
    assert silt([*shlex.split(command), "--output", "json"]) == 0
    counted = [json.loads(row)["flights"] for row in capsys.readouterr().out.splitlines()]
    assert sum(counted) == result.topics[busiest]


@pytest.mark.slow
def test_an_interrupt_leaves_no_node(tmp_path: Path, processes_in: Callable[[Path], list[str]]) -> None:
    arguments = ["demo", "--cluster", "--records", "5000", "--data-dir", str(tmp_path / "demo")]
    status, told, rest = interrupted(arguments, "kill -9")
    assert (status, told) == (130, "")
    assert "Traceback" not in rest
    assert processes_in(tmp_path) == []


@pytest.mark.parametrize(("ok", "status"), [(True, 0), (False, 1)])
def test_the_exit_code_says_whether_every_check_held(
    ok: bool, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(plan: ClusterPlan, *_: Any) -> ClusterResult:
        loss = Loss("n2", "owner", ("flights.EWR",), 700, 3, 1.0, 6.25, {"flights.EWR": "n3"}, "n1")
        result = ClusterResult(plan.records, {"flights.EWR": plan.records}, [], plan.data_dir, losses=[loss])
        result.waits_s.append({"flights.EWR": 5.25, "flights.JFK": 0.125})
        result.check("nothing lost", ok, "3 acknowledged and never read")
        return result

    monkeypatch.setattr(acts, "run", play)
    command = ["demo", "--cluster", "--records", "2000", "--data-dir", str(tmp_path / "demo")]
    assert silt(command) == status
    said = capsys.readouterr().out
    assert ("✗ nothing lost" in said) is not ok
    assert "flights.EWR by n3" in said
    assert silt([*command, "--output", "json"]) == status
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["records"], document["losses"][0]["seconds"]) == (ok, 2000, 5.25)


def ledger(places: list[tuple[int, int]], hashes: list[int] | None = None) -> Ledger:
    columns = np.array(places, dtype=np.int64).reshape(-1, 2)
    return Ledger(columns[:, 0], columns[:, 1], np.array(hashes or [hash(place) for place in places], dtype=np.int64))


def failed(books: Books, published: int) -> set[str]:
    result = ClusterResult(published, {}, [], Path(), published=published)
    account(books, result)
    return {check.name for check in result.checks if not check.ok}


@given(st.integers(2, 30), st.data())
def test_whatever_is_missing_doubled_or_altered_is_noticed(count: int, data: st.DataObject) -> None:
    places = [(number % 3, number // 3) for number in range(count)]
    at = data.draw(st.integers(0, count - 1))
    whole, less = ledger(places), ledger(places[:at] + places[at + 1 :])
    hashes = [hash(place) for place in places]
    hashes[at] += 1
    other = ledger(places, hashes)
    more = ledger([*places, places[at]])
    unknown = ledger([*places, (7, 7)])
    assert failed(Books(whole, [whole], [whole], whole), count) == set()
    assert failed(Books(whole, [whole], [more], whole), count) == set(), "a group delivers at least once"
    counts = "published = acknowledged = read"
    assert failed(Books(whole, [whole], [less], whole), count) == {counts, "nothing lost"}
    assert failed(Books(whole, [whole], [whole], less), count) == {"nothing lost", "nothing doubled"}
    assert failed(Books(whole, [whole], [whole], more), count) == {"nothing doubled"}
    assert failed(Books(whole, [whole], [whole], unknown), count) == {"nothing doubled"}
    assert failed(Books(whole, [whole], [unknown], whole), count) == {counts, "nothing doubled"}
    assert failed(Books(whole, [whole], [other], whole), count) == {"unchanged"}
    assert failed(Books(whole, [whole], [whole], other), count) == {"unchanged"}
    assert failed(Books(whole, [whole], [whole], whole, ["reader-1: it ended"]), count) == {counts}
    # An offset that was acknowledged for two records.
    twice = ledger([*places[:-1], places[0]])
    assert "nothing doubled" in failed(Books(twice, [], [whole], whole), count)


def test_order_is_that_of_the_producer_and_of_each_reader() -> None:
    rising, back = ledger([(0, 0), (0, 1), (0, 2)]), ledger([(0, 1), (0, 0), (0, 2)])
    again = ledger([(0, 0), (0, 1), (0, 0), (0, 1), (0, 2)])
    assert failed(Books(rising, [rising], [again], rising), 3) == set(), "delivered again, in order"
    assert failed(Books(rising, [back], [rising], rising), 3) == {"in order"}
    assert failed(Books(rising, [rising], [back], rising), 3) == {"in order"}


def test_the_airports_share_all_flights_and_the_busiest_is_first() -> None:
    parts = flights_by_airport(RECORDS)
    counts = [len(part) for part in parts.values()]
    assert set(parts) == {"EWR", "JFK", "LGA"}
    assert (sum(counts), counts) == (RECORDS, sorted(counts, reverse=True))
    assert sorted(value for part in parts.values() for value in part.values) == sorted(flights(RECORDS).values)


def test_ports_are_of_the_demo_s_own(tmp_path: Path) -> None:
    free = Nodes(tmp_path, 0, 5_000, 1_500, SystemClock()).urls
    assert len(set(free)) == 3
    assert Nodes(tmp_path, 7_000, 5_000, 1_500, SystemClock()).urls[2] == "http://127.0.0.1:7002"
    with pytest.raises(ConfigError, match="--port 65534"):
        Nodes(tmp_path, 65_534, 5_000, 1_500, SystemClock())
