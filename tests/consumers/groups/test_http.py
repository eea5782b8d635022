"""Groups over HTTP, from a real server: topics, records, Valkey and all."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import urllib3

from siltlog.consumers.groups.messages import MemberRequest, Timeouts
from siltlog.infra import names
from siltlog.infra.errors import Refused
from siltlog.infra.metrics import catalogue
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

PROBLEM = "application/problem+json"


class Api:
    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._http = urllib3.PoolManager(retries=False)

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        reply = self._http.request(
            method, self.server.url + path, body=content, headers={"Content-Type": "application/json"}
        )
        return reply.status, json.loads(reply.data) if reply.data else None

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        status, document = self.call(method, path, body)
        assert status < 300, document
        return document

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        status, document = self.call(method, path, body)
        assert status >= 400, document
        assert document["status"] == status and document["detail"] and document["type"].endswith(document["error_code"])
        return status, document["error_code"]

    def server_metrics(self) -> dict[str, float]:
        """The metrics without labels."""
        lines = self._http.request("GET", self.server.url + "/metrics").data.decode().splitlines()
        return {
            name: float(value) for name, value in (line.split() for line in lines if line[0] != "#" and "{" not in line)
        }

    def topic(self, name: str, partitions: int, records: int) -> None:
        self.ok("POST", "/v1/topics", {"name": name, "partitions": partitions})
        for partition in range(partitions):
            body = {"records": [{"value": str(number), "partition": partition} for number in range(records)]}
            self.ok("POST", f"/v1/topics/{name}/records", body)


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with running_server(session_timeout_ms_max=3_000_000, rebalance_timeout_ms_max=40_000) as server:
        api = Api(server)
        api.topic("flights", 2, 5)
        yield api


def test_dead_letters_of_the_longest_name_can_be_read_by_a_group(api: Api) -> None:
    for suffix, status in (("", 404), (".dlq", 404), (".dlq.dlq", 404), ("x", 422), (".dlqx", 422)):
        name = "n" * 196 + suffix
        assert api.call("PUT", "/v1/groups/longest/members/a", {"topics": [name]})[0] == status, suffix
        assert (names.readable_topic_problem(name) is None) == (status == 404)


def test_the_loop_of_a_member(api: Api) -> None:
    told = api.ok("PUT", "/v1/groups/loop/members/a", {"topics": ["flights"]})
    assert told["generation"] > 0 and told["heartbeat_interval_ms"] == 5_000
    topic_id = api.ok("GET", "/v1/topics/flights/offsets")["topic_id"]
    assert told["assignment"] == [
        {"topic": "flights", "partition": 0, "topic_id": topic_id, "offset": 0},
        {"topic": "flights", "partition": 1, "topic_id": topic_id, "offset": 0},
    ]
    again = api.ok("PUT", "/v1/groups/loop/members/a", {"generation": told["generation"], "wait_ms": 50})
    assert again["assignment"] is None
    offsets = [
        {"topic": "flights", "partition": 0, "offset": 3, "metadata": "half"},
        {"topic": "flights", "partition": 1, "offset": 5},
    ]
    body = {"member_id": "a", "generation": told["generation"], "offsets": offsets}
    assert api.call("PUT", "/v1/groups/loop/offsets", body) == (204, None)

    group = api.ok("GET", "/v1/groups/loop")
    assert group["state"] == "stable" and group["group"] == "loop"
    (member,) = group["members"]
    assert member["member_id"] == "a" and member["topics"] == ["flights"] and len(member["assignment"]) == 2
    half, done = group["partitions"]
    assert half["member_id"] == "a" and half["offset"] == 3 and half["high_watermark"] == 5 and half["lag"] == 2
    assert 0 < half["lag_seconds"] < 3600
    assert done["lag"] == 0 and done["lag_seconds"] == 0
    committed = api.ok("GET", "/v1/groups/loop/offsets")["offsets"]
    assert [(entry["offset"], entry["metadata"]) for entry in committed] == [(3, "half"), (5, "")]
    assert committed[0]["committed_at"].endswith("Z")

    assert api.refused("DELETE", "/v1/groups/loop") == (409, "group_not_empty")
    assert api.call("DELETE", "/v1/groups/loop/members/a") == (204, None)
    assert api.call("DELETE", "/v1/groups/loop/members/a") == (204, None)
    assert api.call("DELETE", "/v1/groups/nothing/members/a") == (204, None)
    assert api.ok("GET", "/v1/groups/loop")["state"] == "empty"
    assert api.call("DELETE", "/v1/groups/loop") == (204, None)
    assert api.refused("GET", "/v1/groups/loop") == (404, "unknown_group")
    assert api.refused("GET", "/v1/groups/loop/offsets") == (404, "unknown_group")


def test_metrics(api: Api) -> None:
    told = api.ok("PUT", "/v1/groups/measured/members/a", {"topics": ["flights"]})
    offsets = [{"topic": "flights", "partition": 0, "offset": 3}]
    for member, status in (("a", 204), ("b", 409)):
        body = {"member_id": member, "generation": told["generation"], "offsets": offsets}
        assert api.call("PUT", "/v1/groups/measured/offsets", body)[0] == status
    text = urllib3.request("GET", api.server.url + "/metrics").data.decode()
    shown = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}
    assert shown[catalogue.GROUPS.name] >= 1 and shown[catalogue.GROUP_MEMBERS.name] >= 1
    assert shown[catalogue.GROUP_REBALANCES.name + '{reason="members"}'] >= 1
    assert shown[catalogue.GROUP_EVICTIONS.name + '{reason="session"}'] == 0
    assert shown[catalogue.GROUP_COMMITS.name + '{outcome="accepted"}'] >= 1
    assert shown[catalogue.GROUP_COMMITS.name + '{outcome="fenced"}'] >= 1


def test_poll(api: Api) -> None:
    path = "/v1/groups/polled/members/a/poll"
    first = api.ok("POST", path, {"topics": ["flights"], "max_records": 100})
    assert sorted((at["partition"], at["value"]) for at in first["records"]) == [
        (partition, str(number)) for partition in range(2) for number in range(5)
    ]
    assert [at["next_offset"] for at in first["partitions"]] == [5, 5]
    commit = [
        {"topic": "flights", "partition": at["partition"], "offset": at["next_offset"]} for at in first["partitions"]
    ]
    second = api.ok("POST", path, {"generation": first["generation"], "commit": commit, "wait_ms": 50})
    assert second["records"] == [] and second["generation"] == first["generation"]
    assert [entry["offset"] for entry in api.ok("GET", "/v1/groups/polled/offsets")["offsets"]] == [5, 5]


def test_a_pattern_takes_up_what_is_created_and_what_grows_while_its_member_waits(api: Api) -> None:
    member = "/v1/groups/follows/members/a"
    told = api.ok("PUT", member, {"topic_pattern": "followed[.].*"})
    assert told["assignment"] == []
    changes: list[tuple[str, str, Any, int]] = [
        ("POST", "/v1/topics", {"name": "followed.one", "partitions": 2}, 2),
        ("POST", "/v1/topics", {"name": "followed.two", "partitions": 1}, 3),
        ("PATCH", "/v1/topics/followed.one", {"partitions": 4}, 5),
        ("DELETE", "/v1/topics/followed.two", None, 4),
    ]
    with ThreadPoolExecutor(1) as threads:
        for method, path, change, count in changes:
            body = {"generation": told["generation"], "wait_ms": 15_000}
            waiting = threads.submit(api.ok, "PUT", member, body)
            api.ok(method, path, change)
            told = waiting.result(30)
            assert told["assignment"] is not None and len(told["assignment"]) == count
            owned = [{"topic": at["topic"], "partition": at["partition"]} for at in told["assignment"]]
            told = api.ok("PUT", member, {"generation": told["generation"], "owned": owned})


def test_an_instance_comes_back_over_http(api: Api) -> None:
    join = {"topics": ["flights"], "instance_id": "one"}
    first = api.ok("PUT", "/v1/groups/static/members/a", join)
    second = api.ok("PUT", "/v1/groups/static/members/b", join)
    assert second["assignment"] == first["assignment"] and second["generation"] > first["generation"]
    status, refused = api.call("PUT", "/v1/groups/static/members/a", {"generation": first["generation"]})
    assert (status, refused["error_code"], refused["fenced_by"]) == (409, "fenced_member", "instance_id")
    (member,) = api.ok("GET", "/v1/groups/static")["members"]
    assert (member["member_id"], member["instance_id"]) == ("b", "one")
    assert api.refused("POST", "/v1/groups/static/members/b/poll", {**join, "instance_id": "two"})[0] == 422


def test_lists(api: Api) -> None:
    for group in ("list-a", "list-b", "list-c"):
        api.ok("PUT", f"/v1/groups/{group}/members/a", {"topics": ["flights"]})
    page = api.ok("GET", "/v1/groups?prefix=list-&limit=2")
    assert page["groups"] == [
        {"group": name, "state": "stable", "members": 1, "type": "consumer"} for name in ("list-a", "list-b")
    ]
    page = api.ok("GET", f"/v1/groups?prefix=list-&limit=2&after={page['next']}")
    assert [entry["group"] for entry in page["groups"]] == ["list-c"] and page["next"] is None


@pytest.mark.parametrize(
    ("method", "path", "body", "answer"),
    [
        ("PUT", "/v1/groups/g/members/a", {"topics": ["nothing"]}, (404, "unknown_topic")),
        ("PUT", "/v1/groups/g/members/a", {}, (422, "invalid_request")),
        ("PUT", "/v1/groups/g/members/a", {"topics": ["flights"], "more": 1}, (422, "invalid_request")),
        ("PUT", "/v1/groups/g/members/a", {"topics": ["flights"], "instance_id": "i j"}, (422, "invalid_request")),
        ("PUT", "/v1/groups/g/members/a", {"topics": ["flights"], "session_timeout_ms": 1}, (422, "invalid_request")),
        ("PUT", "/v1/groups/g/members/a", {"topics": ["fl/ights"]}, (422, "invalid_request")),
        ("PUT", "/v1/groups/g/members/a", {"topic_pattern": "("}, (422, "invalid_request")),
        ("PUT", "/v1/groups/g/members/a", b"{", (400, "malformed_body")),
        ("PUT", "/v1/groups/g/members/a?wait_ms=1", {"topics": ["flights"]}, (400, "invalid_parameter")),
        ("PUT", "/v1/groups/g/members/a%20b", {"topics": ["flights"]}, (400, "invalid_parameter")),
        ("PUT", "/v1/groups/g/members/a", {"generation": 7}, (404, "unknown_member")),
        ("POST", "/v1/groups/g/members/a/poll", {"generation": 7, "topics": ["flights"]}, (404, "unknown_member")),
        ("POST", "/v1/groups/g/members/a/poll", {"topics": ["flights"], "isolation": "wal"}, (422, "invalid_request")),
        ("PUT", "/v1/groups/g/offsets", {"offsets": [], "member_id": "a"}, (422, "invalid_request")),
        (
            "PUT",
            "/v1/groups/g/offsets",
            {"offsets": [{"topic": "flights", "partition": 0, "offset": 6}]},
            (422, "invalid_request"),
        ),
        (
            "PUT",
            "/v1/groups/g/offsets?topic_id=another",
            {"offsets": [{"topic": "flights", "partition": 0, "offset": 5}]},
            (404, "unknown_topic"),
        ),
        (
            "PUT",
            "/v1/groups/g/offsets",
            {"offsets": [{"topic": "flights", "partition": 0, "offset": 5}], "member_id": "a", "generation": 1},
            (409, "fenced_member"),
        ),
        ("GET", "/v1/groups?limit=0", None, (400, "invalid_parameter")),
    ],
)
def test_what_is_refused(api: Api, method: str, path: str, body: Any, answer: tuple[int, str]) -> None:
    assert api.refused(method, path, body) == answer
    assert api.refused("GET", "/v1/groups/g") == (404, "unknown_group"), "a refused call leaves nothing behind"


def test_a_killed_server_takes_its_groups_up_again(api: Api) -> None:
    told = api.ok("PUT", "/v1/groups/kept/members/a", {"topics": ["flights"]})
    commit = {"topic": "flights", "partition": 0, "offset": 4}
    body = {"member_id": "a", "generation": told["generation"], "offsets": [commit]}
    assert api.call("PUT", "/v1/groups/kept/offsets", body)[0] == 204
    api.server.kill()
    api.server.restart()
    # The same member goes on, in the same generation.
    again = api.ok("PUT", "/v1/groups/kept/members/a", {"generation": told["generation"]})
    assert again["assignment"] is None and again["generation"] == told["generation"]
    body["offsets"][0]["offset"] = 5
    assert api.call("PUT", "/v1/groups/kept/offsets", body)[0] == 204


@pytest.mark.rule("P5")
def test_what_a_poll_has_waited_for_holds_no_memory_once_it_is_answered(api: Api) -> None:
    api.topic("waited", 1, 1)
    told = api.ok("POST", "/v1/groups/waiting/members/a/poll", {"topics": ["waited"]})
    asked = {"generation": told["generation"], "topics": ["waited"], "wait_ms": 10_000}
    asked["commit"] = [{"topic": "waited", "partition": 0, "offset": 1}]
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(api.ok, "POST", "/v1/groups/waiting/members/a/poll", asked)
        time.sleep(0.3)
        api.ok("POST", "/v1/topics/waited/records", {"records": [{"value": "x" * 50_000}]})
        assert len(waiting.result()["records"]) == 1
    metrics = api.server_metrics()
    assert metrics[catalogue.IN_FLIGHT_BYTES.name] < 50_000


def test_time_outs_of_members_are_within_those_of_the_server(api: Api) -> None:
    api.topic("bounded", 1, 1)
    member = {"topics": ["bounded"]}
    for asked, said in (
        ({"session_timeout_ms": 3_000_001}, "session_timeout_ms is 3000001, and this server takes 100 to 3000000"),
        ({"rebalance_timeout_ms": 60_000}, "SILT_REBALANCE_TIMEOUT_MS_MIN, SILT_REBALANCE_TIMEOUT_MS_MAX"),
    ):
        status, document = api.call("PUT", "/v1/groups/bounds/members/a", member | asked)
        assert (status, document["error_code"]) == (422, "invalid_request")
        assert said in document["detail"]
        status, document = api.call("POST", "/v1/groups/bounds/members/a/poll", member | asked)
        assert (status, document["error_code"]) == (422, "invalid_request")
    assert api.call("GET", "/v1/groups/bounds")[0] == 404, "what is refused joins nothing"
    most = {"session_timeout_ms": 3_000_000, "rebalance_timeout_ms": 40_000}
    assert api.ok("PUT", "/v1/groups/bounds/members/a", member | most)["generation"] > 0
    # Who asks for none has the usual ones, as far as they are within.
    assert api.ok("PUT", "/v1/groups/bounds/members/b", member)["generation"] > 0


@pytest.mark.parametrize(
    ("bounds", "session_ms", "rebalance_ms"),
    [
        (Timeouts(), 45_000, 60_000),
        (Timeouts(session_ms_max=10_000, rebalance_ms_min=90_000), 10_000, 90_000),
        (Timeouts(session_ms_min=50_000, rebalance_ms_max=1_000), 50_000, 1_000),
    ],
)
def test_who_asks_for_no_time_outs_has_the_usual_ones_within_the_bounds(
    bounds: Timeouts, session_ms: int, rebalance_ms: int
) -> None:
    joining = MemberRequest(topics=["t"]).joining(bounds)
    assert (joining["session_timeout_ms"], joining["rebalance_timeout_ms"]) == (session_ms, rebalance_ms)
    bounds.check(session_ms, rebalance_ms)
    bounds.check(None, None)
    with pytest.raises(Refused, match="session_timeout_ms is"):
        bounds.check(bounds.session_ms_min - 1, None)
    with pytest.raises(Refused, match="rebalance_timeout_ms is"):
        bounds.check(None, bounds.rebalance_ms_max + 1)
