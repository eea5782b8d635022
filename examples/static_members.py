"""A worker with a name of its own (`instance_id`) is restarted: its partitions wait for it, and nobody else notices."""

import sys
import uuid

from siltlog import Admin, Consumer, TopicPartition

URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:7070"
GROUP = f"workers-{uuid.uuid4().hex[:8]}"
TOPIC = f"jobs-{uuid.uuid4().hex[:8]}"


def member(instance_id: str, moved: list[TopicPartition]) -> Consumer:
    return Consumer(
        URL,
        group=GROUP,
        topics=[TOPIC],
        instance_id=instance_id,
        on_assigned=moved.extend,
        on_revoked=moved.extend,
    )


def settled(*consumers: Consumer) -> list[list[TopicPartition]]:
    """Polls until each has two of the four partitions."""
    while any(len(consumer.assignment()) != 2 for consumer in consumers):
        for consumer in consumers:
            consumer.poll(timeout_ms=100)
    return [consumer.assignment() for consumer in consumers]


def main() -> None:
    Admin(URL).create_topic(TOPIC, partitions=4)
    moved: list[TopicPartition] = []
    with member("host-1", moved) as stays, member("host-2", []) as leaves:
        _, before = settled(stays, leaves)
        moved.clear()
        leaves.close()  # a deployment, say: it does not leave the group, it is back within its session timeout
        with member("host-2", []) as back:
            _, after = settled(stays, back)
            print(f"host-2 has its partitions again: {after == before}")
            print(f"partitions that moved to or from host-1: {len(moved)}")


if __name__ == "__main__":
    main()
