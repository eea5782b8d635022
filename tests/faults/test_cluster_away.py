"""A topic whose acknowledged records are on one disk: it waits for its node, and meanwhile its table is read."""

import json
from pathlib import Path
from typing import Any

import pytest
from cluster_rig import cluster
from publishers import Reply, Wire

from siltlog.cli.main import run
from siltlog.infra.records import OFFSET_JUMP

LEASE_MS = 8_000
"""Longer than a busy machine lets a node wait: who is killed alone is away."""


@pytest.mark.slow
def test_what_is_acknowledged_in_a_cluster_is_not_left_to_one_disk_later(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, lease_ms=LEASE_MS) as nodes:
        for acks in ("table", "object"):
            nodes["n1"].wire.create(acks, 1, acks=acks)
            changed = nodes["n2"].wire.call("PATCH", f"/v1/topics/{acks}", {"config": {"acks": "wal"}})
            assert (changed.status, changed.document["error_code"]) == (422, "invalid_config")
            assert "chosen when a topic is made" in changed.document["detail"]


@pytest.mark.slow
@pytest.mark.rule("CO3")
def test_a_topic_at_wal_waits_for_its_node_and_is_read_meanwhile(tmp_path: Path) -> None:
    with cluster(tmp_path, 3, flush_ms=600_000, lease_ms=LEASE_MS) as nodes:
        nodes["n1"].wire.create("t", 1, acks="wal")
        nodes["n1"].wire.call("POST", "/v1/topics/t/records?acks=table", {"records": [{"value": "in the table"}]})
        said = nodes["n2"].wire.call("POST", "/v1/topics/t/records", {"records": [{"value": "on the disk"}]})
        assert (said.status, said.document["acks"]) == (200, "wal")
        owner = nodes.owner("t")
        others = [node.wire for name, node in nodes.items() if name != owner]
        nodes[owner].kill()

        def away() -> bool:
            said = [
                w.call("POST", "/v1/topics/t/records?timeout_ms=1000", {"records": [{"value": "x"}]}) for w in others
            ]
            return all(
                reply.status == 503
                and (reply.document["error_code"], reply.document.get("node")) == ("owner_away", owner)
                for reply in said
            )

        nodes.until(away, "both say which node has the records")
        for wire in others:
            assert wire.call("GET", "/v1/topics/t").status == 200
            read = wire.call("GET", "/v1/topics/t/partitions/0/records?offset=0")
            assert [record["value"] for record in read.document["records"]] == ["in the table"]
            for offset in (1, 2):
                above = wire.call("GET", f"/v1/topics/t/partitions/0/records?offset={offset}")
                assert (above.status, above.document["records"]) == (200, [])
        nodes[owner].start()
        nodes.until(
            lambda: others[0].call("POST", "/v1/topics/t/records", {"records": [{"value": "again"}]}).status == 200,
            "it goes on where it was",
        )

        def read() -> list[str]:
            found = others[1].call("GET", "/v1/topics/t/partitions/0/records?offset=0").document
            return [record["value"] for record in found["records"]]

        # A node that has been told of a bound may answer with what lies below that.
        nodes.until(lambda: len(read()) == 3, "the other hears of all of it")
        assert read() == ["in the table", "on the disk", "again"]


@pytest.mark.slow
@pytest.mark.rule("CO13")
def test_what_only_a_lost_disk_has_is_given_up_by_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records, read_path = "/v1/topics/t/records", "/v1/topics/t/partitions/0/records?offset="
    with cluster(tmp_path, 3, flush_ms=600_000, lease_ms=LEASE_MS) as nodes:
        nodes["n1"].wire.create("t", 1, acks="wal")

        def publish(wire: Wire, value: str, sequence: int, acks: str = "wal") -> Reply:
            sent = {"records": [{"value": value, "partition": 0, "sequence": sequence}]}
            return wire.call("POST", f"{records}?acks={acks}", sent, Silt_Producer_Id="p")

        assert publish(nodes["n1"].wire, "in the table", 0, "table").status == 200
        assert publish(nodes["n2"].wire, "on the disk", 1).status == 200
        owner = nodes.owner("t")
        others = [node.wire for name, node in nodes.items() if name != owner]
        early = others[0].call("POST", "/v1/topics/t/abandon")
        assert (early.status, "nothing to give up" in early.document["detail"]) == (422, True)
        nodes[owner].kill()

        def told(wire: Wire) -> bool:
            said = wire.call("POST", f"{records}?timeout_ms=1000", {"records": [{"value": "x"}]})
            return said.error_code == "owner_away" and "silt topic abandon t" in said.document["detail"]

        nodes.until(lambda: all(map(told, others)), "they say what may be done")
        capsys.readouterr()
        assert run(["topic", "abandon", "t", "--url", others[1].url]) != 0, "it asks first"
        assert "--yes" in capsys.readouterr().err
        assert run(["topic", "abandon", "t", "--yes", "--url", others[1].url]) == 0
        assert f"node {owner}: away since" in capsys.readouterr().err
        # What the producer goes on with is refused: it is told that a record of it is lost.
        nodes.until(lambda: publish(others[0], "later", 2).error_code == "out_of_order_sequence", "it goes on")
        known = others[1].call("GET", "/v1/topics/t/producers/p").document
        assert known["partitions"][0]["next_sequence"] == 1
        again = publish(others[1], "again", 1, "table")
        assert (again.status, again.document["partitions"][0]["first_offset"]) == (200, OFFSET_JUMP)
        for offset, values in ((0, ["in the table", "again"]), (2, ["again"])):
            found: list[str] = []
            at = offset
            while len(found) < len(values):
                read = others[0].call("GET", f"{read_path}{at}").document
                found += [record["value"] for record in read["records"]]
                assert read["next_offset"] > at
                at = read["next_offset"]
            assert found == values
        nodes[owner].start()
        wire = nodes[owner].wire
        assert publish(wire, "anew", 2, "table").document["partitions"][0]["first_offset"] == OFFSET_JUMP + 1
        assert nodes.owner("t") not in ("", owner)

        def stranded(command: str, *arguments: str) -> list[dict[str, Any]]:
            capsys.readouterr()
            assert run(["stranded", command, *arguments, "--root", nodes.root, "--output", "json"]) == 0
            (found,) = [said for said in json.loads(capsys.readouterr().out).values() if isinstance(said, list)]
            return found  # type: ignore[no-any-return]

        nodes.until(lambda: stranded("list"), "what it had is set aside")
        nodes[owner].kill()
        (sent,) = stranded("publish", "--all", "--acks", "table", "--url", others[0].url)
        assert (sent["topic"], sent["count"]) == ("t", 1)
        (listed,) = stranded("list")
        assert (listed["first_offset"], listed["records"], listed["published_to"]) == (1, 1, "t")
        end = others[0].call("GET", f"{read_path}{OFFSET_JUMP + 2}").document
        assert [record["value"] for record in end["records"]] == ["on the disk"]
        late = others[0].call("POST", "/v1/topics/t/abandon")
        assert (late.status, "nothing to give up" in late.document["detail"]) == (422, True)
