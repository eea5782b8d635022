"""Errors of ours are codes of Kafka's, such that its clients retry what may be retried."""

import pytest

from siltlog.infra.errors import KINDS, OutcomeUnknown, Unavailable, problem
from siltlog.infra.kafka.errors import CODES, KafkaError, group_error, kafka_error

RETRIED = {
    KafkaError.CORRUPT_MESSAGE, KafkaError.NOT_LEADER_OR_FOLLOWER, KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
}  # fmt: skip
"""What Java's producer sends again."""


@pytest.mark.parametrize(
    ("code", "expected"),
    [("unknown_topic", 3), ("wal_full", 19), ("record_too_large", 10), ("out_of_order_sequence", 45), ("internal", -1)],
)
def test_an_error_has_its_code(code: str, expected: int) -> None:
    assert kafka_error(problem(code, "no")) == expected


def test_every_code_of_ours_exists_and_is_retried_where_that_helps() -> None:
    assert CODES.keys() <= KINDS.keys()
    for code in CODES:
        if KINDS[code].retryable == "yes":
            assert kafka_error(problem(code, "no")) in RETRIED, code


def test_members_ask_again_whatever_is_away() -> None:
    """Java's members give up at any code that they do not expect, at `NOT_ENOUGH_REPLICAS` too."""
    away = KafkaError.COORDINATOR_NOT_AVAILABLE
    for code, kind in KINDS.items():
        if issubclass(kind.cls, Unavailable | OutcomeUnknown):
            assert group_error(problem(code, "no"), away) == away, code
    assert group_error(problem("disk_full", "no")) == KafkaError.COORDINATOR_LOAD_IN_PROGRESS
    assert group_error(problem("forbidden", "no")) == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert group_error(problem("unknown_topic", "no")) == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
