"""The messages of consumer groups whose partitions the server assigns (KIP-848)."""

from siltlog.infra.kafka.messages.schema import Kind, Message, array, boolean, int8, int16, int32, struct, text, uuid

CONSUMER_GROUP_HEARTBEAT = Message(
    "ConsumerGroupHeartbeat",
    68,
    0,
    1,
    flexible_since=0,
    request=(
        text("group_id"),
        text("member_id"),
        int32("member_epoch"),
        text("instance_id", nullable_since=0, default=None),
        text("rack_id", nullable_since=0, default=None),
        int32("rebalance_timeout_ms", default=-1),
        array("subscribed_topic_names", of=Kind.TEXT, nullable_since=0, default=None),
        text("subscribed_topic_regex", since=1, nullable_since=0, default=None),
        text("server_assignor", nullable_since=0, default=None),
        array(
            "topic_partitions",
            fields=(
                uuid("topic_id"),
                array("partitions", of=Kind.INT32),
            ),
            nullable_since=0,
            default=None,
        ),
    ),
    response=(
        int32("throttle_time_ms"),
        int16("error_code"),
        text("error_message", nullable_since=0, default=None),
        text("member_id", nullable_since=0, default=None),
        int32("member_epoch"),
        int32("heartbeat_interval_ms"),
        struct(
            "assignment",
            fields=(
                array(
                    "topic_partitions",
                    fields=(
                        uuid("topic_id"),
                        array("partitions", of=Kind.INT32),
                    ),
                ),
            ),
            nullable_since=0,
            default=None,
        ),
    ),
)

CONSUMER_GROUP_DESCRIBE = Message(
    "ConsumerGroupDescribe",
    69,
    0,
    1,
    flexible_since=0,
    request=(
        array("group_ids", of=Kind.TEXT),
        boolean("include_authorized_operations"),
    ),
    response=(
        int32("throttle_time_ms"),
        array(
            "groups",
            fields=(
                int16("error_code"),
                text("error_message", nullable_since=0, default=None),
                text("group_id"),
                text("group_state"),
                int32("group_epoch"),
                int32("assignment_epoch"),
                text("assignor_name"),
                array(
                    "members",
                    fields=(
                        text("member_id"),
                        text("instance_id", nullable_since=0, default=None),
                        text("rack_id", nullable_since=0, default=None),
                        int32("member_epoch"),
                        text("client_id"),
                        text("client_host"),
                        array("subscribed_topic_names", of=Kind.TEXT),
                        text("subscribed_topic_regex", nullable_since=0, default=None),
                        struct(
                            "assignment",
                            fields=(
                                array(
                                    "topic_partitions",
                                    fields=(
                                        uuid("topic_id"),
                                        text("topic_name"),
                                        array("partitions", of=Kind.INT32),
                                    ),
                                ),
                            ),
                        ),
                        struct(
                            "target_assignment",
                            fields=(
                                array(
                                    "topic_partitions",
                                    fields=(
                                        uuid("topic_id"),
                                        text("topic_name"),
                                        array("partitions", of=Kind.INT32),
                                    ),
                                ),
                            ),
                        ),
                        int8("member_type", since=1, default=-1),
                    ),
                ),
                int32("authorized_operations", default=-2147483648),
            ),
        ),
    ),
)

MESSAGES = (
    CONSUMER_GROUP_HEARTBEAT,
    CONSUMER_GROUP_DESCRIBE,
)
