"""Streams of publishes at a real server: their order, what ends them, and what a killed server leaves of one."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_rig import NO_WINDOW, Client, Problem, Said, client_at, port_of, served
from http_rig import NO_REDIS, Http

from siltlog.infra.grpc.made import silt_pb2 as pb

COUNT = 2_000


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Http, Client]]:
    with served(redis_url=NO_REDIS) as (http, client, _):
        yield http, client


def request(topic: str, number: int) -> pb.PublishRequest:
    return pb.PublishRequest(topic=topic, records=[pb.PublishRecord(value=b"%d" % number)])


def values(http: Http, topic: str) -> list[int]:
    found: list[int] = []
    while True:
        rows = http.get(f"/v1/topics/{topic}/partitions/0/records?offset={len(found)}").json["records"]
        if not rows:
            return found
        found += [int(row["value"]) for row in rows]


def test_acknowledgements_come_in_the_order_of_the_requests_which_is_that_of_the_log(both: tuple[Http, Client]) -> None:
    http, client = both
    http.create("ordered")
    acks = list(client.stream("PublishStream", (request("ordered", number) for number in range(COUNT))))
    assert [ack.partitions[0].first_offset for ack in acks] == list(range(COUNT))
    assert values(http, "ordered") == list(range(COUNT))


def test_many_share_a_sync(both: tuple[Http, Client]) -> None:
    http, client = both
    http.create("shared")
    before = http.metrics()["silt_wal_commit_seconds_count"]
    assert len(list(client.stream("PublishStream", (request("shared", number) for number in range(COUNT))))) == COUNT
    assert http.metrics()["silt_wal_commit_seconds_count"] - before < COUNT


def test_what_is_refused_ends_the_stream_and_nothing_behind_it_is_there(both: tuple[Http, Client]) -> None:
    http, client = both
    http.create("refused")
    said = [request("refused", 0), request("refused", 1), request("nowhere", 2), request("refused", 3)]
    acks, call = [], client.stream("PublishStream", iter(said))
    with pytest.raises(grpc.RpcError) as failed:
        acks.extend(call)
    problem = Problem(failed.value)
    assert (problem.code, problem.reason) == (grpc.StatusCode.NOT_FOUND, "unknown_topic")
    # What came before it was told, or would have been had gRPC not thrown it away with the status.
    assert [ack.partitions[0].first_offset for ack in acks] == list(range(len(acks)))
    assert values(http, "refused") == [0, 1]


def test_garbage_in_a_stream_ends_it(both: tuple[Http, Client]) -> None:
    http, client = both
    http.create("garbage")
    call = client.channel.stream_stream("/silt.v1.Silt/PublishStream")(
        iter([request("garbage", 0).SerializeToString(), b"\xff\xff"]), timeout=30
    )
    with pytest.raises(grpc.RpcError) as failed:
        list(call)
    assert Problem(failed.value).reason == "malformed_body"
    assert values(http, "garbage") == [0]


def test_who_takes_no_acknowledgements_is_not_read_for_ever() -> None:
    with served(redis_url=NO_REDIS) as (http, _, server):
        http.create("unread")
        with client_at(port_of(server), options=NO_WINDOW) as client:
            _publishes_and_reads_nothing(http, client)


def _publishes_and_reads_nothing(http: Http, client: Client) -> None:
    sent = 0

    def endless() -> Iterator[pb.PublishRequest]:
        nonlocal sent
        while True:
            yield pb.PublishRequest(topic="unread", records=[pb.PublishRecord(key=b"k" * 200, value=b"x" * 2_000)])
            sent += 1

    call = client.stream("PublishStream", endless(), timeout=200)
    # It has come to rest once nothing more was appended between two looks, while there is more to be said.
    last, rests = -1, 0
    end = time.monotonic() + 60
    while rests < 5:
        assert time.monotonic() < end, "it goes on for ever"
        time.sleep(0.2)
        now = http.end("unread")
        rests = rests + 1 if now == last and now else 0
        last = now
    # The server goes on with others, and with this one once it is read.
    assert http.get("/readyz").status == 200
    first = next(call)
    assert first.partitions[0].first_offset == 0
    call.cancel()


def test_a_server_that_is_killed_has_what_it_acknowledged_and_takes_the_rest_later() -> None:
    with served(redis_url=NO_REDIS) as (http, client, server):
        http.create("killed")
        said = Said()
        call = client.stream("PublishStream", iter(said), timeout=120)
        acked: list[int] = []
        failed: list[Problem] = []

        def hear() -> None:
            try:
                acked.extend(ack.partitions[0].first_offset for ack in call)
            except grpc.RpcError as error:
                failed.append(Problem(error))

        hearing = threading.Thread(target=hear)
        hearing.start()
        said.say(*(request("killed", number) for number in range(500)))
        while len(acked) < 100:
            time.sleep(0.01)
        server.kill()
        said.say(None)
        hearing.join(60)
        assert [problem.code for problem in failed] == [grpc.StatusCode.UNAVAILABLE]
        server.restart()
        http = Http(server.url)
        there = values(http, "killed")
        assert there == list(range(len(there)))
        assert len(there) >= len(acked)
        # The channel finds the server again by itself.
        rest = _again(client, [request("killed", number) for number in range(len(there), len(there) + 10)])
        assert [ack.partitions[0].first_offset for ack in rest] == list(range(len(there), len(there) + 10))


def _again(client: Client, requests: list[pb.PublishRequest]) -> list[Any]:
    end = time.monotonic() + 60
    while True:
        try:
            return list(client.stream("PublishStream", iter(requests)))
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert time.monotonic() < end
            time.sleep(0.2)


def test_a_drain_ends_a_stream_that_is_quiet_with_the_words_of_http() -> None:
    with served(redis_url=NO_REDIS) as (http, client, server):
        http.create("drained")
        said = Said()
        call = client.stream("PublishStream", iter(said), timeout=120)
        said.say(request("drained", 0))
        assert next(call).partitions[0].first_offset == 0
        assert server.stop() == 0
        with pytest.raises(grpc.RpcError) as failed:
            next(call)
        problem = Problem(failed.value)
        assert (problem.code, problem.reason) == (grpc.StatusCode.UNAVAILABLE, "shutting_down")
        assert problem.retry_ms is not None
        said.say(None)
