"""Lists of topics and groups in the order of what is in memory, of real servers."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from access_rig import secured_server
from http_rig import Http

from siltlog import Admin
from siltlog.cli.main import run
from siltlog.testing import running_server

SOON_SECONDS = 60.0


@pytest.fixture(scope="module")
def http() -> Iterator[Http]:
    with running_server(flush_ms=50, flush_files_per_hour=-1, offsets_snapshot_ms=50) as server:
        http = Http(server.url)
        for number in range(7):
            http.create(f"t{number}")
            http.publish(f"t{number}", *({"value": "v" * number} for _ in range(number + 1)))
        http.create("empty")
        for group, offsets in {"ahead": (("t6", 7),), "behind": (("t6", 1), ("t5", 0)), "other": (("t1", 0),)}.items():
            committed = [{"topic": topic, "partition": 0, "offset": offset} for topic, offset in offsets]
            assert http.json("PUT", f"/v1/groups/{group}/offsets", {"offsets": committed}).status == 204
        end = time.monotonic() + SOON_SECONDS
        while [one["lag"] for one in groups(http, "sort=lag")] != [12, 2, 0]:
            assert time.monotonic() < end
            time.sleep(0.05)
        yield http


def topics(http: Http, query: str) -> list[dict[str, Any]]:
    reply = http.get(f"/v1/topics?{query}")
    assert reply.status == 200, reply
    found: list[dict[str, Any]] = reply.json["topics"]
    return found


def groups(http: Http, query: str) -> list[dict[str, Any]]:
    reply = http.get(f"/v1/groups?{query}")
    assert reply.status == 200, reply
    found: list[dict[str, Any]] = reply.json["groups"]
    return found


def test_topics_are_ranked_and_described(http: Http) -> None:
    found = topics(http, "sort=records&prefix=t")
    assert [one["name"] for one in found] == [f"t{number}" for number in reversed(range(7))]
    assert [(one["records"], one["sort_value"]) for one in found] == [(n, n) for n in reversed(range(1, 8))]
    assert found[0].keys() - {"sort_value"} == http.get("/v1/topics/t6").json.keys()
    assert topics(http, "sort=records&order=asc")[0]["name"] in ("_jobs", "empty")
    for sort in ("bytes", "files", "rate"):
        values = [one["sort_value"] for one in topics(http, f"sort={sort}")]
        assert values == sorted(values, reverse=True)
    assert [(one["name"], one["sort_value"]) for one in topics(http, "sort=lag&limit=4")][:3] == [
        *(("t5", 6), ("t6", 6)),
        ("t1", 2),
    ]
    names = [one["name"] for one in topics(http, "sort=name&order=desc")]
    assert names == sorted(names, reverse=True)
    end = time.monotonic() + SOON_SECONDS
    # Files may come between the two.
    while topics(http, "sort=name") != topics(http, ""):
        assert time.monotonic() < end


def test_what_is_published_to_rises(http: Http) -> None:
    end = time.monotonic() + SOON_SECONDS
    while (first := topics(http, "sort=rate&limit=1")[0])["name"] != "t0" or not first["sort_value"]:
        http.publish("t0", *({"value": "v"} for _ in range(50)))
        assert time.monotonic() < end


def test_pages_of_a_ranking_have_each_once(http: Http) -> None:
    end = time.monotonic() + SOON_SECONDS
    # A file that comes between two pages, or is counted then, would move its topic from the one to the other.
    while any(
        one["sort_value"] != one["files"] or one["offsets"][0]["table_offset"] < one["offsets"][0]["high_watermark"]
        for one in topics(http, "sort=files&prefix=t")
    ):
        assert time.monotonic() < end
    for query in ("sort=files", "sort=lag&order=asc", "sort=name&order=desc"):
        found: list[str] = []
        after = ""
        while True:
            reply = http.get(f"/v1/topics?{query}&prefix=t&limit=2&after={after}").json
            found += [one["name"] for one in reply["topics"]]
            if (after := reply["next"]) is None:
                break
        assert sorted(found) == sorted(one["name"] for one in topics(http, "prefix=t&limit=1000"))
    refused = http.get("/v1/topics?sort=rate&after=t1")
    assert (refused.status, refused.json["parameter"]) == (400, "after")
    assert http.get("/v1/topics?sort=size").json["parameter"] == "sort"
    assert http.get("/v1/groups?order=up").json["parameter"] == "order"


def test_groups_are_ranked_and_those_of_a_topic_found(http: Http) -> None:
    assert [(one["group"], one["lag"], one["topics"]) for one in groups(http, "sort=lag")] == [
        ("behind", 12, ["t5", "t6"]),
        ("other", 2, ["t1"]),
        ("ahead", 0, ["t6"]),
    ]
    assert [(one["group"], one["lag"]) for one in groups(http, "topic=t6")] == [("ahead", 0), ("behind", 6)]
    assert [one["group"] for one in groups(http, "topic=t6&sort=lag&limit=1")] == ["behind"]
    assert groups(http, "topic=none") == []
    assert http.json("PUT", "/v1/groups/other/members/m", {"generation": 0, "topics": ["t1"]}).status == 200
    first = groups(http, "sort=members&limit=1")[0]
    assert (first["group"], first["members"]) == ("other", 1)
    assert "lag" not in groups(http, "")[0]


def test_the_client_and_the_commands_rank(http: Http, capsys: pytest.CaptureFixture[str]) -> None:
    with Admin(http.url) as admin:
        records = [one["records"] for one in admin.topics("t", sort="records", order="desc")]
        assert (len(records), records) == (7, sorted(records, reverse=True))
        assert [one["group"] for one in admin.groups(topic="t6", sort="lag")] == ["behind", "ahead"]
    assert run(["topic", "list", "--sort", "lag", "--url", http.url]) == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "LAG"
    assert first.split()[-1] == "6"
    assert run(["group", "list", "--topic", "t6", "--sort", "lag", "--url", http.url, "--output", "json"]) == 0
    assert [one["group"] for one in json.loads(capsys.readouterr().out)["groups"]] == ["behind", "ahead"]


def test_a_ranking_has_what_may_be_described_alone() -> None:
    with secured_server(flush_ms=50, redis_url="", offsets_snapshot_ms=50) as server:
        for topic in ("mine-1", "mine-2", "other-1"):
            server.admin.create(topic)
            server.admin.publish(topic, {"value": "v"})
        committed = [{"topic": topic, "partition": 0, "offset": 0} for topic in ("mine-1", "other-1")]
        assert server.admin.json("PUT", "/v1/groups/mine-g/offsets", {"offsets": committed}).status == 204
        assert server.admin.json("PUT", "/v1/groups/other-g/offsets", {"offsets": committed}).status == 204
        _, mine = server.key("mine", ("viewer", "mine-"))
        assert [one["name"] for one in topics(mine, "sort=records&limit=2")] == ["mine-1", "mine-2"]
        end = time.monotonic() + SOON_SECONDS
        while not (found := groups(mine, "sort=lag"))[0]["topics"]:
            assert time.monotonic() < end
        assert [(one["group"], one["lag"], one["topics"]) for one in found] == [("mine-g", 1, ["mine-1"])]
        assert mine.get("/v1/groups?topic=other-1").status == 403
