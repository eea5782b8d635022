"""Members of groups over streams of gRPC, at a real server with a Redis of its own."""

import threading
import time
from collections.abc import Iterator

import grpc
import pytest
from grpc_rig import NO_WINDOW, Client, Member, Problem, Said, client_at, port_of, served
from http_rig import Http
from waiting import until

from siltlog.infra.grpc.made import silt_pb2 as pb

Request = pb.SubscribeRequest


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Http, Client]]:
    with served() as (http, client, _):
        yield http, client


def publish(http: Http, topic: str, *values: str) -> None:
    assert http.publish(topic, *({"value": value} for value in values)).status == 200


def committed(http: Http, group: str) -> dict[tuple[str, int], int]:
    reply = http.get(f"/v1/groups/{group}/offsets")
    return {(it["topic"], it["partition"]): it["offset"] for it in reply.json.get("offsets", ())}


def at(topic: str, offset: int, partition: int = 0, **more: int) -> pb.CommittedOffset:
    return pb.CommittedOffset(topic=topic, partition=partition, offset=offset, **more)


def test_a_member_reads_commits_and_leaves(both: tuple[Http, Client]) -> None:
    http, client = both
    http.create("read", 2)
    member = Member(client, "g.read", "read", member_id="m-1")
    held = member.next("assigned")
    assert held.member_id == "m-1"
    assert sorted((it.topic, it.partition, it.offset) for it in held.partitions) == [("read", 0, 0), ("read", 1, 0)]
    for partition in (0, 1):
        assert http.publish("read", {"value": "a"}, {"value": "b"}, query=f"?partition={partition}").status == 200
    # Nothing comes without credit, and no more than there is.
    member.credit(3)
    first = member.records(3)
    assert len(first) == 3
    member.credit(1)
    found = [*first, *member.records(1)]
    assert sorted((it.partition, it.offset, it.value) for it in found) == [
        (partition, offset, b"ab"[offset : offset + 1]) for partition in (0, 1) for offset in (0, 1)
    ]
    assert {it.topic for it in found} == {"read"}
    member.commit(at("read", 2), at("read", 1, 1, generation=held.generation))
    told = member.next("committed")
    assert sorted((it.partition, it.offset) for it in told.offsets) == [(0, 2), (1, 1)]
    assert committed(http, "g.read") == {("read", 0): 2, ("read", 1): 1}
    # What it says before it closes its side counts.
    member.commit(at("read", 2, 1))
    member.leave()
    assert committed(http, "g.read") == {("read", 0): 2, ("read", 1): 2}
    assert http.get("/v1/groups/g.read").json["members"] == []


def test_members_share_what_there_is_and_let_go_when_they_are_told(both: tuple[Http, Client]) -> None:
    http, client = both
    http.create("shared", 2)
    first = Member(client, "g.shared", "shared", credit=10)
    assert len(first.next("assigned").partitions) == 2
    second = Member(client, "g.shared", "shared", credit=10)
    gone = first.next("revoked").partitions
    assert len(gone) == 1
    first.say(
        release=Request.Release(partitions=[pb.PartitionName(topic=it.topic, partition=it.partition) for it in gone])
    )
    while not (got := second.next("assigned").partitions):
        pass
    assert [(it.topic, it.partition) for it in got] == [(it.topic, it.partition) for it in gone]
    assert http.publish("shared", {"value": "x"}, query=f"?partition={got[0].partition}").status == 200
    assert [it.value for it in second.records(1)] == [b"x"]
    first.leave()
    second.leave()


def test_what_could_not_be_handled_comes_again_and_then_is_a_dead_letter(both: tuple[Http, Client]) -> None:
    http, client = both
    http.create("hard")
    publish(http, "hard", "poison", "fine")
    member = Member(client, "g.hard", "hard", credit=100, max_attempts=2)
    member.next("assigned")
    for last in (False, True):
        assert member.records(1)[0].value == b"poison"
        member.say(nack=Request.Nack(records=[Request.NackedRecord(topic="hard", offset=0)], error="no"))
        if last:
            told = member.next("committed")
            assert told.dead_lettered
            assert [(it.topic, it.offset) for it in told.offsets] == [("hard", 1)]
    [letter] = http.get("/v1/topics/hard/dlq").json["dead_letters"]
    assert (letter["value"], letter["dead_letter"]["attempts"]) == ("poison", 2)
    member.leave()


def test_what_is_said_of_what_is_anothers_is_told_and_the_stream_goes_on(both: tuple[Http, Client]) -> None:
    http, client = both
    http.create("fenced")
    member = Member(client, "g.fenced", "fenced", credit=10)
    held = member.next("assigned")
    member.commit(at("fenced", 0, generation=held.generation - 1))
    message = next(member.call)
    assert message.problem.error_code == "fenced_member"
    publish(http, "fenced", "x")
    assert [it.value for it in member.records(1)] == [b"x"]
    member.leave()


@pytest.mark.parametrize(
    ("message", "reason", "words"),
    [
        (
            Request(credit=Request.Credit(records=0)),
            "invalid_request",
            "the message is not taken: records must be at least 1",
        ),
        (Request(commit=Request.CommitOffsets()), "invalid_request", "the message is not taken: Expected `array`"),
        (Request(), "invalid_request", "it has credit, commit, nack or release"),
        (Request(start=Request.Start(group="g")), "invalid_request", "start is its first message alone"),
    ],
)
def test_a_message_that_says_nothing_ends_the_stream(
    both: tuple[Http, Client], message: Request, reason: str, words: str
) -> None:
    http, client = both
    if http.get("/v1/topics/said").status == 404:
        http.create("said")
    member = Member(client, "g.said", "said")
    member.next("assigned")
    member.said.say(message)
    problem = member.problem()
    assert (problem.reason, problem.code) == (reason, grpc.StatusCode.INVALID_ARGUMENT)
    assert words in problem.detail
    assert problem.request_id


def test_a_stream_that_may_not_begin_is_refused_in_the_words_of_http(both: tuple[Http, Client]) -> None:
    http, client = both
    http.create("begun")
    for group, topics, start, path in (
        ("g", ("nothing",), {}, "/v1/groups/g/ws?topics=nothing"),
        ("g", (), {}, "/v1/groups/g/ws"),
        ("g g", ("begun",), {}, "/v1/groups/g%20g/ws?topics=begun"),
        ("g", ("begun",), {"max_attempts": 0}, "/v1/groups/g/ws?topics=begun&max_attempts=0"),
        ("g", ("begun",), {"settings": {"session_timeout_ms": 1}}, "/v1/groups/g/ws?topics=begun&session_timeout_ms=1"),
    ):
        problem = Member(client, group, *topics, **start).problem()
        told = http.get(path).json
        assert (problem.reason, problem.detail) == (told["error_code"], told["detail"])
    said = Said()
    said.say(Request(credit=Request.Credit(records=1)))
    call = client.stream("Subscribe", iter(said))
    with pytest.raises(grpc.RpcError) as failed:
        next(call)
    assert "the first message of the stream is start" in Problem(failed.value).detail


def test_a_member_that_is_lost_comes_back_to_what_it_had(both: tuple[Http, Client]) -> None:
    http, client = both
    http.create("lost")
    publish(http, "lost", "a", "b")
    member = Member(client, "g.lost", "lost", credit=1, member_id="m")
    assert [it.value for it in member.records(1)] == [b"a"]
    member.commit(at("lost", 1))
    member.next("committed")
    member.call.cancel()
    back = Member(client, "g.lost", "lost", credit=10, member_id="m")
    assert [(it.partition, it.offset) for it in back.next("assigned").partitions] == [(0, 1)]
    assert [it.value for it in back.records(1)] == [b"b"]
    # One connection of a member counts: the newer one.
    newer = Member(client, "g.lost", "lost", member_id="m")
    newer.next("assigned")
    problem = back.problem()
    assert (problem.reason, problem.code) == ("fenced_member", grpc.StatusCode.ABORTED)
    newer.leave()


def test_call_by_call_it_is_the_same_group(both: tuple[Http, Client]) -> None:
    http, client = both
    http.create("called")
    joined = client.Join(group="g.called", member_id="m", settings=pb.MemberSettings(topics=["called"]))
    assert [(it.topic, it.partition, it.offset) for it in joined.assignment.partitions] == [("called", 0, 0)]
    assert joined.heartbeat_interval_ms > 0
    told = client.Heartbeat(group="g.called", member_id="m", generation=joined.generation)
    assert (told.generation, told.HasField("assignment")) == (joined.generation, False)
    publish(http, "called", "x")
    [found] = client.Fetch(partitions=[pb.FetchPosition(topic="called", partition=0)]).records
    assert found.value == b"x"
    client.Commit(group="g.called", member_id="m", generation=joined.generation, offsets=[at("called", 1)])
    assert committed(http, "g.called") == {("called", 0): 1}
    with pytest.raises(Problem) as failed:
        client.Commit(group="g.called", member_id="other", generation=joined.generation, offsets=[at("called", 1)])
    body = {"offsets": [{"topic": "called", "partition": 0, "offset": 1}]}
    told_by_http = http.json(
        "PUT", "/v1/groups/g.called/offsets", body | {"member_id": "other", "generation": joined.generation}
    )
    assert (failed.value.reason, failed.value.detail) == (
        told_by_http.json["error_code"], told_by_http.json["detail"],
    )  # fmt: skip
    client.Leave(group="g.called", member_id="m")
    assert http.get("/v1/groups/g.called").json["members"] == []


@pytest.mark.slow
def test_who_takes_nothing_is_told_to_come_back_and_holds_up_nobody() -> None:
    # Longer than the quick one is held up on a busy machine.
    with served(request_timeout_ms=8_000) as (http, client, server):
        http.create("slow")
        for _ in range(40):
            publish(http, "slow", *("x" * 50_000 for _ in range(10)))
        with client_at(port_of(server), options=NO_WINDOW) as reading:
            slow = Member(reading, "g.slow", "slow", credit=1_000_000)
            next(slow.call)
            # It reads no further. Others are served meanwhile.
            quick = Member(client, "g.quick", "slow", credit=400)
            assert len(quick.records(400)) == 400
            quick.leave()
            name = 'silt_streams_too_slow_total{kind="group_socket"}'
            end = time.monotonic() + 60
            while not http.metrics().get(name):
                assert time.monotonic() < end, "it is not given up"
                time.sleep(0.1)
            problem = slow.problem()
            assert (problem.reason, problem.code) == ("overloaded", grpc.StatusCode.UNAVAILABLE)


def test_who_goes_while_something_is_sent_is_no_failure_of_the_server() -> None:
    with served() as (http, _, server):
        http.create("gone", 1)
        for _ in range(20):
            publish(http, "gone", *("x" * 50_000 for _ in range(10)))
        for number in range(20):
            with client_at(port_of(server), options=NO_WINDOW) as reading:
                member = Member(reading, f"g.gone{number}", "gone", credit=1_000)
                next(member.call)
                member.call.cancel()
        until(lambda: http.metrics()["silt_streams"] == 0)
        assert "Traceback" not in server.log_path.read_text()


@pytest.mark.slow
def test_a_drain_ends_streams_and_a_server_that_starts_again_has_the_group() -> None:
    with served() as (http, client, server):
        http.create("again")
        publish(http, "again", "a")
        member = Member(client, "g.again", "again", credit=10, member_id="m")
        member.records(1)
        member.commit(at("again", 1))
        member.next("committed")
        assert server.stop() == 0
        problem = member.problem()
        assert (problem.reason, problem.code) == ("shutting_down", grpc.StatusCode.UNAVAILABLE)
        server.start()
        http = Http(server.url)
        _until_served(client)
        back = Member(client, "g.again", "again", credit=10, member_id="m")
        held = back.next("assigned").partitions
        assert [it.offset for it in held] == [1]
        # Killed, it says nothing, and the stream is lost.
        killing = threading.Timer(0, server.kill)
        killing.start()
        assert back.problem().code is grpc.StatusCode.UNAVAILABLE
        killing.join()
        server.restart()
        http = Http(server.url)
        publish(http, "again", "b")
        _until_served(client)
        again = Member(client, "g.again", "again", credit=10, member_id="m")
        assert [it.value for it in again.records(1)] == [b"b"]
        again.leave()


def _until_served(client: Client) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            client.ListTopics(limit=1)
        except Problem as problem:
            assert problem.code is grpc.StatusCode.UNAVAILABLE
            assert time.monotonic() < end
            time.sleep(0.2)
        else:
            return
