"""What a member of a group tells it, and what it makes of the answers."""

import math
from typing import Any

import msgspec
import pytest

from siltlog.consumers.library.member import Beat, Goodbye, GroupMember, MemberOptions, Place, Rest
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.errors import Fenced, SiltlogError, Unavailable, problem

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def new(instance_id: str | None = None, max_poll_interval_ms: int = 10_000) -> GroupMember:
    return GroupMember(
        MemberOptions("g", ["t"], None, "earliest", 9_000, 60_000, max_poll_interval_ms, None, instance_id), 0.0
    )


def beat_of(member: GroupMember, now: float = 0.0) -> Beat:
    step = member.next_step(now)
    assert isinstance(step, Beat)
    return step


def told(generation: int, *partitions: TopicPartition, **more: Any) -> dict[str, Any]:
    listed = [{"topic": at.topic, "partition": at.partition, "offset": 7, **more} for at in partitions]
    return {"generation": generation, "assignment": listed}


def body_of(beat: Beat) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(b"".join(beat.request.body))
    return decoded


def test_it_joins_and_then_waits_for_news() -> None:
    member = new()
    join = beat_of(member)
    assert body_of(join) == {
        "generation": 0, "wait_ms": 0, "topics": ["t"], "session_timeout_ms": 9_000, "rebalance_timeout_ms": 60_000,
        "auto_offset_reset": "earliest",
    }  # fmt: skip
    member.heard(join, told(5, A, B, delivered=9), 0.0, 0.5)
    assert body_of(beat_of(member)) == {"generation": 5, "wait_ms": 3_000}
    assert member.has_news and member.take().assignment == {A: Place(7, 9), B: Place(7, 9)}
    member.holds([A, B])
    assert not member.has_news and member.release() is None
    owned = [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
    assert body_of(beat_of(member)) == {"generation": 5, "wait_ms": 3_000, "owned": owned}


@pytest.mark.rule("M8")
def test_what_was_taken_away_before_it_was_applied_is_let_go_at_once() -> None:
    member = new()
    member.heard(beat_of(member), told(5, A, B), 0.0, 0.5)
    member.heard(beat_of(member), told(6, A), 0.0, 0.5)
    assert member.take().assignment == {A: Place(7)}
    member.holds([A])
    release = member.release()
    assert release is not None
    assert body_of(release) == {"generation": 6, "wait_ms": 0, "owned": [{"topic": "t", "partition": 0}]}
    assert member.release() is None


def test_an_older_answer_and_one_to_a_former_membership_change_nothing() -> None:
    member = new()
    first = beat_of(member)
    member.heard(first, told(6, A), 0.0, 0.5)
    member.heard(first, told(5, A, B), 0.0, 0.5)
    assert member.take().assignment == {A: Place(7)}
    late = beat_of(member)
    member.heard(late, problem("unknown_member", "gone"), 0.0, 0.5)
    member.heard(late, told(7, B), 0.0, 0.5)
    news = member.take()
    assert news.lost and news.assignment is None and news.error is None
    assert body_of(beat_of(member))["generation"] == 0


def test_what_fails_is_tried_again_later() -> None:
    member = new()
    member.heard(beat_of(member), Unavailable("away"), 1.0, 0.5)
    step = member.next_step(1.0)
    assert isinstance(step, Rest) and 1.0 < step.until < 1.1
    assert member.unjoined_s(4.0) == 3.0
    member.heard(beat_of(member, 2.0), Unavailable("away", retry_after_ms=5_000), 2.0, 0.0)
    assert member.next_step(6.9) == Rest(7.0)
    member.heard(beat_of(member, 7.0), {"nothing": "known"}, 7.0, 0.5)
    assert member.unjoined_s(8.0) == 7.0
    member.heard(beat_of(member, 9.0), problem("invalid_request", "no"), 9.0, 0.5)
    error = member.take().error
    assert error is not None and error.error_code == "invalid_request"


def test_whoever_does_not_poll_leaves_and_comes_back_with_the_next_poll() -> None:
    member = new(max_poll_interval_ms=1_000)
    member.heard(beat_of(member), told(5, A), 0.0, 0.5)
    member.take()
    member.poll_begins()
    assert isinstance(member.next_step(99.0), Beat)
    member.poll_ends(100.0)
    assert isinstance(member.next_step(100.9), Beat)
    assert isinstance(member.next_step(101.1), Goodbye)
    assert member.next_step(101.2) == Rest(math.inf)
    assert member.take().lost
    member.poll_begins()
    assert body_of(beat_of(member, 102.0))["generation"] == 0


@pytest.mark.rule("M12")
def test_who_took_its_instance_ends_it_for_good() -> None:
    member = new("a")
    assert body_of(beat_of(member))["instance_id"] == "a"
    member.heard(beat_of(member), told(5, A), 0.0, 0.5)
    member.take()
    member.heard(beat_of(member), problem("fenced_member", "replaced", fenced_by="instance_id"), 1.0, 0.5)
    assert member.next_step(1.0) == Rest(math.inf)
    news = member.take()
    assert news.lost and isinstance(news.error, Fenced)
    again = member.take()
    assert not again.lost and again.error is news.error and member.has_news


def test_only_who_is_no_static_member_says_goodbye() -> None:
    for instance_id, says in ((None, True), ("a", False)):
        member = new(instance_id)
        member.heard(beat_of(member), told(5, A), 0.0, 0.5)
        assert (member.end() is not None) is says
        assert member.next_step(0.0) is None and member.end() is None
    assert new().end() is None


@pytest.mark.rule("M13")
@pytest.mark.parametrize(
    "error", [problem("invalid_request", "no"), Unavailable("away")], ids=["refused", "unanswered"]
)
def test_who_asked_to_join_says_goodbye_whatever_it_was_told(error: SiltlogError) -> None:
    member = new()
    member.heard(beat_of(member), error, 0.0, 0.5)
    goodbye = member.end()
    assert goodbye is not None
    assert goodbye.method == "DELETE"
