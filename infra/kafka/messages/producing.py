"""The messages by which records are published."""

from siltlog.infra.kafka.messages.schema import Message, array, int16, int32, int64, records, struct, text, uuid

PRODUCE = Message(
    "Produce",
    0,
    3,
    13,
    flexible_since=9,
    request=(
        text("transactional_id", nullable_since=0, default=None),
        int16("acks"),
        int32("timeout_ms"),
        array(
            "topic_data",
            fields=(
                uuid("topic_id", since=13),
                text("name", until=12),
                array(
                    "partition_data",
                    fields=(
                        int32("index"),
                        records("records", nullable_since=0),
                    ),
                ),
            ),
        ),
    ),
    response=(
        array(
            "responses",
            fields=(
                uuid("topic_id", since=13),
                text("name", until=12),
                array(
                    "partition_responses",
                    fields=(
                        int32("index"),
                        int16("error_code"),
                        int64("base_offset"),
                        int64("log_append_time_ms", default=-1),
                        int64("log_start_offset", since=5, default=-1),
                        array(
                            "record_errors",
                            fields=(
                                int32("batch_index"),
                                text("batch_index_error_message", nullable_since=0, default=None),
                            ),
                            since=8,
                        ),
                        text("error_message", since=8, nullable_since=0, default=None),
                        struct(
                            "current_leader",
                            fields=(
                                int32("leader_id", default=-1),
                                int32("leader_epoch", default=-1),
                            ),
                            since=10,
                            tag=0,
                        ),
                    ),
                ),
            ),
        ),
        int32("throttle_time_ms"),
        array(
            "node_endpoints",
            fields=(
                int32("node_id"),
                text("host"),
                int32("port"),
                text("rack", nullable_since=0, default=None),
            ),
            since=10,
            tag=0,
        ),
    ),
)

INIT_PRODUCER_ID = Message(
    "InitProducerId",
    22,
    0,
    5,
    flexible_since=2,
    request=(
        text("transactional_id", nullable_since=0),
        int32("transaction_timeout_ms"),
        int64("producer_id", since=3, default=-1),
        int16("producer_epoch", since=3, default=-1),
    ),
    response=(
        int32("throttle_time_ms"),
        int16("error_code"),
        int64("producer_id", default=-1),
        int16("producer_epoch"),
    ),
)

MESSAGES = (
    PRODUCE,
    INIT_PRODUCER_ID,
)
