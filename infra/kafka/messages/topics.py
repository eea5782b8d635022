"""The messages that make, grow and delete topics, and delete records of them."""

from siltlog.infra.kafka.messages.schema import Kind, Message, array, boolean, int8, int16, int32, int64, text, uuid

CREATE_TOPICS = Message(
    "CreateTopics",
    19,
    2,
    7,
    flexible_since=5,
    request=(
        array(
            "topics",
            fields=(
                text("name"),
                int32("num_partitions"),
                int16("replication_factor"),
                array(
                    "assignments",
                    fields=(
                        int32("partition_index"),
                        array("broker_ids", of=Kind.INT32),
                    ),
                ),
                array(
                    "configs",
                    fields=(
                        text("name"),
                        text("value", nullable_since=0),
                    ),
                ),
            ),
        ),
        int32("timeout_ms", default=60000),
        boolean("validate_only"),
    ),
    response=(
        int32("throttle_time_ms"),
        array(
            "topics",
            fields=(
                text("name"),
                uuid("topic_id", since=7),
                int16("error_code"),
                text("error_message", nullable_since=0),
                int32("num_partitions", since=5, default=-1),
                int16("replication_factor", since=5, default=-1),
                array(
                    "configs",
                    fields=(
                        text("name"),
                        text("value", nullable_since=0),
                        boolean("read_only"),
                        int8("config_source", default=-1),
                        boolean("is_sensitive"),
                    ),
                    since=5,
                    nullable_since=0,
                ),
                int16("topic_config_error_code", since=5, tag=0),
            ),
        ),
    ),
)

DELETE_TOPICS = Message(
    "DeleteTopics",
    20,
    1,
    6,
    flexible_since=4,
    request=(
        array(
            "topics",
            fields=(
                text("name", nullable_since=0, default=None),
                uuid("topic_id"),
            ),
            since=6,
        ),
        array("topic_names", of=Kind.TEXT, until=5),
        int32("timeout_ms"),
    ),
    response=(
        int32("throttle_time_ms"),
        array(
            "responses",
            fields=(
                text("name", nullable_since=6),
                uuid("topic_id", since=6),
                int16("error_code"),
                text("error_message", since=5, nullable_since=0, default=None),
            ),
        ),
    ),
)

DELETE_RECORDS = Message(
    "DeleteRecords",
    21,
    0,
    2,
    flexible_since=2,
    request=(
        array(
            "topics",
            fields=(
                text("name"),
                array(
                    "partitions",
                    fields=(
                        int32("partition_index"),
                        int64("offset"),
                    ),
                ),
            ),
        ),
        int32("timeout_ms"),
    ),
    response=(
        int32("throttle_time_ms"),
        array(
            "topics",
            fields=(
                text("name"),
                array(
                    "partitions",
                    fields=(
                        int32("partition_index"),
                        int64("low_watermark"),
                        int16("error_code"),
                    ),
                ),
            ),
        ),
    ),
)

CREATE_PARTITIONS = Message(
    "CreatePartitions",
    37,
    0,
    3,
    flexible_since=2,
    request=(
        array(
            "topics",
            fields=(
                text("name"),
                int32("count"),
                array("assignments", fields=(array("broker_ids", of=Kind.INT32),), nullable_since=0),
            ),
        ),
        int32("timeout_ms"),
        boolean("validate_only"),
    ),
    response=(
        int32("throttle_time_ms"),
        array(
            "results",
            fields=(
                text("name"),
                int16("error_code"),
                text("error_message", nullable_since=0, default=None),
            ),
        ),
    ),
)

MESSAGES = (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DELETE_RECORDS,
    CREATE_PARTITIONS,
)
