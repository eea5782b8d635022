"""The messages that show and change settings."""

from siltlog.infra.kafka.messages.schema import Kind, Message, array, boolean, int8, int16, int32, text

DESCRIBE_CONFIGS = Message(
    "DescribeConfigs",
    32,
    1,
    4,
    flexible_since=4,
    request=(
        array(
            "resources",
            fields=(
                int8("resource_type"),
                text("resource_name"),
                array("configuration_keys", of=Kind.TEXT, nullable_since=0),
            ),
        ),
        boolean("include_synonyms"),
        boolean("include_documentation", since=3),
    ),
    response=(
        int32("throttle_time_ms"),
        array(
            "results",
            fields=(
                int16("error_code"),
                text("error_message", nullable_since=0),
                int8("resource_type"),
                text("resource_name"),
                array(
                    "configs",
                    fields=(
                        text("name"),
                        text("value", nullable_since=0),
                        boolean("read_only"),
                        int8("config_source", default=-1),
                        boolean("is_sensitive"),
                        array(
                            "synonyms",
                            fields=(
                                text("name"),
                                text("value", nullable_since=0),
                                int8("source"),
                            ),
                        ),
                        int8("config_type", since=3),
                        text("documentation", since=3, nullable_since=0),
                    ),
                ),
            ),
        ),
    ),
)

_ALTERED = (
    int32("throttle_time_ms"),
    array(
        "responses",
        fields=(
            int16("error_code"),
            text("error_message", nullable_since=0),
            int8("resource_type"),
            text("resource_name"),
        ),
    ),
)

ALTER_CONFIGS = Message(
    "AlterConfigs",
    33,
    0,
    2,
    flexible_since=2,
    request=(
        array(
            "resources",
            fields=(
                int8("resource_type"),
                text("resource_name"),
                array(
                    "configs",
                    fields=(
                        text("name"),
                        text("value", nullable_since=0),
                    ),
                ),
            ),
        ),
        boolean("validate_only"),
    ),
    response=_ALTERED,
)

INCREMENTAL_ALTER_CONFIGS = Message(
    "IncrementalAlterConfigs",
    44,
    0,
    1,
    flexible_since=1,
    request=(
        array(
            "resources",
            fields=(
                int8("resource_type"),
                text("resource_name"),
                array(
                    "configs",
                    fields=(
                        text("name"),
                        int8("config_operation"),
                        text("value", nullable_since=0),
                    ),
                ),
            ),
        ),
        boolean("validate_only"),
    ),
    response=_ALTERED,
)

LIST_CONFIG_RESOURCES = Message(
    "ListConfigResources",
    74,
    0,
    1,
    flexible_since=0,
    request=(array("resource_types", of=Kind.INT8, since=1),),
    response=(
        int32("throttle_time_ms"),
        int16("error_code"),
        array(
            "config_resources",
            fields=(
                text("resource_name"),
                int8("resource_type", since=1, default=16),
            ),
        ),
    ),
)

MESSAGES = (
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
)
