"""Dead letters that are listed and discarded, from a real server."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from access_rig import secured_server
from cluster_rig import cluster
from http_rig import Http, Reply
from letters_rig import Member, filled

from siltlog.server_process import ServerProcess
from siltlog.testing import running_server


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=50) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Http:
    return Http(server.url)


def buried(http: Http, topic: str, count: int = 6, partitions: int = 1, group: str = "") -> Member:
    """Every record of a new topic becomes a dead letter."""
    filled(http, topic, partitions, count)
    member = Member(http, group or topic, topic)
    for offset in range(count):
        for partition in range(partitions):
            member.bury(offset, partition)
    return member


def discard(http: Http, topic: str, *offsets: int, partition: int = 0, **more: Any) -> Reply:
    named = [{"partition": partition, "offset": offset} for offset in offsets]
    return http.json("POST", f"/v1/topics/{topic}/dlq/discard", {"offsets": named, **more})


def span(partition: int, first: int, last: int) -> dict[str, int]:
    return {"partition": partition, "first_offset": first, "last_offset": last}


def page(http: Http, topic: str, query: str = "") -> dict[str, Any]:
    reply = http.get(f"/v1/topics/{topic}/dlq?{query}")
    assert reply.status == 200, reply
    document: dict[str, Any] = reply.json
    return document


def listed(http: Http, topic: str, query: str = "limit=1000") -> list[tuple[int, int]]:
    """Partition and offset of the letters of all pages."""
    found: list[tuple[int, int]] = []
    after = ""
    while True:
        one = page(http, topic, query + after)
        found += [(letter["partition"], letter["offset"]) for letter in one["dead_letters"]]
        if one["next"] is None:
            return found
        after = f"&after={one['next']}"


def bounds(http: Http, topic: str, partition: int = 0) -> tuple[int, int]:
    """The log start and the end of its dead letters."""
    entry = http.get(f"/v1/topics/{topic}.dlq/offsets").json["partitions"][partition]
    return entry["log_start_offset"], entry["high_watermark"]


def test_a_letter_is_listed_as_a_read_gives_it_with_what_is_said_about_it(http: Http) -> None:
    buried(http, "shown", 2)
    read = http.read("shown.dlq", query="values=text")
    found = page(http, "shown")
    assert (found["topic"], found["count"], found["next"]) == ("shown", 2, None)
    said = [letter.pop("dead_letter") for letter in found["dead_letters"]]
    assert found["dead_letters"] == read[::-1]
    assert said[0].pop("failed_at").startswith("20")
    assert said[0] == {
        "topic": "shown",
        "partition": 0,
        "offset": 1,
        "timestamp": "2023-11-14T22:13:20.001000Z",
        "group": "shown",
        "attempts": 0,
        "error": "ValueError: no",
    }


def test_the_newest_comes_first_page_by_page_and_what_comes_meanwhile_is_not_between(http: Http) -> None:
    filled(http, "pages", partitions=3, records=20)
    member = Member(http, "pages", "pages")
    order = [(partition, offset) for offset in range(9) for partition in (2, 0, 1)]
    for partition, offset in order:
        member.bury(offset, partition)
    for limit in (1, 2, 7, 1000):
        assert listed(http, "pages", f"limit={limit}") == order[::-1]
    first = page(http, "pages", "limit=5")
    member.bury(9, 0)
    after, found = first["next"], [(one["partition"], one["offset"]) for one in first["dead_letters"]]
    while after is not None:
        one = page(http, "pages", f"limit=4&after={after}")
        found += [(letter["partition"], letter["offset"]) for letter in one["dead_letters"]]
        after = one["next"]
    assert found == order[::-1]
    assert page(http, "pages", "limit=1")["dead_letters"][0]["offset"] == 9


def test_only_those_of_a_group(http: Http) -> None:
    buried(http, "groups", 3, group="one")
    Member(http, "two", "groups").bury(1)
    assert listed(http, "groups", "group=one&limit=2") == [(0, 2), (0, 1), (0, 0)]
    assert listed(http, "groups", "group=two") == [(0, 3)]
    assert page(http, "groups", "group=none") == {"topic": "groups", "dead_letters": [], "count": 4, "next": None}


def test_what_cannot_be_asked_for(http: Http) -> None:
    http.create("healthy")
    assert page(http, "healthy") == {"topic": "healthy", "dead_letters": [], "count": 0, "next": None}
    assert http.get("/v1/topics/nowhere/dlq").error_code == "unknown_topic"
    for query in ("after=x", "after=0:1,", "group=a/b", "limit=0", "values=x", "x=1"):
        refused = http.get(f"/v1/topics/healthy/dlq?{query}")
        assert (refused.status, refused.error_code) == (400, "invalid_parameter"), query


def test_what_is_discarded_is_not_listed_and_not_brought_back(http: Http) -> None:
    buried(http, "hidden", 5)
    done = discard(http, "hidden", 1, 3, reason="tests")
    assert done.status == 200, done
    starts = [{"partition": 0, "log_start_offset": 0}]
    assert done.json == {"topic": "hidden", "discarded": 2, "duplicates": 0, "partitions": starts}
    assert listed(http, "hidden") == [(0, 4), (0, 2), (0, 0)]
    assert page(http, "hidden")["count"] == 3
    # Who reads the topic itself sees a record without a value.
    marker = http.read("hidden.dlq")[5]
    assert (marker["key"], marker["value"]) == (None, None)
    assert [(one["key"], one["value"]) for one in marker["headers"]] == [
        ("silt.discarded", "1,3"),
        ("silt.partition", "0"),
        ("silt.reason", "tests"),
    ]
    replay = "/v1/topics/hidden/dlq/replay"
    for offset in (1, 5):
        named = {"replay_id": "named", "offsets": [{"partition": 0, "offset": offset}]}
        refused = http.json("POST", replay, named)
        assert (refused.status, refused.error_code) == (404, "not_found")
    assert http.json("POST", replay, {"replay_id": "all"}).json["replayed"] == 3
    assert [one["value"] for one in http.read("hidden", query="values=text")[5:]] == ["0:0", "0:2", "0:4"]


def test_the_log_start_follows_where_the_lowest_are_discarded(http: Http) -> None:
    member = buried(http, "lowest", 5)
    assert discard(http, "lowest", 1).json["partitions"] == [{"partition": 0, "log_start_offset": 0}]
    assert discard(http, "lowest", 0).json["partitions"] == [{"partition": 0, "log_start_offset": 2}]
    assert (bounds(http, "lowest"), listed(http, "lowest")) == ((2, 7), [(0, 4), (0, 3), (0, 2)])
    # The markers at 5 and 6 go as well once there is nothing left to be hidden by them.
    assert discard(http, "lowest", ranges=[span(0, 0, 4)]).json["discarded"] == 3
    assert (bounds(http, "lowest"), page(http, "lowest")["count"]) == ((8, 8), 0)
    assert member.call("dead_letters", 2, error="again").status == 422


def test_discarded_twice_replayed_before_and_deleted_before(http: Http) -> None:
    buried(http, "twice", 6)
    assert http.json("POST", "/v1/topics/twice/dlq/replay", {"replay_id": "r"}).json["replayed"] == 6
    assert discard(http, "twice", 4).json["discarded"] == 1
    end = bounds(http, "twice")
    again = discard(http, "twice", 4).json
    assert (again["discarded"], again["duplicates"], bounds(http, "twice")) == (0, 1, end)
    assert http.call("DELETE", "/v1/topics/twice.dlq/partitions/0/records?before_offset=2").status == 200
    mixed = discard(http, "twice", 0, 1, 3, 4, 3).json
    assert (mixed["discarded"], mixed["duplicates"]) == (1, 3)
    assert http.json("POST", "/v1/topics/twice/dlq/replay", {"replay_id": "s"}).json["replayed"] == 2
    assert http.json("POST", "/v1/topics/twice/dlq/replay", {"replay_id": "r"}).json["duplicates"] == 2


def test_what_is_no_letter_is_refused_and_nothing_is_done(http: Http) -> None:
    buried(http, "wrong", 3, partitions=2)
    assert discard(http, "wrong", 1).json["discarded"] == 1
    before = [bounds(http, "wrong", partition) for partition in (0, 1)]
    cases = [
        (discard(http, "wrong", 0, 3), 404, "not_found"),
        (discard(http, "wrong", 0, 4), 416, "offset_out_of_range"),
        (discard(http, "wrong", 0, ranges=[span(1, 2, 3)]), 416, "offset_out_of_range"),
        (discard(http, "wrong", 0, ranges=[span(2, 0, 0)]), 404, "unknown_partition"),
        (discard(http, "wrong", 0, ranges=[span(1, 2, 1)]), 422, "invalid_request"),
        (discard(http, "wrong", reason="none"), 422, "invalid_request"),
        (discard(http, "wrong", 0, reason="x" * 1_001), 422, "invalid_request"),
        (discard(http, "wrong", 0, other=1), 422, "invalid_request"),
        (discard(http, "nowhere", 0), 404, "unknown_topic"),
    ]
    assert [(reply.status, reply.error_code) for reply, *_ in cases] == [(status, code) for _, status, code in cases]
    assert "0:3" in cases[0][0].json["detail"] and "nothing was discarded" in cases[0][0].json["detail"]
    assert [bounds(http, "wrong", partition) for partition in (0, 1)] == before
    assert page(http, "wrong")["count"] == 5
    http.create("clean")
    assert discard(http, "clean", 0).error_code == "not_found"


def test_many_at_once_discard_a_letter_once(http: Http) -> None:
    buried(http, "many", 40)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: discard(http, "many", ranges=[span(0, 0, 39)]).json, range(8)))
    assert sum(reply["discarded"] for reply in replies) == 40
    assert page(http, "many")["count"] == 0
    assert bounds(http, "many") == (41, 41)


@pytest.mark.rule("D10")
def test_it_stays_hidden_when_the_server_is_killed() -> None:
    with running_server(flush_ms=50) as server:
        http = Http(server.url)
        buried(http, "kept", 4)
        assert discard(http, "kept", 1, 2).json["discarded"] == 2
        server.kill()
        server.restart()
        http = Http(server.url)
        assert listed(http, "kept") == [(0, 3), (0, 0)]
        assert discard(http, "kept", 0, 1).json["duplicates"] == 1
        assert (bounds(http, "kept"), listed(http, "kept")) == ((3, 6), [(0, 3)])


@pytest.mark.rule("D11")
def test_a_record_that_is_given_up_again_is_a_letter_again(http: Http) -> None:
    member = buried(http, "again", 3)
    assert discard(http, "again", 2).json["discarded"] == 1
    # A late repeat of what is done is only answered.
    assert member.bury(2)["duplicate"]
    member.leave()
    body = {"offsets": [{"topic": "again", "partition": 0, "offset": 0}]}
    assert http.json("PUT", "/v1/groups/again/offsets", body).status == 204
    second = Member(http, "again", "again", "b")
    assert [second.bury(offset)["duplicate"] for offset in (0, 2)] == [False, False]
    assert [one["dead_letter"]["offset"] for one in page(http, "again")["dead_letters"]] == [2, 0, 1, 0]


def test_it_takes_the_right_to_delete_the_topic_and_is_audited() -> None:
    with secured_server(flush_ms=50, redis_url="") as secured:
        buried(secured.admin, "guarded", 2)
        _, reader = secured.key("reads", ("consumer", ""))
        assert listed(reader, "guarded") == [(0, 1), (0, 0)]
        assert discard(reader, "guarded", 0).error_code == "forbidden"
        assert discard(secured.admin, "guarded", 0, reason="tests").json["discarded"] == 1
        assert discard(secured.admin, "guarded", 9).status == 416
        records = [json.loads(one["value"]) for one in secured.admin.read("_audit", query="values=text")]
        told = [one for one in records if one["operation"] == "discardDeadLetters" and one["outcome"] != "denied"]
        assert [one["outcome"] for one in told[:2]] == ["begun", "done"] and len(told) == 4
        assert (told[0]["principal"], told[0]["resource"]) == ("key:admin", "topic/guarded")
        assert told[0]["detail"] == "discard 1 dead letters and 0 ranges: tests"
        assert (told[3]["outcome"], told[3]["status"]) != ("done", 200)


@pytest.mark.slow
def test_any_node_lists_and_discards(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as nodes:
        callers = [Http(node.url) for node in nodes.values()]
        member = buried(callers[0], "shared", 6)
        assert [listed(http, "shared") for http in callers] == [[(0, offset) for offset in range(5, -1, -1)]] * 2
        for number, http in enumerate(callers):
            assert discard(http, "shared", number).json["discarded"] == 1
            # At once, at each of them.
            left = [(0, offset) for offset in range(5, number, -1)]
            assert [listed(each, "shared") for each in callers] == [left] * 2
        with ThreadPoolExecutor(2) as pool:
            replies = list(pool.map(lambda http: discard(http, "shared", 2, 4), callers))
        assert sum(reply.json["discarded"] for reply in replies) == 2
        for http in callers:
            assert listed(http, "shared") == [(0, 5), (0, 3)]
            assert http.json("POST", "/v1/topics/shared/dlq/replay", {"replay_id": "r"}).status == 200
        assert member.bury(5)["duplicate"]
