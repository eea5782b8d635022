"""The messages of Kafka's access lists."""

from siltlog.infra.kafka.messages.schema import Message, array, int8, int16, int32, text

_ACL = (
    text("principal"),
    text("host"),
    int8("operation"),
    int8("permission_type"),
)
_FILTER = (
    int8("resource_type_filter"),
    text("resource_name_filter", nullable_since=0),
    int8("pattern_type_filter", since=1, default=3),
    text("principal_filter", nullable_since=0),
    text("host_filter", nullable_since=0),
    int8("operation"),
    int8("permission_type"),
)

DESCRIBE_ACLS = Message(
    "DescribeAcls",
    29,
    1,
    3,
    flexible_since=2,
    request=_FILTER,
    response=(
        int32("throttle_time_ms"),
        int16("error_code"),
        text("error_message", nullable_since=0),
        array(
            "resources",
            fields=(
                int8("resource_type"),
                text("resource_name"),
                int8("pattern_type", since=1, default=3),
                array("acls", fields=_ACL),
            ),
        ),
    ),
)

CREATE_ACLS = Message(
    "CreateAcls",
    30,
    1,
    3,
    flexible_since=2,
    request=(
        array(
            "creations",
            fields=(
                int8("resource_type"),
                text("resource_name"),
                int8("resource_pattern_type", since=1, default=3),
                *_ACL,
            ),
        ),
    ),
    response=(
        int32("throttle_time_ms"),
        array(
            "results",
            fields=(
                int16("error_code"),
                text("error_message", nullable_since=0),
            ),
        ),
    ),
)

DELETE_ACLS = Message(
    "DeleteAcls",
    31,
    1,
    3,
    flexible_since=2,
    request=(array("filters", fields=_FILTER),),
    response=(
        int32("throttle_time_ms"),
        array(
            "filter_results",
            fields=(
                int16("error_code"),
                text("error_message", nullable_since=0),
                array(
                    "matching_acls",
                    fields=(
                        int16("error_code"),
                        text("error_message", nullable_since=0),
                        int8("resource_type"),
                        text("resource_name"),
                        int8("pattern_type", since=1, default=3),
                        *_ACL,
                    ),
                ),
            ),
        ),
    ),
)

MESSAGES = (
    DESCRIBE_ACLS,
    CREATE_ACLS,
    DELETE_ACLS,
)
