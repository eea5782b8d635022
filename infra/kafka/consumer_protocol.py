"""What consumers of Kafka say among themselves in a group: which topics they read, and what they are given. To the
server it is bytes; it reads those of classic groups to tell people what is in them, and writes those of others."""

from collections.abc import Mapping, Sequence
from typing import Any

from siltlog.infra.kafka.messages.compiling import struct_reader, struct_writer
from siltlog.infra.kafka.messages.schema import Kind, array, blob, int16, text
from siltlog.infra.kafka.wire import Budget, Malformed, Writer

PROTOCOL_TYPE = "consumer"
"""The type of groups of consumers; others, such as the workers of Kafka Connect, have one of their own."""

_SUBSCRIPTION = (int16("version"), array("topics", of=Kind.TEXT))
_ASSIGNMENT = (int16("version"), array("partitions", fields=(text("topic"), array("partitions", of=Kind.INT32))))
# Both begin with the version. What later ones have comes behind these fields.
_read_subscription = struct_reader(_SUBSCRIPTION, 0, False)
_read_assignment = struct_reader(_ASSIGNMENT, 0, False)
_NO_USER_DATA = blob("user_data", nullable_since=0, default=None)
_write_subscription = struct_writer((*_SUBSCRIPTION, _NO_USER_DATA), 0, False)
_write_assignment = struct_writer((*_ASSIGNMENT, _NO_USER_DATA), 0, False)


def subscribed_topics(subscription: bytes) -> list[str]:
    """Names the topics of a subscription; none where it is none."""
    try:
        topics: list[str] = _read_subscription(memoryview(subscription), 0, Budget())[0]["topics"]
    except Malformed:
        return []
    return topics


def assigned_partitions(assignment: bytes) -> list[tuple[str, int]]:
    """Gives the partitions of an assignment; none where it is none."""
    try:
        topics = _read_assignment(memoryview(assignment), 0, Budget())[0]["partitions"]
    except Malformed:
        return []
    return [(topic["topic"], number) for topic in topics for number in topic["partitions"]]


def subscription_of(topics: Sequence[str]) -> bytes:
    """A subscription to these topics, of version 0."""
    return _written(_write_subscription, {"topics": topics})


def assignment_of(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """An assignment of the partitions of each topic, of version 0."""
    given = [{"topic": topic, "partitions": numbers} for topic, numbers in partitions.items()]
    return _written(_write_assignment, {"partitions": given})


def _written(write: Writer, fields: Mapping[str, Any]) -> bytes:
    pieces: list[bytes] = []
    write(fields, pieces.append)
    return b"".join(pieces)
