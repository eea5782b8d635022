"""Streams of publishes at a real server: their order, what ends them, and what a killed server leaves of one."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from grpc_rig import NO_WINDOW, Client, Problem, Said, client_at, port_of, served
from http_rig import NO_REDIS, Http
from waiting import until

from siltlog.infra.errors import SiltlogError
from siltlog.infra.grpc.made import silt_pb2 as pb
from siltlog.server.grpc.publishing import PublishStream

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


@pytest.mark.slow
def test_who_takes_no_acknowledgements_is_told_so_once_he_reads_on() -> None:
    with served(redis_url=NO_REDIS, request_timeout_ms=1_000) as (http, _, server):
        http.create("unheard")
        with client_at(port_of(server), options=NO_WINDOW) as client:
            # So few that all of them fit on the connection, which is not cut; so many that not all are taken from it.
            call = client.stream("PublishStream", (request("unheard", number) for number in range(4_000)), timeout=200)
            ahead = 0
            while not ahead or http.end("unheard") > ahead:
                ahead = http.end("unheard")
                time.sleep(0.2)
            # Time alone ends it: several times as much as it takes.
            over = time.monotonic() + 4
            while time.monotonic() < over:
                assert http.get("/readyz").status == 200
                time.sleep(0.1)
            acks = 0
            with pytest.raises(grpc.RpcError) as failed:
                for _ in call:
                    acks += 1
            problem = Problem(failed.value)
            assert (problem.reason, problem.code) == ("overloaded", grpc.StatusCode.UNAVAILABLE)
            assert 0 < acks < http.end("unheard") < 4_000
            # The connection serves its other calls as before.
            assert client.Publish(request("unheard", 0)).partitions
        assert "Traceback" not in server.log_path.read_text()


@pytest.mark.slow
def test_who_is_gone_before_he_has_taken_his_acknowledgements_is_no_failure_of_the_server() -> None:
    with served(redis_url=NO_REDIS) as (http, _, server):
        http.create("left")
        with client_at(port_of(server), options=NO_WINDOW) as client:
            call = client.stream("PublishStream", (request("left", 0) for _ in iter(int, 1)), timeout=200)
            ahead = 0
            while not ahead or http.end("left") > ahead:
                ahead = http.end("left")
                time.sleep(0.2)
            call.cancel()
        until(lambda: http.metrics()["silt_connections"] <= 1)
        assert "Traceback" not in server.log_path.read_text()


class Untaken:
    """A client's end of a stream, and of its connection, that takes nothing."""

    def __init__(self) -> None:
        self.said: list[bytes] = [b"a request"]
        self.taken: list[int] = []

    async def read(self) -> bytes:
        return self.said.pop() if self.said else await asyncio.Event().wait() or b""

    async def write(self, _: bytes) -> None:
        await asyncio.Event().wait()

    def told(self, nbytes: int) -> None:
        self.taken.append(nbytes)

    def connection(self, _: object) -> "Untaken":
        return self


def test_a_stream_whose_acknowledgements_are_not_taken_gives_its_connection_time_to_hear_why() -> None:
    async def scenario() -> None:
        client = Untaken()

        def publish(_: bytes, placed: Callable[[], None], __: object) -> "asyncio.Task[bytes]":
            placed()
            return asyncio.ensure_future(asyncio.sleep(0, b"acknowledged"))

        stream = PublishStream(client, client, publish, asyncio.Event(), 0.01)  # type: ignore[arg-type]
        with pytest.raises(SiltlogError) as refused:
            await stream.run()
        assert refused.value.error_code == "overloaded"
        assert client.taken == [len(b"a request"), 0]

    asyncio.run(scenario())


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
