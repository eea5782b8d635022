"""Metrics of a cluster: one node is asked, and tells of all."""

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from cluster_rig import STEADY_MS, Nodes, cluster
from http_rig import NO_REDIS, Http
from secured_cluster_rig import secured_cluster

from siltlog.cli.main import run
from siltlog.infra import names
from siltlog.infra.metrics import catalogue
from siltlog.server.history.history import Past
from siltlog.server.history.others import ANSWER_SECONDS, Of, Wanted, _encoded, _past, put_together
from siltlog.server.history.sampling import Series
from siltlog.server_process import ServerProcess

PLACE = "/v1/metrics/history"
RATE, READY, LAG = (Series(metric.name) for metric in (catalogue.RECORDS, catalogue.READY, catalogue.TABLE_LAG_SECONDS))
P99 = Series(catalogue.ACK_SECONDS.name, "quantile", "0.99")
SOON_SECONDS = 80.0
SQL = """select cast(get_json_object(string(value), '$.values.node.silt_ready') as double) as ready
from _metrics where partition = 0 and string(key) = 'node-0' order by timestamp"""
MINUTES_SECONDS = 150.0


def past(**rows: list[float]) -> Past:
    series = {"rate": RATE, "ready": READY, "lag": LAG, "p99": P99}
    return Past(100, 10, [series[name] for name in rows], np.array(list(rows.values()), np.float32))


def test_rates_add_up_and_the_worst_of_what_does_not_counts() -> None:
    nan = float("nan")
    one = Of("a", past(rate=[1, nan, 3], p99=[0.5, nan, nan], ready=[1, 1, 1], lag=[7, 2, nan]))
    other = Of("b", past(rate=[10, nan, nan], p99=[0.1, 0.2, nan], ready=[1, 0, nan]))
    found = put_together([one, other])
    told = {one: values.tolist() for one, values in zip(found.series, found.values, strict=True)}
    assert told.keys() == {RATE, P99, READY, LAG}
    assert np.allclose(told[RATE], [11, nan, 3], equal_nan=True)
    assert np.allclose(told[P99], [0.5, 0.2, nan], equal_nan=True)
    assert np.allclose(told[READY], [1, 0, 1], equal_nan=True)
    assert np.allclose(told[LAG], [7, 2, nan], equal_nan=True)
    assert put_together([one]).values.tolist()[0][0] == pytest.approx(0.5)


def test_an_answer_of_another_node_is_read_as_it_was_written_or_refused() -> None:
    wanted = Wanted(("silt_ready",), (), 100, 10, 3)
    told = past(ready=[1, 0, 1], p99=[0.5, 0.25, 0.125])
    read = _past(wanted, _encoded(told))
    assert (read.first_seconds, read.step_seconds, list(read.series)) == (100, 10, told.series)
    assert read.values.tolist() == told.values.tolist()
    for body in (b"", b"{}", _encoded(past(ready=[1.0]))):
        with pytest.raises((msgspec.DecodeError, ValueError)):
            _past(wanted, body)


def history(http: Http, more: str = "", series: str = "silt_records_total,silt_ready") -> dict[str, Any]:
    reply = http.get(f"{PLACE}?series={series}{more}")
    assert reply.status == 200, reply
    found: dict[str, Any] = reply.json
    return found


def labels(found: dict[str, Any], name: str = "silt_records_total") -> list[dict[str, str]]:
    return [one["labels"] for one in found["series"] if one["name"] == name]


def publish_at_both(nodes: Nodes) -> None:
    for name, node in nodes.items():
        http = Http(node.url)
        http.create(f"of-{name}")
    nodes.until(lambda: {nodes.owner(f"of-{name}") for name in nodes} == set(nodes), "each owns one")
    end = time.monotonic() + SOON_SECONDS
    while len(labels(history(Http(nodes["n1"].url)))) < 3:
        for name, node in nodes.items():
            Http(node.url).publish(f"of-{name}", {"value": "v"})
        assert time.monotonic() < end
        time.sleep(0.2)


def whole(nodes: Nodes, more: str = "", series: str = "silt_records_total,silt_ready") -> dict[str, Any]:
    """What n1 tells of both, once the other answers it in time."""
    found: dict[str, Any] = {}

    def is_whole() -> bool:
        found.update(history(Http(nodes["n1"].url), more, series))
        return bool(found["complete"])

    nodes.until(is_whole, "the other answers in time")
    return found


@pytest.mark.slow
@pytest.mark.rule("MH4")
def test_any_node_tells_of_all_and_names_who_is_silent(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, lease_ms=STEADY_MS) as nodes:
        publish_at_both(nodes)
        http = Http(nodes["n1"].url)
        found = whole(nodes)
        assert (found["node"], found["nodes"], found["complete"], found["silent"]) == ("n1", ["n1", "n2"], True, [])
        assert labels(found) == [{}, {"topic": "of-n1"}, {"topic": "of-n2"}]
        this = history(http, "&nodes=this")
        assert (this["nodes"], this["complete"]) == (["n1"], True)
        mine = nodes.owner("of-n1")
        assert {"topic": "of-n1" if mine == "n1" else "of-n2"} in labels(this)
        assert len(labels(this)) == 2
        by_node = whole(nodes, "&by=node", "silt_ready")
        assert [one["labels"] for one in by_node["series"]] == [{"node": "n1"}, {"node": "n2"}]
        assert all(len(one["values"]) == len(by_node["times"]) for one in by_node["series"])
        nodes["n2"].pause()
        began = time.monotonic()
        found = history(http)
        took = time.monotonic() - began
        assert (found["nodes"], found["complete"]) == (["n1"], False)
        [silent] = found["silent"]
        assert silent["node"] == "n2"
        assert silent["reason"]
        assert took < ANSWER_SECONDS + 15
        nodes["n2"].resume()
        nodes.until(lambda: history(http)["complete"], "the other answers again")


@pytest.mark.slow
@pytest.mark.rule("MH4")
def test_a_caller_is_told_of_what_he_may_see_on_all_nodes(tmp_path: Path) -> None:
    with secured_cluster(tmp_path, 2) as secured:
        _, mine = secured.made_key("mine", ("consumer", "of-n1"))
        admin = secured.admin
        for name in secured.nodes:
            reply = admin.json("POST", "/v1/topics", {"name": f"of-{name}"})
            assert reply.status == 201, reply

        def seen(token: str | None, more: str = "") -> dict[str, Any]:
            reply = secured.at("n1", token).get(f"{PLACE}?series=silt_table_live_files{more}")
            assert reply.status == 200, reply
            found: dict[str, Any] = reply.json
            return found

        def are_sampled() -> bool:
            told = labels(seen(secured.token), "silt_table_live_files")
            return {"topic": "of-n1"} in told and {"topic": "of-n2"} in told

        secured.nodes.until(are_sampled, "both are sampled", SOON_SECONDS)
        secured.nodes.until(lambda: seen(mine)["complete"], "the other answers in time")
        found = seen(mine)
        assert labels(found, "silt_table_live_files") == [{"topic": "of-n1"}]
        assert (found["nodes"], found["silent"]) == ([], [])
        at = secured.at("n1", mine)
        assert at.get(f"{PLACE}?series=silt_ready&by=node").status == 403
        assert at.call("POST", "/peers/history", b"{}").status == 404, "nodes alone ask each other so"
        # Whoever asks it next has to connect, and waits to be greeted.
        secured.end_peers()
        secured.nodes["n2"].pause()
        began = time.monotonic()
        assert (seen(mine)["complete"], seen(mine)["silent"]) == (False, [])
        assert time.monotonic() - began < 2 * ANSWER_SECONDS + 15
        assert [each["node"] for each in seen(secured.token)["silent"]] == ["n2"]
        secured.nodes["n2"].resume()


@pytest.mark.rule("MH1")
@pytest.mark.slow
def test_what_was_measured_outlives_servers_that_are_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is alone, and one of a cluster; records come each minute, so both wait at once."""
    alone = ServerProcess(tmp_path / "alone", {"redis_url": NO_REDIS, "metrics_history": "topic"})
    with cluster(tmp_path / "cluster", 2, lease_ms=10_000, metrics_history="topic") as nodes:
        try:
            alone.start()
            http, n1 = Http(alone.url), Http(nodes["n1"].url)
            nodes.until(lambda: recorded(http).keys() == {"node-0"}, "a record of the lone server", MINUTES_SECONDS)
            nodes_recorded: dict[str, str] = {}

            def both_have() -> bool:
                nodes_recorded.update(recorded(n1))
                return nodes_recorded.keys() == {"n1", "n2"}

            nodes.until(both_have, "records of both nodes", MINUTES_SECONDS)
            topic = http.get(f"/v1/topics/{names.METRICS_TOPIC}").json
            assert topic["partitions"] == 2
            assert topic["config"]["flush.ms"]["value"] == 600_000
            assert topic["config"]["retention.ms"]["value"] == 30 * 86_400_000
            refused = http.publish(names.METRICS_TOPIC, {"value": "v"})
            assert refused.status == 403, "only the server writes it"
            minutes = recorded(http)["node-0"], nodes_recorded["n1"]
            alone.kill()
            nodes["n1"].kill()
            alone.start()
            nodes["n1"].start()
            for url, minute in zip((alone.url, nodes["n1"].url), minutes, strict=True):
                told = partial(told_at, Http(url), minute)
                nodes.until(told, "the minute before the kill is told", SOON_SECONDS)
            alone.stop()
            assert run(["query", "--data-dir", str(alone.data_dir), "--output", "json", SQL]) == 0
            rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert rows[0] == {"ready": 1.0}
        finally:
            alone.stop()


def recorded(http: Http) -> dict[str, str]:
    """A minute that each node has recorded."""
    reply = http.get(f"/v1/topics/{names.METRICS_TOPIC}/partitions/0/records?offset=0&values=text")
    return {each["key"]: each["timestamp"] for each in reply.json["records"]} if reply.status == 200 else {}


def told_at(http: Http, minute: str) -> bool:
    found = history(http, "&nodes=this", "silt_ready")
    return any(
        value is not None and at[:16] == minute[:16]
        for one in found["series"]
        for at, value in zip(found["times"], one["values"], strict=True)
    )
