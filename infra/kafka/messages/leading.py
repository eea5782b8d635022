"""The messages that say, and change, which node leads a partition."""

from siltlog.infra.kafka.messages.schema import Kind, Message, array, boolean, int8, int16, int32, text

ELECT_LEADERS = Message(
    "ElectLeaders",
    43,
    0,
    2,
    flexible_since=2,
    request=(
        int8("election_type", since=1),
        array(
            "topic_partitions",
            fields=(
                text("topic"),
                array("partitions", of=Kind.INT32),
            ),
            nullable_since=0,
        ),
        int32("timeout_ms", default=60000),
    ),
    response=(
        int32("throttle_time_ms"),
        int16("error_code", since=1),
        array(
            "replica_election_results",
            fields=(
                text("topic"),
                array(
                    "partition_result",
                    fields=(
                        int32("partition_id"),
                        int16("error_code"),
                        text("error_message", nullable_since=0),
                    ),
                ),
            ),
        ),
    ),
)

ALTER_PARTITION_REASSIGNMENTS = Message(
    "AlterPartitionReassignments",
    45,
    0,
    1,
    flexible_since=0,
    request=(
        int32("timeout_ms", default=60000),
        boolean("allow_replication_factor_change", since=1, default=True),
        array(
            "topics",
            fields=(
                text("name"),
                array(
                    "partitions",
                    fields=(
                        int32("partition_index"),
                        array("replicas", of=Kind.INT32, nullable_since=0, default=None),
                    ),
                ),
            ),
        ),
    ),
    response=(
        int32("throttle_time_ms"),
        boolean("allow_replication_factor_change", since=1, default=True),
        int16("error_code"),
        text("error_message", nullable_since=0),
        array(
            "responses",
            fields=(
                text("name"),
                array(
                    "partitions",
                    fields=(
                        int32("partition_index"),
                        int16("error_code"),
                        text("error_message", nullable_since=0),
                    ),
                ),
            ),
        ),
    ),
)

LIST_PARTITION_REASSIGNMENTS = Message(
    "ListPartitionReassignments",
    46,
    0,
    0,
    flexible_since=0,
    request=(
        int32("timeout_ms", default=60000),
        array(
            "topics",
            fields=(
                text("name"),
                array("partition_indexes", of=Kind.INT32),
            ),
            nullable_since=0,
            default=None,
        ),
    ),
    response=(
        int32("throttle_time_ms"),
        int16("error_code"),
        text("error_message", nullable_since=0),
        array(
            "topics",
            fields=(
                text("name"),
                array(
                    "partitions",
                    fields=(
                        int32("partition_index"),
                        array("replicas", of=Kind.INT32),
                        array("adding_replicas", of=Kind.INT32),
                        array("removing_replicas", of=Kind.INT32),
                    ),
                ),
            ),
        ),
    ),
)

MESSAGES = (
    ELECT_LEADERS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
)
