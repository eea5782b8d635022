"""A topic whose acknowledged records are on one disk: it waits for its node, and meanwhile its table is read."""

from pathlib import Path

import pytest
from cluster_rig import cluster


@pytest.mark.slow
def test_what_is_acknowledged_in_a_cluster_is_not_left_to_one_disk_later(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as nodes:
        for acks in ("table", "object"):
            nodes["n1"].wire.create(acks, 1, acks=acks)
            changed = nodes["n2"].wire.call("PATCH", f"/v1/topics/{acks}", {"config": {"acks": "wal"}})
            assert (changed.status, changed.document["error_code"]) == (422, "invalid_config")
            assert "chosen when a topic is made" in changed.document["detail"]


@pytest.mark.slow
@pytest.mark.rule("CO3")
def test_a_topic_at_wal_waits_for_its_node_and_is_read_meanwhile(tmp_path: Path) -> None:
    with cluster(tmp_path, 3, flush_ms=600_000) as nodes:
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
        read = others[1].call("GET", "/v1/topics/t/partitions/0/records?offset=0")
        assert [record["value"] for record in read.document["records"]] == ["in the table", "on the disk", "again"]
