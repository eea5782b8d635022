"""What consumers of Kafka say among themselves, against what kafka-python says."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from siltlog.infra.kafka.consumer_protocol import (
    assigned_partitions,
    assignment_of,
    subscribed_topics,
    subscription_of,
)

TOPICS = st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=5, unique=True)
NUMBERS = st.lists(st.integers(0, 2**31 - 1), max_size=5)


@given(TOPICS, st.integers(0, 1), st.none() | st.binary(max_size=20))
def test_topics_of_a_subscription(topics: list[str], version: int, said: bytes | None) -> None:
    theirs = ConsumerProtocolSubscription(version=version, topics=topics, user_data=said, owned_partitions=[])
    assert subscribed_topics(theirs.encode()) == topics
    assert list(ConsumerProtocolSubscription.decode(subscription_of(topics)).topics) == topics


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=20), NUMBERS, max_size=5))
def test_partitions_of_an_assignment(partitions: dict[str, list[int]]) -> None:
    given = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in partitions.items()
    ]
    theirs = ConsumerProtocolAssignment(version=0, assigned_partitions=given, user_data=None)
    every = [(topic, number) for topic, numbers in partitions.items() for number in numbers]
    assert assigned_partitions(theirs.encode()) == every == assigned_partitions(assignment_of(partitions))
    found = ConsumerProtocolAssignment.decode(assignment_of(partitions)).assigned_partitions
    assert {at.topic: list(at.partitions) for at in found} == partitions


@given(st.binary(max_size=60))
def test_what_is_neither_says_nothing(content: bytes) -> None:
    assert isinstance(subscribed_topics(content), list)
    assert isinstance(assigned_partitions(content), list)


def test_what_says_that_it_is_long_takes_nothing() -> None:
    assert subscribed_topics(b"\0\0\x7f\xff\xff\xff") == []
    assert assigned_partitions(b"\0\0\x7f\xff\xff\xff\0\1t\x7f\xff\xff\xff") == []
