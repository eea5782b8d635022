"""`GET /v1/events` of real servers."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from access_rig import As, secured_server
from cluster_rig import cluster
from http_rig import NO_REDIS, Http
from push_rig import EventStream, tailing
from starlette.types import Message

from siltlog import Admin
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.streams import Streams
from siltlog.infra.security.grant import EVERYTHING
from siltlog.server.live.http import send_newest
from siltlog.server.live.viewers import Viewer
from siltlog.testing import running_server

PLACE = "/v1/events"
SOON_SECONDS = 60.0
KINDS = ("overview", "topics", "groups", "jobs")


@pytest.fixture(scope="module")
def http() -> Iterator[Http]:
    with running_server(flush_ms=50, offsets_snapshot_ms=50) as server:
        yield Http(server.url)


def event(stream: EventStream, kind: str, wanted: Callable[[Any], object] = lambda data: True) -> Any:
    """The next event of a kind that is as wanted."""
    end = time.monotonic() + SOON_SECONDS
    while True:
        found = stream.next()
        assert found is not None, "the stream ended"
        if found.kind == kind and wanted(found.data):
            return found.data
        assert time.monotonic() < end, stream.events[-1]


def metrics(http: Http) -> dict[str, float]:
    return http.metrics()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SOON_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_each_second_there_is_a_snapshot_of_all_kinds(http: Http) -> None:
    http.create("orders", 2)
    http.publish("orders", *({"value": "v", "partition": 0} for _ in range(7)))
    with tailing(http.url, PLACE) as stream:
        assert stream.reply.headers["X-Accel-Buffering"] == "no"
        seen = [event(stream, kind) for kind in KINDS]
        [overview, topics, groups, jobs] = seen
        assert overview.keys() >= {
            *("time", "node", "version", "started_at", "ready", "reasons", "nodes", "silent", "rates", "ack_p99_ms"),
            *("table_lag_p95_s", "worst_lag", "wal", "disk", "totals", "attention"),
        }
        assert (overview["ready"], overview["reasons"], overview["silent"]) == (True, [], [])
        assert [(one["node"], one["here"]) for one in overview["nodes"]] == [(overview["node"], True)]
        assert 0 < overview["wal"]["bytes"] < overview["wal"]["bytes_max"]
        assert overview["disk"]["free"] <= overview["disk"]["total"]
        row = next(one for one in topics["topics"] if one["name"] == "orders")
        described = http.get("/v1/topics/orders").json
        assert (row["partitions"], row["records"]) == (2, 7) == (described["partitions"], described["records"])
        assert topics["of"] == overview["totals"]["topics"]
        assert topics["cut"] is False
        assert groups.keys() == {"time", "groups", "of", "cut"}
        assert jobs.keys() == {"time", "running", "latest"}

        def is_rated(data: Any) -> bool:
            """What was published long before is no rate any more."""
            http.publish("rated", {"value": "v"})
            return bool(data["rates"]["records_in"] > 0 and data["ack_p99_ms"])

        http.create("rated")
        event(stream, "overview", is_rated)
        http.publish("orders", {"value": "v", "partition": 1})
        event(stream, "topics", lambda data: any(one["records"] == 8 for one in data["topics"]))
        event(stream, "topics", lambda data: any(one["name"] == "orders" and one["files"] for one in data["topics"]))


def test_only_the_kinds_that_are_asked_for_come(http: Http) -> None:
    with tailing(http.url, f"{PLACE}?kinds=groups,overview") as stream:
        event(stream, "overview")
        event(stream, "overview")
        assert {one.kind for one in stream.events if one.data is not None} == {"overview", "groups"}
    refused = http.get(f"{PLACE}?kinds=topics,users")
    assert (refused.status, refused.json["parameter"]) == (400, "kinds")
    assert "'users'" in refused.json["detail"]
    assert http.get(PLACE, Accept="application/json").status == 406
    assert http.call("HEAD", PLACE).status == 200


def test_a_group_is_shown_as_far_behind_as_it_is(http: Http) -> None:
    http.create("read")
    http.publish("read", *({"value": "v"} for _ in range(5)))
    offset = {"offsets": [{"topic": "read", "partition": 0, "offset": 2}]}
    assert http.json("PUT", "/v1/groups/slow/offsets", offset).status == 204

    def behind(records: int) -> Callable[[Any], object]:
        return lambda data: [one for one in data["groups"] if one["group"] == "slow" and one["lag"] == records]

    with tailing(http.url, PLACE) as stream:
        [row] = behind(3)(event(stream, "groups", behind(3)))  # type: ignore[misc]
        assert (row["state"], row["members"], row["topics"]) == ("empty", 0, ["read"])
        topics = event(stream, "topics", lambda data: any(one["groups"] for one in data["topics"]))
        [shown] = [one["groups"] for one in topics["topics"] if one["name"] == "read"]
        assert [(one["group"], one["lag"]) for one in shown] == [("slow", 3)]
        worst = event(stream, "overview", lambda data: data["worst_lag"])["worst_lag"]
        assert (worst["group"], worst["topic"], worst["records"]) == ("slow", "read", 3)
        http.publish("read", {"value": "v"})
        event(stream, "groups", behind(4))
        joined = http.json("PUT", "/v1/groups/slow/members/m", {"generation": 0, "topics": ["read"]})
        assert joined.status == 200, joined
        joined_group = event(stream, "groups", lambda data: any(one["members"] for one in data["groups"]))
        [row] = [one for one in joined_group["groups"] if one["group"] == "slow"]
        assert (row["members"], row["lag"]) == (1, 4)
        assert row["state"] in ("stable", "rebalancing")


@pytest.mark.slow
def test_dead_letters_failed_jobs_and_runs_are_told(http: Http) -> None:
    run = {
        "run_id": "0b9f6c1e-6a43-4c62-9a53-0e6f8f7f4c11",
        "job": "retain",
        "outcome": "failed",
        "started_at": "2026-11-21T07:36:00Z",
        "ended_at": "2026-11-21T07:36:01Z",
        "error": "the bucket is gone",
    }
    assert http.json("POST", "/v1/jobs", run).status == 200
    http.create("sold")
    http.publish("sold", {"value": "v"})
    assert http.json("PUT", "/v1/groups/sellers/members/m", {"generation": 0, "topics": ["sold"]}).status == 200
    joined = http.json("PUT", "/v1/groups/sellers/members/m", {"generation": 0, "topics": ["sold"]}).json
    dead = {"topic": "sold", "partition": 0, "offset": 0, "member_id": "m", "generation": joined["generation"]}
    given = http.json("POST", "/v1/groups/sellers/dead_letters", {**dead, "error": "no"})
    assert given.status == 200, given
    with tailing(http.url, PLACE) as stream:
        jobs = event(stream, "jobs", lambda data: data["latest"])
        assert [(one["job"], one["error"]) for one in jobs["latest"]] == [("retain", "the bucket is gone")]
        found = event(stream, "overview", lambda data: "dead_letters" in {one["kind"] for one in data["attention"]})
        by_kind = {one["kind"]: one for one in found["attention"]}
        assert (by_kind["job_failed"]["subject"], by_kind["job_failed"]["severity"]) == ("retain", "error")
        assert by_kind["dead_letters"]["subject"] == "sold"
        assert by_kind["dead_letters"]["detail"].startswith("1 dead letter")


@pytest.mark.slow
def test_two_who_watch_share_each_snapshot_and_without_any_none_is_made(http: Http) -> None:
    until(lambda: metrics(http)["silt_live_viewers"] == 0)
    with ExitStack() as stack:
        streams = [stack.enter_context(tailing(http.url, f"{PLACE}?kinds=topics")) for _ in range(3)]
        for stream in streams:
            event(stream, "topics")
        assert metrics(http)["silt_live_viewers"] == 3
        # The first may have been told of several before the last had come.
        together = event(streams[-1], "topics")["time"]
        times = [
            [event(stream, "topics", lambda data: data["time"] > together)["time"] for _ in range(3)]
            for stream in streams
        ]
        assert len(set(times[0]) & set(times[1]) & set(times[2])) >= 1
        shown = metrics(http)
        for stream in streams:
            event(stream, "topics", lambda data: data["time"] > times[0][-1])
        after = metrics(http)
        encoded = after["silt_live_encoded_total"] - shown["silt_live_encoded_total"]
        assert 1 <= encoded == after["silt_live_snapshots_total"] - shown["silt_live_snapshots_total"]
    until(lambda: metrics(http)["silt_live_viewers"] == 0)
    # A snapshot that was begun may end; the next would follow within a second.
    before = metrics(http)["silt_live_snapshots_total"]
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        assert metrics(http)["silt_live_snapshots_total"] <= before + 1
        time.sleep(0.1)


def test_who_comes_later_does_not_wait_for_the_next_second(http: Http) -> None:
    def waited(stream: EventStream) -> float:
        before = event(stream, "topics")["time"]
        with tailing(http.url, f"{PLACE}?kinds=topics") as late:
            first = event(late, "topics")["time"]
        return (datetime.fromisoformat(first) - datetime.fromisoformat(before)).total_seconds()

    with tailing(http.url, f"{PLACE}?kinds=topics") as stream:
        assert any(waited(stream) < 0.9 for _ in range(20))


def test_one_who_is_too_many_is_told_when_to_come_again() -> None:
    with running_server(redis_url=NO_REDIS, ui_viewers_max=2) as server, ExitStack() as stack:
        http = Http(server.url)
        for _ in range(2):
            event(stack.enter_context(tailing(server.url, PLACE)), "overview")
        refused = http.get(PLACE)
        assert (refused.status, refused.error_code) == (503, "overloaded")
        assert refused.headers["Retry-After"] == "10"
        assert "SILT_UI_VIEWERS_MAX" in refused.json["detail"]
        stack.close()
        until(lambda: metrics(http)["silt_live_viewers"] == 0)
        with tailing(server.url, PLACE) as stream:
            event(stream, "overview")


def test_who_reads_slowly_gets_the_newest_and_no_backlog() -> None:
    async def watch() -> list[bytes]:
        streams, sent = Streams(Draining()), []
        taking = asyncio.Event()

        async def send(message: Message) -> None:
            """Takes what is sent, and returns from the first of it once the client reads again."""
            if message["body"]:
                sent.append(message["body"])
                await taking.wait()

        with streams.opened("live") as stream:
            viewer = Viewer(("topics",), EVERYTHING, stream.wake)
            assert not viewer.offer(b"first")
            running = asyncio.create_task(send_newest(viewer, stream, send, None))
            while not sent:
                await asyncio.sleep(0)
            for number in range(100):
                assert viewer.offer(b"later %d" % number) == (number > 0)
            stream.beat = True
            taking.set()
            while len(sent) < 2:
                await asyncio.sleep(0)
            stream.end()
            await running
        return sent

    assert asyncio.run(watch()) == [b"first", b'event: missed\ndata: {"snapshots":99}\n\nlater 99']


def test_a_drain_ends_them() -> None:
    with running_server(redis_url=NO_REDIS) as server, tailing(server.url, PLACE) as stream:
        event(stream, "overview")
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        while stream.next() is not None:
            pass
        stopping.join(SOON_SECONDS)
        assert not stopping.is_alive()


def names_in(data: Any) -> list[str]:
    return [one["name"] for one in data["topics"]]


def watching(caller: As, kinds: str = ",".join(KINDS)) -> Any:
    return tailing(caller.url, f"{PLACE}?kinds={kinds}", Authorization=f"Bearer {caller.token}")


def test_who_may_describe_some_topics_is_told_of_those_alone() -> None:
    with secured_server(flush_ms=50) as server:
        for topic in ("mine-1", "other-1"):
            server.admin.create(topic)
            server.admin.publish(topic, {"value": "v"})
        _, mine = server.key("mine", ("consumer", "mine-"))
        _, too = server.key("too", ("viewer", "mine-"))
        _, nobody = server.key("nobody")
        assert server.nobody.get(PLACE).status == 401
        with (
            watching(server.admin) as all_of_it,
            watching(mine) as some,
            watching(too) as same,
            watching(nobody) as none,
        ):
            assert set(names_in(event(all_of_it, "topics"))) >= {"mine-1", "other-1"}
            event(same, "topics")
            seen = event(some, "topics")
            assert (names_in(seen), seen["of"]) == (["mine-1"], 1)
            assert event(none, "topics")["topics"] == []
            overview = event(some, "overview")
            assert (overview["totals"]["topics"], overview["totals"]["records"]) == (1, 1)
            assert (overview["nodes"], overview["wal"], overview["disk"]) == ([], None, None)
            assert "other-1" not in json.dumps([one.data for one in (*some.events, *same.events, *none.events)])
            before = server.admin.metrics()
            event(some, "jobs")
            event(some, "jobs")
            after = server.admin.metrics()
            made = after["silt_live_snapshots_total"] - before["silt_live_snapshots_total"]
            encoded = after["silt_live_encoded_total"] - before["silt_live_encoded_total"]
            # Of four callers two see the same.
            assert encoded == made * len(KINDS) * 3


def test_a_change_of_access_holds_at_once_and_a_revoked_key_ends_its_stream() -> None:
    with secured_server(flush_ms=50) as server:
        for topic in ("mine-1", "other-1"):
            server.admin.create(topic)
        key_id, mine = server.key("mine", ("viewer", "mine-"))
        with watching(mine, "topics") as stream:
            assert names_in(event(stream, "topics")) == ["mine-1"]
            server.allow("more", "key:mine", "topic", "other-1", "describe")
            event(stream, "topics", lambda data: names_in(data) == ["mine-1", "other-1"])
            assert server.admin.call("DELETE", "/v1/access/acls/more").status < 300
            changed = datetime.now(UTC)
            told = []

            def is_seen(data: Any) -> bool:
                told.append(datetime.fromisoformat(data["time"]))
                return names_in(data) == ["mine-1"]

            event(stream, "topics", is_seen)
            assert sum(at > changed for at in told) <= 3
            assert server.admin.call("DELETE", f"/v1/access/keys/{key_id}").status < 300
            end = time.monotonic() + SOON_SECONDS
            while (last := stream.next()) is not None and last.kind != "problem":
                assert time.monotonic() < end
            assert last is not None
            assert last.data["error_code"] == "unauthenticated"
            assert stream.next() is None


@pytest.mark.slow
def test_a_node_of_a_cluster_tells_of_all_and_names_those_that_are_silent(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, lease_ms=60_000) as nodes:
        with Admin(nodes.urls) as admin:
            for topic in ("t0", "t1"):
                admin.create_topic(topic)
        for topic in ("t0", "t1"):
            nodes.until(lambda topic=topic: all(nodes.owner(topic, name) for name in nodes), f"{topic} has an owner")
        assert {nodes.owner(topic) for topic in ("t0", "t1")} == {"n1", "n2"}
        for topic in ("t0", "t1"):
            assert Http(nodes["n1"].url).publish(topic, {"value": "v"}).status == 200
        with tailing(nodes["n1"].url, f"{PLACE}?kinds=overview,topics") as stream:
            both = event(stream, "overview", lambda data: not data["silent"])
            assert [(one["node"], one["here"], one["ready"]) for one in both["nodes"]] == [
                ("n1", True, True),
                ("n2", False, True),
            ]
            topics = event(stream, "topics", lambda data: {"t0", "t1"} <= set(names_in(data)))
            assert {one["name"]: one["records"] for one in topics["topics"]}.items() >= {"t0": 1, "t1": 1}.items()
            nodes["n2"].pause()
            try:
                paused = time.monotonic()
                silent = event(stream, "overview", lambda data: data["silent"])
                assert silent["silent"] == ["n2"]
                assert "node_silent" in {one["kind"] for one in silent["attention"]}
                assert time.monotonic() - paused < SOON_SECONDS
                event(stream, "overview")
            finally:
                nodes["n2"].resume()
            event(stream, "overview", lambda data: not data["silent"])
