"""The page of the cluster in a real browser: at one server, and at three nodes over one root."""

import re
from pathlib import Path
from typing import Any

import pytest
from browser import needs_chromium, opened
from cluster_rig import STEADY_MS, Nodes, cluster
from http_rig import Http

from siltlog.testing import running_server

pytestmark = [pytest.mark.client, pytest.mark.timeout(400), needs_chromium]
LEASE_MS = 8_000
"""Longer than a busy machine lets a node wait: who is killed alone is away."""


def row_of(at: Any, region: str, name: str) -> Any:
    """The row of a table whose first cell begins with a name."""
    return at.get_by_role("region", name=region, exact=True).locator("tbody tr").filter(has_text=name).first


def listed(nodes: Nodes, name: str, asked: str = "n1") -> dict[str, Any]:
    found = Http(nodes[asked].url).get("/v1/nodes").json["nodes"]
    return next((dict(each) for each in found if each["id"] == name), {})


def test_one_server_says_what_a_cluster_would_give_and_drains(browser: Any) -> None:
    with running_server(flush_ms=100, auto_create_partitions=1) as server, opened(browser, server) as page:
        http = Http(server.url)
        at = page.go("cluster")
        page.shows("This server is alone")
        [node] = http.get("/v1/nodes").json["nodes"]
        row = row_of(at, "Nodes", node["id"])
        row.get_by_text("answers now").wait_for()
        said = row.inner_text()
        assert node["url"] in said and http.get("/v1/cluster").json["version"] in said
        assert row.locator("meter").count() == 2
        facts = at.locator("dl.facts")
        facts.get_by_text(re.compile("^. ready$")).wait_for()
        facts.get_by_text(re.compile("^. answers$")).wait_for()
        facts.get_by_text("as this browser's").wait_for()
        row.get_by_role("button", name="Drain …").click()
        at.get_by_role("dialog").get_by_role("button", name="Drain", exact=True).click()
        row.get_by_text("it can be stopped").wait_for()
        assert http.get("/v1/drain").json["draining"] is True
        assert http.publish("t", {"value": "v"}).error_code == "shutting_down"
        facts.get_by_text("not ready").wait_for()
        row.get_by_role("button", name="Take publishes again").click()
        row.get_by_role("button", name="Drain …").wait_for()
        assert http.publish("t", {"value": "v"}).status == 200
        server.kill()
        page.shows("The server is not reached.")
        server.start()
        at.get_by_text("The server is not reached.").first.wait_for(state="detached")
        row.get_by_role("button", name="Drain …").wait_for()


def test_three_nodes_are_shown_moved_drained_and_removed(browser: Any, tmp_path: Path) -> None:
    with cluster(tmp_path, 3, lease_ms=LEASE_MS) as nodes:
        http = Http(nodes["n1"].url)
        for number in range(6):
            http.create(f"t{number}")
        nodes.until(lambda: all(nodes.owner(f"t{number}") for number in range(6)), "somebody owns each topic")
        with opened(browser, nodes["n1"].server) as page:
            at = page.go("cluster")
            at.get_by_role("heading", name="3 nodes").wait_for()
            for name in nodes:
                row_of(at, "Nodes", name).get_by_text("answers now").wait_for()
                assert listed(nodes, name)["url"] in row_of(at, "Nodes", name).inner_text()
                assert str(listed(nodes, name)["version"]) in row_of(at, "Nodes", name).inner_text()
            # A topic moves where it is told to.
            owner = nodes.owner("t0")
            other = next(name for name in nodes if name != owner)
            moving = row_of(at, "Topics and their owners", "t0")
            moving.get_by_text(owner).wait_for()
            moving.get_by_role("button", name="Move …").click()
            at.get_by_role("dialog").get_by_label("To").select_option(other)
            at.get_by_role("dialog").get_by_role("button", name="Move", exact=True).click()
            moving.get_by_text(other).wait_for()
            nodes.until(lambda: nodes.owner("t0") == other, "t0 moved")
            # What would move is told before it does.
            at.get_by_role("button", name="Balance …").click()
            moves = (
                at.get_by_role("dialog")
                .get_by_text("even already")
                .or_(at.get_by_role("dialog").get_by_role("region", name="What moves"))
            )
            moves.first.wait_for()
            at.keyboard.press("Escape")
            # A node that drains hands over all.
            row_of(at, "Nodes", "n3").get_by_role("button", name="Drain …").click()
            at.get_by_role("dialog").get_by_role("button", name="Drain", exact=True).click()
            row_of(at, "Nodes", "n3").get_by_text("has nothing left").wait_for()
            assert (listed(nodes, "n3")["state"], listed(nodes, "n3")["topics"]) == ("draining", 0)
            # One that is gone is taken out of the list.
            nodes["n3"].kill()
            row_of(at, "Nodes", "n3").get_by_text("away").wait_for()
            row_of(at, "Nodes", "n3").get_by_role("button", name="Remove …").click()
            at.get_by_label("Type n3 to go on").fill("n3")
            at.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
            at.get_by_role("heading", name="2 nodes").wait_for()
            assert listed(nodes, "n3") == {}


def test_a_topic_that_waits_for_a_lost_disk_is_abandoned(browser: Any, tmp_path: Path) -> None:
    with cluster(tmp_path, 2, flush_ms=3_600_000, lease_ms=LEASE_MS) as nodes:
        http = Http(nodes["n1"].url)
        http.create("waits", acks="wal")
        nodes.until(lambda: nodes.owner("waits"), "somebody owns it")
        if nodes.owner("waits") != "n2":
            http.json("POST", "/v1/topics/waits/move", {"node": "n2"})
            nodes.until(lambda: nodes.owner("waits") == "n2", "n2 owns it")
        nodes.until(lambda: http.publish("waits", {"value": "lost"}).status == 200, "it takes records")
        nodes["n2"].kill()
        with opened(browser, nodes["n1"].server) as page:
            at = page.go("cluster")
            waiting = at.get_by_label("Topics that wait", exact=True).first
            waiting.get_by_role("link", name="waits").wait_for()
            assert "n2" in waiting.inner_text()
            assert listed(nodes, "n2")["awaited_by"] == ["waits"]
            removing = row_of(at, "Nodes", "n2").get_by_role("button", name="Remove …")
            assert "waits for what only its disk has" in removing.inner_text()
            waiting.get_by_role("button", name="Abandon …").click()
            at.get_by_text("What it costs.").wait_for()
            at.get_by_label("Type waits to go on").fill("waits")
            at.get_by_role("dialog").get_by_role("button", name="Abandon", exact=True).click()
            waiting.wait_for(state="detached")
            nodes.until(lambda: nodes.owner("waits") == "n1", "n1 owns it")
            nodes.until(lambda: http.publish("waits", {"value": "after"}).status == 200, "it takes records again")


def test_silent_nodes_are_named_beside_the_metrics(browser: Any, tmp_path: Path) -> None:
    with cluster(tmp_path, 2, lease_ms=STEADY_MS) as nodes, opened(browser, nodes["n1"].server) as page:
        at = page.go("metrics?range=5m")
        at.get_by_role("figure").first.wait_for()
        nodes["n2"].pause()
        at.get_by_text("is silent, and not in these figures").wait_for()
        assert "n2" in at.locator(".needs").inner_text()
