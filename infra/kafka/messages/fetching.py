"""The messages by which records are read."""

from siltlog.infra.kafka.messages.schema import (
    Kind,
    Message,
    array,
    int8,
    int16,
    int32,
    int64,
    records,
    struct,
    text,
    uuid,
)

FETCH = Message(
    "Fetch",
    1,
    4,
    18,
    flexible_since=12,
    request=(
        int32("replica_id", until=14, default=-1),
        int32("max_wait_ms"),
        int32("min_bytes"),
        int32("max_bytes", default=2147483647),
        int8("isolation_level"),
        int32("session_id", since=7),
        int32("session_epoch", since=7, default=-1),
        array(
            "topics",
            fields=(
                uuid("topic_id", since=13),
                text("topic", until=12),
                array(
                    "partitions",
                    fields=(
                        int32("partition"),
                        int32("current_leader_epoch", since=9, default=-1),
                        int64("fetch_offset"),
                        int32("last_fetched_epoch", since=12, default=-1),
                        int64("log_start_offset", since=5, default=-1),
                        int32("partition_max_bytes"),
                        uuid("replica_directory_id", since=17, tag=0),
                        int64("high_watermark", since=18, tag=1, default=9223372036854775807),
                    ),
                ),
            ),
        ),
        array(
            "forgotten_topics_data",
            fields=(
                uuid("topic_id", since=13),
                text("topic", until=12),
                array("partitions", of=Kind.INT32),
            ),
            since=7,
        ),
        text("rack_id", since=11),
        text("cluster_id", since=12, nullable_since=0, tag=0, default=None),
        struct(
            "replica_state",
            fields=(
                int32("replica_id", default=-1),
                int64("replica_epoch", default=-1),
            ),
            since=15,
            tag=1,
        ),
    ),
    response=(
        int32("throttle_time_ms"),
        int16("error_code", since=7),
        int32("session_id", since=7),
        array(
            "responses",
            fields=(
                uuid("topic_id", since=13),
                text("topic", until=12),
                array(
                    "partitions",
                    fields=(
                        int32("partition_index"),
                        int16("error_code"),
                        int64("high_watermark"),
                        int64("last_stable_offset", default=-1),
                        int64("log_start_offset", since=5, default=-1),
                        array(
                            "aborted_transactions",
                            fields=(
                                int64("producer_id"),
                                int64("first_offset"),
                            ),
                            nullable_since=0,
                        ),
                        int32("preferred_read_replica", since=11, default=-1),
                        records("records", nullable_since=0),
                        struct(
                            "diverging_epoch",
                            fields=(
                                int32("epoch", default=-1),
                                int64("end_offset", default=-1),
                            ),
                            since=12,
                            tag=0,
                        ),
                        struct(
                            "current_leader",
                            fields=(
                                int32("leader_id", default=-1),
                                int32("leader_epoch", default=-1),
                            ),
                            since=12,
                            tag=1,
                        ),
                        struct(
                            "snapshot_id",
                            fields=(
                                int64("end_offset", default=-1),
                                int32("epoch", default=-1),
                            ),
                            since=12,
                            tag=2,
                        ),
                    ),
                ),
            ),
        ),
        array(
            "node_endpoints",
            fields=(
                int32("node_id"),
                text("host"),
                int32("port"),
                text("rack", nullable_since=0, default=None),
            ),
            since=16,
            tag=0,
        ),
    ),
)

LIST_OFFSETS = Message(
    "ListOffsets",
    2,
    1,
    10,
    flexible_since=6,
    request=(
        int32("replica_id"),
        int8("isolation_level", since=2),
        array(
            "topics",
            fields=(
                text("name"),
                array(
                    "partitions",
                    fields=(
                        int32("partition_index"),
                        int32("current_leader_epoch", since=4, default=-1),
                        int64("timestamp"),
                    ),
                ),
            ),
        ),
        int32("timeout_ms", since=10),
    ),
    response=(
        int32("throttle_time_ms", since=2),
        array(
            "topics",
            fields=(
                text("name"),
                array(
                    "partitions",
                    fields=(
                        int32("partition_index"),
                        int16("error_code"),
                        int64("timestamp", default=-1),
                        int64("offset", default=-1),
                        int32("leader_epoch", since=4, default=-1),
                    ),
                ),
            ),
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH = Message(
    "OffsetForLeaderEpoch",
    23,
    2,
    4,
    flexible_since=4,
    request=(
        int32("replica_id", since=3, default=-2),
        array(
            "topics",
            fields=(
                text("topic"),
                array(
                    "partitions",
                    fields=(
                        int32("partition"),
                        int32("current_leader_epoch", default=-1),
                        int32("leader_epoch"),
                    ),
                ),
            ),
        ),
    ),
    response=(
        int32("throttle_time_ms"),
        array(
            "topics",
            fields=(
                text("topic"),
                array(
                    "partitions",
                    fields=(
                        int16("error_code"),
                        int32("partition"),
                        int32("leader_epoch", default=-1),
                        int64("end_offset", default=-1),
                    ),
                ),
            ),
        ),
    ),
)

MESSAGES = (
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
)
