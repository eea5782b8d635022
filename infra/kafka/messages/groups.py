"""The messages of consumer groups that assign partitions themselves, and of their offsets."""

from siltlog.infra.kafka.messages.schema import Kind, Message, array, blob, boolean, int16, int32, int64, text, uuid

OFFSET_COMMIT = Message(
    "OffsetCommit",
    8,
    2,
    10,
    flexible_since=8,
    request=(
        text("group_id"),
        int32("generation_id_or_member_epoch", default=-1),
        text("member_id"),
        text("group_instance_id", since=7, nullable_since=0, default=None),
        int64("retention_time_ms", until=4, default=-1),
        array(
            "topics",
            fields=(
                uuid("topic_id", since=10),
                text("name", until=9),
                array(
                    "partitions",
                    fields=(
                        int32("partition_index"),
                        int64("committed_offset"),
                        int32("committed_leader_epoch", since=6, default=-1),
                        text("committed_metadata", nullable_since=0),
                    ),
                ),
            ),
        ),
    ),
    response=(
        int32("throttle_time_ms", since=3),
        array(
            "topics",
            fields=(
                uuid("topic_id", since=10),
                text("name", until=9),
                array(
                    "partitions",
                    fields=(
                        int32("partition_index"),
                        int16("error_code"),
                    ),
                ),
            ),
        ),
    ),
)

OFFSET_FETCH = Message(
    "OffsetFetch",
    9,
    1,
    10,
    flexible_since=6,
    request=(
        array(
            "groups",
            fields=(
                text("group_id"),
                text("member_id", since=9, nullable_since=0, default=None),
                int32("member_epoch", since=9, default=-1),
                array(
                    "topics",
                    fields=(
                        uuid("topic_id", since=10),
                        text("name", until=9),
                        array("partition_indexes", of=Kind.INT32),
                    ),
                    nullable_since=0,
                ),
            ),
            since=8,
        ),
        text("group_id", until=7),
        array(
            "topics",
            fields=(
                text("name"),
                array("partition_indexes", of=Kind.INT32),
            ),
            until=7,
            nullable_since=2,
        ),
        boolean("require_stable", since=7),
    ),
    response=(
        int32("throttle_time_ms", since=3),
        array(
            "groups",
            fields=(
                text("group_id"),
                array(
                    "topics",
                    fields=(
                        uuid("topic_id", since=10),
                        text("name", until=9),
                        array(
                            "partitions",
                            fields=(
                                int32("partition_index"),
                                int64("committed_offset"),
                                int32("committed_leader_epoch", default=-1),
                                text("metadata", nullable_since=0),
                                int16("error_code"),
                            ),
                        ),
                    ),
                ),
                int16("error_code"),
            ),
            since=8,
        ),
        array(
            "topics",
            fields=(
                text("name"),
                array(
                    "partitions",
                    fields=(
                        int32("partition_index"),
                        int64("committed_offset"),
                        int32("committed_leader_epoch", since=5, default=-1),
                        text("metadata", nullable_since=0),
                        int16("error_code"),
                    ),
                ),
            ),
            until=7,
        ),
        int16("error_code", since=2, until=7),
    ),
)

JOIN_GROUP = Message(
    "JoinGroup",
    11,
    0,
    9,
    flexible_since=6,
    request=(
        text("group_id"),
        int32("session_timeout_ms"),
        int32("rebalance_timeout_ms", since=1, default=-1),
        text("member_id"),
        text("group_instance_id", since=5, nullable_since=0, default=None),
        text("protocol_type"),
        array(
            "protocols",
            fields=(
                text("name"),
                blob("metadata"),
            ),
        ),
        text("reason", since=8, nullable_since=0, default=None),
    ),
    response=(
        int32("throttle_time_ms", since=2),
        int16("error_code"),
        int32("generation_id", default=-1),
        text("protocol_type", since=7, nullable_since=0, default=None),
        text("protocol_name", nullable_since=7),
        text("leader"),
        boolean("skip_assignment", since=9),
        text("member_id"),
        array(
            "members",
            fields=(
                text("member_id"),
                text("group_instance_id", since=5, nullable_since=0, default=None),
                blob("metadata"),
            ),
        ),
    ),
)

HEARTBEAT = Message(
    "Heartbeat",
    12,
    0,
    4,
    flexible_since=4,
    request=(
        text("group_id"),
        int32("generation_id"),
        text("member_id"),
        text("group_instance_id", since=3, nullable_since=0, default=None),
    ),
    response=(
        int32("throttle_time_ms", since=1),
        int16("error_code"),
    ),
)

LEAVE_GROUP = Message(
    "LeaveGroup",
    13,
    0,
    5,
    flexible_since=4,
    request=(
        text("group_id"),
        array(
            "members",
            fields=(
                text("member_id"),
                text("group_instance_id", nullable_since=0, default=None),
                text("reason", since=5, nullable_since=0, default=None),
            ),
            since=3,
        ),
        text("member_id", until=2),
    ),
    response=(
        int32("throttle_time_ms", since=1),
        int16("error_code"),
        array(
            "members",
            fields=(
                text("member_id"),
                text("group_instance_id", nullable_since=0),
                int16("error_code"),
            ),
            since=3,
        ),
    ),
)

SYNC_GROUP = Message(
    "SyncGroup",
    14,
    0,
    5,
    flexible_since=4,
    request=(
        text("group_id"),
        int32("generation_id"),
        text("member_id"),
        text("group_instance_id", since=3, nullable_since=0, default=None),
        text("protocol_type", since=5, nullable_since=0, default=None),
        text("protocol_name", since=5, nullable_since=0, default=None),
        array(
            "assignments",
            fields=(
                text("member_id"),
                blob("assignment"),
            ),
        ),
    ),
    response=(
        int32("throttle_time_ms", since=1),
        int16("error_code"),
        text("protocol_type", since=5, nullable_since=0, default=None),
        text("protocol_name", since=5, nullable_since=0, default=None),
        blob("assignment"),
    ),
)

DESCRIBE_GROUPS = Message(
    "DescribeGroups",
    15,
    0,
    6,
    flexible_since=5,
    request=(
        array("groups", of=Kind.TEXT),
        boolean("include_authorized_operations", since=3),
    ),
    response=(
        int32("throttle_time_ms", since=1),
        array(
            "groups",
            fields=(
                int16("error_code"),
                text("error_message", since=6, nullable_since=0, default=None),
                text("group_id"),
                text("group_state"),
                text("protocol_type"),
                text("protocol_data"),
                array(
                    "members",
                    fields=(
                        text("member_id"),
                        text("group_instance_id", since=4, nullable_since=0, default=None),
                        text("client_id"),
                        text("client_host"),
                        blob("member_metadata"),
                        blob("member_assignment"),
                    ),
                ),
                int32("authorized_operations", since=3, default=-2147483648),
            ),
        ),
    ),
)

LIST_GROUPS = Message(
    "ListGroups",
    16,
    0,
    5,
    flexible_since=3,
    request=(
        array("states_filter", of=Kind.TEXT, since=4),
        array("types_filter", of=Kind.TEXT, since=5),
    ),
    response=(
        int32("throttle_time_ms", since=1),
        int16("error_code"),
        array(
            "groups",
            fields=(
                text("group_id"),
                text("protocol_type"),
                text("group_state", since=4),
                text("group_type", since=5),
            ),
        ),
    ),
)

DELETE_GROUPS = Message(
    "DeleteGroups",
    42,
    0,
    2,
    flexible_since=2,
    request=(array("groups_names", of=Kind.TEXT),),
    response=(
        int32("throttle_time_ms"),
        array(
            "results",
            fields=(
                text("group_id"),
                int16("error_code"),
            ),
        ),
    ),
)

OFFSET_DELETE = Message(
    "OffsetDelete",
    47,
    0,
    0,
    request=(
        text("group_id"),
        array(
            "topics",
            fields=(
                text("name"),
                array("partitions", fields=(int32("partition_index"),)),
            ),
        ),
    ),
    response=(
        int16("error_code"),
        int32("throttle_time_ms"),
        array(
            "topics",
            fields=(
                text("name"),
                array(
                    "partitions",
                    fields=(
                        int32("partition_index"),
                        int16("error_code"),
                    ),
                ),
            ),
        ),
    ),
)

MESSAGES = (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    JOIN_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    SYNC_GROUP,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    DELETE_GROUPS,
    OFFSET_DELETE,
)
