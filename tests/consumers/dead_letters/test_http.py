"""Attempts, dead letters and their way back, from a real server."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from http_rig import Http, Reply
from letters_rig import Member, filled
from redis import Redis

from siltlog.infra import names
from siltlog.infra.clock import parse_us
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=50) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Http:
    return Http(server.url)


def committed(http: Http, group: str) -> dict[int, int]:
    return {one["partition"]: one["offset"] for one in http.get(f"/v1/groups/{group}/offsets").json["offsets"]}


def go_back(http: Http, group: str, topic: str, offset: int) -> None:
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": offset}]}
    assert http.json("PUT", f"/v1/groups/{group}/offsets", body).status == 204


def test_a_dead_letter_says_where_it_was_and_why(http: Http) -> None:
    filled(http, "said", partitions=2)
    member = Member(http, "said", "said")
    assert [member.attempt(3, 1), member.attempt(3, 1)] == [1, 2]
    buried = member.bury(3, 1, error="ValueError: Größe")
    assert buried == {"topic": "said.dlq", "partition": 1, "offset": 0, "attempts": 2, "duplicate": False}
    assert committed(http, "said") == {0: 0, 1: 4}
    assert len(http.get("/v1/topics/said.dlq").json["offsets"]) == 2
    [dead] = http.read("said.dlq", 1, query="values=text")
    assert (dead["key"], dead["value"]) == ("k3", "1:3")
    failed_at = dead["headers"].pop()
    assert failed_at["key"] == "silt.failed_at" and parse_us(failed_at["value"]) <= parse_us(dead["timestamp"])
    assert [(one["key"], one["value"]) for one in dead["headers"]] == [
        ("silt.topic", "mine"),
        ("silt.topic", "said"),
        ("silt.partition", "1"),
        ("silt.offset", "3"),
        ("silt.timestamp", "2023-11-14T22:13:20.003000Z"),
        ("silt.group", "said"),
        ("silt.attempts", "2"),
        ("silt.error", "ValueError: Größe"),
    ]


def test_a_repeat_is_answered_and_not_copied_again(http: Http) -> None:
    filled(http, "repeat")
    member = Member(http, "repeat", "repeat")
    first = member.bury(2)
    assert member.bury(2) == first | {"duplicate": True}
    assert committed(http, "repeat") == {0: 3}
    member.commit(5)
    assert member.bury(2) == first | {"duplicate": True}
    assert committed(http, "repeat") == {0: 5}
    assert http.end("repeat.dlq") == 1
    # A record that is done is no dead letter.
    refused = member.call("dead_letters", 4, error="late")
    assert (refused.status, refused.error_code) == (422, "invalid_request")
    assert http.end("repeat.dlq") == 1


@pytest.mark.rule("D4")
def test_a_crash_between_the_copy_and_the_commit_and_one_after_a_replay() -> None:
    with running_server(flush_ms=50) as server:
        http = Http(server.url)
        filled(http, "back")
        Member(http, "h", "back").bury(2)
        replay = {"replay_id": "r"}
        assert http.json("POST", "/v1/topics/back/dlq/replay", replay).json["replayed"] == 1
        filled(http, "crash")
        member = Member(http, "g", "crash")
        member.attempt(2)
        valkey = Redis(unix_socket_path=str(server.data_dir / names.VALKEY_FOLDER / names.VALKEY_SOCKET))
        # From now on it answers and takes no writes: the record is copied, the commit is refused.
        valkey.config_set("min-replicas-to-write", 1)
        refused = member.call("dead_letters", 2, error="no")
        assert (refused.status, refused.error_code) == (503, "coordinator_unavailable")
        assert http.end("crash.dlq") == 1
        server.kill()
        valkey.config_set("min-replicas-to-write", 0)
        server.restart()
        member.http = http = Http(server.url)
        assert committed(http, "g") == {0: 0}
        assert member.bury(2) == {"topic": "crash.dlq", "partition": 0, "offset": 0, "attempts": 1, "duplicate": True}
        assert committed(http, "g") == {0: 3}
        assert http.end("crash.dlq") == 1

        again = http.json("POST", "/v1/topics/back/dlq/replay", replay).json
        assert (again["replayed"], again["duplicates"]) == (0, 1)
        some = replay | {"offsets": [{"partition": 0, "offset": 0}]}
        assert http.json("POST", "/v1/topics/back/dlq/replay", some).error_code == "idempotency_key_reused"
        assert http.end("back") == 7


@pytest.mark.rule("D5")
def test_a_group_that_goes_back_gives_up_what_lies_before(http: Http) -> None:
    filled(http, "back")
    Member(http, "back", "back").bury(4)
    assert http.call("DELETE", "/v1/groups/back/members/a").status == 204
    go_back(http, "back", "back", 0)
    again = Member(http, "back", "back", "b")
    assert [again.bury(1)["duplicate"], again.bury(3)["duplicate"], again.bury(4)["duplicate"]] == [False, False, True]
    assert committed(http, "back") == {0: 5}
    assert [one["value"] for one in http.read("back.dlq", query="values=text")] == ["0:4", "0:1", "0:3"]


def test_two_groups_give_up_the_same_record(http: Http) -> None:
    filled(http, "both")
    offsets = [Member(http, group, "both").bury(2)["offset"] for group in ("one", "two")]
    assert offsets == [0, 1]


@pytest.mark.rule("D6")
def test_not_while_lower_records_of_the_same_member_are_open(http: Http) -> None:
    filled(http, "open")
    member = Member(http, "open", "open")
    member.attempt(1)
    member.attempt(3)
    refused = member.call("dead_letters", 3, error="no")
    assert (refused.status, refused.error_code) == (409, "records_open")
    assert refused.json["offsets"] == [1]
    assert http.get("/v1/topics/open.dlq").status == 404 or http.end("open.dlq") == 0
    member.commit(2)
    assert member.bury(3)["offset"] == 0


def test_only_the_owner_gives_up(http: Http) -> None:
    filled(http, "owner")
    member = Member(http, "owner", "owner")
    Member(http, "owner", "owner", "z")
    for what in ("attempts", "dead_letters"):
        fields = {"error": "no"} if what == "dead_letters" else {}
        member.member = "z"
        refused = member.call(what, 0, **fields)
        assert (refused.status, refused.error_code) == (409, "fenced_member")
        assert refused.json["partitions"] == [{"topic": "owner", "partition": 0}]
        member.member = "a"
    assert http.get("/v1/topics/owner.dlq").status == 404


def test_what_is_not_there_is_not_given_up(http: Http) -> None:
    filled(http, "absent")
    member = Member(http, "absent", "absent")
    for offset in (6, 7):
        refused = member.call("dead_letters", offset, error="no")
        assert (refused.status, refused.error_code) == (416, "offset_out_of_range")
    assert committed(http, "absent") == {0: 0}
    member.topic = "nowhere"
    assert member.call("attempts", 0).error_code == "unknown_topic"
    member.topic = "absent"
    assert member.call("attempts", 0, partition=9).error_code == "unknown_partition"


def test_an_error_is_cut_not_refused(http: Http) -> None:
    filled(http, "long")
    Member(http, "long", "long").bury(0, error="x" * 100_000)
    [dead] = http.read("long.dlq", query="values=text")
    [error] = [one["value"] for one in dead["headers"] if one["key"] == "silt.error"]
    assert error == "x" * 4_096


def test_dead_letters_grow_with_their_topic(http: Http) -> None:
    filled(http, "grows")
    Member(http, "grows", "grows").bury(0)
    assert http.json("PATCH", "/v1/topics/grows", {"partitions": 3}).status == 200
    assert len(http.get("/v1/topics/grows.dlq").json["offsets"]) == 3


def test_replay_brings_back_what_was_there(http: Http) -> None:
    filled(http, "again", partitions=2)
    member = Member(http, "again", "again")
    for partition, offset in ((0, 1), (0, 2), (1, 5)):
        member.bury(offset, partition)
    before = [http.read("again", partition) for partition in (0, 1)]
    reply = http.json("POST", "/v1/topics/again/dlq/replay", {"replay_id": "all"})
    assert reply.json == {"topic": "again", "replay_id": "all", "replayed": 3, "duplicates": 0}
    after = [http.read("again", partition) for partition in (0, 1)]
    back = [new[len(old) :] for old, new in zip(before, after, strict=True)]
    of = [[old[1], old[2]] if partition == 0 else [old[5]] for partition, old in enumerate(before)]
    for came, was in zip(back, of, strict=True):
        assert [one | {"offset": 0} for one in came] == [one | {"offset": 0} for one in was]
    # Once for each dead letter and replay, also for those that came meanwhile.
    member.bury(5, 0)
    reply = http.json("POST", "/v1/topics/again/dlq/replay", {"replay_id": "all"})
    assert (reply.json["replayed"], reply.json["duplicates"]) == (1, 3)
    reply = http.json("POST", "/v1/topics/again/dlq/replay", {"replay_id": "another"})
    assert (reply.json["replayed"], reply.json["duplicates"]) == (4, 0)
    assert http.end("again") == 12 + 4 + 4


def test_a_replay_where_nothing_failed_brings_nothing_back_and_names_what_it_was_to(http: Http) -> None:
    filled(http, "sound")
    reply = http.json("POST", "/v1/topics/sound/dlq/replay", {"replay_id": "r"})
    assert (reply.status, reply.json["replayed"], reply.json["duplicates"]) == (200, 0, 0)
    one = {"replay_id": "r", "offsets": [{"partition": 0, "offset": 0}]}
    reply = http.json("POST", "/v1/topics/sound/dlq/replay", one)
    assert (reply.status, reply.error_code) == (404, "not_found")
    assert "has no dead letters" in reply.json["detail"]


def test_a_replay_has_the_time_of_now_where_the_topic_takes_none_that_is_so_old(http: Http) -> None:
    filled(http, "aged")
    Member(http, "aged", "aged").bury(1, error="x")
    [old] = [one["timestamp"] for one in http.read("aged", query="values=text") if one["offset"] == 1]
    bound = {"config": {"timestamp.before.max.ms": 3_600_000}}
    assert http.json("PATCH", "/v1/topics/aged", bound).status == 200
    assert http.json("POST", "/v1/topics/aged/dlq/replay", {"replay_id": "r"}).json["replayed"] == 1
    again = http.read("aged", query="values=text")[-1]
    assert (again["key"], again["value"]) == ("k1", "0:1")
    assert parse_us(again["timestamp"]) > parse_us(old) + 3_600_000_000


@pytest.mark.rule("D7")
def test_replay_of_some(http: Http) -> None:
    filled(http, "some")
    member = Member(http, "some", "some")
    for offset in range(5):
        member.bury(offset)

    def replay(replay_id: str, *offsets: int) -> Reply:
        chosen = [{"partition": 0, "offset": offset} for offset in offsets]
        return http.json("POST", "/v1/topics/some/dlq/replay", {"replay_id": replay_id, "offsets": chosen})

    assert replay("r", 3, 1).json["replayed"] == 2
    assert replay("r", 1, 3, 1).json["duplicates"] == 2
    # What it stands for is these two: another one would be brought back never, or twice.
    refused = replay("r", 2)
    assert (refused.status, refused.error_code) == (422, "idempotency_key_reused")
    assert http.json("POST", "/v1/topics/some/dlq/replay", {"replay_id": "r"}).error_code == "idempotency_key_reused"
    beyond = replay("s", 0, 5)
    assert (beyond.status, beyond.error_code) == (416, "offset_out_of_range")
    assert [one["value"] for one in http.read("some", query="values=text")[6:]] == ["0:1", "0:3"]
    refused = http.json("POST", "/v1/topics/nothing/dlq/replay", {"replay_id": "r"})
    assert (refused.status, refused.error_code) == (404, "unknown_topic")
    assert http.json("POST", "/v1/topics/some/dlq/replay", {}).error_code == "invalid_request"


def test_attempts_and_dead_letters_are_counted(http: Http) -> None:
    filled(http, "counted")
    member = Member(http, "counted", "counted")
    member.attempt(0)
    member.attempt(0)
    member.bury(0)
    member.bury(0)
    text = http.get("/metrics").body.decode()
    assert 'silt_attempts_total{topic="counted"} 2.0' in text
    assert 'silt_dead_letters_total{topic="counted"} 1.0' in text


def test_requests_for_one_record_at_the_same_time_make_one_dead_letter(http: Http) -> None:
    filled(http, "race")
    member = Member(http, "race", "race")
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: member.bury(3), range(16)))
    assert {reply["offset"] for reply in replies} == {0}
    assert [reply["duplicate"] for reply in replies].count(False) == 1
    assert http.end("race.dlq") == 1
    assert committed(http, "race") == {0: 4}


def test_a_record_at_the_limit_is_given_up_too_also_after_the_limit_was_raised(http: Http) -> None:
    http.create("large", max_record_bytes=1_000)
    for size in (1_000, 100_000):
        assert http.json("PATCH", "/v1/topics/large", {"config": {"max.record.bytes": size}}).status == 200
        assert http.publish("large", {"value": "x" * size}).status == 200
    member = Member(http, "large", "large")
    for offset in (0, 1):
        member.bury(offset, error="e" * 10_000)
    assert [len(one["value"]) for one in http.read("large.dlq", query="values=text")] == [1_000, 100_000]
    assert http.json("POST", "/v1/topics/large/dlq/replay", {"replay_id": "r"}).json["replayed"] == 2


def test_what_retention_took_is_not_given_up(http: Http) -> None:
    filled(http, "gone")
    member = Member(http, "gone", "gone")
    assert http.call("DELETE", "/v1/topics/gone/partitions/0/records?before_offset=4").status == 200
    refused = member.call("dead_letters", 2, error="no")
    assert (refused.status, refused.error_code) == (416, "offset_out_of_range")
    assert http.get("/v1/topics/gone.dlq").status == 404 or http.end("gone.dlq") == 0
    assert member.bury(4)["offset"] == 0


def test_a_record_that_is_nacked_comes_again_and_is_given_up_at_the_last_attempt(http: Http) -> None:
    filled(http, "nacked")
    member = Member(http, "nacked", "nacked")

    def poll(commit: int | None = None, wait_ms: int = 0) -> list[int]:
        asked = {"generation": member.generation, "wait_ms": wait_ms}
        if commit is not None:
            asked["commit"] = [{"topic": "nacked", "partition": 0, "offset": commit}]
        told = http.json("POST", "/v1/groups/nacked/members/a/poll", asked)
        assert told.status == 200, told
        return [record["offset"] for record in told.json["records"]]

    assert poll() == [0, 1, 2, 3, 4, 5]
    told = member.nack(2, error="no", max_attempts=2, backoff_ms=60_000, backoff_ms_max=300).json
    assert told == {"attempts": 1, "rest_ms": 300, "dead_letter": None}
    assert poll(commit=2, wait_ms=10_000) == [2, 3, 4, 5]
    told = member.nack(2, error="ValueError: no", max_attempts=2).json
    letter = {"topic": "nacked.dlq", "partition": 0, "offset": 0, "attempts": 2, "duplicate": False}
    assert told == {"attempts": 2, "rest_ms": None, "dead_letter": letter}
    assert committed(http, "nacked") == {0: 3} and poll() == [3, 4, 5]
    done = member.nack(2)
    assert (done.status, done.error_code) == (422, "invalid_request") and "is done" in done.json["detail"]
    assert member.nack(5, partition=7).status == 404
    member.generation -= 1
    assert (member.nack(4).status, member.nack(4).error_code) == (409, "fenced_member")
    assert member.nack(4, max_attempts=0).error_code == "invalid_request"
    member.generation += 1
    member.attempt(3)
    open_below = member.nack(4, max_attempts=1)
    assert (open_below.status, open_below.error_code) == (409, "records_open")
