"""The messages of a connection and of what there is at a server."""

from siltlog.infra.kafka.messages.schema import (
    Kind,
    Message,
    array,
    blob,
    boolean,
    int8,
    int16,
    int32,
    int64,
    struct,
    text,
    uuid,
)

API_VERSIONS = Message(
    "ApiVersions",
    18,
    0,
    4,
    flexible_since=3,
    request=(
        text("client_software_name", since=3),
        text("client_software_version", since=3),
    ),
    response=(
        int16("error_code"),
        array(
            "api_keys",
            fields=(
                int16("api_key"),
                int16("min_version"),
                int16("max_version"),
            ),
        ),
        int32("throttle_time_ms", since=1),
        array(
            "supported_features",
            fields=(
                text("name"),
                int16("min_version"),
                int16("max_version"),
            ),
            since=3,
            tag=0,
        ),
        int64("finalized_features_epoch", since=3, tag=1, default=-1),
        array(
            "finalized_features",
            fields=(
                text("name"),
                int16("max_version_level"),
                int16("min_version_level"),
            ),
            since=3,
            tag=2,
        ),
        boolean("zk_migration_ready", since=3, tag=3),
    ),
)

METADATA = Message(
    "Metadata",
    3,
    0,
    13,
    flexible_since=9,
    request=(
        array(
            "topics",
            fields=(
                uuid("topic_id", since=10),
                text("name", nullable_since=10),
            ),
            nullable_since=1,
        ),
        boolean("allow_auto_topic_creation", since=4, default=True),
        boolean("include_cluster_authorized_operations", since=8, until=10),
        boolean("include_topic_authorized_operations", since=8),
    ),
    response=(
        int32("throttle_time_ms", since=3),
        array(
            "brokers",
            fields=(
                int32("node_id"),
                text("host"),
                int32("port"),
                text("rack", since=1, nullable_since=0, default=None),
            ),
        ),
        text("cluster_id", since=2, nullable_since=0, default=None),
        int32("controller_id", since=1, default=-1),
        array(
            "topics",
            fields=(
                int16("error_code"),
                text("name", nullable_since=12),
                uuid("topic_id", since=10),
                boolean("is_internal", since=1),
                array(
                    "partitions",
                    fields=(
                        int16("error_code"),
                        int32("partition_index"),
                        int32("leader_id"),
                        int32("leader_epoch", since=7, default=-1),
                        array("replica_nodes", of=Kind.INT32),
                        array("isr_nodes", of=Kind.INT32),
                        array("offline_replicas", of=Kind.INT32, since=5),
                    ),
                ),
                int32("topic_authorized_operations", since=8, default=-2147483648),
            ),
        ),
        int16("error_code", since=13),
        int32("cluster_authorized_operations", since=8, until=10, default=-2147483648),
    ),
)

_CURSOR = (text("topic_name"), int32("partition_index"))
DESCRIBE_TOPIC_PARTITIONS = Message(
    "DescribeTopicPartitions",
    75,
    0,
    0,
    flexible_since=0,
    request=(
        array("topics", fields=(text("name"),)),
        int32("response_partition_limit", default=2000),
        struct("cursor", fields=_CURSOR, nullable_since=0, default=None),
    ),
    response=(
        int32("throttle_time_ms"),
        array(
            "topics",
            fields=(
                int16("error_code"),
                text("name", nullable_since=0),
                uuid("topic_id"),
                boolean("is_internal"),
                array(
                    "partitions",
                    fields=(
                        int16("error_code"),
                        int32("partition_index"),
                        int32("leader_id"),
                        int32("leader_epoch", default=-1),
                        array("replica_nodes", of=Kind.INT32),
                        array("isr_nodes", of=Kind.INT32),
                        array("eligible_leader_replicas", of=Kind.INT32, nullable_since=0, default=None),
                        array("last_known_elr", of=Kind.INT32, nullable_since=0, default=None),
                        array("offline_replicas", of=Kind.INT32),
                    ),
                ),
                int32("topic_authorized_operations", default=-2147483648),
            ),
        ),
        struct("next_cursor", fields=_CURSOR, nullable_since=0, default=None),
    ),
)

DESCRIBE_CLUSTER = Message(
    "DescribeCluster",
    60,
    0,
    2,
    flexible_since=0,
    request=(
        boolean("include_cluster_authorized_operations"),
        int8("endpoint_type", since=1, default=1),
        boolean("include_fenced_brokers", since=2),
    ),
    response=(
        int32("throttle_time_ms"),
        int16("error_code"),
        text("error_message", nullable_since=0, default=None),
        int8("endpoint_type", since=1, default=1),
        text("cluster_id"),
        int32("controller_id", default=-1),
        array(
            "brokers",
            fields=(
                int32("broker_id"),
                text("host"),
                int32("port"),
                text("rack", nullable_since=0, default=None),
                boolean("is_fenced", since=2),
            ),
        ),
        int32("cluster_authorized_operations", default=-2147483648),
    ),
)

FIND_COORDINATOR = Message(
    "FindCoordinator",
    10,
    0,
    5,
    flexible_since=3,
    request=(
        text("key", until=3),
        int8("key_type", since=1),
        array("coordinator_keys", of=Kind.TEXT, since=4),
    ),
    response=(
        int32("throttle_time_ms", since=1),
        array(
            "coordinators",
            fields=(
                text("key"),
                int32("node_id"),
                text("host"),
                int32("port"),
                int16("error_code"),
                text("error_message", nullable_since=0),
            ),
            since=4,
        ),
        int16("error_code", until=3),
        text("error_message", since=1, until=3, nullable_since=0),
        int32("node_id", until=3),
        text("host", until=3),
        int32("port", until=3),
    ),
)

SASL_HANDSHAKE = Message(
    "SaslHandshake",
    17,
    0,
    1,
    request=(text("mechanism"),),
    response=(
        int16("error_code"),
        array("mechanisms", of=Kind.TEXT),
    ),
)

SASL_AUTHENTICATE = Message(
    "SaslAuthenticate",
    36,
    0,
    2,
    flexible_since=2,
    request=(blob("auth_bytes"),),
    response=(
        int16("error_code"),
        text("error_message", nullable_since=0),
        blob("auth_bytes"),
        int64("session_lifetime_ms", since=1),
    ),
)

DESCRIBE_LOG_DIRS = Message(
    "DescribeLogDirs",
    35,
    1,
    4,
    flexible_since=2,
    request=(
        array(
            "topics",
            fields=(
                text("topic"),
                array("partitions", of=Kind.INT32),
            ),
            nullable_since=0,
        ),
    ),
    response=(
        int32("throttle_time_ms"),
        int16("error_code", since=3),
        array(
            "results",
            fields=(
                int16("error_code"),
                text("log_dir"),
                array(
                    "topics",
                    fields=(
                        text("name"),
                        array(
                            "partitions",
                            fields=(
                                int32("partition_index"),
                                int64("partition_size"),
                                int64("offset_lag"),
                                boolean("is_future_key"),
                            ),
                        ),
                    ),
                ),
                int64("total_bytes", since=4, default=-1),
                int64("usable_bytes", since=4, default=-1),
            ),
        ),
    ),
)

MESSAGES = (
    API_VERSIONS,
    METADATA,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_CLUSTER,
    FIND_COORDINATOR,
    SASL_HANDSHAKE,
    SASL_AUTHENTICATE,
    DESCRIBE_LOG_DIRS,
)
