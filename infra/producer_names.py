"""Names of producers that no user chose: requests with a key, clients of Kafka, runs of a replay, the server itself.

A name here is part of the stored format: a producer is known again by it, and what it repeats is a duplicate. Changing
one needs a migration.
"""

IDEMPOTENCY_PREFIX = "key:"
"""Begins the producer id of a request with an Idempotency-Key; no name of a user has a colon."""


def idempotent_producer(key_hash: str, body_hash: str, partitions: int) -> str:
    """The producer that such a request is; it says of which key and body, and by how many partitions it was split."""
    return f"{IDEMPOTENCY_PREFIX}{key_hash}:{body_hash}:{partitions}"


KAFKA_PREFIX = "kafka:"
"""Begins the producer id of an idempotent producer of Kafka, whose own number follows."""


def kafka_producer(producer_id: int) -> str:
    """The producer that an idempotent producer of Kafka is."""
    return f"{KAFKA_PREFIX}{producer_id}"


def dead_letter_producer(group: str, topic_id: str, partition: int, line: int) -> str:
    """Names the producer that copies what a group gives up in a partition; its sequences are offsets there.

    When the group goes back and gives up what lies before, the next in `line` does.
    """
    return f"dlq:{group}/{topic_id}/{partition}/{line}"


def replay_prefix(replay_id: str) -> str:
    """Begins every producer of a replay."""
    return f"replay:{replay_id}/"


def replay_producer(replay_id: str, chosen: str, topic_id: str, partition: int) -> str:
    """Names the producer that brings a partition's dead letters back; its sequences are their offsets.

    `chosen` says which were asked for.
    """
    return f"{replay_prefix(replay_id)}{chosen}/{topic_id}/{partition}"


def replay_run_producer(run: str, partition: int) -> str:
    """Names the producer of what a run of `silt replay` reads from a partition; its sequences are the offsets there."""
    return f"replay-{run}-{partition}"


def replay_run_seat(run: str) -> str:
    """Publishes nothing: the process that claimed it last has the run."""
    return f"replay-{run}-seat"


def metrics_producer(node: str) -> str:
    """Names the producer that publishes what a node measured to METRICS_TOPIC; sequences are minutes, or hours."""
    return f"metrics:{node}"


def audit_producer(chain: str) -> str:
    """Names the producer that publishes a chain of AUDIT_TOPIC; its sequences are those of the records."""
    return f"audit:{chain}"


def job_producer(run_id: str) -> str:
    """Names the producer that publishes a run to JOBS_TOPIC, so that it is there once however often it is told."""
    return f"run:{run_id}"
